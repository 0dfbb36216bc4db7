"""The aggregation `bayes`, for YAMLs that name it; registered on import."""

from __future__ import annotations

from collections.abc import Sequence

import lm_eval.api.metrics  # noqa: F401
from lm_eval.api.registry import aggregation_registry

from lm_eval_bayes.harness.task.rows import RowValue, aggregate


def bayes(items: Sequence[RowValue]) -> float | str:
    """Compute the row that the items belong to, over all questions."""
    return aggregate(items)


aggregation_registry.register("bayes")(bayes)
