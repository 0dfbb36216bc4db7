"""Trials from any backend of the harness that has no sampling mixin of its own: text only."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from lm_eval.api.instance import Instance

from lm_eval_bayes.harness.models.interface import TrialRequest
from lm_eval_bayes.runs.model_arguments import identity
from lm_eval_bayes.store.trial import Trial


class GenericSampling:
    """A sampling mixin for any backend: one call of its `generate_until` per trial number.

    Such a backend may not know every setting: of the token filters it gets only those that the
    task itself sets. It gets no seed for each trial.
    """

    backend_name: str
    given_arguments: Mapping[str, Any]
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
        self, requests: Sequence[TrialRequest], measure: frozenset[str]
    ) -> Iterator[tuple[TrialRequest, Trial]]:
        """Yield the trials: trial 0 of all prompts, then trial 1, …"""
        for _, group in groupby(requests, key=lambda request: request.trial):
            batch = list(group)
            # The harness's own class, which follows this one in the bases.
            texts = super().generate_until([_instance(request) for request in batch])  # type: ignore[misc]
            for request, text in zip(batch, texts, strict=True):
                yield request, request.result(str(text), seed=None)

    def finished_text(self, raw: str, kwargs: Mapping[str, Any], signals: Mapping[str, Any]) -> str:
        """Return the text unchanged: the backend has applied the stop strings."""
        return raw

    def stops_sent(self, kwargs: Mapping[str, Any]) -> list[str]:
        """Return the stop strings, which the backend applies."""
        return list(kwargs["until"])

    def fingerprint(self) -> dict[str, Any]:
        """Return the backend's name and its arguments."""
        return {"backend": self.backend_name, "arguments": identity(self.given_arguments)}

    def versions(self) -> dict[str, str]:
        """Return the harness's version."""
        return {"lm_eval": importlib.metadata.version("lm_eval")}


def _instance(request: TrialRequest) -> Instance:
    """Return a request of the harness for one trial."""
    original = request.instance
    kwargs = dict(request.kwargs)
    for name in ("top_k", "min_p", "top_p"):
        if name not in original.args[1]:
            kwargs.pop(name, None)
    return Instance(
        request_type=original.request_type,
        doc=original.doc,
        arguments=(request.context, kwargs, *original.args[2:]),
        idx=original.idx,
        metadata=(original.task_name, original.doc_id, 1),
    )
