"""Requests of the harness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lm_eval.api.instance import Instance


def new_instance(
    doc: Any,
    arguments: tuple[Any, ...] = ("", {}),
    *,
    task: str = "",
    doc_id: int = 0,
    repeats: int = 1,
    resps: Sequence[Any] = (),
    original: Any = None,
    kind: type[Any] = Instance,
) -> Any:
    """Return a `generate_until` request.

    Parameters
    ----------
    doc : object
        The question.
    arguments : tuple
        Prompt and generation settings.
    task : str
        The name of the task.
    doc_id : int
        The number of the question.
    repeats : int
        How often the harness sends it.
    resps : sequence
        Its responses, for what is already answered.
    original : Instance, optional
        The request that it takes the place of, with its task and number.
    kind : type
        Its class.
    """
    idx = 0
    if original is not None:
        task, doc_id, idx = original.task_name, original.doc_id, original.idx
    return kind(
        request_type="generate_until",
        doc=doc,
        arguments=arguments,
        idx=idx,
        metadata=(task, doc_id, repeats),
        resps=list(resps),
    )
