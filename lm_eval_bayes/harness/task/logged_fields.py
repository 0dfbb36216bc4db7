"""What the harness logs of a question: its responses, its rows, lengths and signals."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, zip_longest
from typing import Any, cast

from lm_eval_bayes.harness.models.interface import Completion, signal_columns, signals_of
from lm_eval_bayes.harness.models.stored_texts import (
    LONG,
    UNCHANGED,
    Part,
    are_stored,
    part_of,
)


class LoggedResult(dict[str, Any]):
    """What is logged of a question, and its rows, which are aggregated.

    The harness writes a result into samples_*.jsonl with ``dict.update``, which copies what is
    logged. It aggregates what ``items()`` shows, the rows, and logs ``keys()`` as the names of the
    metrics.

    Parameters
    ----------
    rows : mapping
        The value of each row.
    logged : mapping
        Further fields of the log.
    values : mapping
        The metrics' values of the trials, which are logged too.
    """

    def __init__(
        self, rows: Mapping[str, Any], logged: Mapping[str, Any], values: Mapping[str, Any]
    ) -> None:
        super().__init__({**values, **logged})
        self.rows, self._metrics = dict(rows), dict(values)

    def items(self) -> Any:
        """Return the rows."""
        return self.rows.items()

    def keys(self) -> Any:
        """Return the names of the metrics."""
        return self._metrics.keys()


def loggable_values(values: Sequence[Any], metrics: Iterable[str]) -> dict[str, list[Any]]:
    """Return what metrics gave the trials of a question, None where they gave nothing.

    Parameters
    ----------
    values : sequence of mapping or None
        What grading gave each trial, by metric.
    metrics : iterable of str
        The metrics of the task.

    Examples
    --------
    >>> loggable_values([{"f1": 0.5, "em": True}, None], ["em", "f1", "acc"])
    {'em': [True, None], 'f1': [0.5, None]}
    """
    given = [each if isinstance(each, Mapping) else {} for each in values]
    return {
        name: [_plain(each.get(name)) for each in given]
        for name in metrics
        if any(name in each for each in given)
    }


def _plain(value: Any) -> Any:
    """Return a number of numpy or torch as one of Python; other values as they are."""
    return value.item() if hasattr(value, "item") and not getattr(value, "shape", ()) else value


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


def endings(responses: Iterable[Any]) -> dict[str, int]:
    """Return how many responses ended at the limit of tokens, and how many are empty."""
    n_cut_off = n_empty = 0
    for response in responses:
        n_cut_off += signals_of(response).get("finish_reason") == "length"
        n_empty += not str(response).strip()
    return {"n_cut_off": n_cut_off, "n_empty": n_empty}


def measured_columns(texts: Sequence[Any], responses: Sequence[Any]) -> dict[str, Any]:
    """Return the lengths of the responses to a question and their signals, for the log.

    Parameters
    ----------
    texts : sequence of str
        The responses before the filter.
    responses : sequence
        The same as the run holds them: signals of those in a store are None, and read when they
        are written.
    """
    lengths = [len(str(text)) for text in texts]
    if are_stored(responses):
        return {"lengths": array("q", lengths), "signals": None}
    return {"lengths": lengths, **signal_columns(texts)}
