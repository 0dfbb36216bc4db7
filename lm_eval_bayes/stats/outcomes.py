"""Outcomes: the validated, read-only input of all functions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes._util.validation import check_real
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import (
    FloatArray,
    IntArray,
    check_clusters,
    check_counts,
    check_ids,
    check_matrix,
    check_weights,
    cluster_index,
    numeric,
    protect,
    read_only,
)

BINARY_WEIGHTS = (0.0, 1.0)
#: The largest weight of a prior trial.
MOST_STRENGTH = 1e6
#: The scales of the Cauchy distribution of the shift from an earlier run, in logits.
SCALES = (0.1, 0.2, 0.4, 0.8)


@dataclass(frozen=True)
class LearnedShift(Record):
    """The shift δ of a score from that of an earlier run: logit score = logit earlier score + δ.

    δ has a Cauchy distribution around 0, of a scale that models share; see `learn_shift`.

    Attributes
    ----------
    weights : tuple of float
        The probabilities of the scales .1, .2, .4 and .8 logits.

    Raises
    ------
    InvalidInputError
        If they are not four probabilities that sum to 1.
    """

    weights: tuple[float, ...] = (0.25, 0.25, 0.25, 0.25)

    def __post_init__(self) -> None:
        weights = np.array(self.weights, dtype=np.float64)
        if weights.shape != (len(SCALES),) or not (
            (weights >= 0.0).all() and abs(weights.sum() - 1.0) < 1e-6
        ):
            rule = f"be {len(SCALES)} probabilities that sum to 1"
            raise InvalidInputError.of("weights", "range", rule, self.weights)

    @property
    def scale(self) -> float:
        """The mean of the scale; half of all shifts are smaller than the scale."""
        return float(np.dot(self.weights, SCALES))


@dataclass(frozen=True, eq=False)
class Outcomes:
    """The outcomes of all trials, counted per question and category.

    Build it with :meth:`from_matrix` or :meth:`from_counts`. All arguments are validated
    here, once, and copied into read-only arrays.

    Parameters
    ----------
    counts : array of int, shape (M, C+1)
        ``counts[a, k]``: how many of question a's trials ended in category k. Rows may
        have different sums N_α, also 0.
    weights : array of float, shape (C+1,)
        The score of each category.
    prior_counts : array of int, shape (M, C+1)
        The same for earlier trials R0; all zeros when there were none.
    prior_strength : float or LearnedShift
        λ in [0, 1e6], the weight of one prior trial: 1 is [Hariri 2026], λ < 1 a power prior. Or
        what `learn_shift` returns: prior trials are then no trials, and tell `hbayes_at_n` alone
        where the score lies.
    question_ids : tuple or None
        One distinct name per question.
    clusters : tuple or None
        The cluster of every question, such as its contest, topic or passage. Scope "population"
        takes the questions of a cluster as dependent; scope "benchmark" is not affected.

    Raises
    ------
    InvalidInputError
        If any of the above does not hold.

    Examples
    --------
    >>> outcomes = Outcomes.from_matrix([[0, 1, 1], [1, 1, 1]])
    >>> outcomes.counts.tolist()
    [[1, 2], [0, 3]]
    >>> outcomes.n_questions, outcomes.n_categories, outcomes.n_trials.tolist()
    (2, 2, [3, 3])
    """

    #: Whether trials have scores between two bounds, see `ScoreOutcomes`.
    scored: ClassVar[bool] = False

    counts: IntArray
    weights: FloatArray
    prior_counts: IntArray
    prior_strength: float | LearnedShift = 1.0
    question_ids: tuple[Hashable, ...] | None = field(default=None, repr=False)
    clusters: tuple[Hashable, ...] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        weights = check_weights(self.weights)
        counts = check_counts("counts", self.counts, weights.size)
        prior_counts = check_counts("prior_counts", self.prior_counts, weights.size)
        if prior_counts.shape[0] != counts.shape[0]:
            rule = f"have one row per question ({counts.shape[0]})"
            got = f"{prior_counts.shape[0]} rows"
            raise InvalidInputError.of("prior_counts", "shape", rule, got)
        if not isinstance(self.prior_strength, LearnedShift):
            rule = f"be a number from 0 to {MOST_STRENGTH:g}"
            strength = check_real(
                "prior_strength", self.prior_strength, rule, lambda x: 0.0 <= x <= MOST_STRENGTH
            )
            object.__setattr__(self, "prior_strength", strength)
        ids = check_ids(self.question_ids, counts.shape[0])
        object.__setattr__(self, "counts", read_only(counts, np.int64))
        object.__setattr__(self, "weights", read_only(weights, np.float64))
        object.__setattr__(self, "prior_counts", read_only(prior_counts, np.int64))
        object.__setattr__(self, "question_ids", ids)
        if self.clusters is not None:
            clusters = check_clusters(self.clusters, counts.shape[0])
            object.__setattr__(self, "clusters", clusters)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # a pickled array is writable again
        self.__dict__.update(state)
        protect(self)

    @classmethod
    def from_matrix(
        cls,
        R: npt.ArrayLike,
        weights: npt.ArrayLike | None = None,
        R0: npt.ArrayLike | None = None,
        prior_strength: float | LearnedShift = 1.0,
        question_ids: Sequence[Hashable] | None = None,
        clusters: Sequence[Hashable] | None = None,
    ) -> Outcomes:
        """Count an outcome matrix.

        Parameters
        ----------
        R : array, shape (M, N)
            Entries in 0..C: category of trial i on question α. Integers, whole floats,
            or (for two categories) booleans.
        weights : array, shape (C+1,), optional
            The score of each category. Left out, the outcomes are binary with weights
            (0, 1); the number of categories is never guessed from what happened to occur.
        R0 : array, shape (M, D), optional
            Earlier trials on the same questions, same categories.
        prior_strength : float or LearnedShift
            λ >= 0, the weight of one prior trial, or what `learn_shift` returns.
        question_ids : sequence, optional
            One distinct name per question.
        clusters : sequence, length M, optional
            The cluster of every question.

        Raises
        ------
        InvalidInputError
            If R or R0 is not a matrix of categories, or another argument breaks its rule.

        Examples
        --------
        >>> R = [[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]]
        >>> Outcomes.from_matrix(R, weights=[0, 0.5, 1], R0=[[2], [1]]).prior_counts.tolist()
        [[0, 0, 1], [0, 1, 0]]
        """
        guessed = weights is None
        checked = check_weights(BINARY_WEIGHTS if weights is None else weights)
        matrix = check_matrix("R", R, checked.size, guessed, allow_no_trials=False)
        counts = _count(matrix, checked.size)
        prior_counts = np.zeros_like(counts)
        if R0 is not None:
            prior = check_matrix("R0", R0, checked.size, guessed, allow_no_trials=True)
            if prior.shape[0] != matrix.shape[0]:
                rule = f"have one row per question ({matrix.shape[0]}, as in R)"
                raise InvalidInputError.of("R0", "shape", rule, f"{prior.shape[0]} rows")
            prior_counts = _count(prior, checked.size)
        beside = (prior_strength, question_ids, clusters)
        return cls(counts, checked, prior_counts, *beside)  # type: ignore[arg-type]

    @classmethod
    def from_counts(
        cls,
        counts: npt.ArrayLike,
        weights: npt.ArrayLike | None = None,
        prior_counts: npt.ArrayLike | None = None,
        prior_strength: float | LearnedShift = 1.0,
        question_ids: Sequence[Hashable] | None = None,
        clusters: Sequence[Hashable] | None = None,
    ) -> Outcomes:
        """Take counts as they are; questions may have different numbers of trials.

        Parameters
        ----------
        counts : array of int, shape (M, C+1)
            For binary outcomes the two columns are (wrong, correct).
        weights : array, shape (C+1,), optional
            Left out, k/C: evenly spaced from 0 to 1.
        prior_counts : array of int, shape (M, C+1), optional
            Counts of earlier trials.
        prior_strength : float or LearnedShift
            λ >= 0, the weight of one prior trial, or what `learn_shift` returns.
        question_ids : sequence, optional
            One distinct name per question.
        clusters : sequence, length M, optional
            The cluster of every question.

        Raises
        ------
        InvalidInputError
            If an argument breaks its rule.

        Examples
        --------
        >>> outcomes = Outcomes.from_counts([[1, 3], [0, 8]])
        >>> outcomes.n_trials.tolist(), outcomes.weights.tolist()
        ([4, 8], [0.0, 1.0])
        """
        array = numeric("counts", counts)
        if array.ndim != 2 or array.shape[1] < 2:
            rule = "be 2-D, (M, C+1), with at least two columns (categories)"
            raise InvalidInputError.of("counts", "shape", rule, f"shape {array.shape}")
        if weights is None:
            weights = np.arange(array.shape[1]) / (array.shape[1] - 1)
        prior = np.zeros_like(array) if prior_counts is None else prior_counts
        # The constructor checks the rest and converts the arrays.
        weights, prior = numeric("weights", weights), numeric("prior_counts", prior)
        beside = (prior_strength, question_ids, clusters)
        return cls(array, weights, prior, *beside)  # type: ignore[arg-type]

    @property
    def n_questions(self) -> int:
        """M, the number of questions."""
        return int(self.counts.shape[0])

    @property
    def n_categories(self) -> int:
        """C + 1, the number of categories."""
        return int(self.counts.shape[1])

    @property
    def dispersion(self) -> float:
        """1: only scores between two bounds have another one, see `ScoreOutcomes.dispersion`."""
        return 1.0

    @property
    def dispersion_df(self) -> float:
        """The degrees of freedom of `dispersion`: infinite, as it is known."""
        return float("inf")

    @property
    def n_trials(self) -> IntArray:
        """N_α, shape (M,): the trials of each question, without the prior ones."""
        return np.asarray(self.counts.sum(axis=1))

    @property
    def trials_range(self) -> tuple[int, int]:
        """The smallest and the largest N_α."""
        n_trials = self.n_trials
        return int(n_trials.min()), int(n_trials.max())

    @property
    def prior_weight(self) -> float:
        """λ; 0 where prior trials are no trials, as the shift between the runs is learned."""
        return 0.0 if isinstance(self.prior_strength, LearnedShift) else self.prior_strength

    @property
    def most_trials(self) -> int:
        """The most trials of a question, prior ones included unless their weight is 0."""
        trials = self.n_trials
        if self.prior_weight > 0.0:
            trials = trials + self.prior_counts.sum(axis=1)
        return int(trials.max())

    @property
    def bounds(self) -> tuple[float, float]:
        """The smallest and the largest possible score."""
        return float(self.weights.min()), float(self.weights.max())

    def mean_score(self, row: int) -> float:
        """Return the mean score of a question's trials; NaN without trials."""
        n = int(self.n_trials[row])
        return float(self.counts[row] @ self.weights) / n if n else float("nan")

    @property
    def mean_trials(self) -> float:
        """Mean trials per question, prior ones with the weight λ."""
        total = self.counts.sum() + self.prior_weight * self.prior_counts.sum()
        return float(total / self.n_questions)

    @property
    def weighted_counts(self) -> FloatArray:
        """Trials of each question and category, prior ones with the weight λ, shape (M, C+1)."""
        return np.asarray(self.counts + self.prior_weight * self.prior_counts, dtype=np.float64)

    def without_prior(self) -> Outcomes:
        """Return the outcomes without their prior trials."""
        nothing = np.zeros_like(self.prior_counts)
        return replace(self, prior_counts=nothing, prior_strength=1.0)

    def take(self, rows: Sequence[int] | IntArray) -> Outcomes:
        """Return some of the questions, in the order asked for."""
        if list(rows) == list(range(self.n_questions)):
            return self
        ids, clusters = (
            None if labels is None else tuple(labels[row] for row in rows)
            for labels in (self.question_ids, self.clusters)
        )
        counts, prior_counts = self.counts[rows], self.prior_counts[rows]
        return Outcomes(counts, self.weights, prior_counts, self.prior_strength, ids, clusters)

    @property
    def cluster_index(self) -> IntArray | None:
        """The clusters numbered in the order of their first questions, shape (M,).

        None without clusters, and where every question is a cluster of its own: then they say
        nothing.

        Raises
        ------
        InvalidInputError
            If there is a single cluster, which has no information about others.
        """
        if self.clusters is None:
            return None
        index = cluster_index(self.clusters, self.n_questions, "question")
        n_clusters = int(index.max()) + 1
        if n_clusters == self.n_questions:
            return None
        if n_clusters == 1:
            rule = 'name at least two clusters for scope "population"'
            raise InvalidInputError.of("clusters", "empty", rule, f"only {self.clusters[0]!r}")
        return index

    def top_categories(self) -> npt.NDArray[np.bool_] | None:
        """Return which categories have the largest weight, shape (C+1,); None for a rubric.

        A rubric has more than two distinct weights. Where all are equal, any split will do: every
        category but the first.
        """
        low, high = self.weights.min(), self.weights.max()
        at_top = self.weights == high
        if not np.all(at_top | (self.weights == low)):
            return None
        return at_top if low < high else np.arange(at_top.size) > 0

    def right_and_wrong(self, name: str = "outcomes") -> tuple[IntArray, IntArray]:
        """Return every question's trials of the larger and of the smaller weight, each (M,).

        Raises
        ------
        InvalidInputError
            If the weights are not two distinct ones; the message names `name`.
        """
        at_top = self.top_categories()
        if at_top is None or self.weights.min() == self.weights.max():
            rule = "have two distinct weights, a wrong and a right one"
            raise InvalidInputError.of(name, "unsupported", rule, self.weights.tolist())
        return self.counts[:, at_top].sum(axis=1), self.counts[:, ~at_top].sum(axis=1)


def scaled_weights(weights: FloatArray) -> tuple[float, float, FloatArray]:
    """Return the smallest weight, the span, and the weights scaled to [0, 1], 0 if all are equal.

    Examples
    --------
    >>> low, span, unit = scaled_weights(np.array([-1.0, 0.0, 3.0]))
    >>> low, span, unit.tolist()
    (-1.0, 4.0, [0.0, 0.25, 1.0])
    """
    low, span = float(weights.min()), float(np.ptp(weights))
    return low, span, (weights - low) / span if span > 0.0 else np.zeros_like(weights)


def check_outcomes(name: str, value: object, *, scores: bool = False) -> None:
    """Refuse anything but an `Outcomes`, and scores unless `scores` is True.

    Raises
    ------
    InvalidInputError
        If `value` is a matrix, say, and not an `Outcomes` made of it; or a `ScoreOutcomes` where
        trials are right or wrong or have categories.
    """
    if not isinstance(value, Outcomes):
        rule = "be an Outcomes, as from Outcomes.from_matrix or Outcomes.from_counts"
        raise InvalidInputError.of(name, "type", rule, type(value).__name__)
    if value.scored and not scores:
        rule = "have right and wrong trials or categories"
        low, high = value.bounds
        raise InvalidInputError.of(name, "unsupported", rule, f"scores from {low:g} to {high:g}")


def require_trials(outcomes: Outcomes) -> FloatArray:
    """Return N_α as floats, refusing a question without trials.

    Raises
    ------
    InvalidInputError
        If some N_α is 0.
    """
    n_trials = outcomes.n_trials
    if n_trials.min() < 1:
        rule = "have at least one trial for every question"
        got = f"none for question {int(n_trials.argmin())}"
        raise InvalidInputError.of("outcomes", "empty", rule, got)
    return n_trials.astype(np.float64)


def require_binary(outcomes: Outcomes) -> None:
    """Raise for outcomes that are not wrong/correct.

    Raises
    ------
    InvalidInputError
        If there are more than two categories, or category 1 does not score more than 0.
    """
    check_outcomes("outcomes", outcomes)
    if outcomes.n_categories != 2:
        rule = (
            "be binary for the pass family; decide which categories count as correct, "
            "for example Outcomes.from_matrix(R >= 2)"
        )
        got = f"{outcomes.n_categories} categories"
        raise InvalidInputError.of("outcomes", "unsupported", rule, got)
    if not outcomes.weights[0] < outcomes.weights[1]:
        rule = "score category 1 (correct) above category 0 (wrong) for the pass family"
        got = f"weights {outcomes.weights.tolist()}"
        raise InvalidInputError.of("outcomes", "range", rule, got)


def require_single_trials(name: str, outcomes: Outcomes) -> npt.NDArray[np.bool_]:
    """Return whether each question's only trial was right, shape (M,).

    Raises
    ------
    InvalidInputError
        If the outcomes are not binary with one trial per question, without prior trials and
        clusters; the message calls them `name`.
    """
    check_outcomes(name, outcomes)
    require_binary(outcomes)
    clustered = outcomes.cluster_index is not None
    if (outcomes.n_trials != 1).any() or outcomes.prior_counts.any() or clustered:
        rule = (
            "have one trial per question, no prior trials and no clusters; "
            'else use scope="population" of a posterior under the learned prior'
        )
        trials = f"{outcomes.mean_trials:g} trials per question"
        raise InvalidInputError.of(name, "unsupported", rule, trials + ", in clusters" * clustered)
    return np.asarray(outcomes.counts[:, 1] == 1)


def _count(matrix: IntArray, n_categories: int) -> IntArray:
    """Count the categories of each row."""
    n_questions = matrix.shape[0]
    flat = matrix + n_categories * np.arange(n_questions)[:, None]
    counted = np.bincount(flat.ravel(), minlength=n_questions * n_categories)
    return counted.reshape(n_questions, n_categories).astype(np.int64)


class Pairs(NamedTuple):
    """The D distinct pairs among M.

    `first` and `second` have shape (D,); `where` (M,) leads from each pair to its distinct
    one, and `times` (D,) says how often that occurs.
    """

    first: FloatArray
    second: FloatArray
    where: IntArray
    times: IntArray


def distinct_pairs(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> Pairs:
    """Find the distinct pairs, in ascending order.

    As complex numbers they sort some twenty times faster than as rows of a matrix.

    Examples
    --------
    >>> pairs = distinct_pairs(np.array([2, 1, 2]), np.array([0, 5, 0]))
    >>> pairs.first.tolist(), pairs.second.tolist(), pairs.where.tolist(), pairs.times.tolist()
    ([1.0, 2.0], [5.0, 0.0], [1, 0, 1], [1, 2])
    """
    distinct, where, times = np.unique(first + 1j * second, return_inverse=True, return_counts=True)
    return Pairs(distinct.real, distinct.imag, where, times)
