"""How often equal models get a winner under the correction "anytime", with analyses without a plan.

Both models have the same probabilities on all questions ("two models"), or a run is compared with a
finished one of 80 trials and the same probabilities ("finished run"); analyses follow 2, 4, 8, …
trials per question.

    python examples/anytime_error_rates.py [--runs 5] [--most 64]
"""

from __future__ import annotations

import argparse

import numpy as np

from lm_eval_bayes import DecisionReached, Outcomes, hbayes_at_n

RULE = DecisionReached(0.95, correction="anytime")
SHAPES = {
    "p = .5": lambda rng, m: np.full(m, 0.5),
    "p = .02": lambda rng, m: np.full(m, 0.02),
    "p ~ U(0,1)": lambda rng, m: rng.random(m),
    "p ~ Beta(.1,.1)": lambda rng, m: rng.beta(0.1, 0.1, m),
    "80% zeros": lambda rng, m: np.where(rng.random(m) < 0.8, 0.0, rng.random(m)),
}
CELLS = (
    *((3, shape) for shape in ("p = .02", "p ~ Beta(.1,.1)")),
    *((10, shape) for shape in ("p = .02", "80% zeros")),
    *((30, shape) for shape in ("p = .5", "p ~ U(0,1)")),
)
FINISHED = 80


def posterior(right, n):
    return hbayes_at_n(Outcomes.from_counts(np.stack([n - right, right], axis=1)))


def decided(p, looks, rng):
    """Return whether one run finds a winner against its equal, and against a finished run."""
    first, second = (rng.random((looks[-1], p.size)) < p for _ in range(2))
    finished = posterior(rng.binomial(FINISHED, p), FINISHED)
    winner = np.zeros(2, dtype=bool)
    for n in looks:
        a, b = (posterior(trials[:n].sum(axis=0), n) for trials in (first, second))
        z = [abs(a.mu - c.mu) / np.hypot(a.sigma, c.sigma) for c in (b, finished)]
        winner |= np.array(z) >= RULE.threshold(n)
    return winner


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--most", type=int, default=64, help="trials per question at the end")
    args = parser.parse_args()
    looks = [2**i for i in range(1, args.most.bit_length())]
    print(f"Winners between equal models, {args.runs} runs, analyses after {looks} trials")
    for m, shape in CELLS:
        rng = np.random.default_rng(m)
        runs = [decided(SHAPES[shape](rng, m), looks, rng) for _ in range(args.runs)]
        two, one = 100 * np.mean(runs, axis=0)
        print(
            f"{m:3d} questions, {shape:15}  two models {two:4.1f}%  finished run {one:4.1f}%",
            flush=True,
        )


if __name__ == "__main__":
    main()
