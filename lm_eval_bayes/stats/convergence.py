"""Convergence@n: the number of trials from which a ranking of models no longer changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from lm_eval_bayes._util.plain import NOT_IN_JSON, Record
from lm_eval_bayes._util.validation import Tau, check_option
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, IntArray, read_only
from lm_eval_bayes.stats.comparison.compare import CONFIDENCE, z_threshold
from lm_eval_bayes.stats.prefixes import (
    LINEAR,
    BootstrapRanking,
    Metric,
    Prefixes,
    Scheme,
    Step,
    check_prefixes,
    draw_blocks,
    scores_of,
    signs,
)

#: The ranking that a replicate has to arrive at.
Gold: TypeAlias = Literal["all", "replicate"]

GOLDS: tuple[Gold, ...] = ("all", "replicate")
#: Of the tie rules those that compare neighbours only.
ConvergenceTies: TypeAlias = Literal["none", "adjacent"]
CONVERGENCE_TIES: tuple[ConvergenceTies, ...] = ("none", "adjacent")


@dataclass(frozen=True, eq=False)
class Trajectory(Record):
    """One bootstrap replicate from its first trial to its last.

    Attributes
    ----------
    replicate : int
        Its number among the replicates.
    converged_at : int
        The prefix from which on its ranking no longer changes.
    columns : array of int, shape (N,) or (M, N)
        The trials it is made of, in order; one row per question for scheme "row".
    scores : array, shape (L, N)
        Every model's score after n trials; NaN where the metric is undefined (n < k).
    ranks : array of int, shape (L, N)
        Dense ranks, 1 the best; models that tie share one. 0 where undefined.
    """

    replicate: int
    converged_at: int
    columns: IntArray
    scores: FloatArray
    ranks: IntArray


@dataclass(frozen=True, eq=False)
class Convergence(BootstrapRanking):
    """The bootstrap distribution of convergence@n.

    Attributes
    ----------
    metric, k, tau, scheme, replicates, seed
        As in `BootstrapRanking`.
    gold : str
        "all": the ranking by bayes@N of all N trials, each taken once; "replicate": each
        replicate's own ranking by its N trials.
    ties : str
        "none": only equal scores share a rank; "adjacent": credible-interval ties.
    n_max : int
        N.
    counts : array of int, shape (N,)
        ``counts[s-1]`` replicates converged at s trials. With `gold` "replicate" none does at N.
    worst : Trajectory or None
        The replicate that converges last (the first of them); None where none converges.
    """

    gold: Gold
    ties: ConvergenceTies
    n_max: int
    counts: IntArray = field(metadata=NOT_IN_JSON)
    worst: Trajectory | None

    @property
    def pmf(self) -> FloatArray:
        """Share of replicates that converge at s = 1..N; sums to 1 − `not_converged`."""
        return np.asarray(self.counts / self.replicates)

    @property
    def cdf(self) -> FloatArray:
        """Share of replicates that have converged by s = 1..N."""
        return np.asarray(np.cumsum(self.counts) / self.replicates)

    @property
    def not_converged(self) -> float:
        """Share of replicates whose ranking by N trials is not the gold ranking.

        With `gold` "replicate": whose ranking the last trial still changes.
        """
        return (self.replicates - int(self.counts.sum())) / self.replicates

    @property
    def mean(self) -> float | None:
        """Mean convergence@n over the replicates that converge; None where none does."""
        converged = int(self.counts.sum())
        total = float(self.counts @ np.arange(1, self.n_max + 1))
        return total / converged if converged else None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and the distribution as plain JSON types."""
        return {
            **super().to_dict(),
            "pmf": self.pmf.tolist(),
            "cdf": self.cdf.tolist(),
            "mean": self.mean,
            "not_converged": self.not_converged,
        }


def convergence_at_n(  # noqa: PLR0913  public options
    R: npt.ArrayLike,
    metric: Metric = "bayes",
    *,
    k: int | None = None,
    tau: Tau | None = None,
    weights: npt.ArrayLike | None = None,
    replicates: int = 100_000,
    scheme: Scheme = "column",
    gold: Gold = "all",
    ties: ConvergenceTies = "none",
    seed: int = 0,
) -> Convergence:
    """Return the bootstrap distribution of convergence@n [Hariri 2026, §3.3, F.1].

    Estimand: the smallest s at which the ranking of the L models by a replicate's first s trials
    is the gold ranking, and so is every later one. It is about these questions (scope benchmark)
    and of an order of trials as random as the bootstrap makes it. Every prefix of every
    replicate is evaluated. Prefixes shorter than k have no estimate of the pass family, hence no
    ranking: nothing converges before s = k.

    The paper words the gold ranking in two ways, which are two estimands:

    - ``gold="all"`` [§3.3]: the ranking by bayes@N of the N trials of R, not resampled, for every
      metric (§2.7 takes Bayes@N as the gold standard). s <= N. A replicate whose N trials rank
      the models otherwise has not converged, so this asks whether N trials suffice to find the
      ranking.
    - ``gold="replicate"`` [App. F.1 as worded]: each replicate's own ranking by its N trials and
      the metric itself. s <= N − 1; a replicate whose ranking the last trial still changes has
      not converged. This asks only how early a ranking is settled, right or wrong.

    Rankings are compared with their ties: models of equal score share a rank, and a prefix
    agrees only if it ties the same models. Scores within 10⁻¹² of their range of each other count
    as equal, so that rounding breaks no tie.

    Parameters
    ----------
    R : array, shape (L, M, N)
        Outcomes of L >= 2 models on M questions in N >= 2 trials: categories 0..C, or 0 and 1.
    metric : str
        "bayes" and "avg" (which rank alike, by eq. 19), or of the pass family "pass@k",
        "pass^k", "naive pass@k", "naive pass^k", "g-pass" or "mg-pass" (binary outcomes only).
    k : int, optional
        1 <= k <= N, for the pass family.
    tau : float, Fraction or Decimal, optional
        In [0, 1], for "g-pass".
    weights : array, shape (C+1,), optional
        The score of each category, for bayes and avg; left out, outcomes are binary.
    replicates : int
        How many bootstrap replicates, up to 10⁷.
    scheme : {"column", "row"}
        "column": a replicate draws N of the N trials with replacement, and all questions take
        the same trials. "row": every question draws its own. In both, all models take the same
        draw, as one tensor R is resampled.
    gold : {"all", "replicate"}
        The ranking to arrive at.
    ties : {"none", "adjacent"}
        "adjacent": sorted by score, neighbours with z = |μ − μ'|/sqrt(σ² + σ'²) below
        Φ⁻¹(0.95) = 1.645 share a rank and the next rank is one more, as in Table 1; equal μ are
        sorted by σ. For bayes and avg, whose z are the same (eq. 20).
    seed : int
        The seed of the replicates.

    Returns
    -------
    Convergence

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.

    Examples
    --------
    >>> rng = np.random.default_rng(4)
    >>> R = rng.random((3, 30, 40)) < np.array([0.3, 0.5, 0.6])[:, None, None]
    >>> result = convergence_at_n(R, replicates=2000, seed=1)
    >>> round(result.mean, 1), result.not_converged
    (2.8, 0.0005)
    >>> round(convergence_at_n(R, "pass@k", k=4, replicates=2000, seed=1).mean, 1)
    6.7
    >>> close = rng.random((2, 30, 40)) < np.array([0.5, 0.53])[:, None, None]
    >>> for gold in ("all", "replicate"):
    ...     result = convergence_at_n(close, gold=gold, replicates=2000, seed=1)
    ...     print(gold, round(result.mean, 1), round(result.not_converged, 2))
    all 13.7 0.21
    replicate 14.4 0.05
    """
    prefixes = check_prefixes(R, metric, k, tau, weights, smallest=(2, 2))
    settings = prefixes.bootstrap(scheme, replicates, seed, tau)
    check_option("gold", gold, GOLDS)
    check_option("ties", ties, CONVERGENCE_TIES)
    if ties != "none" and prefixes.metric not in LINEAR:
        rule = 'be "none" for the pass family, whose estimators have no posterior'
        raise InvalidInputError.of("ties", "unsupported", rule, ties)
    threshold = None if ties == "none" else z_threshold(CONFIDENCE)
    n_trials = prefixes.shape[2]
    target = _gold_ranks(prefixes, R, threshold) if gold == "all" else None
    counts = np.zeros(n_trials + 2, dtype=np.int64)
    worst_columns, replicate, latest, done = None, 0, 0, 0
    for columns in draw_blocks(settings.scheme, prefixes.shape, replicates, seed):
        when = _converged_at(prefixes, columns, threshold, target)
        counts += np.bincount(when, minlength=n_trials + 2)
        when[when > n_trials] = 0
        row = int(when.argmax())
        if when[row] > latest:
            worst_columns, replicate, latest = columns[row].copy(), done + row, int(when[row])
        done += when.size
    return Convergence(
        **vars(settings),
        gold=gold,
        ties=ties,
        n_max=n_trials,
        counts=read_only(counts[1 : n_trials + 1], np.int64),
        worst=worst_columns
        if worst_columns is None
        else _trajectory(prefixes, worst_columns, threshold, replicate, latest),
    )


def _gold_ranks(prefixes: Prefixes, R: npt.ArrayLike, threshold: float | None) -> IntArray:
    """Rank the models by bayes@N of all N trials, or by avg@N if that is the metric, (L,).

    Both rank alike [Hariri 2026, eq. 19].
    """
    if prefixes.metric not in LINEAR:
        prefixes = check_prefixes(R, "bayes", None, None, None, smallest=(2, 2))
    columns = np.arange(prefixes.shape[2])[None, None, :]
    *_, last = prefixes.walk(columns, spread=threshold is not None)
    return np.asarray(ranks_of(last, threshold)[0])


def _converged_at(
    prefixes: Prefixes, columns: IntArray, threshold: float | None, gold: IntArray | None
) -> IntArray:
    """Return when each replicate converges, shape (B,); N + 1 where it does not.

    `gold` None stands for each replicate's own ranking by N trials.
    """
    steps = prefixes.walk(columns, spread=threshold is not None)
    ranks = np.stack([ranks_of(step, threshold) for step in steps])
    same = (ranks == (ranks[-1] if gold is None else gold)).all(axis=2)
    # the last prefix that differs, counted from the end
    trailing = np.where(same.all(axis=0), len(same), np.argmin(same[::-1], axis=0))
    n_trials = prefixes.shape[2]
    when = np.asarray(n_trials + 1 - trailing, dtype=np.int64)
    if gold is None:
        # every ranking by N trials is itself
        when[when == n_trials] = n_trials + 1
    return when


def ranks_of(step: Step, threshold: float | None) -> IntArray:
    """Return dense ranks (B, L), 1 the best.

    Parameters
    ----------
    step : Step
        With its variance where there is a threshold.
    threshold : float or None
        Neighbours with z below it share a rank; None: only equal scores do.
    """
    # complex numbers sort by their real part and then by the other: by μ, then by σ
    falling = -step.scores if step.variance is None else -step.scores + 1j * step.variance
    order = np.argsort(falling, axis=1)
    scores = np.take_along_axis(step.scores, order, axis=1)
    apart = signs(scores[:, 1:], scores[:, :-1]) != 0
    if threshold is not None and step.variance is not None:
        variance = np.take_along_axis(step.variance, order, axis=1)
        squared_z_limit = threshold**2 * (variance[:, :-1] + variance[:, 1:])
        apart &= np.square(scores[:, :-1] - scores[:, 1:]) >= squared_z_limit
    ranks = np.ones(step.scores.shape, dtype=np.int64)
    dense = 1 + np.cumsum(apart, axis=1)
    np.put_along_axis(ranks, order[:, 1:], dense, axis=1)
    return ranks


def _trajectory(
    prefixes: Prefixes, columns: IntArray, threshold: float | None, replicate: int, when: int
) -> Trajectory:
    """Return all scores and ranks of one replicate."""
    n_models, _, n_trials = prefixes.shape
    ranks = np.zeros((n_models, n_trials), dtype=np.int64)
    for step in prefixes.walk(columns[None], spread=threshold is not None):
        ranks[:, step.n - 1] = ranks_of(step, threshold)[0]
    return Trajectory(
        replicate=replicate,
        converged_at=when,
        columns=read_only(columns[0] if len(columns) == 1 else columns, np.int64),
        scores=read_only(scores_of(prefixes, columns[None]), np.float64),
        ranks=read_only(ranks, np.int64),
    )
