"""How often each of the known models solves each query: their order, and the choice of queries."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes._util.validation import check_non_negative, check_pair, check_sequence
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, IntArray, check_ids, numeric, read_only
from lm_eval_bayes.stats.outcomes import Outcomes, check_outcomes


@dataclass(frozen=True, eq=False)
class AnchorMatrix(Record):
    """Anchors in the order of their ability, weakest first [Xiao 2025].

    The rows are sorted. Build it with :meth:`from_outcomes` or :meth:`from_probabilities`.

    Attributes
    ----------
    probabilities : array, shape (L, M)
        Π_ij, the probability that anchor i solves query j, in [0, 1], read-only; it is kept
        away from 0 and 1 only where it is used.
    names : tuple of str
        The L anchors.
    question_ids : tuple or None
        One distinct name per query.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.

    Examples
    --------
    >>> large, small = Outcomes.from_matrix([[1, 1], [1, 0]]), Outcomes.from_matrix([[1], [0]])
    >>> anchors = AnchorMatrix.from_outcomes({"large": large, "small": small})
    >>> anchors.names, anchors.ability.tolist()
    (('small', 'large'), [0.5, 0.75])
    """

    probabilities: FloatArray
    names: tuple[str, ...]
    question_ids: tuple[Hashable, ...] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        table = numeric("probabilities", self.probabilities).astype(np.float64)
        if table.ndim != 2 or 0 in table.shape:
            rule = "be 2-D, one row per anchor and one column per query, and not empty"
            raise InvalidInputError.of("probabilities", "shape", rule, f"shape {table.shape}")
        bad = ~((table >= 0.0) & (table <= 1.0))
        if bad.any():
            raise InvalidInputError.of(
                "probabilities", "range", "lie in [0, 1]", table[bad].tolist()
            )
        if not len(set(self.names)) == len(self.names) == len(table):
            rule = f"be {len(table)} distinct names, one per anchor"
            raise InvalidInputError.of("names", "duplicate", rule, self.names)
        # equal means, to rounding, keep their order
        order = np.argsort(table.mean(axis=1).round(12), kind="stable")
        ids = check_ids(self.question_ids, table.shape[1])
        object.__setattr__(self, "probabilities", read_only(table[order], np.float64))
        object.__setattr__(self, "names", tuple(str(self.names[row]) for row in order))
        object.__setattr__(self, "question_ids", ids)

    @classmethod
    def from_outcomes(
        cls,
        models: Mapping[str, Outcomes],
        *,
        pseudo_count: float = 0.0,
    ) -> AnchorMatrix:
        """Estimate Π_ij from the anchors' own trials.

        Parameters
        ----------
        models : mapping of str to Outcomes
            0/1 outcomes of each anchor on the same M queries, at least one trial each.
        pseudo_count : float
            Π_ij = (c_ij + pseudo)/(N_ij + 2·pseudo). 0 is the paper's plain share; 1 the
            posterior mean under a uniform prior, kinder where anchors have few trials.

        Raises
        ------
        InvalidInputError
            If the mapping is empty, an entry is no 0/1 outcomes, the queries differ, or a query
            has no trial.

        Examples
        --------
        >>> one = Outcomes.from_counts([[0, 4], [3, 1]])
        >>> AnchorMatrix.from_outcomes({"one": one}, pseudo_count=1.0).probabilities.tolist()
        [[0.8333333333333334, 0.3333333333333333]]
        """
        pseudo = check_non_negative("pseudo_count", pseudo_count)
        if not isinstance(models, Mapping) or not models:
            rule = "map at least one name to Outcomes"
            raise InvalidInputError.of("models", "empty", rule, models)
        rows, ids = [], None
        for name, outcomes in models.items():
            check_outcomes(f"models[{name!r}]", outcomes)
            rows.append(_share(name, outcomes, pseudo))
            if rows[-1].size != rows[0].size:
                rule = f"have as many queries as the first anchor ({rows[0].size})"
                raise InvalidInputError.of(f"models[{name!r}]", "shape", rule, rows[-1].size)
            if ids is None:
                ids = outcomes.question_ids
            elif outcomes.question_ids not in (None, ids):
                rule = "have the question ids of the other anchors, in their order"
                got = outcomes.question_ids
                raise InvalidInputError.of(f"models[{name!r}]", "mismatch", rule, got)
        return cls.from_probabilities(np.array(rows), list(models), ids)

    @classmethod
    def from_probabilities(
        cls,
        probabilities: npt.ArrayLike,
        names: Sequence[str] | None = None,
        question_ids: Sequence[Hashable] | None = None,
    ) -> AnchorMatrix:
        """Sort the anchors by the means of their probabilities.

        Parameters
        ----------
        probabilities : array, shape (L, M)
            In [0, 1].
        names : sequence of str, optional
            Left out, "anchor 0", "anchor 1", … in the order in which the rows come.
        question_ids : sequence, optional
            One distinct name per query.

        Raises
        ------
        InvalidInputError
            If an argument breaks its rule.

        Examples
        --------
        >>> AnchorMatrix.from_probabilities([[0.9, 0.7], [0.2, 0.4]]).names
        ('anchor 1', 'anchor 0')
        """
        table = numeric("probabilities", probabilities)
        if names is None:
            names = [f"anchor {i}" for i in range(len(np.atleast_1d(table)))]
        given = check_sequence("names", names, "be distinct names, one per anchor")
        return cls(table, tuple(given), question_ids)  # type: ignore[arg-type]

    @property
    def n_anchors(self) -> int:
        """L, the number of anchors."""
        return int(self.probabilities.shape[0])

    @property
    def n_queries(self) -> int:
        """M, the number of queries."""
        return int(self.probabilities.shape[1])

    @property
    def ability(self) -> FloatArray:
        """Each anchor's mean over the queries, shape (L,), ascending."""
        return np.asarray(self.probabilities.mean(axis=1))

    def take(self, queries: Iterable[int] | IntArray) -> AnchorMatrix:
        """Return the anchors on some of the queries, by their positions, sorted anew.

        Examples
        --------
        >>> AnchorMatrix.from_probabilities([[0.2, 0.9], [0.8, 0.5]]).take([1]).names
        ('anchor 1', 'anchor 0')
        """
        where = check_sequence("queries", queries, "be positions of queries")
        ids = None if self.question_ids is None else tuple(self.question_ids[j] for j in where)
        return AnchorMatrix(self.probabilities[:, where], self.names, ids)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; question ids as text."""
        ids = None if self.question_ids is None else [str(name) for name in self.question_ids]
        return {**super().to_dict(), "ability": self.ability.tolist(), "question_ids": ids}


def check_anchors(name: str, value: object) -> None:
    """Refuse anything but an `AnchorMatrix`.

    Raises
    ------
    InvalidInputError
        If `value` is a table, say, and not an `AnchorMatrix` made of it.
    """
    if not isinstance(value, AnchorMatrix):
        rule = "be an AnchorMatrix, as from AnchorMatrix.from_outcomes or .from_probabilities"
        raise InvalidInputError.of(name, "type", rule, type(value).__name__)


def _share(name: str, outcomes: Outcomes, pseudo: float) -> FloatArray:
    """Return the share of an anchor's trials that solved each query."""
    solved, _ = outcomes.right_and_wrong(f"models[{name!r}]")
    n_trials = outcomes.n_trials
    if n_trials.min() < 1 and pseudo == 0.0:
        rule = "have at least one trial on every query"
        got = f"none on query {int(n_trials.argmin())}"
        raise InvalidInputError.of(f"models[{name!r}]", "empty", rule, got)
    return np.asarray((solved + pseudo) / (n_trials + 2.0 * pseudo))


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
