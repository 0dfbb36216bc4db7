"""The model of questions: a mixture of two kinds, and posterior states of its parameters.

A question is of kind k with probability w_k, and its category probabilities are then
θ_α ~ Dirichlet(s_k m_k); with two categories, p_α ~ Beta(s_k m_k, s_k (1 − m_k)). The prior is

    w ~ Dirichlet(.15/2, .15/2),   m_k ~ Dirichlet(1.4/(C+1), …, 1.4/(C+1)),
    s_k infinite with probability ¼, else p(s) ∝ s^−.3 (20 + s)^−1.7, e^−2.5 < s < e^6.5.

Questions of several tasks share the kinds, and each task has its own weights,
w_t ~ Dirichlet(c v), v ~ Dirichlet(.15/2, .15/2), log c ~ Normal(log 50, 2).

In the likelihood θ and the questions' kinds are summed out, so that a state is (m, s, w). States
come from sequential Monte Carlo [Del Moral et al. 2006] in the waste-free form [Dau & Chopin
2022]: questions arrive in batches that double their number; by the likelihood of a batch `_CHAINS`
of the states are resampled; each starts a Markov chain of Metropolis steps, and all states on its
way are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from lm_eval_bayes.stats.arrays import FloatArray, IntArray, blocks, protect

#: The number of kinds, and the prior's parameters.
KINDS = 2
_WEIGHT = 0.15 / KINDS
MEAN_TOTAL = 1.4
_INFINITE_PROBABILITY = 0.25
_LOWEST, _HIGHEST = -2.5, 6.5
#: The log of a strength at which a kind's questions are equal: their θ differ by less than .001.
INFINITE = 13.0
#: Mean and sd of log c, the concentration of the tasks' weights around the common ones.
_CONCENTRATION = (float(np.log(50.0)), 2.0)
#: Chains, and their length in each batch of questions and in the last.
_CHAINS, _LENGTH, _LAST = 600, 4, 20
#: Questions of the first batch.
_FIRST_BATCH = 8
#: Step sizes are this many posterior sds, divided by up to 4.
_LARGEST_STEP, _STEP_RANGE = 2.5, 0.6 * float(np.log(10.0))
#: The probability of a step from a finite strength to the infinite one or back, which comes from
#: and leads to the highest `_NEAR` of log s.
_SWITCH, _NEAR = 0.2, 4.0
_SMALLEST = 1e-300
#: Trials per distinct row up to which log Γ(a + n)/Γ(a) is a sum of logarithms.
_STEPS_PER_ROW = 10
#: Every so many of the visited states are kept.
_THINNING = 3
#: Questions of a row from which on a binomial draw is faster than one for each.
_BINOMIAL = 25
#: Fits that are kept, each of about a megabyte.
_KEPT = 40


def _shape_of(log_strength: npt.ArrayLike) -> FloatArray:
    """Return s/(20 + s), which is Beta(.7, 1) under the prior of a finite strength."""
    return np.asarray(special.expit(np.asarray(log_strength) - np.log(20.0)))


_ENDS = _shape_of([_LOWEST, _HIGHEST]) ** 0.7
_LOG_FINITE = float(np.log((1.0 - _INFINITE_PROBABILITY) * 0.7 / np.ptp(_ENDS)))


@dataclass(frozen=True, eq=False)
class Mixture:
    """Posterior states of the kinds of questions.

    Attributes
    ----------
    counts : array, shape (D, C+1)
        The distinct rows of counts.
    where : array, shape (M,)
        The row of every question.
    times : array, shape (D,)
        How many questions each row has.
    task : array, shape (D,)
        The task of each row; rows of different tasks are distinct.
    share : array, shape (2, C+1, P)
        m of both kinds in P states.
    strength : array, shape (2, P)
        Their s.
    weight : array, shape (2, T, P)
        Their weights in each task.
    chain : array, shape (P,)
        The number of the chain that each state is from.
    """

    counts: FloatArray
    where: IntArray
    times: IntArray
    task: IntArray
    share: FloatArray
    strength: FloatArray
    weight: FloatArray
    chain: IntArray

    def __post_init__(self) -> None:
        protect(self)

    @property
    def n_states(self) -> int:
        """P, the number of states."""
        return int(self.strength.shape[1])

    def thinned(self, n_states: int) -> Mixture:
        """Return the mixture with about `n_states` of its states, evenly spaced."""
        step = self.n_states // n_states
        return self if step < 2 else self.at(np.arange(0, self.n_states, step))

    def at(self, states: slice | IntArray) -> Mixture:
        """Return the mixture with some of its states."""
        return replace(
            self,
            share=self.share[..., states],
            strength=self.strength[:, states],
            weight=self.weight[..., states],
            chain=self.chain[states],
        )

    def equivalent_strength(self) -> FloatArray:
        """Return s of the one Dirichlet kind that differs as much between questions, (T, P).

        The variances of θ's entries, summed, are m(1 − m)/(s + 1) of one kind.
        """
        weight, spread = self.weight, (self.share * (1.0 - self.share)).sum(axis=1)
        within = np.einsum("ktp,kp->tp", weight, spread / (self.strength + 1.0))
        mean = np.einsum("ktp,kcp->ctp", weight, self.share)
        square = np.einsum("ktp,kcp->ctp", weight, self.share**2)
        between = np.maximum(square - mean**2, 0.0).sum(axis=0)
        total = (mean * (1.0 - mean)).sum(axis=0)
        return np.asarray(np.maximum(total / (within + between + _SMALLEST) - 1.0, _SMALLEST))

    def memberships(self, per_row: int = 1) -> Iterator[tuple[slice, FloatArray]]:
        """Yield blocks of states, and in each the probability of row d being of kind k.

        The probabilities have shape (2, D, states). Blocks are such that `per_row` numbers for
        every state and row need little memory.
        """
        likelihood = _Likelihood(self.counts)
        for block in blocks(self.n_states, len(self.counts) * per_row):
            log_share = np.log(self.share[..., block])
            log_strength = np.log(self.strength[:, block])
            part = np.stack(
                [likelihood(*kind) for kind in zip(log_share, log_strength, strict=True)]
            )
            part *= self.weight[:, self.task, block]
            part /= part.sum(axis=0) + _SMALLEST
            yield block, part


def learn_mixture(
    counts: npt.ArrayLike,
    task: npt.ArrayLike | None = None,
    *,
    seed: int = 0,
) -> Mixture:
    """Return posterior states of the kinds of questions.

    Parameters
    ----------
    counts : array, shape (M, C+1)
        How often each category occurred on each question, at least 0, not necessarily whole.
    task : array of int, shape (M,), optional
        The task of each question, 0 .. T−1; left out, there is one.
    seed : int
        Of the states. The order of the questions does not matter.
    """
    counts = np.asarray(counts, dtype=np.float64)
    of_question = np.zeros(len(counts)) if task is None else np.asarray(task)
    rows, where, times = np.unique(
        np.column_stack([of_question, counts]), axis=0, return_inverse=True, return_counts=True
    )
    learned = _learn(rows.tobytes(), times.tobytes(), seed)
    return replace(learned, where=where.reshape(-1))


@lru_cache(maxsize=_KEPT)
def _learn(rows_bytes: bytes, times_bytes: bytes, seed: int) -> Mixture:
    """Return the states of D rows of (task, counts), with `where` as for one question of each."""
    times = np.frombuffer(times_bytes, dtype=np.int64)
    rows = np.frombuffer(rows_bytes).reshape(times.size, -1)
    rng = np.random.default_rng([seed, 0])
    questions = _Questions(rows[:, 1:], rows[:, 0].astype(np.int64))
    arrivals = _arrivals(times, rng)
    chains = _Chains.start(questions, _CHAINS * _LENGTH, seed)
    before = np.zeros(len(rows))
    for arrived in arrivals:
        chains = chains.resampled(arrived - before, rng)
        is_last = arrived is arrivals[-1]
        visited = []
        for _ in range(_LAST if is_last else _LENGTH):
            chains.move(arrived, rng)
            visited.append(chains.copy(keep_likelihood=not is_last))
        before, chains = arrived, _Chains.joined(visited)
    visited_by_chain = Mixture(
        questions.counts,
        np.arange(times.size),
        times,
        questions.task,
        np.exp(chains.log_share),
        np.exp(chains.log_strength),
        chains.weight,
        np.tile(np.arange(_CHAINS), _LAST),
    )
    by_chain = np.arange(_CHAINS * _LAST).reshape(_LAST, -1).T.ravel()
    return visited_by_chain.at(by_chain[::_THINNING])


def _arrivals(times: IntArray, rng: np.random.Generator) -> list[FloatArray]:
    """Return how many questions of each row there are after each batch, in random order."""
    order = np.repeat(np.arange(times.size), times)[rng.permutation(times.sum())]
    n_doublings = int(np.ceil(np.log2(max(order.size / _FIRST_BATCH, 1.0))))
    sizes = [-(-order.size // 2**i) for i in reversed(range(n_doublings + 1))]
    return [np.bincount(order[:n], minlength=times.size).astype(np.float64) for n in sizes]


class _Likelihood:
    """The likelihood of a row's counts given the kind, over the largest that any θ gives.

    Its logarithm is the sum over categories of log Γ(a + n)/Γ(a), for their n and a = s m, less
    that of all trials, for a = s.
    """

    def __init__(self, counts: FloatArray) -> None:
        # rows of several tasks may have the same counts
        distinct, where = np.unique(counts, axis=0, return_inverse=True)
        self.where = where.reshape(-1)
        trials = distinct.sum(axis=1)
        share = distinct / np.maximum(trials, _SMALLEST)[:, None]
        self.largest = special.xlogy(distinct, share).sum(axis=1)[:, None]
        self.columns = np.vstack([trials, distinct.T])
        most = trials.max()
        is_whole = bool((self.columns == np.floor(self.columns)).all())
        self.by_sums = is_whole and most <= _STEPS_PER_ROW * len(distinct)
        if self.by_sums:
            self.steps = np.arange(most)[:, None, None]
            self.columns = self.columns.astype(np.int64)

    def __call__(self, log_share: FloatArray, log_strength: FloatArray) -> FloatArray:
        """Return the likelihoods for log m (C+1, P) and log s (P,), shape (D, P)."""
        a = np.exp(np.vstack([log_strength, log_share + log_strength])) + _SMALLEST
        rising = self._rising_sums(a) if self.by_sums else map(_rising, a, self.columns)
        of_trials, *of_categories = rising
        log_ratio = sum(of_categories, -of_trials - self.largest)
        np.exp(np.minimum(log_ratio, 0.0, out=log_ratio), out=log_ratio)
        return log_ratio.take(self.where, axis=0)

    def _rising_sums(self, a: FloatArray) -> list[FloatArray]:
        """Return log Γ(a + n)/Γ(a) of every column as sums of logarithms."""
        sums = np.zeros((len(self.steps) + 1, *a.shape))
        np.log(a + self.steps, out=sums[1:])
        for i in range(1, len(self.steps)):
            sums[i + 1] += sums[i]
        return [sums[column, i] for i, column in enumerate(self.columns)]


def _rising(a: FloatArray, n: FloatArray) -> FloatArray:
    """Return log Γ(a + n)/Γ(a) for a (P,) and n (D,), shape (D, P)."""
    distinct, where = np.unique(n, return_inverse=True)
    return np.asarray((special.gammaln(a + distinct[:, None]) - special.gammaln(a))[where])


class _Questions:
    """The distinct rows of counts, and what the moves need of them."""

    def __init__(self, counts: FloatArray, task: IntArray) -> None:
        self.counts, self.task = counts, task
        self.n_tasks = int(task.max()) + 1
        self.of_task = np.eye(self.n_tasks)[:, task]
        self.n_categories = counts.shape[1]
        self.likelihood = _Likelihood(counts)
        self.mean_shape = MEAN_TOTAL / self.n_categories
        trials = counts.sum(axis=1, keepdims=True)
        sums = [np.ones_like(trials), trials**2, counts, counts**2, 2.0 * counts * trials]
        self.sums = np.ascontiguousarray(np.hstack(sums).T)

    def step_sizes(self, probability: FloatArray, seen: FloatArray) -> FloatArray:
        """Return sds of steps of log m and, last, log s, (C+2, P).

        `probability`, (D, P), is that of one question of each row being of the kind.
        """
        sums = (self.sums * seen) @ probability
        questions, squared_trials = sums[:2]
        counts, squares, products = sums[2:].reshape(3, self.n_categories, -1)
        known = counts + self.mean_shape
        share = known / known.sum(axis=0)
        noise = squares - share * (products - share * squared_trials)
        sds = np.empty((self.n_categories + 1, questions.size))
        sds[:-1] = np.sqrt(np.maximum(noise, known)) / known
        sds[-1] = 2.0 / np.sqrt(questions + 2.0)
        return sds

    def draw_sizes(
        self, probability: FloatArray, seen: FloatArray, rng: np.random.Generator
    ) -> FloatArray:
        """Draw how many of the questions seen are of a kind by task, (T, P).

        `probability`, (D, P), is that of one question of each row.
        """
        times = seen.astype(np.int64)
        if times.sum() > _BINOMIAL * times.size:
            return np.asarray(self.of_task @ rng.binomial(times[:, None], probability))
        question = np.repeat(np.arange(times.size), times)
        u = rng.random((question.size, probability.shape[1]), dtype=np.float32)
        return np.asarray(self.of_task[:, question] @ (u < probability[question]))


@dataclass(eq=False)
class _Chains:
    """States that are moved: the attributes of `Mixture` in the coordinates of the moves.

    `log_common` and `log_concentration` are those of the weights of several tasks, log γ_k with
    v = γ/Σγ and log c. `likelihood`, (2, D, P), is that of every row under each kind.
    """

    questions: _Questions
    log_share: FloatArray
    log_strength: FloatArray
    weight: FloatArray
    log_common: FloatArray
    log_concentration: FloatArray
    likelihood: FloatArray

    @classmethod
    def start(cls, questions: _Questions, n: int, seed: int) -> _Chains:
        """Draw n states from the prior."""
        prior = _prior_states(questions.n_categories, questions.n_tasks, n, seed)
        kinds = zip(prior.log_share, prior.log_strength, strict=True)
        return cls(questions, *prior, np.stack([questions.likelihood(*kind) for kind in kinds]))

    def common_weight(self) -> FloatArray:
        """Return v, (2, P); of one task, its weights."""
        if self.questions.n_tasks == 1:
            return self.weight[:, 0]
        return np.asarray(special.softmax(self.log_common, axis=0))

    def _with(self, change: Callable[[FloatArray], FloatArray], likelihood: FloatArray) -> _Chains:
        """Return the states with every array of them changed."""
        return _Chains(
            self.questions,
            change(self.log_share),
            change(self.log_strength),
            change(self.weight),
            change(self.log_common),
            change(self.log_concentration),
            likelihood,
        )

    def copy(self, *, keep_likelihood: bool) -> _Chains:
        """Return a copy of the states as they are now."""
        likelihood = self.likelihood.copy() if keep_likelihood else self.likelihood[..., :0]
        return self._with(np.copy, likelihood)

    @classmethod
    def joined(cls, visited: list[_Chains]) -> _Chains:
        """Return all states of a list in one."""
        return cls(
            visited[0].questions,
            np.concatenate([chains.log_share for chains in visited], axis=-1),
            np.concatenate([chains.log_strength for chains in visited], axis=-1),
            np.concatenate([chains.weight for chains in visited], axis=-1),
            np.concatenate([chains.log_common for chains in visited], axis=-1),
            np.concatenate([chains.log_concentration for chains in visited], axis=-1),
            np.concatenate([chains.likelihood for chains in visited], axis=-1),
        )

    def resampled(self, new: FloatArray, rng: np.random.Generator) -> _Chains:
        """Return `_CHAINS` states, drawn by their likelihood of new questions (D,) of each row."""
        log_weight = new @ np.log(self._parts().sum(axis=0) + _SMALLEST)
        below = np.cumsum(np.exp(log_weight - log_weight.max()))
        even = (np.arange(_CHAINS) + rng.random()) / _CHAINS
        chosen = np.minimum(np.searchsorted(below, even * below[-1]), below.size - 1)
        return self._with(lambda array: array[..., chosen], self.likelihood[..., chosen])

    def _parts(self) -> FloatArray:
        """Return weight times likelihood of each kind, (2, D, P)."""
        return np.asarray(self.likelihood * self.weight[:, self.questions.task])

    def move(self, seen: FloatArray, rng: np.random.Generator) -> None:
        """Move every state once, given how many questions of each row are seen, (D,)."""
        parts = self._parts()
        for kind in range(KINDS):
            self._move_kind(kind, parts, seen, rng)
        second = parts[1] / (parts[0] + parts[1] + _SMALLEST)
        n_second = self.questions.draw_sizes(second, seen, rng)
        n_all = (self.questions.of_task @ seen)[:, None]
        sizes = np.stack([n_all - n_second, n_second])
        if self.questions.n_tasks > 1:
            self._move_common(sizes, rng)
        self.draw_weights(sizes, rng)

    def _move_kind(
        self, kind: int, parts: FloatArray, seen: FloatArray, rng: np.random.Generator
    ) -> None:
        """Propose a step of log m and log s of one kind; both change by normal increments.

        Their sds depend on the state, which the acceptance probability allows for.
        """
        questions, likelihood = self.questions, self.likelihood[kind]
        now_share, now = self.log_share[kind], self.log_strength[kind]
        weight = self.weight[kind].take(questions.task, axis=0)
        total = parts[0] + parts[1] + _SMALLEST
        sds = questions.step_sizes(parts[kind] / total, seen)
        of_scale, of_switching, of_return, of_acceptance = rng.random((4, now.size))
        steps = rng.standard_normal(sds.shape)
        increments = _LARGEST_STEP * np.exp(-_STEP_RANGE * of_scale) * sds * steps
        new_share = now_share + increments[:-1]
        new_share -= new_share.max(axis=0)
        new_share -= np.log(np.exp(new_share).sum(axis=0))
        is_infinite, switches = now == INFINITE, of_switching < _SWITCH
        moved = np.where(is_infinite, INFINITE, now + increments[-1])
        switched = np.where(is_infinite, _HIGHEST - _NEAR * of_return, INFINITE)
        new_strength = np.where(switches, switched, moved)
        new_likelihood = questions.likelihood(new_share, new_strength)
        new_part = new_likelihood * weight
        new_total = new_part + parts[1 - kind] + _SMALLEST
        gain = seen @ np.log(new_total / total)
        gain += questions.mean_shape * (new_share - now_share).sum(axis=0)
        of_new, of_now = _log_strength_prior(np.stack([new_strength, now]))
        gain += of_new - of_now
        new_sds = questions.step_sizes(new_part / new_total, seen)
        *of_shares, of_strength = _log_density_ratio(steps, sds / new_sds)
        gain += sum(of_shares)
        # a switch to the infinite strength can be undone only from the highest finite ones
        can_return = np.where(now > _HIGHEST - _NEAR, -np.log(_NEAR), -np.inf)
        of_switch = np.where(is_infinite, np.log(_NEAR), can_return)
        gain += np.where(switches, of_switch, np.where(is_infinite, 0.0, of_strength))
        accepted = np.log(of_acceptance) < gain
        now_share[...] = np.where(accepted, new_share, now_share)
        now[...] = np.where(accepted, new_strength, now)
        likelihood[...] = np.where(accepted, new_likelihood, likelihood)
        np.multiply(likelihood, weight, out=parts[kind])

    def draw_weights(self, sizes: FloatArray, rng: np.random.Generator) -> None:
        """Draw the weights given the numbers of questions of each kind in each task, (2, T, P)."""
        prior: FloatArray | float = _WEIGHT
        if self.questions.n_tasks > 1:
            prior = (self.common_weight() * np.exp(self.log_concentration))[:, None]
        self.weight = _draw_shares(prior + sizes, rng)

    def _move_common(self, sizes: FloatArray, rng: np.random.Generator) -> None:
        """Move v and c three times, the tasks' weights summed out."""
        n = self.log_concentration.size
        now = self._log_common_density(self.log_common, self.log_concentration, sizes)
        for _ in range(3):
            scale = 10.0 ** -rng.random(n)
            common = self.log_common + scale * rng.standard_normal((KINDS, n))
            concentration = self.log_concentration + scale * rng.standard_normal(n)
            new = self._log_common_density(common, concentration, sizes)
            accepted = np.log(rng.random(n)) < new - now
            self.log_common = np.where(accepted, common, self.log_common)
            self.log_concentration = np.where(accepted, concentration, self.log_concentration)
            now = np.where(accepted, new, now)

    @staticmethod
    def _log_common_density(
        log_common: FloatArray, log_concentration: FloatArray, sizes: FloatArray
    ) -> FloatArray:
        """Return the log posterior density of log γ and log c given the tasks' sizes, (P,)."""
        total = np.exp(log_concentration)
        shape = (special.softmax(log_common, axis=0) * total)[:, None] + _SMALLEST
        density = (special.gammaln(shape + sizes) - special.gammaln(shape)).sum(axis=(0, 1))
        # the number of a task's questions is the same in all states
        n_questions, times = np.unique(sizes[..., 0].sum(axis=0), return_counts=True)
        density -= times @ (special.gammaln(total + n_questions[:, None]) - special.gammaln(total))
        density += (_WEIGHT * log_common - np.exp(log_common)).sum(axis=0)
        mean, sd = _CONCENTRATION
        return np.asarray(density - 0.5 * ((log_concentration - mean) / sd) ** 2)


class _PriorStates(NamedTuple):
    """States drawn from the prior, see `_Chains`."""

    log_share: FloatArray
    log_strength: FloatArray
    weight: FloatArray
    log_common: FloatArray
    log_concentration: FloatArray


@lru_cache(maxsize=4)
def _prior_states(n_categories: int, n_tasks: int, n: int, seed: int) -> _PriorStates:
    """Draw n states from the prior, which fits share: moves change copies, see `resampled`."""
    rng = np.random.default_rng([seed, 4])
    mean_shape = np.full((KINDS, n_categories, n), MEAN_TOTAL / n_categories)
    log_share = np.log(_draw_shares(mean_shape.swapaxes(0, 1), rng)).swapaxes(0, 1)
    shape = (_ENDS[0] + np.ptp(_ENDS) * rng.random((KINDS, n))) ** (1.0 / 0.7)
    log_strength = special.logit(shape) + np.log(20.0)
    log_strength[rng.random((KINDS, n)) < _INFINITE_PROBABILITY] = INFINITE
    # a gamma of small shape a is one of shape a + 1 times U^(1/a)
    log_common = np.log(rng.standard_gamma(_WEIGHT + 1.0, (KINDS, n)))
    log_common += np.log(rng.random((KINDS, n))) / _WEIGHT
    mean, sd = _CONCENTRATION
    log_concentration = mean + sd * rng.standard_normal(n)
    weight = common = special.softmax(log_common, axis=0)[:, None]
    if n_tasks > 1:
        shape = np.repeat(common * np.exp(log_concentration), n_tasks, axis=1)
        weight = _draw_shares(shape, rng)
    return _PriorStates(log_share, log_strength, weight, log_common, log_concentration)


def _draw_shares(shape: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw from Dirichlet distributions, their parameters along the first axis."""
    gammas = rng.standard_gamma(shape) + _SMALLEST
    return np.asarray(gammas / gammas.sum(axis=0))


def _log_strength_prior(log_strength: FloatArray) -> FloatArray:
    """Return the log density of log s."""
    log_odds = np.log(20.0) - log_strength  # log (1 − x)/x for x = s/(20 + s)
    finite = _LOG_FINITE + log_odds - 1.7 * np.log(1.0 + np.exp(log_odds))
    inside = (log_strength > _LOWEST) & (log_strength < _HIGHEST)
    density = np.where(inside, finite, np.log(_SMALLEST))
    infinite = np.log(_INFINITE_PROBABILITY)
    return np.asarray(np.where(log_strength == INFINITE, infinite, density))


def _log_density_ratio(step: FloatArray, ratio: FloatArray) -> FloatArray:
    """Return log N(x; 0, sd'²)/N(x; 0, sd²) for x = sd·step and ratio = sd/sd'."""
    return np.asarray(np.log(ratio) - 0.5 * step**2 * (ratio**2 - 1.0))
