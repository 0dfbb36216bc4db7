"""The filter `keep_all`, which hands every response on; registered on import."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import lm_eval.filters  # noqa: F401
from lm_eval.api.filter import Filter
from lm_eval.api.registry import filter_registry

KEEP_ALL = "keep_all"


class KeepAllFilter(Filter):
    """Keep all N responses of every question, unchanged.

    The harness's default filter is `take_first`, which throws N - 1 of them away.
    """

    def apply(self, resps: Iterable[Any], docs: Iterable[dict[str, Any]]) -> list[list[Any]]:
        """Return each question's responses as a list."""
        return [list(r) for r in resps]


filter_registry.register(KEEP_ALL)(KeepAllFilter)
