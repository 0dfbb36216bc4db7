"""What looking again and again does to error rates, by simulation.

Two models answer the same 30 questions, one trial of every question at a time, up to 64, and
a stopping rule analyses the posteriors after every trial. The questions stay the same: only
the answers vary.

1. Decisions. The two models are equal, so that every decision is a false one; or one of them
   is better by about .05, so that the other one winning is.
2. Widths. One model is sampled until its interval is narrow enough; does the interval still
   hold the truth in 95 of 100 runs?

    python examples/stopping_error_rates.py --runs 4000   # docs/evidence.md, some minutes
"""

from __future__ import annotations

import argparse

import numpy as np

from lm_eval_bayes import DecisionReached, Outcomes, WidthReached, hbayes_at_n

QUESTIONS, TRIALS = 30, 64
EVERY = range(1, TRIALS + 1)
FEW = (4, 8, 16, 32, 64)
SHAPES = {
    "p = .5": lambda rng, size: np.full(size, 0.5),
    "p ~ U(0, 1)": lambda rng, size: rng.random(size),
    "p ~ Beta(.3, 3)": lambda rng, size: rng.beta(0.3, 3.0, size),
}
RULES = {
    "z >= 1.645, one analysis at 64": DecisionReached(0.9, analyses=(TRIALS,)),
    "z >= 1.645, every trial": DecisionReached(0.9),
    "z >= 1.96, every trial": DecisionReached(0.95),
    "z >= 1.645, analyses at 4, 8, 16, 32, 64": DecisionReached(0.9, analyses=FEW),
    "O'Brien-Fleming 95%, every trial": DecisionReached(0.95, "obrien-fleming", EVERY),
    "Pocock 95%, every trial": DecisionReached(0.95, "pocock", EVERY),
    "O'Brien-Fleming 95%, 4, 8, 16, 32, 64": DecisionReached(0.95, "obrien-fleming", FEW),
}


def successes(rng: np.random.Generator, p: np.ndarray) -> np.ndarray:
    """Count successes after 1..N trials: (runs, M) probabilities to (runs, N, M) counts."""
    trials = rng.random((p.shape[0], TRIALS, p.shape[1])) < p[:, None, :]
    return trials.cumsum(axis=1, dtype=np.int16)


def moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd of bayes@N after 1..N trials, each (runs, N)."""
    total = np.arange(1, TRIALS + 1)[:, None] + 2.0
    m = (x + 1.0) / total
    return m.mean(axis=2), np.sqrt((m * (1.0 - m) / (total + 1.0)).sum(axis=2)) / x.shape[2]


def first_stop(reached: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whether each run (a row) stops, and after how many trials; the last where it does not."""
    return reached.any(axis=1), np.where(reached.any(axis=1), reached.argmax(axis=1) + 1, TRIALS)


def gaps(rng: np.random.Generator, runs: int, draw, shift: float) -> np.ndarray:
    """z with its sign after 1..N trials, (runs, N), in favour of the model that is better."""
    z = []
    for start in range(0, runs, 250):
        p = draw(rng, (min(250, runs - start), QUESTIONS))
        (mu_a, sd_a), (mu_b, sd_b) = (
            moments(successes(rng, np.minimum(p + add, 1.0))) for add in (shift, 0.0)
        )
        z.append((mu_a - mu_b) / np.hypot(sd_a, sd_b))
    return np.concatenate(z)


def decisions(rng: np.random.Generator, runs: int) -> None:
    print(f"## Decisions between two models ({runs} runs a cell, bayes@N, {QUESTIONS} questions)\n")
    equal = {name: gaps(rng, runs, draw, 0.0) for name, draw in SHAPES.items()}
    better = gaps(rng, runs, SHAPES["p ~ U(0, 1)"], 0.055)
    heads = [*(f"equal, {name}" for name in SHAPES), "theory"]
    print(f"| rule | {' | '.join(heads)} | better one wins | worse one wins | trials |")
    print(f"|---|{'---|' * (len(heads) + 3)}")
    for name, rule in RULES.items():
        limits = np.array([rule.threshold(n) or np.inf for n in EVERY])
        false = [first_stop(np.abs(z) >= limits)[0].mean() for z in equal.values()]
        theory = rule.false_decision_rate(EVERY)
        stopped, after = first_stop(np.abs(better) >= limits)
        right = stopped & (better[np.arange(runs), after - 1] > 0.0)
        row = [f"{rate:.1%}" for rate in (*false, theory, right.mean(), (stopped & ~right).mean())]
        print(f"| {name} | {' | '.join(row)} | {after.mean():.0f} |")


def widths(rng: np.random.Generator, runs: int) -> None:
    print(f"\n## Coverage of 95% intervals (normal, bayes@N), {runs} runs a cell\n")
    print("| questions | stop at width | median trials | held after stopping | held at that N |")
    print("|---|---|---|---|---|")
    for name, draw in SHAPES.items():
        p = draw(rng, (runs, QUESTIONS))
        parts = [moments(successes(rng, p[i : i + 250])) for i in range(0, runs, 250)]
        mu, sd = (np.concatenate(part) for part in zip(*parts, strict=True))
        held = np.abs(mu - p.mean(axis=1)[:, None]) <= 1.96 * sd
        width = float(np.median(2 * 1.96 * sd[:, 23]))
        _, after = first_stop(2 * 1.96 * sd <= width)
        stopped = held[np.arange(runs), after - 1].mean()
        middle = int(np.median(after))
        fixed = held[:, middle - 1].mean()
        print(f"| {name} | {width:.3f} | {middle} | {stopped:.1%} | {fixed:.1%} |")


def learned(rng: np.random.Generator, runs: int) -> None:
    print(f"\n## The learned prior (hbayes@N, analyses at 4, 8, 16, 32, 64), {runs} runs a cell\n")
    print("| questions | false: z >= 1.645 | false: O'Brien-Fleming | held after stopping |")
    print("|---|---|---|---|")
    naive, careful = (
        DecisionReached(0.9, analyses=FEW),
        RULES["O'Brien-Fleming 95%, 4, 8, 16, 32, 64"],
    )
    for name, draw in SHAPES.items():
        width = {"p = .5": 0.12, "p ~ U(0, 1)": 0.1, "p ~ Beta(.3, 3)": 0.06}[name]
        false, caught, held = 0, 0, 0
        for _ in range(runs):
            p = draw(rng, QUESTIONS)
            x = [successes(rng, p[None])[0] for _ in range(2)]
            analyses = [
                {
                    model: hbayes_at_n(Outcomes.from_counts(np.stack([n - c[n - 1], c[n - 1]], 1)))
                    for model, c in zip("ab", x, strict=True)
                }
                for n in FEW
            ]
            pairs = list(zip(FEW, analyses, strict=True))
            false += any(naive.evaluate(n, both).stop for n, both in pairs)
            caught += any(careful.evaluate(n, both).stop for n, both in pairs)
            alone = [(n, {"a": both["a"]}) for n, both in pairs]
            enough = [state for n, state in alone if WidthReached(width).evaluate(n, state).stop]
            interval = (enough or [alone[-1][1]])[0]["a"].interval()
            held += interval.low <= p.mean() <= interval.high
        print(f"| {name} | {false / runs:.1%} | {caught / runs:.1%} | {held / runs:.1%} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=200, help="simulated runs a cell")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    decisions(rng, options.runs)
    widths(rng, options.runs)
    learned(rng, max(1, options.runs // 20))


if __name__ == "__main__":
    main()
