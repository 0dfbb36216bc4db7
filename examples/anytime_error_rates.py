"""How often equal models get a winner when a run is analysed after every trial, without a plan.

The correction "anytime" bounds this rate by 1 − confidence for any number of interim analyses.
Here every trial from the second to the last is followed by one. Both models have the same
probabilities p on all questions ("two models"); or the run is compared with a finished run of
the same probabilities and 80 trials ("baseline"); or with its true score, as if a run without end
had measured it ("known score"). "other questions": the second model has the same mean score with
other probabilities.

The posterior of hbayes@N is computed here by a quadrature of its own, for many runs at once, and
compared with the package's for some of them first. After the 40th trial only those runs are
evaluated whose z without a prior is at least half of the threshold; the others count as undecided.

    python examples/anytime_error_rates.py                                # a taste, in seconds
    python examples/anytime_error_rates.py --runs 1000 --analyses 1000    # the table in the docs
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy import special

import lm_eval_bayes as leb

BASELINE = 80
SHAPES = {
    "p = .5": lambda rng, size: np.full(size, 0.5),
    "p = .1": lambda rng, size: np.full(size, 0.1),
    "p = .02": lambda rng, size: np.full(size, 0.02),
    "p = .98": lambda rng, size: np.full(size, 0.98),
    "p ~ U(0,1)": lambda rng, size: rng.random(size),
    "p ~ Beta(.1,.1)": lambda rng, size: rng.beta(0.1, 0.1, size),
    "80% zeros": lambda rng, size: np.where(rng.random(size) < 0.8, 0.0, rng.random(size)),
}
CELLS = [
    *((1, shape) for shape in ("p = .5", "p = .1", "p ~ U(0,1)")),
    *((3, shape) for shape in ("p = .5", "p = .02", "p ~ U(0,1)", "p ~ Beta(.1,.1)")),
    *((10, shape) for shape in ("p = .02", "p ~ U(0,1)", "80% zeros")),
    *((30, shape) for shape in ("p = .5", "p = .98")),
]
RULE = leb.DecisionReached(0.95, correction="anytime")
#: Analyses after this many trials are skipped where a rough z is below half of the threshold.
ALL_UP_TO = 40


def learned_moments(x: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd of hbayes@N for successes x (runs, M) after n trials, each (runs,)."""
    # log s is known the better, the more questions there are
    log_s = np.linspace(-11.0, 15.0, 27 if x.shape[1] < 10 else 53)
    s = np.exp(log_s)[None, :, None]
    n_questions, total = x.shape[1], x.sum(axis=1)
    pooled = (total + 0.5) / (n_questions * n + 1.0)
    # nodes of logit m: close around the pooled share of successes, far in the tails
    unit = 3.5 / np.sqrt(n_questions * n * pooled * (1.0 - pooled) + 0.25)
    reach = np.arcsinh(25.0 / unit)[:, None]
    grid = reach * np.linspace(-1.0, 1.0, 27)
    y = special.logit(pooled)[:, None] + unit[:, None] * np.sinh(grid)
    step = unit[:, None] * reach * np.cosh(grid)
    log_m, log_rest = -np.logaddexp(0.0, -y), -np.logaddexp(0.0, y)
    a, b = (np.maximum(s * np.exp(log)[:, None, :], 1e-300) for log in (log_m, log_rest))
    # m ~ Beta(.7, .7) and s/(20 + s) ~ Beta(.7, 1), as densities of logit m and log s
    log_prior = 0.7 * log_s - 1.7 * np.log(20.0 + np.exp(log_s))
    log_weight = (0.7 * (log_m + log_rest) + np.log(step))[:, None, :] + log_prior[None, :, None]
    log_weight = log_weight - n_questions * special.betaln(a, b)
    for right in x.T:
        right = right[:, None, None]
        log_weight += special.betaln(a + right, b + (n - right))
    weight = np.exp(log_weight - log_weight.max(axis=(1, 2), keepdims=True))
    weight /= weight.sum(axis=(1, 2), keepdims=True)
    mean = (a + (total / n_questions)[:, None, None]) / (s + n)
    right, wrong = total[:, None, None], (n_questions * n - total)[:, None, None]
    mixed = (x * (n - x)).sum(axis=1)[:, None, None]
    products = n_questions * a * b + a * wrong + b * right + mixed
    variance = products / ((s + n) ** 2 * (s + n + 1.0)) / n_questions**2
    mu = (weight * mean).sum(axis=(1, 2))
    second = (weight * (variance + mean**2)).sum(axis=(1, 2))
    return mu, np.sqrt(np.maximum(second - mu**2, 0.0))


def uniform_moments(x: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd of bayes@N."""
    m = (x + 1.0) / (n + 2.0)
    return m.mean(axis=1), np.sqrt((m * (1.0 - m) / (n + 3.0)).sum(axis=1)) / x.shape[1]


def deduplicated(moments, x: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Compute the moments once for runs with the same counts in any order."""
    distinct, index = np.unique(np.sort(x, axis=1), axis=0, return_inverse=True)
    parts = [moments(distinct[i : i + 100], n) for i in range(0, len(distinct), 100)]
    mu, sd = (np.concatenate(part) for part in zip(*parts, strict=True))
    return mu[index.ravel()], sd[index.ravel()]


def decision_z(mu, sd, other_mu, other_sd) -> np.ndarray:
    """The z of the rule: the smaller of the plain one and that under equal scores."""
    gap = np.abs(mu - other_mu)
    relative, other_relative = (s**2 / (m * (1.0 - m)) for m, s in ((mu, sd), (other_mu, other_sd)))
    total = relative + other_relative
    common = (mu * other_relative + other_mu * relative) / total
    return gap / np.sqrt(np.maximum(sd**2 + other_sd**2, common * (1.0 - common) * total))


def rough_z(x: np.ndarray, y: np.ndarray, n: int) -> np.ndarray:
    """A z without a prior, to find the runs that may be near the threshold."""
    p, q = ((c + 0.3) / (n + 0.6) for c in (x, y))
    gap = np.abs((x - y).mean(axis=1)) / n
    return gap * x.shape[1] / np.sqrt(((p * (1.0 - p) + q * (1.0 - q)) / n).sum(axis=1))


def error_rates(
    rng: np.random.Generator, moments, runs: int, last: int, p: np.ndarray, q: np.ndarray
) -> list[float]:
    """Shares of runs with a winner: two models, against a baseline, against the true score."""
    baseline = deduplicated(moments, rng.binomial(BASELINE, q), BASELINE)
    truth = (np.clip(p.mean(axis=1), 1e-9, 1.0 - 1e-9), np.zeros(runs))
    x, y = np.zeros_like(p, dtype=np.int64), np.zeros_like(p, dtype=np.int64)
    decided = np.zeros((3, runs), dtype=bool)
    for n in range(1, last + 1):
        x += rng.random(p.shape) < p
        y += rng.random(p.shape) < q
        limit = RULE.threshold(n)
        if limit is None:
            continue
        near = np.ones(runs, dtype=bool)
        if n > ALL_UP_TO:
            expected = n * p
            near = np.maximum(rough_z(x, y, n), rough_z(x, expected, n)) >= 0.5 * limit
            near &= ~decided.all(axis=0)
        if not near.any():
            continue
        (mu, sd), other = (deduplicated(moments, counts[near], n) for counts in (x, y))
        for row, (other_mu, other_sd) in enumerate((other, baseline, truth)):
            beside = (other_mu, other_sd) if row == 0 else (other_mu[near], other_sd[near])
            decided[row, near] |= decision_z(mu, sd, *beside) >= limit
    return [float(share) for share in decided.mean(axis=1)]


def check(rng: np.random.Generator) -> None:
    """Compare this file's posteriors and z with the package's."""
    worst, worst_z = 0.0, 0.0
    for n_questions, n in ((1, 2), (3, 4), (3, 300), (10, 8), (30, 16)):
        x = np.stack([rng.binomial(n, rng.random(n_questions)) for _ in range(4)])
        posteriors = [
            leb.hbayes_at_n(leb.Outcomes.from_counts(np.stack([n - c, c], axis=1))) for c in x
        ]
        mu, sd = learned_moments(x, n)
        for i, posterior in enumerate(posteriors):
            worst = max(worst, abs(mu[i] - posterior.mu), abs(sd[i] / posterior.sigma - 1.0))
        verdict = RULE.evaluate(n, dict(zip("ab", posteriors[:2], strict=True)))
        z = decision_z(mu[0], sd[0], mu[1], sd[1])
        worst_z = max(worst_z, abs(z - verdict.value))
    print(f"beside the package: moments within {worst:.1e}, z within {worst_z:.1e}\n")
    if max(worst, worst_z) > 0.01:
        raise SystemExit("this file's posterior is not the package's")


def table(rng: np.random.Generator, runs: int, analyses: int) -> None:
    print(f'Winners between equal models, correction="anytime", confidence .95; {runs} runs,')
    print(f"{analyses} analyses at 2 to {analyses + 1} trials per question\n")
    print("| posterior | M | questions | two models | baseline | known score |")
    print("|---|---|---|---|---|---|")
    for name, moments in (("hbayes@N", learned_moments), ("bayes@N", uniform_moments)):
        for n_questions, shape in CELLS:
            p = SHAPES[shape](rng, (runs, n_questions))
            rates = error_rates(rng, moments, runs, analyses + 1, p, p)
            cells = " | ".join(f"{rate:.1%}" for rate in rates)
            print(f"| {name} | {n_questions} | {shape} | {cells} |", flush=True)
    for n_questions in (3, 10):
        p = SHAPES["p ~ U(0,1)"](rng, (runs, n_questions))
        q = np.repeat(p.mean(axis=1, keepdims=True), n_questions, axis=1)
        rates = error_rates(rng, learned_moments, runs, analyses + 1, p, q)
        cells = " | ".join(f"{rate:.1%}" for rate in rates)
        print(f"| hbayes@N | {n_questions} | other questions, p ~ U(0,1) | {cells} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=20, help="simulated runs a cell")
    parser.add_argument("--analyses", type=int, default=20, help="interim analyses of a run")
    parser.add_argument("--seed", type=int, default=3)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    check(rng)
    table(rng, options.runs, options.analyses)


if __name__ == "__main__":
    main()
