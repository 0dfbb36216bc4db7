"""Where does a model stand among the others? Each one placed between all the rest.

    python examples/anchor_models_aime.py attempts.csv

The file has a row for every attempt and a column for every model, entries 0 and 1; the first
column names the question, "3" for its first attempt, "3.1", "3.2", … for the next. MathArena's
19 models on AIME 2025 II (15 questions, 4 attempts) come so from
github.com/sambowyer/no_clt_paper, data/matharena_aime_II.csv. Without a file, models are made up.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lm_eval_bayes import (
    AnchorMatrix,
    Outcomes,
    capability_intervals,
    filter_queries,
    ordering_violations,
    query_independence,
)


def read(path: Path) -> dict[str, np.ndarray]:
    """Return each model's outcomes, shape (questions, attempts)."""
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = list(csv.reader(file))
    questions: dict[str, list[list[int]]] = {}
    for name, *entries in rows:
        questions.setdefault(name.split(".")[0], []).append([int(entry) for entry in entries])
    table = np.array(list(questions.values()))  # (questions, attempts, models)
    return {name: table[:, :, column] for column, name in enumerate(header[1:])}


def made_up(
    n_models: int = 10, n_questions: int = 15, n_attempts: int = 4
) -> dict[str, np.ndarray]:
    """Return models of rising ability on questions of rising difficulty."""
    rng = np.random.default_rng(2025)
    difficulty = np.sort(rng.normal(0.0, 2.0, n_questions))
    models = {}
    for number, ability in enumerate(np.linspace(-2.5, 2.5, n_models), start=1):
        p = 1.0 / (1.0 + np.exp(difficulty - ability))
        models[f"model {number}"] = (rng.random((n_attempts, n_questions)) < p).astype(int).T
    return models


def show_placement(
    R: dict[str, np.ndarray], anchor_names: Sequence[str], names: Sequence[str]
) -> None:
    """Print where each model stands among the anchors, itself left out."""
    width = max(len(name) for name in names)
    print("  score  the places that its own mean allows")
    print("  query  the paper's likelihood, another position between two anchors on each question")
    print("  shared one position for all questions, with its 95%")
    print(f"\n{'model':{width}}  solved  score   query        shared")
    n_inside = {"query": 0, "shared": 0}
    for name in reversed(names):
        others = {other: Outcomes.from_matrix(R[other]) for other in anchor_names if other != name}
        anchors = AnchorMatrix.from_outcomes(others)
        score = float(R[name].mean())
        low = int((anchors.ability < score - 1e-9).sum())
        high = int((anchors.ability <= score + 1e-9).sum())
        by_score = f"{low}" if low == high else f"{low}–{high}"
        cells = []
        for between in ("query", "shared"):
            outcomes = Outcomes.from_matrix(R[name])
            posterior = capability_intervals(anchors, outcomes, between=between)
            n_inside[between] += low <= posterior.peak <= high
            cells.append(f"{posterior.peak:2d} at {posterior.probability.max():4.0%}")
        inside = "{}–{}".format(*posterior.interval(0.95))
        print(f"{name:{width}}  {score:6.3f}  {by_score:6}  {'   '.join(cells)}   {inside}")
    both = f"{n_inside['query']} (query) and {n_inside['shared']} (shared)"
    print(f"The peak is where the score is for {both} of {len(names)}.")


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if path is not None and path.is_file():
        R = read(path)
        print(f"{len(R)} models from {path.name}", end=": ")
    else:
        R = made_up()
        print(f"no file{'' if path is None else f' {path}'}, so {len(R)} made-up models", end=": ")
    first = next(iter(R.values()))
    print(f"{first.shape[0]} questions, {first.shape[1]} attempts at each\n")
    models = {name: Outcomes.from_matrix(matrix) for name, matrix in R.items()}

    everyone = AnchorMatrix.from_outcomes(models)
    order = ordering_violations(everyone)
    print(f"A weaker model does better in {order.share:.1%} of {order.n_comparisons} comparisons.")
    for tie in order.tied:
        print(f"Equal in all, so in no order: {' and '.join(tie)}.")
    selected = filter_queries(everyone).kept
    print(
        f"{selected.size} questions are solved by 1–50% of the models: {(selected + 1).tolist()}."
    )
    check = query_independence(np.stack(list(R.values())))
    print(
        f"Totals of attempts vary {check.variance_ratio:.2f} times as much as independent "
        f"questions would (p = {check.p_value:.3f}).\n"
    )

    print("Each model placed among all the others; position 0 is below them all.")
    show_placement(R, everyone.names, everyone.names)
    few = everyone.names[2::4]
    print(f"\nEach other model among {len(few)} well-separated anchors, {', '.join(few)}.")
    show_placement(R, few, [name for name in everyone.names if name not in few])

    name = everyone.names[len(models) // 2]
    anchors = AnchorMatrix.from_outcomes(
        {other: models[other] for other in models if other != name}
    )
    rng = np.random.default_rng(0)
    peak = capability_intervals(anchors, models[name]).peak
    print(f"\nHow sure fewer questions would be of {name} (random choices of them):")
    for size in (3, 6, 9, 12, 15)[: first.shape[0] // 3]:
        posteriors = []
        for _ in range(200):
            rows = np.sort(rng.permutation(first.shape[0])[:size])
            posteriors.append(capability_intervals(anchors.take(rows), models[name].take(rows)))
        mean = np.mean([posterior.probability.max() for posterior in posteriors])
        agrees = np.mean([posterior.peak == peak for posterior in posteriors])
        print(
            f"{size:3d} questions: peak {mean:.2f} on average, in the final position {agrees:4.0%}"
        )


if __name__ == "__main__":
    main()
