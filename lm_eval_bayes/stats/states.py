"""What posterior states of the kinds of questions say of a score: its moments and its draws.

Given a state the questions are independent, and each is of kind k with a known probability r_k,
its θ being Dirichlet(s_k m_k + counts) then. So the mean and the variance of a score over these
questions are exact in every state; a Beta distribution with these two moments represents it there.
The score over the population of questions is a number in every state, Σ_k w_k E_k.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import special

from lm_eval_bayes.stats.arrays import FloatArray, IntArray, protect
from lm_eval_bayes.stats.distributions import (
    MANY_QUESTIONS,
    CategoryDraws,
    Distribution,
    QuestionMeans,
    draw_dirichlet,
)
from lm_eval_bayes.stats.mixture import KINDS, Mixture

#: The degree of a table of Beta-binomial probabilities up to which none overflows.
MOST_DEGREE = 1000
#: The variance of the mean of all chains over that of independent ones, by simulation.
_SHARED_ANCESTORS = 2.25
#: Numbers in such tables, in all states, and the fewest and the most states. Two states of a chain
#: tell nearly as much of a mean as all of them.
_TABLE, _FEWEST, _MOST = 1_000_000, 600, 1_300


class RawMoments(NamedTuple):
    """First and second moment of a quantity of one question, arrays of one shape."""

    first: FloatArray
    second: FloatArray


@dataclass(frozen=True, eq=False)
class StateMoments:
    """Moments of J quantities in P states.

    Attributes
    ----------
    mean, variance : array, shape (J, T, P)
        Of the mean over the questions of each task.
    population : array, shape (J, T, P)
        The mean over the population of questions of each task.
    question_mean, question_sd : array, shape (J, D)
        Of a question of each row, over all states.
    """

    mean: FloatArray
    variance: FloatArray
    population: FloatArray
    question_mean: FloatArray
    question_sd: FloatArray

    def __post_init__(self) -> None:
        protect(self)


#: The moments of J quantities, each (J, E), given Dirichlet parameters, (C+1, E).
MomentsOf = Callable[[FloatArray], RawMoments]


def state_moments(mixture: Mixture, moments_of: MomentsOf, per_row: int = 32) -> StateMoments:
    """Return the moments of quantities of single questions in every state.

    Parameters
    ----------
    mixture : Mixture
        The states.
    moments_of : callable
        The moments of the quantities given the parameters of Dirichlet distributions.
    per_row : int
        Numbers that it needs at a time for each of those.
    """
    alpha = mixture.share * mixture.strength[:, None]
    of_kind = np.stack([moments_of(each).first for each in alpha])
    population = np.einsum("kjp,ktp->jtp", of_kind, mixture.weight)
    # rows of several tasks may have the same counts
    distinct, where = np.unique(mixture.counts, axis=0, return_inverse=True)
    where, n_quantities = where.reshape(-1), of_kind.shape[1]
    of_task = np.eye(mixture.weight.shape[1])[:, mixture.task] * mixture.times
    mean, variance = np.empty((2, *population.shape))
    question = np.zeros((2, n_quantities, where.size))
    for block, member in mixture.memberships(per_row):
        first = second = np.zeros(())
        for kind in range(KINDS):
            each = alpha[kind][:, None, block] + distinct.T[..., None]
            moments = moments_of(each.reshape(len(each), -1))
            shape = (n_quantities, len(distinct), member.shape[2])
            first = first + member[kind] * moments.first.reshape(shape).take(where, axis=1)
            second = second + member[kind] * moments.second.reshape(shape).take(where, axis=1)
        mean[..., block] = of_task @ first
        variance[..., block] = of_task @ np.maximum(second - first**2, 0.0)
        question += first.sum(axis=2), second.sum(axis=2)
    sizes = of_task.sum(axis=1)[:, None]
    question_mean, square = question / mixture.n_states
    return StateMoments(
        mean / sizes,
        variance / sizes**2,
        population,
        question_mean,
        np.sqrt(np.maximum(square - question_mean**2, 0.0)),
    )


def score_moments(weights: FloatArray) -> MomentsOf:
    """Return the moments of Σ_k weights_k θ_k, θ ~ Dirichlet(α)."""

    def moments_of(alpha: FloatArray) -> RawMoments:
        total = alpha.sum(axis=0)
        mean, second = weights @ alpha / total, weights**2 @ alpha / total
        second += total * mean**2
        second /= total + 1.0
        return RawMoments(mean[None], second[None])

    return moments_of


def vote_moments(credits: Sequence[FloatArray]) -> MomentsOf:
    """Return the moments of g(p) = E credit[I], I ~ Binomial(k, p), for p ~ Beta(α_1, α_0).

    All of Pass@k, Pass^k, G-Pass@k and mG-Pass@k are such quantities. g and g² are polynomials in
    Bernstein form; raised to one degree, the means of all are sums of the same Beta-binomial
    probabilities.

    Parameters
    ----------
    credits : sequence of array, shape (k+1,)
        The credit of I = 0 .. k right answers, 2k at most `MOST_DEGREE`; k may differ.
    """
    degree = 2 * max(credit.size - 1 for credit in credits)
    first = np.stack([_raised(credit, degree) for credit in credits])
    second = np.stack([_raised(_squared(credit), degree) for credit in credits])
    coefficients = np.concatenate([first, second])

    def moments_of(alpha: FloatArray) -> RawMoments:
        means = coefficients @ beta_binomial(alpha[1], alpha[0], degree)
        return RawMoments(means[: len(first)], means[len(first) :])

    return moments_of


def beta_binomial(a: FloatArray, b: FloatArray, n: int) -> FloatArray:
    """Return the probabilities of 0 .. n right answers of n for p ~ Beta(a, b), (n+1, E).

    Examples
    --------
    >>> beta_binomial(np.array([1.0]), np.array([1.0]), 3)[:, 0].tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    # from the end where the probabilities are larger, so that none underflows
    turned, few, many = a > b, np.minimum(a, b), np.maximum(a, b)
    ratio = np.ones((n + 1, a.size))
    for i in range(n):
        step = (n - i) / (i + 1.0) * (few + i) / (many + (n - i - 1.0))
        np.multiply(ratio[i], step, out=ratio[i + 1])
    ratio /= ratio.sum(axis=0)
    ratio[:, turned] = ratio[::-1, turned]
    return ratio


def log_choose(n: FloatArray | int, i: FloatArray | int) -> FloatArray:
    """Return log C(n, i)."""
    return np.asarray(-special.betaln(1.0 + n - i, 1.0 + i) - np.log1p(n))


def _raised(credit: FloatArray, degree: int) -> FloatArray:
    """Return the credit of `degree` trials: that of a random k of them."""
    k = credit.size - 1
    i, j = np.arange(k + 1.0)[:, None], np.arange(degree + 1.0)
    possible = (i <= j) & (k - i <= degree - j)
    ways = log_choose(j, np.where(possible, i, 0.0))
    ways += log_choose(degree - j, np.where(possible, k - i, 0.0)) - log_choose(degree, k)
    return np.asarray(credit @ np.where(possible, np.exp(ways), 0.0))


def _squared(credit: FloatArray) -> FloatArray:
    """Return the credit of 2k trials: the product of that of a random half and of the rest."""
    k = credit.size - 1
    i, j = np.arange(k + 1.0), np.arange(2.0 * k + 1.0)
    middle = np.exp(log_choose(k, i) - log_choose(k, k // 2))
    scale = np.exp(log_choose(2 * k, j) - 2.0 * log_choose(k, k // 2))
    return np.asarray(np.convolve(credit * middle, credit * middle) / scale)


def extreme_moments(k: int, *, right: bool) -> MomentsOf:
    """Return the moments of p^k (`right`) or of 1 − (1 − p)^k, for p ~ Beta(α_1, α_0) and any k."""

    def moments_of(alpha: FloatArray) -> RawMoments:
        a, b = (alpha[1], alpha[0]) if right else (alpha[0], alpha[1])
        whole = special.betaln(a, b)
        power, square = (np.exp(special.betaln(a + n, b) - whole) for n in (k, 2 * k))
        if not right:
            power, square = 1.0 - power, 1.0 - 2.0 * power + square
        return RawMoments(power[None], square[None])

    return moments_of


def states_for(mixture: Mixture, degree: int) -> Mixture:
    """Return as many states as tables of this degree allow in little time."""
    n_states = _TABLE // (len(mixture.counts) * (degree + 1))
    return mixture.thinned(int(np.clip(n_states, _FEWEST, _MOST)))


@dataclass(frozen=True, eq=False)
class StateDistribution(Distribution):
    """The distribution of a score by its mean and variance in every state.

    Parameters
    ----------
    state_mean, state_variance : array, shape (P,)
        On the scale of the score.
    chain : array, shape (P,)
        The chain of each state, for the Monte-Carlo error.
    bounds : (float, float)
        The range of the score.
    seed : int
        Of the draws.
    """

    state_mean: FloatArray
    state_variance: FloatArray
    chain: IntArray
    bounds: tuple[float, float]
    seed: int

    def __post_init__(self) -> None:
        protect(self)
        if not self.state_variance.any():
            object.__setattr__(self, "n_draws", self.state_mean.size)

    @property
    def mean(self) -> float:  # type: ignore[override]
        """Mean over all states; where they agree, exactly theirs."""
        first = self.state_mean[0]
        return float(first + (self.state_mean - first).mean())

    @property
    def sd(self) -> float:  # type: ignore[override]
        """Standard deviation: the variance within states and that between them."""
        between = (self.state_mean - self.state_mean[0]).var()
        return float(np.sqrt(self.state_variance.mean() + between))

    @property
    def ess(self) -> float:
        """The number of independent draws whose mean is as certain as that of the draws."""
        _, chain, sizes = np.unique(self.chain, return_inverse=True, return_counts=True)
        of_chain = np.bincount(chain, self.state_mean - self.state_mean[0]) / sizes
        between = _SHARED_ANCESTORS * of_chain.var(ddof=1) / sizes.size
        variance = between + self.state_variance.mean() / self.chain.size
        return float(self.sd**2 / variance if variance > 0.0 else self.chain.size)

    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the score, from every state equally often as far as that goes."""
        state = _spread(n_draws, self.state_mean.size)
        return draw_beta_moments(
            self.state_mean[state], self.state_variance[state], self.bounds, rng
        )


def _spread(n_draws: int, n_states: int) -> IntArray:
    """Return a state for every draw, evenly spread over the chains, (n_draws,)."""
    return np.arange(n_draws) * n_states // n_draws


def draw_beta_moments(
    mean: FloatArray, variance: FloatArray, bounds: tuple[float, float], rng: np.random.Generator
) -> FloatArray:
    """Draw from Beta distributions of given moments on `bounds`; without variance, the mean."""
    low, high = bounds
    span = high - low if high > low else 1.0
    unit = np.clip((mean - low) / span, 1e-12, 1.0 - 1e-12)
    certain = variance <= 1e-12 * span**2  # rounding makes up more of a smaller one
    total = unit * (1.0 - unit) * span**2 / np.where(certain, 1.0, variance) - 1.0
    total = np.maximum(total, 1e-3)
    drawn = low + span * rng.beta(
        np.maximum(total * unit, 1e-6), np.maximum(total * (1.0 - unit), 1e-6)
    )
    return np.asarray(np.where(certain, mean, drawn))


@dataclass(frozen=True, eq=False)
class QuestionStates(StateDistribution):
    """The distribution of the mean score of these questions, with that of each.

    Parameters
    ----------
    mixture : Mixture
        Of one task; some of its states are kept.
    weights : array, shape (C+1,)
        The score of each category of the mixture.
    """

    mixture: Mixture
    weights: FloatArray

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "mixture", self.mixture.thinned(_MOST))

    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the score; of few questions the mean of draws of each, as a sum is no Beta then."""
        if self.mixture.where.size >= MANY_QUESTIONS:
            return super().draw(n_draws, rng)
        mixture = self.mixture.at(_spread(n_draws, self.mixture.n_states))
        # the order of the questions does not matter
        theta = self._draw_theta(replace(mixture, where=np.sort(mixture.where)), rng)
        return np.asarray((theta @ self.weights).mean(axis=1))

    def draw_categories(self, n_draws: int, rng: np.random.Generator) -> CategoryDraws:
        """Draw all questions' category probabilities jointly."""
        mixture = self.mixture.at(rng.permutation(_spread(n_draws, self.mixture.n_states)))
        return CategoryDraws(self._draw_theta(mixture, rng), self.weights)

    @staticmethod
    def _draw_theta(mixture: Mixture, rng: np.random.Generator) -> FloatArray:
        """Draw θ of all questions from every state, (P, M, C+1)."""
        alpha = (mixture.share * mixture.strength[:, None]).swapaxes(1, 2)
        counts = mixture.counts[mixture.where]
        theta = np.empty((mixture.n_states, *counts.shape))
        for block, member in mixture.memberships(counts.size):
            second = member[1].T[:, mixture.where]
            is_second = rng.random(second.shape) < second
            of_kinds = alpha[:, block, None]
            of_question = np.where(is_second[..., None], of_kinds[1], of_kinds[0])
            theta[block] = draw_dirichlet(counts + of_question, rng)
        return theta

    def question_means(self, mu: FloatArray, sigma: FloatArray) -> QuestionMeans:
        """Return every question's mean score over its trials, and its sampling variance."""
        square = state_moments(self.mixture.thinned(_FEWEST), score_moments(self.weights**2))
        mean_square = square.question_mean[0, self.mixture.where]
        counts = self.mixture.counts[self.mixture.where]
        trials = counts.sum(axis=1)
        tried = trials > 0.0
        variance = np.maximum(mean_square - mu**2 - sigma**2, 0.0)
        average = np.divide(counts @ self.weights, trials, out=mu.copy(), where=tried)
        noise = np.divide(variance, trials, out=sigma**2, where=tried)
        return QuestionMeans(average, noise)


@dataclass(frozen=True, eq=False)
class DrawnScore(StateDistribution):
    """The distribution of a score by draws that are given.

    Parameters
    ----------
    own : Distribution
        The distribution by the trials of the questions alone.
    """

    own: Distribution

    @classmethod
    def of(
        cls, draws: FloatArray, own: Distribution, bounds: tuple[float, float], seed: int
    ) -> DrawnScore:
        """Take draws in random order, shape (P,)."""
        return cls(draws, np.zeros_like(draws), np.arange(draws.size), bounds, seed, own)

    def question_means(self, mu: FloatArray, sigma: FloatArray) -> QuestionMeans | None:
        """Return those of the trials, moved and scaled as the mean and the variance of the score.

        They are None for a population's score.
        """
        means = self.own.question_means(mu, sigma)
        if means is None:
            return None
        shift, ratio = self.mean - self.own.mean, self.sd / max(self.own.sd, 1e-300)
        return QuestionMeans(means.average + shift, means.noise * ratio**2)


@dataclass(frozen=True, eq=False)
class WeightedSum(Distribution):
    """The distribution of shift + Σ w_t S_t for independent scores S_t, by draws.

    Parameters
    ----------
    terms : tuple of Distribution
        Of the scores.
    weights : tuple of float
        Their weights, of any sign.
    shift : float
        What is added.
    symmetric : bool
        Whether the draws are to come in pairs of opposite sign.
    """

    terms: tuple[Distribution, ...]
    weights: tuple[float, ...]
    shift: float = 0.0
    symmetric: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", self.terms[0].seed)

    @property
    def mean(self) -> float:  # type: ignore[override]
        """Exact mean."""
        weighted = zip(self.weights, self.terms, strict=True)
        return self.shift + sum(weight * term.mean for weight, term in weighted)

    @property
    def sd(self) -> float:  # type: ignore[override]
        """Exact standard deviation."""
        weighted = zip(self.weights, self.terms, strict=True)
        return float(np.sqrt(sum((weight * term.sd) ** 2 for weight, term in weighted)))

    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the sum `n_draws` times, shape (n_draws,)."""
        if self.symmetric:
            half = replace(self, symmetric=False).draw(-(-n_draws // 2), rng)
            return np.stack([half, -half], axis=1).ravel()[:n_draws]
        total = np.full(n_draws, self.shift)
        for weight, term in zip(self.weights, self.terms, strict=True):
            total += weight * rng.permutation(term.draw(n_draws, rng))
        return total
