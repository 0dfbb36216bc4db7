"""The sweep over the number of queries of [Xiao 2025], arXiv 2504.21303, beside its statements.

    python reproduce_xiao.py

The paper places a model among anchors of the GPT series, whose accuracies lie evenly from 14% to
82%, and reports how probable the most probable interval is after M queries. Its models and queries
are not published. Here five simulated anchors have these accuracies, queries differ in difficulty,
and test models lie anywhere between the weakest anchor and the strongest. Beside the probability
of the peak stands what the paper does not ask: how often the model is in the interval named, and
in the 95% set. "query" is the paper's likelihood (eq. 4), "shared" the package's default.
`anchor_models_aime.py` has real outcomes.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy import special

from lm_eval_bayes import (
    AnchorMatrix,
    Outcomes,
    capability_intervals,
)

#: Accuracies of the weakest and the strongest anchor, and how many there are here.
ACCURACIES, N_ANCHORS = (0.14, 0.82), 5
#: M: what the paper says of the probability of the peak.
SWEEP = {50: "sharp", 30: "", 20: "at least .65", 10: "below .50", 5: "below .50"}
#: Sd of the logits of the queries' difficulties, and of a model's own shift on a query.
DIFFICULTY, OWN = 1.0, 0.5
LIKELIHOODS = ("query", "shared")


def chances(accuracies: np.ndarray, difficulty: np.ndarray) -> np.ndarray:
    """Return success probabilities (models, queries) whose mean over queries is as wanted."""
    low, high = np.full(len(accuracies), -15.0), np.full(len(accuracies), 15.0)
    for _ in range(60):
        ability = (low + high) / 2
        below = special.expit(ability[:, None] - difficulty).mean(axis=1) < accuracies
        low, high = np.where(below, ability, low), np.where(below, high, ability)
    return special.expit(ability[:, None] - difficulty)


def sweep(replicates: int, trials: int, own: float, seed: int) -> dict[tuple[int, str], np.ndarray]:
    """Return by M and likelihood: mean probability of the peak, share right, coverage, width.

    The anchors' probabilities are known, so that what is seen is the noise of the test model alone.
    """
    rng = np.random.default_rng(seed)
    found: dict[tuple[int, str], list] = {}
    for _ in range(replicates):
        accuracies = np.append(np.linspace(*ACCURACIES, N_ANCHORS), rng.uniform(*ACCURACIES))
        place = int(np.searchsorted(accuracies[:-1], accuracies[-1]))
        for m in SWEEP:
            *anchors, p = chances(accuracies, DIFFICULTY * rng.standard_normal(m))
            p = special.expit(special.logit(p) + own * rng.standard_normal(m))
            right = rng.binomial(trials, p)
            outcomes = Outcomes.from_counts(np.stack([trials - right, right], axis=1))
            matrix = AnchorMatrix.from_probabilities(anchors)
            for between in LIKELIHOODS:
                posterior = capability_intervals(matrix, outcomes, between=between)
                low, high = posterior.interval(0.95)
                row = (posterior.probability.max(), posterior.peak == place)
                row += (low <= place <= high, high - low + 1)
                found.setdefault((m, between), []).append(row)
    return {key: np.mean(rows, axis=0) for key, rows in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=300, help="simulated models")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for trials, own in ((1, 0.0), (1, OWN), (5, OWN)):
        print(
            f"{N_ANCHORS} anchors, {options.replicates} simulated models, trials a query: {trials}"
        )
        print(f"a model's own shift on a query has sd {own} logit")
        print("  M  likelihood  peak   paper         peak right  in the 95% set  its intervals")
        for (m, between), row in sweep(options.replicates, trials, own, options.seed).items():
            paper = SWEEP[m] if (trials, between) == (1, "query") else ""
            print(f"{m:3}  {between:10} {row[0]:5.2f}   {paper:13}", end="")
            print("{:11.1%}{:16.1%}{:15.1f}".format(*row[1:]))
        print()


if __name__ == "__main__":
    main()
