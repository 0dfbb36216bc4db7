"""Trials of the biased coin: numbered and kept like a model's, so that a run can be tried out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lm_eval_bayes import __version__
from lm_eval_bayes.harness.models.biased_coin.model import measured, question_of
from lm_eval_bayes.harness.models.trial_request import Order, Sampled


class CoinSampling:
    """What `--model trials` needs of the biased coin. Its tokens are its words."""

    takes_seed = True

    def notice(self, requests: Sequence[Any]) -> None:
        """Note the true score of all questions, also of those whose trials are stored."""
        coin: Any = self
        coin.record_truth(coin.prepared(requests))

    def sample(
        self, orders: Sequence[Order], measure: frozenset[str]
    ) -> Iterator[tuple[Order, Sampled]]:
        """Yield the trials in the order in which they are asked for."""
        coin: Any = self
        prepared = coin.prepared([order.request for order in orders])
        for order in orders:
            question = question_of(order.request)
            text = coin.respond((question.task, question.prompt), order.trial, *prepared[question])
            yield (
                order,
                Sampled(text, **measured(order.prompt, text)),
            )

    def finished_text(self, raw: str, kwargs: Mapping[str, Any], signals: Mapping[str, Any]) -> str:
        """Return the text as it is: a coin heeds no stop string."""
        return raw

    def stops_sent(self, kwargs: Mapping[str, Any]) -> list[str]:
        """Return nothing: a coin heeds no stop string."""
        return []

    def fingerprint(self) -> dict[str, Any]:
        """Return what the answers depend on."""
        coin: Any = self
        return {
            "backend": "biased_coin",
            "law": coin.law.to_dict(),
            "seed": coin.seed,
            "boxed": coin.boxed,
            "answer_field": coin.answer_field,
        }

    def versions(self) -> dict[str, str]:
        """Return this package's version."""
        return {"lm_eval_bayes": __version__}
