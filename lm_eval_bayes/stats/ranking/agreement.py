"""How far two rankings of the same models agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray
from lm_eval_bayes.stats.ranking.rank import Ranking
from lm_eval_bayes.stats.validation import as_real

#: A ranking, or the rank of every model by name, 1 the best.
Ranks: TypeAlias = "Ranking | Mapping[str, float]"


@dataclass(frozen=True)
class RankingAgreement(Record):
    """The agreement of two rankings of L models.

    Attributes
    ----------
    tau_b : float or None
        Kendall's τ_b, ties counted; None where all models of one ranking tie.
    spearman : float or None
        Spearman's ρ; None in the same case.
    largest_displacement : float
        The largest difference of a model's two ranks.
    n_models : int
        L.
    """

    tau_b: float | None
    spearman: float | None
    largest_displacement: float
    n_models: int


def compare_rankings(a: Ranks, b: Ranks) -> RankingAgreement:
    """Compare two rankings of the same models.

    Parameters
    ----------
    a, b : Ranking or mapping of str to float
        Rankings, or the ranks by model, 1 the best; ties share a rank. At least two models.

    Returns
    -------
    RankingAgreement

    Raises
    ------
    InvalidInputError
        If a rank is not a finite number, the models differ, or there are fewer than two.

    Examples
    --------
    >>> result = compare_rankings({"x": 1, "y": 2, "z": 3}, {"x": 1, "z": 2, "y": 3})
    >>> round(result.tau_b, 3), result.spearman, result.largest_displacement
    (0.333, 0.5, 1.0)
    """
    first, second = _ranks("a", a), _ranks("b", b)
    if set(first) != set(second):
        only = sorted(set(first) ^ set(second))
        rule = "rank the same models as `a`"
        got = f"{', '.join(only[:3])} in one of them only"
        raise InvalidInputError.of("b", "mismatch", rule, got)
    if len(first) < 2:
        raise InvalidInputError.of("a", "empty", "rank at least two models", len(first))
    from scipy import stats  # takes long to import

    models = list(first)
    x = np.array([first[model] for model in models])
    y = np.array([second[model] for model in models])
    varies = np.ptp(x) > 0.0 and np.ptp(y) > 0.0

    def value(statistic: float) -> float | None:
        return float(statistic) if np.isfinite(statistic) else None

    return RankingAgreement(
        tau_b=value(stats.kendalltau(x, y).statistic) if varies else None,
        spearman=value(stats.spearmanr(x, y).statistic) if varies else None,
        largest_displacement=float(np.abs(x - y).max()),
        n_models=len(models),
    )


def _ranks(name: str, ranking: Ranks) -> dict[str, float]:
    """Return the ranks by model."""
    if isinstance(ranking, Ranking):
        ranks: FloatArray = ranking.ranks
        return dict(zip(ranking.models, ranks.tolist(), strict=True))
    rule = "be a Ranking or a mapping from models' names to finite ranks"
    if not isinstance(ranking, Mapping):
        raise InvalidInputError.of(name, "type", rule, type(ranking).__name__)
    numbers = {model: as_real(rank) for model, rank in ranking.items()}
    result: dict[str, float] = {}
    for model, rank in numbers.items():
        if not isinstance(model, str) or rank is None or not np.isfinite(rank):
            raise InvalidInputError.of(name, "type", rule, {model: ranking[model]})
        result[model] = rank
    return result
