"""Pass@k curves of two models, compared at all k simultaneously.

At small k one model can be ahead and at large k the other. A simultaneous band over k shows for
which budgets either is certain, and where the sign first changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes._util.validation import (
    check_level,
    check_option,
    check_rising,
    check_seed,
    check_size,
)
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, IntArray, blocks, read_only
from lm_eval_bayes.stats.comparison.difference import cluster_values, paired_spread
from lm_eval_bayes.stats.comparison.shared_questions import (
    Align,
    Aligned,
    align_questions,
    common_clusters,
)
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.intervals import SCOPES, Scope
from lm_eval_bayes.stats.outcomes import Outcomes, require_binary, require_trials
from lm_eval_bayes.stats.pass_family_estimators import PassQuantity, pass_at_k
from lm_eval_bayes.stats.pass_family_posteriors import pass_posteriors
from lm_eval_bayes.stats.results import joined_notes

Direction: TypeAlias = Literal["gain to loss", "loss to gain"]

#: A spread below this counts as none.
_NO_SPREAD = 1e-12
#: Numbers worked on at a time where speed wants them in the processor's cache.
_CACHED = 1 << 16
_MOST_BUDGETS = 1_000


@dataclass(frozen=True, eq=False)
class PassCurveComparison(Record):
    """Pass@k of A minus Pass@k of B for many k, with a band that holds for all of them.

    Attributes
    ----------
    ks : array of int, shape (K,)
        The budgets compared.
    a, b : array, shape (K,)
        The two curves.
    difference, sd : array, shape (K,)
        Mean of A − B and its standard deviation: that of the posterior in scope "benchmark",
        the standard error over questions in scope "population", over clusters where they have some.
    low, high : array, shape (K,)
        The simultaneous band, difference ± critical·sd within [−1, 1]; all of [−1, 1] where
        the sd is 0, since the data show no variation there.
    level : float
        Probability with which the band holds at all `ks` together.
    scope : str
        "benchmark": a credible band of the latent curves of these questions. "population":
        an asymptotic confidence band for the population of questions.
    critical : float
        The band's half width in standard deviations.
    better, worse, undecided : tuple of int
        Budgets at which A is certainly ahead, certainly behind, neither.
    turn : Turn or None
        Where the sign first turns; None where it never is certain, or where it is certain
        and the same from its first budget to the last.
    draws, seed : int
        Of the posterior draws or the bootstrap.
    note : str or None
        A warning about the curves: in scope "benchmark" what the two
        models' posteriors say, and that budgets exceed the trials.
    """

    ks: IntArray
    a: FloatArray
    b: FloatArray
    difference: FloatArray
    sd: FloatArray
    low: FloatArray
    high: FloatArray
    level: float
    scope: Scope
    critical: float
    better: tuple[int, ...]
    worse: tuple[int, ...]
    undecided: tuple[int, ...]
    turn: Turn | None
    draws: int
    seed: int
    note: str | None = None


def compare_pass_curves(
    a: Outcomes,
    b: Outcomes,
    ks: Iterable[int] | None = None,
    scope: Scope = "benchmark",
    level: float = 0.95,
    *,
    align: Align = "strict",
    seed: int = 0,
    draws: int = 4000,
) -> PassCurveComparison:
    """Compare two models' Pass@k at many k together.

    Scope "population": per question the finite-bank estimators [Chen 2021], their difference
    averaged over questions, and a Gaussian prompt-multiplier sup-t band over the budgets,
    the method of [Yang 2026] and its package ``passk-inference``. Scope "benchmark":
    posterior draws of the mean of 1 − (1 − p_α)^k for both models, and a sup-t band over the
    draws.

    Parameters
    ----------
    a, b : Outcomes
        Binary, at least one trial per question; paired by their ids, by position without ids.
    ks : iterable of int, optional
        Budgets k >= 1, rising. At most the smallest N_α in scope "population", any in scope
        "benchmark". Left out, all up to the smallest N_α.
    scope : {"benchmark", "population"}
        About these M questions, or about the population of questions (M >= 2).
    level : float
        Probability with which the band holds everywhere, strictly between 0 and 1.
    align : {"strict", "intersection"}
        Whether a question that one side lacks is an error, or left out and counted.
    seed : int
        Seed of the draws.
    draws : int
        Posterior draws or bootstrap replicates, 100 to 10⁷ (fewer for many budgets).

    Returns
    -------
    PassCurveComparison

    Raises
    ------
    InvalidInputError
        If the outcomes are not binary, the questions or weights do not match, or an argument
        breaks its rule.

    Examples
    --------
    A solves half of the questions nearly always and half never; B solves all of them, rarely.

    >>> a = Outcomes.from_counts([[2, 30], [1, 31]] * 10 + [[32, 0]] * 20)
    >>> b = Outcomes.from_counts([[26, 6], [27, 5]] * 20)
    >>> result = compare_pass_curves(a, b, ks=[1, 2, 4, 8, 16, 32])
    >>> result.better, result.undecided, result.worse
    ((1, 2), (4,), (8, 16, 32))
    >>> result.turn
    Turn(direction='gain to loss', low=4, high=8)
    """
    scope = check_option("scope", scope, SCOPES)
    level = check_level(level)
    seed = check_seed(seed)
    pair = align_questions(a, b, align)
    for side in (pair.a, pair.b):
        require_binary(side)
        require_trials(side)
    smallest = int(min(pair.a.n_trials.min(), pair.b.n_trials.min()))
    budgets = _budgets(ks, smallest)
    draws = check_size("draws", draws, 100, budgets.size)
    rng = np.random.default_rng(seed)
    if scope == "population":
        if budgets[-1] > smallest:
            rule = f'stay within the trials in scope "population" (the smallest N is {smallest})'
            raise InvalidInputError.of("ks", "range", rule, int(budgets[-1]))
        if pair.a.n_questions < 2:
            rule = 'have at least two questions for scope "population"'
            raise InvalidInputError.of("a", "empty", rule, "one question")
        curves = _estimated(pair, budgets, draws, rng)
    else:
        curves = _latent(pair, budgets, draws, seed)
    difference, sd = curves.a - curves.b, curves.sd
    critical = float(np.quantile(curves.farthest, level))
    none = sd < _NO_SPREAD
    low = np.where(none, -1.0, np.clip(difference - critical * sd, -1.0, 1.0))
    high = np.where(none, 1.0, np.clip(difference + critical * sd, -1.0, 1.0))
    sign = np.where(low > 0.0, 1, np.where(high < 0.0, -1, 0))
    return PassCurveComparison(
        ks=read_only(budgets, np.int64),
        a=read_only(curves.a, np.float64),
        b=read_only(curves.b, np.float64),
        difference=read_only(difference, np.float64),
        sd=read_only(sd, np.float64),
        low=read_only(low, np.float64),
        high=read_only(high, np.float64),
        level=level,
        scope=scope,
        critical=critical,
        better=tuple(budgets[sign > 0].tolist()),
        worse=tuple(budgets[sign < 0].tolist()),
        undecided=tuple(budgets[sign == 0].tolist()),
        turn=first_turn(budgets, sign),
        draws=draws,
        seed=seed,
        note=joined_notes(curves.notes),
    )


class _Curves(NamedTuple):
    """Both curves, the sd of their difference, and how far in sds each draw strays, (draws,).

    `notes` are those of the posteriors.
    """

    a: FloatArray
    b: FloatArray
    sd: FloatArray
    farthest: FloatArray
    notes: tuple[str | None, ...] = ()


def _estimated(pair: Aligned, ks: IntArray, draws: int, rng: np.random.Generator) -> _Curves:
    """Estimate the curves of the population of questions."""
    rows_a, rows_b = (
        np.stack([pass_at_k(side, k).per_question for k in ks.tolist()], axis=1)
        for side in (pair.a, pair.b)
    )
    labels = common_clusters([pair.a.clusters, pair.b.clusters])
    index = replace(pair.a, clusters=labels).cluster_index
    of_units = (rows_a - rows_b).T
    values, no_noise = cluster_values(of_units, np.zeros_like(of_units), index)
    rows = values.T
    sd = rows.std(axis=0, ddof=1) / np.sqrt(len(rows))
    centred = rows - rows.mean(axis=0)
    # max_k |Σ_α e_α x_αk / M| / sd_k for standard normal e
    scaled = centred / (len(rows) * np.maximum(sd, _NO_SPREAD))
    farthest = np.empty(draws)
    for part in blocks(draws, max(centred.shape)):
        multipliers = rng.standard_normal((part.stop - part.start, len(rows)))
        farthest[part] = np.abs(multipliers @ scaled).max(axis=1)
    if index is not None:
        sd = paired_spread(values, no_noise, clustered=True).sd
    return _Curves(rows_a.mean(axis=0), rows_b.mean(axis=0), sd, farthest)


def _latent(pair: Aligned, ks: IntArray, draws: int, seed: int) -> _Curves:
    """Return the posterior curves of these questions, with draws of their difference."""
    sides, rng = (pair.a, pair.b), np.random.default_rng(seed)
    members = [PassQuantity("pass@k", k) for k in ks.tolist()]
    of_a, of_b = (pass_posteriors(side, members, seed=seed) for side in sides)
    sd = np.hypot([p.sigma for p in of_a], [p.sigma for p in of_b])
    strayed = np.subtract(*(_latent_curves(side, ks, draws, rng, seed) for side in sides))
    strayed -= strayed.mean(axis=0)
    strayed /= np.maximum(strayed.std(axis=0, ddof=1), _NO_SPREAD)
    a, b = (np.array([p.mu for p in of_side]) for of_side in (of_a, of_b))
    notes = tuple(p.note for p in (of_a[0], of_b[0], of_a[-1], of_b[-1]))
    return _Curves(a, b, sd, np.abs(strayed).max(axis=1), notes)


def _latent_curves(
    outcomes: Outcomes, ks: IntArray, draws: int, rng: np.random.Generator, seed: int
) -> FloatArray:
    """Draw the latent curve (1/M) Σ_α 1 − (1 − p_α)^k of a model, (draws, K)."""
    distribution = hbayes_at_n(outcomes, seed=seed).distribution
    curves = np.empty((draws, ks.size))
    for part in blocks(draws, outcomes.n_questions, _CACHED):
        drawn = distribution.draw_categories(part.stop - part.start, rng)
        if drawn is None:
            raise TypeError("hbayes@N has questions")
        power, q = np.ones_like(drawn.theta[..., 0]), drawn.theta[..., 0]
        for column, step in enumerate(np.diff(ks, prepend=0)):
            power *= q if step == 1 else q**step
            curves[part, column] = 1.0 - power.mean(axis=1)
    return curves


def _budgets(ks: Iterable[int] | None, smallest: int) -> IntArray:
    """Return the budgets, checked."""
    if ks is None:
        if smallest > _MOST_BUDGETS:
            rule = f"be given where all of the trials would be above {_MOST_BUDGETS:,} budgets"
            raise InvalidInputError.of("ks", "range", rule, smallest)
        return np.arange(1, smallest + 1)
    rule = f"be rising integers of at least 1, between one and {_MOST_BUDGETS:,} of them"
    return np.array(check_rising("ks", ks, rule, 1, _MOST_BUDGETS), dtype=np.int64)


@dataclass(frozen=True)
class Turn(Record):
    """Where the sign of the difference first turns, as a set that the band implies.

    Let s be the sign at the first budget k0 at which the band excludes 0. The turn is the
    first budget after k0, among those compared, at which the difference has the sign −s.
    Wherever the band holds, the turn lies in [`low`, `high`].

    Attributes
    ----------
    direction : str
        "gain to loss" where A is ahead at k0, "loss to gain" where it is behind.
    low : int
        The first budget after k0 at which the band no longer has the sign s.
    high : int or None
        The first budget after k0 at which the band has the sign −s; None where there is
        none, and then no turn is certain.
    """

    direction: Direction
    low: int
    high: int | None


def first_turn(ks: IntArray, sign: IntArray) -> Turn | None:
    """Return where a sign that a band gives at every budget first turns.

    Parameters
    ----------
    ks : array of int, shape (K,)
        Rising budgets.
    sign : array of int, shape (K,)
        1 where the difference is certainly above 0, −1 below, 0 undecided.

    Examples
    --------
    >>> first_turn(np.arange(1, 7), np.array([1, 1, 0, 1, -1, 0]))
    Turn(direction='gain to loss', low=3, high=5)
    >>> first_turn(np.arange(1, 4), np.array([0, -1, -1])) is None
    True
    """
    decided = np.flatnonzero(sign)
    if decided.size == 0:
        return None
    start = int(decided[0])
    other = np.flatnonzero(sign[start:] != sign[start])
    if other.size == 0:
        return None
    opposite = np.flatnonzero(sign[start:] == -sign[start])
    return Turn(
        direction="gain to loss" if sign[start] > 0 else "loss to gain",
        low=int(ks[start + other[0]]),
        high=int(ks[start + opposite[0]]) if opposite.size else None,
    )
