"""Where does a model stand among others? The anchors of [Xiao 2025], on real outcomes.

The 19 models of matharena_aime_2025_II.csv (15 questions of AIME 2025 II, 4 attempts at each),
every one placed between the other 18. "score": the positions that its own mean allows. "query" is
the paper's likelihood, which averages over the positions between two anchors on each question
anew; "shared" has one position for all questions, and its 95% interval.

    python examples/anchor_models_aime.py [OTHER.csv]
    lm-eval-bayes study anchors examples/matharena_aime_2025_II.csv
"""

import sys
from pathlib import Path

import numpy as np

import lm_eval_bayes as leb

AIME = Path(__file__).with_name("matharena_aime_2025_II.csv")


def place(name, models):
    """Return a row of the table, and for each likelihood whether its peak fits the score."""
    anchors = leb.AnchorMatrix.from_outcomes(
        {other: outcomes for other, outcomes in models.items() if other != name}
    )
    score = leb.avg_at_n(models[name]).value
    low, high = np.searchsorted(anchors.ability, [score - 1e-9, score + 1e-9])
    texts, fits = [f"{name:29} {score:.3f}", f"{low:2d}–{high:<2d}"], []
    for between in ("query", "shared"):
        posterior = leb.capability_intervals(anchors, models[name], between=between)
        texts.append(f"{posterior.peak:2d} ({posterior.probability.max():.2f})")
        fits.append(low <= posterior.peak <= high)
    return [*texts, "{:2d}–{}".format(*posterior.interval(0.95))], fits


def main():
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else AIME
    models = {run.model: run.outcomes for run in leb.read_runs([path]).runs}
    everyone = leb.AnchorMatrix.from_outcomes(models)
    order = leb.ordering_violations(everyone)
    print(f"A weaker model is better in {order.share:.1%} of {order.n_comparisons} comparisons.")
    selected = leb.filter_queries(everyone).kept + 1
    print(f"{selected.size} questions are solved by 1 to 50% of the models: {selected.tolist()}.\n")
    print(f"{'model':29} score  allowed  query      shared     95%")
    placed = [place(name, models) for name in reversed(everyone.names)]
    for texts, _ in placed:
        print("   ".join(texts))
    query, shared = np.sum([fits for _, fits in placed], axis=0)
    print(f"\nThe peak is where the score is for {query} (query) and {shared} (shared) models.")


if __name__ == "__main__":
    main()
