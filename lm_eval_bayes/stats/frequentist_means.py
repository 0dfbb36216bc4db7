"""Confidence intervals for a mean score or a difference: CLT, Student's t, clusters, bootstrap.

They serve for comparison: on small benchmarks the coverage of most of them is below the nominal
level [Bowyer 2025].
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import special

from lm_eval_bayes._util.validation import (
    check_flag,
    check_level,
    check_seed,
    check_size,
)
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, blocks, cluster_index, numeric
from lm_eval_bayes.stats.comparison.shared_questions import align_questions
from lm_eval_bayes.stats.frequentist import ConfidenceInterval
from lm_eval_bayes.stats.intervals import Scope, sample_tails
from lm_eval_bayes.stats.outcomes import Outcomes, check_outcomes
from lm_eval_bayes.stats.uniform_prior import avg_at_n

_POPULATION_MEAN = "mean score of the population of questions"
_NO_SPREAD = "the data have no variation, so this method gives an interval of width 0"


def within_question_clt(outcomes: Outcomes, level: float = 0.95) -> ConfidenceInterval:
    """Return the CLT interval for the score on these questions.

    The questions are taken as given and only the trials as random: with s_α² the unbiased
    variance of question α's N_α scores, SE = sqrt(Σ_α s_α²/N_α)/M and the ends are
    a ± z·SE around avg@N (the conditional variance of Miller 2024, §3). Prior trials do not
    enter.

    Parameters
    ----------
    outcomes : Outcomes
        Counts of M questions, at least two trials each.
    level : float
        In (0, 1).

    Returns
    -------
    ConfidenceInterval
        Of scope "benchmark".

    Raises
    ------
    InvalidInputError
        If a question has fewer than two trials or `level` is outside (0, 1).

    Examples
    --------
    >>> interval = within_question_clt(Outcomes.from_matrix([[0, 1, 1, 0], [1, 1, 1, 1]]))
    >>> interval.estimate, round(interval.standard_error, 4)
    (0.75, 0.1443)
    """
    check_outcomes("outcomes", outcomes)
    level = check_level(level)
    n_trials = outcomes.n_trials
    if n_trials.min() < 2:
        rule = "have at least two trials for every question, which the variance within one needs"
        few = int(n_trials.argmin())
        raise InvalidInputError.of("outcomes", "empty", rule, f"{n_trials[few]} for question {few}")
    means = avg_at_n(outcomes)
    deviations = outcomes.weights - means.per_question[:, None]
    variances = (outcomes.counts * deviations**2).sum(axis=1) / (n_trials - 1.0)
    error = float(np.sqrt((variances / n_trials).sum())) / outcomes.n_questions
    return _mean_interval(
        means.value,
        error,
        level,
        method="clt",
        estimand="mean score of these questions",
        scope="benchmark",
        bounds=outcomes.bounds,
    )


def clt_interval(scores: Outcomes | npt.ArrayLike, level: float = 0.95) -> ConfidenceInterval:
    """Return the CLT interval for the mean score of the population of questions.

    The mean ± z·SE with SE² = s²/n and s² the unbiased variance of the n scores (Miller
    2024, eq. 1; [Bowyer 2025, §3.1]). With Outcomes the n scores are the M question means, so
    the spread between questions and the one within them are both counted.

    Parameters
    ----------
    scores : Outcomes or array, shape (n,)
        One score in [0, 1] per question, or outcomes with at least one trial per question;
        n >= 2.
    level : float
        In (0, 1).

    Returns
    -------
    ConfidenceInterval
        Of scope "population".

    Raises
    ------
    InvalidInputError
        If `scores` are fewer than two, outside [0, 1] where they are an array, or `level` is
        outside (0, 1).

    Examples
    --------
    >>> interval = clt_interval([1, 0, 1, 1, 0, 1, 1, 1, 1, 0])
    >>> round(interval.low, 4), round(interval.high, 4)
    (0.4006, 0.9994)
    """
    return _from_spread(scores, level, "clt")


def t_interval(scores: Outcomes | npt.ArrayLike, level: float = 0.95) -> ConfidenceInterval:
    """Return Student's t interval for the mean score of the population of questions.

    As :func:`clt_interval` with the quantile of t at n − 1 degrees of freedom in place of z.

    Parameters
    ----------
    scores : Outcomes or array, shape (n,)
        One score in [0, 1] per question, or outcomes with at least one trial per question;
        n >= 2.
    level : float
        In (0, 1).

    Returns
    -------
    ConfidenceInterval
        Of scope "population".

    Raises
    ------
    InvalidInputError
        If `scores` are fewer than two, outside [0, 1] where they are an array, or `level` is
        outside (0, 1).

    Examples
    --------
    >>> interval = t_interval([1, 0, 1, 1, 0, 1, 1, 1, 1, 0])
    >>> round(interval.low, 4), interval.high
    (0.3544, 1.0)
    """
    return _from_spread(scores, level, "t")


def _from_spread(
    scores: Outcomes | npt.ArrayLike, level: float, method: Literal["clt", "t"]
) -> ConfidenceInterval:
    """Return mean ± quantile·sqrt(s²/n)."""
    level = check_level(level)
    values, bounds = _as_scores("scores", scores, 2)
    error = float(values.std(ddof=1) / np.sqrt(values.size))
    df = values.size - 1 if method == "t" else None
    return _mean_interval(float(values.mean()), error, level, df=df, method=method, bounds=bounds)


def clustered_interval(
    scores: Outcomes | npt.ArrayLike,
    clusters: Sequence[Hashable] | npt.NDArray[np.generic],
    level: float = 0.95,
    *,
    small_sample: bool = False,
) -> ConfidenceInterval:
    """Return the mean ± z times its clustered standard error.

    SE² = Σ_c (Σ_{i in c} (s_i − s̄))² / n², the pairs within a cluster counted as they vary
    together (Miller 2024, eq. 4; [Bowyer 2025, §3.2]). It relies on the CLT over clusters and
    needs many of them; for few, `clustered_posterior`.

    Parameters
    ----------
    scores : Outcomes or array, shape (n,)
        One score per question (or, for repeated trials, one per trial); outcomes give their
        question means.
    clusters : sequence, length n
        The cluster of each score: a passage, a topic, a question asked several times.
    level : float
        In (0, 1).
    small_sample : bool
        Whether to widen by sqrt(G/(G − 1)) and take Student's t at G − 1 degrees of freedom,
        G being the number of clusters.

    Returns
    -------
    ConfidenceInterval
        Of scope "population", method "clustered" or "clustered-t".

    Raises
    ------
    InvalidInputError
        If `scores` break their rule, `clusters` has another length or fewer than two
        distinct entries, `level` is outside (0, 1), or `small_sample` is no bool.

    Examples
    --------
    Two passages of three questions each, one easy and one hard:

    >>> interval = clustered_interval([1, 1, 1, 0, 0, 1], ["a", "a", "a", "b", "b", "b"])
    >>> round(interval.estimate, 4), round(interval.standard_error, 4)
    (0.6667, 0.2357)
    """
    level, small_sample = check_level(level), check_flag("small_sample", small_sample)
    values, bounds = _as_scores("scores", scores, 2)
    where = cluster_index(clusters, values.size, "score")
    n_clusters = int(where.max()) + 1
    if n_clusters < 2:
        rule = "name at least two clusters"
        raise InvalidInputError.of("clusters", "empty", rule, f"{n_clusters}")
    mean = float(values.mean())
    totals = np.bincount(where, weights=values - mean)
    error = float(np.sqrt((totals**2).sum())) / values.size
    df, method = None, "clustered"
    if small_sample:
        error *= float(np.sqrt(n_clusters / (n_clusters - 1)))
        df, method = n_clusters - 1, "clustered-t"
    return _mean_interval(mean, error, level, df=df, method=method, bounds=bounds)


def difference_interval(
    a: Outcomes | npt.ArrayLike,
    b: Outcomes | npt.ArrayLike,
    level: float = 0.95,
    *,
    paired: bool = True,
) -> ConfidenceInterval:
    """Return the CLT interval for the score of model a less that of model b.

    Paired: the mean of d_α = s_α − s'_α ± z·sqrt(s_d²/M) (Miller 2024, §4; [Bowyer 2025, §3.4]).
    Unpaired: SE² = SE_a² + SE_b² [Bowyer 2025, §3.3], which throws away that both answered the
    same questions.

    Parameters
    ----------
    a, b : Outcomes or array, shape (n,)
        One score per question each, or outcomes.
    level : float
        In (0, 1).
    paired : bool
        Whether both answered the same questions; outcomes are paired by their question ids where
        they have them, else by position.

    Returns
    -------
    ConfidenceInterval
        Of scope "population" and method "clt-paired" or "clt-unpaired".

    Raises
    ------
    InvalidInputError
        If the inputs break their rule, or the questions do not pair (the first ids that
        only one side has are named).

    Examples
    --------
    >>> a, b = [1, 1, 1, 0, 1, 1, 0, 1], [1, 0, 1, 0, 1, 0, 0, 1]
    >>> pairs = difference_interval(a, b)
    >>> round(pairs.estimate, 3), round(pairs.low, 3), round(pairs.high, 3)
    (0.25, -0.071, 0.571)
    >>> round(difference_interval(a, b, paired=False).low, 3)
    -0.24
    """
    level, paired = check_level(level), check_flag("paired", paired)
    if paired and isinstance(a, Outcomes) and isinstance(b, Outcomes):
        pair = align_questions(a, b)
        a, b = pair.a, pair.b
    (x, bounds_a), (y, bounds_b) = _as_scores("a", a, 2), _as_scores("b", b, 2)
    if not paired:
        error = math.sqrt(x.var(ddof=1) / x.size + y.var(ddof=1) / y.size)
    elif x.size == y.size:
        error = float((x - y).std(ddof=1) / np.sqrt(x.size))
    else:
        rule = f"have as many questions as `a` ({x.size}) where `paired`"
        raise InvalidInputError.of("b", "shape", rule, y.size)
    return _mean_interval(
        float(x.mean() - y.mean()),
        error,
        level,
        method="clt-paired" if paired else "clt-unpaired",
        estimand="difference of the mean scores of the population of questions",
        bounds=(bounds_a[0] - bounds_b[1], bounds_a[1] - bounds_b[0]),
    )


def bootstrap_interval(
    scores: Outcomes | npt.ArrayLike,
    level: float = 0.95,
    *,
    replicates: int = 10_000,
    seed: int = 0,
) -> ConfidenceInterval:
    """Return the percentile bootstrap interval of a mean score.

    Questions are drawn with replacement, and the ends are the (1 ± level)/2 quantiles of the means
    drawn [Bowyer 2025, §3.1]. Outcomes that are absent from the data are absent from the
    replicates: if every score is equal, the interval is a point.

    Parameters
    ----------
    scores : Outcomes or array, shape (n,)
        One score per question, or outcomes.
    level : float
        In (0, 1).
    replicates : int
        100 to 10⁷.
    seed : int
        Of the resampling.

    Returns
    -------
    ConfidenceInterval
        Of scope "population", with `seed` and `replicates`; its standard error is the sd of the
        means drawn.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.

    Examples
    --------
    >>> interval = bootstrap_interval([1, 0, 1, 1, 0, 1, 1, 1, 1, 0])
    >>> interval.estimate, interval.low, interval.high, interval.seed
    (0.7, 0.4, 1.0, 0)
    """
    level, seed = check_level(level), check_seed(seed)
    replicates = check_size("replicates", replicates, 100)
    values, _ = _as_scores("scores", scores, 1)
    # how often each distinct score comes: for 0/1 scores a replicate is one binomial number
    distinct, times = np.unique(values, return_counts=True)
    rng, means = np.random.default_rng(seed), np.empty(replicates)
    for part in blocks(replicates, distinct.size):
        often = rng.multinomial(values.size, times / values.size, part.stop - part.start)
        means[part] = often @ distinct / values.size
    low, high = sample_tails(means, level)
    return ConfidenceInterval(
        low=low,
        high=high,
        level=level,
        method="bootstrap",
        estimand=_POPULATION_MEAN,
        estimate=float(values.mean()),
        standard_error=float(means.std()),
        seed=seed,
        replicates=replicates,
        note=_NO_SPREAD if distinct.size == 1 else None,
    )


def _mean_interval(
    estimate: float,
    error: float,
    level: float,
    *,
    df: int | None = None,
    method: str,
    estimand: str = _POPULATION_MEAN,
    scope: Scope = "population",
    bounds: tuple[float, float],
) -> ConfidenceInterval:
    """Return estimate ± q·error, q the quantile of Student's t at `df`, of a normal without.

    It is clipped to `bounds`, the smallest and the largest possible estimate.
    """
    upper = 0.5 + 0.5 * level
    half = float(special.ndtri(upper) if df is None else special.stdtrit(df, upper)) * error
    least, most = bounds
    return ConfidenceInterval(
        low=max(estimate - half, least),
        high=min(estimate + half, most),
        level=level,
        method=method,
        estimand=estimand,
        scope=scope,
        estimate=estimate,
        standard_error=error,
        note=_NO_SPREAD if error == 0.0 else None,
    )


def _as_scores(
    name: str, scores: Outcomes | npt.ArrayLike, least: int
) -> tuple[FloatArray, tuple[float, float]]:
    """Return one score per question, and the smallest and the largest possible one.

    Raises
    ------
    InvalidInputError
        If the scores are fewer than `least`, or an array holds one outside [0, 1].
    """
    bounds = (0.0, 1.0)
    if isinstance(scores, Outcomes):
        values, bounds = avg_at_n(scores).per_question, scores.bounds
    else:
        array = numeric(name, scores)
        if array.ndim != 1:
            got = f"shape {array.shape}"
            raise InvalidInputError.of(name, "shape", "be 1-D, one score per question", got)
        values = array.astype(np.float64)
    if values.size < least:
        raise InvalidInputError.of(name, "empty", f"hold at least {least} scores", f"{values.size}")
    bad = ~((values >= bounds[0]) & (values <= bounds[1]))
    if bad.any():
        where = int(bad.argmax())
        rule = "lie in [0, 1]; Outcomes can have other scores"
        raise InvalidInputError.of(name, "range", rule, f"{values[where].item()!r} (score {where})")
    return values, bounds
