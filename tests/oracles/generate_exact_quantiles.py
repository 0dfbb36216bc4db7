"""Write exact_quantiles.json: Monte-Carlo quantiles of (1/M) Σ p_α from 10⁷ draws each.

    python tests/oracles/generate_exact_quantiles.py

Only numpy's generators are used, nothing of the package. The largest case takes about
ten minutes; the file is kept so that the tests need none of that.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

DRAWS = 10_000_000
BLOCK = 1_000_000
LEVELS = [0.5, 0.95, 0.99]
# (questions, trials, pseudo-count, how hard the benchmark is as Beta parameters)
CASES = [
    (1, 4, 1.0, (1.0, 1.0)),
    (2, 3, 1.0, (0.5, 0.5)),
    (2, 0, 0.5, (1.0, 1.0)),
    (5, 8, 1.0, (0.3, 1.0)),
    (30, 4, 1.0, (0.2, 2.0)),
    (30, 16, 1.0, (1.0, 1.0)),
    (30, 8, 0.5, (0.4, 0.4)),
    (500, 8, 1.0, (0.5, 0.5)),
]


def main() -> None:
    cases = []
    for index, (questions, trials, pseudo, (a, b)) in enumerate(CASES):
        rng = np.random.default_rng([20251104, index])
        correct = rng.binomial(trials, rng.beta(a, b, questions))
        means = np.zeros(DRAWS)
        for start in range(0, DRAWS, BLOCK):
            part = means[start : start + BLOCK]
            for c in correct:
                part += rng.beta(c + pseudo, trials - c + pseudo, BLOCK)
        means /= questions
        intervals = {
            str(level): np.quantile(means, [(1 - level) / 2, (1 + level) / 2]).tolist()
            for level in LEVELS
        }
        cases.append(
            {
                "trials": trials,
                "pseudo": pseudo,
                "correct": correct.tolist(),
                "mean": float(means.mean()),
                "sd": float(means.std()),
                "intervals": intervals,
            }
        )
        print(questions, trials, pseudo, intervals, flush=True)
    target = Path(__file__).with_name("exact_quantiles.json")
    target.write_text(json.dumps({"draws": DRAWS, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
