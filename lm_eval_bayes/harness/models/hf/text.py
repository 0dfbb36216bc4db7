"""What the harness's `hf` backend makes of prompts and of texts, a prompt at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness.models.hf.stops import StopFinder

#: What is used of the harness's class and of its helpers.
_METHODS = ("tok_batch_encode", "tok_decode", "_model_generate", "_model_call", "_create_model")
_HELPERS = ("handle_stop_sequences", "postprocess_generated_text")


class HarnessText:
    """The part of the sampling mixin that knows tokenizer, stop strings and think token."""

    @property
    def _think(self) -> str | int | None:
        lm: Any = self
        return None if lm.think_end_token == "" else lm.think_end_token

    def _until(self, kwargs: Mapping[str, Any]) -> list[str]:
        """Return the stop strings with the text of the end token, as the harness makes them."""
        from lm_eval.models.utils import handle_stop_sequences

        lm: Any = self
        end, until = lm.eot_token_id, kwargs.get("until")
        eos = None if end is None else lm.tok_decode(end, skip_special_tokens=False)
        return list(
            handle_stop_sequences([until] if isinstance(until, str) else [*(until or [])], eos)
        )

    def finished_text(self, raw: str, kwargs: Mapping[str, Any], signals: Mapping[str, Any]) -> str:
        """Return what the harness's own backend would have made of a raw text."""
        from lm_eval.models.utils import postprocess_generated_text

        think = self._think
        if isinstance(think, int):
            raw = raw[int(signals.get("answer_at") or 0) :].lstrip()
        until = self._until(kwargs)
        return str(
            postprocess_generated_text(raw, until, think if isinstance(think, str) else None)
        )

    def stops_sent(self, kwargs: Mapping[str, Any]) -> list[str]:
        """Return the strings that end a trial: of a thinking model, only the sequence's end.

        A task's stop strings stand in the middle of a think block as well, so the harness
        applies them afterwards, to what follows the block.
        """
        return self._until({}) if self._think is not None else self._until(kwargs)

    def stop_finder(self, kwargs: Mapping[str, Any]) -> StopFinder:
        """Return what looks for the stop strings of an order."""
        lm: Any = self
        stops = self.stops_sent(kwargs)
        # Without a task's own stops only the end's text is looked for, which hardly ever comes.
        often = len(stops) > len(self._until({}))
        return StopFinder(
            stops,
            lambda ids: str(lm.tok_decode(ids, skip_special_tokens=False)),
            4 if often else 32,
        )

    def prompt_tokens(self, prompt: str) -> tuple[list[int], bool]:
        """Return a prompt's tokens, made without its neighbours, and whether it is cut."""
        lm: Any = self
        ids, _ = lm.tok_batch_encode([prompt], truncation=lm.truncation)
        tokens = ids[0].tolist()
        cut = False
        if lm.truncation:
            cut = len(lm.tok_batch_encode([prompt], truncation=False)[0][0]) > len(tokens)
        if not tokens:
            raise ModelConfigError(
                "a prompt must have at least one token; got an empty one (a tokenizer that starts "
                "every text with a token helps: --model_args add_bos_token=True)"
            )
        return tokens, cut


def check_harness(lm: Any) -> None:
    """Refuse a release of the harness that lacks what is used of it."""
    import lm_eval.models.utils as helpers

    missing = [name for name in _METHODS if not hasattr(type(lm), name)]
    missing += [name for name in _HELPERS if not hasattr(helpers, name)]
    if missing:
        raise ModelConfigError(
            "this release of lm_eval builds its hf backend in a way that this package does not "
            f"know (without {', '.join(missing)}); lm_eval 0.4.12 and 0.4.13 are known"
        )
