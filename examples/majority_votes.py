"""Coverage of the 95% intervals of maj@k, simulated.

Questions are drawn, each with the probabilities of its answers, N trials of each question, and
then the intervals of `maj_at_k_posterior` for the expected credit of a vote of k trials: over these
questions (the truth is computed for those drawn) and over their population. Printed: how often the
interval contained the truth, how often the truth was below and above it, and its mean width. The
bias is the mean of the posterior mean less the truth, in units of the posterior sd.

    python examples/majority_votes.py                # a short version, a few seconds
    python examples/majority_votes.py --runs 300     # ten minutes

A question's answers are the right one with probability p, others with probability 1 − p times
their shares, abstentions with a share of their own; what is left are answers that no two trials
give.
"""

import argparse
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import stats

import lm_eval_bayes as leb

LEVEL = 0.95


class Question(NamedTuple):
    """The probability of a right answer, and the shares of a wrong trial's answers."""

    p: float
    shares: np.ndarray
    abstain: float = 0.0

    @property
    def rare(self):
        """The share of the answers that no two trials give."""
        return max(0.0, 1.0 - self.abstain - float(self.shares.sum()))


def dominant(rng):
    return Question(rng.beta(2, 2), np.array([0.8]))


def near_tie(rng):
    p = rng.uniform(0.35, 0.5)
    return Question(p, np.array([0.9]))


def all_distinct(rng):
    return Question(rng.beta(1, 2), np.array([]))


def easy(rng):
    return Question(0.98, np.array([0.5, 0.3]))


def hard(rng):
    return Question(0.02, np.array([0.4, 0.2, 0.1]))


def contest(rng):
    """Many certain questions, and wrong answers that agree or scatter, question by question."""
    concentration = np.exp(rng.normal(0.5, 1.5))
    sticks = rng.beta(1.0, concentration, 12)
    shares = sticks * np.concatenate([[1.0], np.cumprod(1.0 - sticks)[:-1]])
    return Question(rng.beta(0.4, 0.4), shares)


def two_kinds(rng):
    """Half with one wrong answer, half with none that occurs twice."""
    return Question(rng.beta(1, 1), np.array([1.0]) if rng.random() < 0.5 else np.array([]))


def abstaining(rng):
    return Question(rng.beta(1, 1.5), np.array([0.3, 0.2]), 0.3)


def traps(rng):
    """The harder the question, the more its wrong trials agree."""
    p = rng.beta(0.8, 0.8)
    return Question(p, np.array([1.0 - p]))


SHAPES: dict[str, Callable] = {
    "one dominant wrong answer, p ~ Beta(2,2)": dominant,
    "close to a tie, p ~ U(.35,.5)": near_tie,
    "wrong answers distinct, p ~ Beta(1,2)": all_distinct,
    "easy, p = .98": easy,
    "hard, p = .02": hard,
    "contest, p ~ Beta(.4,.4)": contest,
    "two kinds of questions, p ~ U(0,1)": two_kinds,
    "30% of wrong trials abstain": abstaining,
    "harder questions, more agreement": traps,
}


def credit(question, k):
    """Return the expected credit of a vote of k trials, by generating functions."""
    right = stats.binom.pmf(np.arange(k + 1), k, question.p)
    total = 0.0
    for r in range(1, k + 1):
        n = k - r
        # row t: the votes of the others, where t of them tie with the right answer
        series = np.zeros((n // r + 1, n + 1))
        series[0] = exponential(question.abstain, n)
        for share in question.shares:
            series = multiplied(series, exponential(share, n), r)
        rare = exponential(question.rare, n)
        if r > 1:
            series = multiplied(series, rare, n + 1)
        else:
            # at r = 1 every rare answer ties
            series = sum(
                np.pad(rare[j] * series[: n + 1 - j, : n + 1 - j], ((j, 0), (j, 0)))
                for j in range(n + 1)
            )
        shared = series[:, n] @ (1.0 / np.arange(1, n // r + 2))
        total += right[r] * math.factorial(n) * float(shared)
    return total


def exponential(rate, n):
    """Return the coefficients of exp(rate x) up to x^n."""
    return np.cumprod(np.concatenate([[1.0], rate / np.arange(1, n + 1)]))


def multiplied(series, factor, r):
    """Multiply by the series of an answer of up to r votes, which ties if it has r."""
    product = np.zeros_like(series)
    width = series.shape[1]
    for j in range(min(r, width - 1) + 1):
        added = factor[j] * series[:, : width - j]
        if j == r:
            product[1:, j:] += added[:-1]
        else:
            product[:, j:] += added
    return product


def draw_trials(questions, n_trials, rng):
    """Return the answers and marks of the trials."""
    answers, correct = [], []
    for index, question in enumerate(questions):
        shares = np.concatenate([[question.abstain], question.shares, [question.rare]])
        right = rng.random(n_trials) < question.p
        wrong = rng.choice(shares.size, size=n_trials, p=shares / shares.sum())
        names = [None if i == 0 else f"wrong {i}" for i in wrong]
        rare = wrong == shares.size - 1
        names = [f"{index}, {t}" if rare[t] else name for t, name in enumerate(names)]
        answers.append(["right" if right[t] else name for t, name in enumerate(names)])
        correct.append(right.tolist())
    return answers, correct


class Cell:
    """How often intervals hold the truth."""

    def __init__(self):
        self.position, self.width, self.bias = [], [], []

    def add(self, posterior, truth):
        interval = posterior.interval(LEVEL)
        # truths at a bound are computed with rounding errors
        below, above = truth < interval.low - 1e-9, truth > interval.high + 1e-9
        self.position.append((not (below or above), below, above))
        self.width.append(interval.high - interval.low)
        self.bias.append((posterior.mu - truth) / posterior.sigma)

    def __str__(self):
        held, below, above = 100 * np.mean(self.position, axis=0)
        return (
            f"{held:.1f} ({below:.1f} below, {above:.1f} above), "
            f"width {np.mean(self.width):.3f}, bias {np.mean(self.bias):+.2f}"
        )


def coverage(shape, n_questions, n_trials, ks, runs, seed):
    """Return the cells of both scopes for each k."""
    rng = np.random.default_rng([seed, list(SHAPES).index(shape), n_questions, n_trials])
    draw = SHAPES[shape]
    many = [draw(rng) for _ in range(min(4000, 100 * runs))]
    population = {k: np.mean([credit(question, k) for question in many]) for k in ks}
    cells = {(scope, k): Cell() for k in ks for scope in ("benchmark", "population")}
    for _ in range(runs):
        questions = [draw(rng) for _ in range(n_questions)]
        answers, correct = draw_trials(questions, n_trials, rng)
        for k in ks:
            posterior = leb.maj_at_k_posterior(answers, correct, k, "population")
            truth = np.mean([credit(question, k) for question in questions])
            cells["benchmark", k].add(posterior.benchmark, truth)
            cells["population", k].add(posterior, population[k])
    return cells


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--questions", type=int, default=30)
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--k", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--seed", type=int, default=20261123)
    arguments = parser.parse_args()
    runs = arguments.runs
    error = 100 * np.sqrt(LEVEL * (1 - LEVEL) / runs)
    print(
        f"{runs} runs a row, {arguments.questions} questions, N = {arguments.trials}: "
        f"percent of 95% intervals, standard error {error:.1f} points at 95%"
    )
    for shape in SHAPES:
        cells = coverage(
            shape, arguments.questions, arguments.trials, arguments.k, runs, arguments.seed
        )
        for (scope, k), cell in cells.items():
            print(f"{shape} | {scope}, k = {k} | {cell}", flush=True)


if __name__ == "__main__":
    main()
