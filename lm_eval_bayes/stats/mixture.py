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
_LARGEST_STEP, _STEP_DECADES = 2.5, 0.6
#: The probability of a step from a finite strength to the infinite one or back, which comes from
#: and leads to the highest `_NEAR` of log s.
_SWITCH, _NEAR = 0.2, 4.0
_SMALLEST = 1e-300
#: Fits that are kept, each of about a megabyte.
_KEPT = 40


def _shape_of(log_strength: npt.ArrayLike) -> FloatArray:
    """Return s/(20 + s), which is Beta(.7, 1) under the prior of a finite strength."""
    return np.asarray(special.expit(np.asarray(log_strength) - np.log(20.0)))


_ENDS = _shape_of([_LOWEST, _HIGHEST]) ** 0.7


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
    common : array, shape (2, P)
        The weights v around which those of tasks lie; of one task, its own.
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
    common: FloatArray
    chain: IntArray

    def __post_init__(self) -> None:
        protect(self)

    @property
    def n_states(self) -> int:
        """P, the number of states."""
        return int(self.strength.shape[1])

    def thinned(self, n_states: int) -> Mixture:
        """Return the mixture with a copy of about `n_states` of its states, evenly spaced."""
        return self.at(np.arange(0, self.n_states, max(1, self.n_states // n_states)))

    def at(self, states: slice | IntArray) -> Mixture:
        """Return the mixture with some of its states."""
        return replace(
            self,
            share=self.share[..., states],
            strength=self.strength[:, states],
            weight=self.weight[..., states],
            common=self.common[:, states],
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

        The probabilities have shape (2, states, D). Blocks are such that `per_row` numbers for
        every state and row need little memory.
        """
        likelihood = _Likelihood(self.counts)
        for block in blocks(self.n_states, len(self.counts) * per_row):
            log_share = np.log(self.share[..., block])
            log_strength = np.log(self.strength[:, block])
            part = self.weight[:, self.task, block].swapaxes(1, 2) * np.stack(
                [likelihood(*kind) for kind in zip(log_share, log_strength, strict=True)]
            )
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
    chains = _Chains.start(questions, _CHAINS * _LENGTH, rng)
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
        chains.common_weight(),
        np.tile(np.arange(_CHAINS), _LAST),
    )
    return visited_by_chain.at(np.arange(_CHAINS * _LAST).reshape(_LAST, -1).T.ravel())


def _arrivals(times: IntArray, rng: np.random.Generator) -> list[FloatArray]:
    """Return how many questions of each row there are after each batch, in random order."""
    order = np.repeat(np.arange(times.size), times)[rng.permutation(times.sum())]
    n_doublings = int(np.ceil(np.log2(max(order.size / _FIRST_BATCH, 1.0))))
    sizes = [-(-order.size // 2**i) for i in reversed(range(n_doublings + 1))]
    return [np.bincount(order[:n], minlength=times.size).astype(np.float64) for n in sizes]


class _Rising:
    """log Γ(a + n)/Γ(a) for fixed n of D rows."""

    def __init__(self, n: FloatArray) -> None:
        self.distinct, self.where = np.unique(n, return_inverse=True)
        largest = self.distinct[-1]
        is_whole = bool((self.distinct == np.floor(self.distinct)).all())
        self.by_sums = is_whole and largest <= 3 * self.distinct.size
        self.steps = np.arange(largest) if self.by_sums else np.zeros(0)

    def __call__(self, a: FloatArray) -> FloatArray:
        """Return the logarithms for a of shape (P,), shape (P, D)."""
        if self.by_sums:
            sums = np.zeros((a.size, self.steps.size + 1))
            np.cumsum(np.log(a[:, None] + self.steps), axis=1, out=sums[:, 1:])
            return sums[:, self.distinct.astype(np.int64)[self.where]]
        ratio = special.gammaln(a[:, None] + self.distinct) - special.gammaln(a)[:, None]
        return np.asarray(ratio[:, self.where])


class _Likelihood:
    """The likelihood of a row's counts given the kind, over the largest that any θ gives."""

    def __init__(self, counts: FloatArray) -> None:
        trials = counts.sum(axis=1)
        share = counts / np.maximum(trials, _SMALLEST)[:, None]
        self.largest = special.xlogy(counts, share).sum(axis=1)
        self.of_trials = _Rising(trials)
        self.of_categories = [_Rising(column) for column in counts.T]

    def __call__(self, log_share: FloatArray, log_strength: FloatArray) -> FloatArray:
        """Return the likelihoods for log m (C+1, P) and log s (P,), shape (P, D)."""
        log_ratio = -self.of_trials(np.exp(log_strength)) - self.largest
        for rising, log_m in zip(self.of_categories, log_share, strict=True):
            log_ratio += rising(np.exp(log_m + log_strength) + _SMALLEST)
        return np.asarray(np.exp(np.minimum(log_ratio, 0.0)))


class _Questions:
    """The distinct rows of counts, and what the moves need of them."""

    def __init__(self, counts: FloatArray, task: IntArray) -> None:
        self.counts, self.task = counts, task
        self.n_tasks = int(task.max()) + 1
        self.of_task = np.eye(self.n_tasks)[task]
        self.n_categories = counts.shape[1]
        self.likelihood = _Likelihood(counts)
        self.mean_shape = np.full((self.n_categories, 1), MEAN_TOTAL / self.n_categories)
        trials = counts.sum(axis=1, keepdims=True)
        self.sums = np.hstack([np.ones_like(trials), trials**2, counts, counts**2, counts * trials])

    def log_prior(self, log_share: FloatArray, log_strength: FloatArray) -> FloatArray:
        """Return the log density of (log m up to a constant, log s), shape (P,)."""
        shape = _shape_of(log_strength)
        finite = (1.0 - _INFINITE_PROBABILITY) * 0.7 * shape**0.7 * (1.0 - shape) / np.ptp(_ENDS)
        inside = (log_strength > _LOWEST) & (log_strength < _HIGHEST)
        density = np.where(inside, finite, 0.0)
        density[log_strength == INFINITE] = _INFINITE_PROBABILITY
        return np.asarray(np.log(density + _SMALLEST) + (self.mean_shape * log_share).sum(axis=0))

    def step_sizes(self, members: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return sds of steps of log m and log s, (C+1, P) and (P,).

        `members`, (P, D), says how many questions of each row are of the kind.
        """
        questions, squared_trials, *rest = (members @ self.sums).T
        counts, squares, products = np.reshape(rest, (3, self.n_categories, -1))
        known = counts + self.mean_shape
        share = known / known.sum(axis=0)
        noise = squares - 2.0 * share * products + share**2 * squared_trials
        return np.sqrt(np.maximum(noise, known)) / known, 2.0 / np.sqrt(questions + 2.0)


@dataclass(eq=False)
class _Chains:
    """States that are moved: the attributes of `Mixture` in the coordinates of the moves.

    `log_common` and `log_concentration` are those of the weights of several tasks, log γ_k with
    v = γ/Σγ and log c. `likelihood`, (2, P, D), is that of every row under each kind.
    """

    questions: _Questions
    log_share: FloatArray
    log_strength: FloatArray
    weight: FloatArray
    log_common: FloatArray
    log_concentration: FloatArray
    likelihood: FloatArray

    @classmethod
    def start(cls, questions: _Questions, n: int, rng: np.random.Generator) -> _Chains:
        """Draw n states from the prior."""
        size = (KINDS, questions.n_categories, n)
        share = rng.standard_gamma(np.broadcast_to(questions.mean_shape, size)) + _SMALLEST
        log_share = np.log(share) - np.log(share.sum(axis=1, keepdims=True))
        shape = (_ENDS[0] + np.ptp(_ENDS) * rng.random((KINDS, n))) ** (1.0 / 0.7)
        log_strength = special.logit(shape) + np.log(20.0)
        log_strength[rng.random((KINDS, n)) < _INFINITE_PROBABILITY] = INFINITE
        # a gamma of small shape a is one of shape a + 1 times U^(1/a)
        log_common = np.log(rng.standard_gamma(_WEIGHT + 1.0, (KINDS, n)))
        log_common += np.log(rng.random((KINDS, n))) / _WEIGHT
        mean, sd = _CONCENTRATION
        chains = cls(
            questions,
            log_share,
            log_strength,
            np.empty((KINDS, questions.n_tasks, n)),
            log_common,
            mean + sd * rng.standard_normal(n),
            np.stack([questions.likelihood(log_share[k], log_strength[k]) for k in range(KINDS)]),
        )
        if questions.n_tasks == 1:
            chains.weight[:, 0] = special.softmax(log_common, axis=0)
        else:
            chains.draw_weights(np.zeros_like(chains.weight), rng)
        return chains

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
        likelihood = self.likelihood.copy() if keep_likelihood else self.likelihood[:, :0]
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
            np.concatenate([chains.likelihood for chains in visited], axis=1),
        )

    def resampled(self, new: FloatArray, rng: np.random.Generator) -> _Chains:
        """Return `_CHAINS` states, drawn by their likelihood of new questions (D,) of each row."""
        log_weight = np.log(self._parts().sum(axis=0) + _SMALLEST) @ new
        below = np.cumsum(np.exp(log_weight - log_weight.max()))
        even = (np.arange(_CHAINS) + rng.random()) / _CHAINS
        chosen = np.minimum(np.searchsorted(below, even * below[-1]), below.size - 1)
        return self._with(lambda array: array[..., chosen], self.likelihood[:, chosen])

    def _parts(self) -> FloatArray:
        """Return weight times likelihood of each kind, (2, P, D)."""
        weight = self.weight[:, self.questions.task].swapaxes(1, 2)
        return np.asarray(self.likelihood * weight)

    def move(self, seen: FloatArray, rng: np.random.Generator) -> None:
        """Move every state once, given how many questions of each row are seen, (D,)."""
        parts = self._parts()
        for kind in range(KINDS):
            self._move_kind(kind, parts, seen, rng)
        second = parts[1] / (parts.sum(axis=0) + _SMALLEST)
        n_second = rng.binomial(seen.astype(np.int64), second) @ self.questions.of_task
        n_all = seen @ self.questions.of_task
        sizes = np.stack([n_all - n_second, n_second]).swapaxes(1, 2)
        if self.questions.n_tasks > 1:
            self._move_common(sizes, rng)
        self.draw_weights(sizes, rng)

    def _move_kind(
        self, kind: int, parts: FloatArray, seen: FloatArray, rng: np.random.Generator
    ) -> None:
        """Propose a step of log m and log s of one kind; both change by normal increments.

        Their sds depend on the state, which the acceptance probability allows for.
        """
        questions, log_share, log_strength = self.questions, self.log_share, self.log_strength
        n = log_strength.shape[1]
        total = parts.sum(axis=0) + _SMALLEST
        share_sd, strength_sd = questions.step_sizes(parts[kind] / total * seen)
        scale = _LARGEST_STEP * 10.0 ** (-_STEP_DECADES * rng.random(n))
        share_step, strength_step = rng.standard_normal(share_sd.shape), rng.standard_normal((n,))
        new_share = log_share[kind] + scale * share_sd * share_step
        new_share -= new_share.max(axis=0)
        new_share -= np.log(np.exp(new_share).sum(axis=0))
        now = log_strength[kind]
        is_infinite, switches = now == INFINITE, rng.random(n) < _SWITCH
        moved = np.where(is_infinite, INFINITE, now + scale * strength_sd * strength_step)
        switched = np.where(is_infinite, _HIGHEST - _NEAR * rng.random(n), INFINITE)
        new_strength = np.where(switches, switched, moved)
        new_likelihood = questions.likelihood(new_share, new_strength)
        new_part = new_likelihood * self.weight[kind, questions.task].T
        new_total = new_part + parts[1 - kind] + _SMALLEST
        gain = (np.log(new_total) - np.log(total)) @ seen
        gain += questions.log_prior(new_share, new_strength)
        gain -= questions.log_prior(log_share[kind], now)
        new_share_sd, new_strength_sd = questions.step_sizes(new_part / new_total * seen)
        gain += _log_density_ratio(share_step, share_sd / new_share_sd).sum(axis=0)
        of_strength = _log_density_ratio(strength_step, strength_sd / new_strength_sd)
        # a switch to the infinite strength can be undone only from the highest finite ones
        can_return = np.where(now > _HIGHEST - _NEAR, -np.log(_NEAR), -np.inf)
        of_switch = np.where(is_infinite, np.log(_NEAR), can_return)
        gain += np.where(switches, of_switch, np.where(is_infinite, 0.0, of_strength))
        accepted = np.log(rng.random(n)) < gain
        log_share[kind][:, accepted] = new_share[:, accepted]
        log_strength[kind, accepted] = new_strength[accepted]
        self.likelihood[kind, accepted] = new_likelihood[accepted]
        parts[kind, accepted] = new_part[accepted]

    def draw_weights(self, sizes: FloatArray, rng: np.random.Generator) -> None:
        """Draw the weights given the numbers of questions of each kind in each task, (2, T, P)."""
        prior: FloatArray | float = _WEIGHT
        if self.questions.n_tasks > 1:
            prior = (self.common_weight() * np.exp(self.log_concentration))[:, None]
        gammas = rng.standard_gamma(prior + sizes) + _SMALLEST
        self.weight = gammas / gammas.sum(axis=0)

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
            self.log_common[:, accepted] = common[:, accepted]
            self.log_concentration[accepted] = concentration[accepted]
            now[accepted] = new[accepted]

    @staticmethod
    def _log_common_density(
        log_common: FloatArray, log_concentration: FloatArray, sizes: FloatArray
    ) -> FloatArray:
        """Return the log posterior density of log γ and log c given the tasks' sizes, (P,)."""
        total = np.exp(log_concentration)
        shape = (special.softmax(log_common, axis=0) * total)[:, None] + _SMALLEST
        density = (special.gammaln(shape + sizes) - special.gammaln(shape)).sum(axis=(0, 1))
        density -= (special.gammaln(total + sizes.sum(axis=0)) - special.gammaln(total)).sum(axis=0)
        density += (_WEIGHT * log_common - np.exp(log_common)).sum(axis=0)
        mean, sd = _CONCENTRATION
        return np.asarray(density - 0.5 * ((log_concentration - mean) / sd) ** 2)


def _log_density_ratio(step: FloatArray, ratio: FloatArray) -> FloatArray:
    """Return log N(x; 0, sd'²)/N(x; 0, sd²) for x = sd·step and ratio = sd/sd'."""
    return np.asarray(np.log(ratio) - 0.5 * step**2 * (ratio**2 - 1.0))
