"""Checks of the assumptions of the anchor method: order, choice and independence of queries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes._util.validation import check_pair, check_seed, check_size
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.anchor_matrix import AnchorMatrix, check_anchors
from lm_eval_bayes.stats.arrays import FloatArray, IntArray, numeric, read_only


@dataclass(frozen=True)
class Violation:
    """A query on which a stronger anchor does worse: `weaker` solves it more often by `gap`."""

    weaker: str
    stronger: str
    query: int
    gap: float


@dataclass(frozen=True, eq=False)
class OrderingReport(Record):
    """How far the anchors are from solving ever more of every query.

    Attributes
    ----------
    violations : tuple of Violation
        All of them, the largest gap first.
    n_comparisons : int
        Pairs of anchors times queries.
    share : float
        Violations among the comparisons.
    tied : tuple of pairs of str
        Neighbouring anchors whose ability is equal, so that their order is arbitrary.
    """

    violations: tuple[Violation, ...]
    n_comparisons: int
    share: float
    tied: tuple[tuple[str, str], ...]


def ordering_violations(anchors: AnchorMatrix) -> OrderingReport:
    """Find the queries on which a stronger anchor does worse than a weaker one.

    The method reads "between two anchors" query by query, so it takes Π_ij as rising in i
    for every j [Xiao 2025]. Estimated from a few trials it never quite does; a large share,
    or large gaps on one query, says that the query measures something else.

    Parameters
    ----------
    anchors : AnchorMatrix
        The anchors, weakest first.

    Returns
    -------
    OrderingReport

    Examples
    --------
    >>> anchors = AnchorMatrix.from_probabilities([[0.5, 0.1], [0.2, 0.9]], ["S", "L"])
    >>> report = ordering_violations(anchors)
    >>> report.share, report.violations[0].query, round(report.violations[0].gap, 3)
    (0.5, 0, 0.3)
    """
    check_anchors("anchors", anchors)
    table, names = anchors.probabilities, anchors.names
    weak, strong = np.triu_indices(anchors.n_anchors, 1)
    gaps = table[weak] - table[strong]
    pair, query = np.nonzero(gaps > 0.0)
    order = np.argsort(-gaps[pair, query], kind="stable")
    violations = tuple(
        Violation(names[weak[p]], names[strong[p]], int(q), float(gaps[p, q]))
        for p, q in zip(pair[order], query[order], strict=True)
    )
    ties = np.flatnonzero(np.diff(anchors.ability) <= 1e-12)
    return OrderingReport(
        violations=violations,
        n_comparisons=int(gaps.size),
        share=len(violations) / gaps.size if gaps.size else 0.0,
        tied=tuple((names[i], names[i + 1]) for i in ties),
    )


@dataclass(frozen=True, eq=False)
class QueryFilter(Record):
    """The queries that distinguish models.

    Attributes
    ----------
    kept : array of int
        Positions of the queries kept, ascending, read-only.
    solved : array, shape (M,)
        The share of the reference models that solve each query.
    low, high : float
        The shares that are kept, both limits included.
    """

    kept: IntArray
    solved: FloatArray
    low: float
    high: float


def filter_queries(references: AnchorMatrix, low: float = 0.01, high: float = 0.5) -> QueryFilter:
    """Keep the queries that 1–50% of the reference models solve [Xiao 2025].

    A query that no model solves has no information, and one that most solve has little about
    strong models. The share is the mean of Π_ij over the references, so a model that solves a query
    in two of four trials counts one half. Use references that are not to be placed
    themselves, or the choice of queries speaks for them.

    Parameters
    ----------
    references : AnchorMatrix
        The reference models.
    low, high : float
        0 <= low <= high <= 1, both limits included.

    Returns
    -------
    QueryFilter
        Its `kept` goes to `AnchorMatrix.take` and `Outcomes.take`; it may be empty.

    Raises
    ------
    InvalidInputError
        If `low` and `high` break their rule.

    Examples
    --------
    >>> references = AnchorMatrix.from_probabilities([[0, 0.2, 1], [0, 0.4, 1]])
    >>> filter_queries(references).kept.tolist()
    [1]
    """
    check_anchors("references", references)
    rule = "satisfy 0 <= low <= high <= 1"
    low, high = check_pair("low, high", (low, high), rule, lambda x, y: 0.0 <= x <= y <= 1.0)
    solved = references.probabilities.mean(axis=0)
    # the mean of n shares of .5 may miss .5 by a rounding
    inside = (solved >= low - 1e-12) & (solved <= high + 1e-12)
    kept = read_only(np.flatnonzero(inside), np.int64)
    return QueryFilter(kept, read_only(solved, np.float64), low, high)


@dataclass(frozen=True)
class IndependenceCheck(Record):
    """Whether the outcomes of different queries are independent, given the model.

    Attributes
    ----------
    variance_ratio : float or None
        Variance of the trials' totals over what independent queries would give (1); None
        where no query varies.
    p_value : float
        Share of permutations whose ratio is as far above 1, the observed one counted too.
    permutations, seed : int
        Of the permutation test.
    """

    variance_ratio: float | None
    p_value: float
    permutations: int
    seed: int


def query_independence(
    R: npt.ArrayLike, *, permutations: int = 2000, seed: int = 0
) -> IndependenceCheck:
    """Test whether the outcomes of queries are independent, given the model.

    The likelihood of a model's outcomes is a product over queries [Xiao 2025]. Where trial i
    of all queries shares something (a seed, a prompt, a moment of overload), totals of trials
    vary more than the queries one by one allow. The check compares: Σ_l Var_i(Σ_j R_lji) over
    Σ_l Σ_j Var_i(R_lji), each the unbiased variance over the N trials; and it shuffles the
    trials of every query by themselves, which keeps each query's share and breaks every tie
    between queries. That two queries go together *across* models is no fault: ability does
    that.

    Parameters
    ----------
    R : array, shape (M, N) or (L, M, N)
        0/1 outcomes of one or several models; column i is what was sampled together.
    permutations : int
        100 to 10⁷.
    seed : int
        Of the permutations.

    Returns
    -------
    IndependenceCheck

    Raises
    ------
    InvalidInputError
        If R is not such an array with M >= 2 and N >= 2, or another argument breaks its rule.

    Examples
    --------
    Two queries that are always solved together:

    >>> R = [[0, 1, 1, 0, 1, 0, 0, 1], [0, 1, 1, 0, 1, 0, 0, 1]]
    >>> check = query_independence(R)
    >>> round(check.variance_ratio, 6), check.p_value < 0.05
    (2.0, True)
    """
    trials = numeric("R", R).astype(np.float64)
    trials = trials[None] if trials.ndim == 2 else trials
    rule = "be 0/1 of shape (M, N) or (L, M, N) with M >= 2 and N >= 2"
    if trials.ndim != 3 or min(trials.shape[1:]) < 2 or not len(trials):
        raise InvalidInputError.of("R", "shape", rule, f"shape {np.shape(R)}")
    if not np.isin(trials, (0, 1)).all():
        raise InvalidInputError.of("R", "shape", rule, "other entries")
    permutations, seed = check_size("permutations", permutations, 100), check_seed(seed)
    single = trials.var(axis=2, ddof=1)
    expected = float(single.sum())
    if expected == 0.0:
        return IndependenceCheck(None, 1.0, permutations, seed)
    ratio = _total_variance(trials) / expected
    rng = np.random.default_rng(seed)
    # a query that never varies is the same under every permutation
    moving = trials[:, (single > 0.0).any(axis=0)]
    permuted = (_total_variance(rng.permuted(moving, axis=2)) for _ in range(permutations))
    above = sum(total / expected >= ratio - 1e-12 for total in permuted)
    p_value = (above + 1) / (permutations + 1)
    return IndependenceCheck(ratio, p_value, permutations, seed)


def _total_variance(trials: FloatArray) -> float:
    """Return the variance of the totals over queries, summed over models."""
    return float(trials.sum(axis=1).var(axis=1, ddof=1).sum())
