"""What the harness logs of a question: its responses, its rows, lengths and signals."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, zip_longest
from typing import Any, cast

from lm_eval_bayes.harness.models.interface import Completion, signal_columns
from lm_eval_bayes.harness.models.stored_texts import (
    LONG,
    UNCHANGED,
    Part,
    StoredSignals,
    are_stored,
    part_of,
)


class LoggedResult(dict[str, Any]):
    """One question's metric rows, with further fields that are logged but not aggregated.

    The harness writes a result into samples_*.jsonl with ``dict.update``, which copies
    everything, and aggregates what ``items()`` and ``keys()`` show: only the rows.
    """

    def __init__(self, metrics: Mapping[str, Any], logged: Mapping[str, Any]) -> None:
        super().__init__(metrics)
        self._rows = dict(metrics)
        for key, value in logged.items():
            self.setdefault(key, value)

    def add_rows(self, rows: Mapping[str, Any]) -> None:
        """Add rows that are aggregated but not logged."""
        self._rows.update(rows)

    def items(self) -> Any:
        """Return the rows."""
        return self._rows.items()

    def keys(self) -> Any:
        """Return the rows' names."""
        return self._rows.keys()


def loggable(response: Any) -> Any:
    """Return a response without lone surrogates, which a file cannot hold."""
    if not isinstance(response, str):
        return response
    text = response.encode("utf-8", "replace").decode("utf-8")
    if text == response:
        return response
    return response.with_text(text) if isinstance(response, Completion) else text


class Responses(list[Any]):
    """A question's filtered responses, with its request and the name of the filter."""

    def __init__(self, filtered: Iterable[Any], instance: Any, pipeline: str) -> None:
        super().__init__([filtered] if isinstance(filtered, str) else filtered)
        self.instance = instance
        self.pipeline = pipeline

    @property
    def raw(self) -> Sequence[Any]:
        """The responses before the filter."""
        return cast("Sequence[Any]", self.instance.resps)

    def set_filtered(self, filtered: Sequence[Any], texts: Sequence[str]) -> None:
        """Put filtered responses here for the log: short texts, and parts of those in the store.

        Parameters
        ----------
        filtered, texts : sequence
            The responses after and before the filter.
        """
        shared: dict[str, str] = {}  # most trials of a question have one of a few answers
        self[:] = [
            value if not isinstance(value, str) else _to_log(value, text, shared)
            for value, text in islice(zip_longest(filtered, texts), len(filtered))
        ]


def _to_log(value: str, text: str | None, shared: dict[str, str]) -> Part:
    if value == text:
        return UNCHANGED
    if text is not None and len(value) > LONG and (part := part_of(value, text)) is not None:
        return part
    return shared.setdefault(str(value), str(value))


def measured_columns(texts: Sequence[Any], responses: Sequence[Any]) -> dict[str, Any]:
    """Return the lengths of the responses to a question and their signals, for the log.

    Parameters
    ----------
    texts : sequence of str
        The responses before the filter.
    responses : sequence
        The same as the run holds them: signals of those in a store are read when they are written.
    """
    lengths = [len(str(text)) for text in texts]
    if are_stored(responses):
        return {"lengths": array("q", lengths), "signals": StoredSignals(responses)}
    return {"lengths": lengths, **signal_columns(texts)}
