"""Backends of the harness that know nothing of trials: sampled, stored, not measured."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from lm_eval.api.instance import Instance

from lm_eval_bayes.harness.models.trial_request import Order, Sampled


class PlainSampling:
    """Any backend at all: one call of its own `generate_until` for each round of trials.

    Parameters that such a backend may not know are left out: of the filters of tokens only
    those that the task itself names are passed on. Seeds are the backend's own business.
    """

    backend_name: str
    #: Whether a trial is drawn with its own seed.
    seeded = False
    takes_seed = False
    cannot_record: tuple[str, ...] = (
        "seed",
        "tokens",
        "finish_reason",
        "completion_bpt",
        "prompt_bpt",
    )

    def sample(
        self, orders: Sequence[Order], measure: frozenset[str]
    ) -> Iterator[tuple[Order, Sampled]]:
        """Yield the trials, a round at a time: trial 0 of all prompts, then trial 1, …"""
        for _, group in groupby(orders, key=lambda order: order.trial):
            these = list(group)
            # the harness's own class, not ours, answers
            texts = super().generate_until([_request(order) for order in these])  # type: ignore[misc]
            for order, text in zip(these, texts, strict=True):
                yield order, Sampled(str(text))

    def finished_text(self, raw: str, kwargs: Mapping[str, Any], signals: Mapping[str, Any]) -> str:
        """Return the text as it is: the backend has finished it."""
        return raw

    def stops_sent(self, kwargs: Mapping[str, Any]) -> list[str]:
        """Return the stop strings: the backend has applied them for good."""
        return list(kwargs["until"])

    def fingerprint(self) -> dict[str, Any]:
        """Return the backend's name and the arguments it was made with."""
        return {"backend": self.backend_name, "arguments": dict(self.given_arguments)}  # type: ignore[attr-defined]

    def versions(self) -> dict[str, str]:
        """Return the harness's version."""
        return {"lm_eval": importlib.metadata.version("lm_eval")}


def _request(order: Order) -> Instance:
    old = order.request
    kwargs = dict(order.kwargs)
    for name in ("top_k", "min_p", "top_p"):
        if name not in old.args[1]:
            kwargs.pop(name, None)
    return Instance(
        request_type=old.request_type,
        doc=old.doc,
        arguments=(order.context, kwargs, *old.args[2:]),
        idx=old.idx,
        metadata=(old.task_name, old.doc_id, 1),
    )
