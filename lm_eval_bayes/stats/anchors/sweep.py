"""How sure a placement among anchors grows with the number of queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.anchors.capability import (
    BETWEEN,
    Between,
    check_epsilon,
    interval_logs,
    normalised,
    solved_and_failed,
)
from lm_eval_bayes.stats.anchors.matrix import AnchorMatrix, check_anchors
from lm_eval_bayes.stats.outcomes import Outcomes, check_outcomes
from lm_eval_bayes.stats.validation import (
    FloatArray,
    IntArray,
    check_integer,
    check_option,
    check_seed,
    check_sequence,
    check_size,
    read_only,
)


@dataclass(frozen=True, eq=False)
class PeakSweep:
    """How sure the placement grows with the number of queries.

    Attributes
    ----------
    sizes : array of int, shape (S,)
        Numbers of queries.
    mean, low, high : array, shape (S,)
        Mean, 10% and 90% quantile of the peak probability over the subsets drawn.
    agreement : array, shape (S,)
        Share of the subsets whose peak is that of all queries together.
    replicates, seed : int
        Subsets a size, and the seed they were drawn with.
    """

    sizes: IntArray
    mean: FloatArray
    low: FloatArray = field(repr=False)
    high: FloatArray = field(repr=False)
    agreement: FloatArray
    replicates: int
    seed: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        arrays = ("sizes", "mean", "low", "high", "agreement")
        found: dict[str, Any] = {name: getattr(self, name).tolist() for name in arrays}
        return {**found, "replicates": self.replicates, "seed": self.seed}


def sample_size_sweep(
    anchors: AnchorMatrix,
    outcomes: Outcomes,
    sizes: Sequence[int] | None = None,
    *,
    epsilon: float = 0.01,
    between: Between = "query",
    replicates: int = 200,
    seed: int = 0,
) -> PeakSweep:
    """Place a model by ever more of the queries, chosen at random [Xiao 2025].

    Parameters
    ----------
    anchors, outcomes, epsilon, between
        As in `capability_intervals`.
    sizes : sequence of int, optional
        Numbers of queries in 1..M; left out, up to ten even steps from 1 to M.
    replicates : int
        Random subsets without replacement a size, 1 to 10⁷ (fewer for many queries).
    seed : int
        Of the subsets.

    Returns
    -------
    PeakSweep

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.

    Examples
    --------
    >>> table = [[0.1] * 20, [0.5] * 20, [0.9] * 20]
    >>> anchors = AnchorMatrix.from_probabilities(table)
    >>> sweep = sample_size_sweep(anchors, Outcomes.from_matrix([[1], [1], [0], [1]] * 5))
    >>> sweep.sizes.tolist()[-1], bool(sweep.mean[-1] > sweep.mean[0])
    (20, True)
    """
    check_anchors("anchors", anchors)
    check_outcomes("outcomes", outcomes)
    epsilon = check_epsilon(epsilon)
    between = check_option("between", between, BETWEEN)
    solved, failed = solved_and_failed(anchors, outcomes)
    n = anchors.n_queries
    replicates, seed = check_size("replicates", replicates, 1, n), check_seed(seed)
    if sizes is None:
        sizes = np.unique(np.linspace(1, n, min(n, 10)).round().astype(int)).tolist()
    rule = f"lie in 1..{n}, at least one"
    given = check_sequence("sizes", sizes, f"be a sequence of numbers in 1..{n}")
    checked = [check_integer("sizes", size, 1) for size in given]
    if not checked or max(checked) > n:
        raise InvalidInputError.of("sizes", rule, checked)
    table = anchors.probabilities
    whole = int(interval_logs(table, solved, failed, epsilon, between).argmax())
    rng = np.random.default_rng(seed)
    rows = []
    for size in checked:
        chosen = (rng.random((replicates, n)).argsort(axis=1) < size).astype(np.float64)
        logs = interval_logs(table, solved, failed, epsilon, between, chosen)
        share = normalised(logs)
        peak = share.max(axis=0)
        ends = np.quantile(peak, [0.1, 0.9])
        rows.append((peak.mean(), *ends, (share.argmax(axis=0) == whole).mean()))
    mean, low, high, agreement = np.array(rows).T
    return PeakSweep(
        sizes=read_only(checked, np.int64),
        mean=read_only(mean, np.float64),
        low=read_only(low, np.float64),
        high=read_only(high, np.float64),
        agreement=read_only(agreement, np.float64),
        replicates=replicates,
        seed=seed,
    )
