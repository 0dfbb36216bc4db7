"""Trials from transformers: each with its own generator and signals, yielded as it ends."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lm_eval_bayes._util.hashing import canonical_json
from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.hf.fingerprint import hf_fingerprint, hf_versions
from lm_eval_bayes.harness.models.hf.generation import (
    NotLoopableError,
    TokenLoop,
    generate_fallback,
    prompt_bits,
)
from lm_eval_bayes.harness.models.hf.lazy import LazyWeights
from lm_eval_bayes.harness.models.hf.responses import Queue, Row, StopFinder, trial_of
from lm_eval_bayes.harness.models.hf.settings import (
    Settings,
    end_tokens,
    generation_config_of,
    not_applied,
)
from lm_eval_bayes.harness.models.interface import TrialRequest
from lm_eval_bayes.runs.model_arguments import as_json
from lm_eval_bayes.store.trial import Trial

log = get_logger(__name__)

#: The methods of the harness's class, and its helpers, that are used here.
_METHODS = ("tok_batch_encode", "tok_decode", "_model_generate", "_model_call", "_create_model")
_HELPERS = ("handle_stop_sequences", "postprocess_generated_text")


class HarnessText:
    """The part of the sampling mixin for tokenizer, stop strings and think token."""

    @property
    def _think(self) -> str | int | None:
        lm: Any = self
        return None if lm.think_end_token == "" else lm.think_end_token

    def _until(self, kwargs: Mapping[str, Any]) -> list[str]:
        """Return the stop strings with the text of the end token, as the harness does."""
        from lm_eval.models.utils import handle_stop_sequences

        lm: Any = self
        end, until = lm.eot_token_id, kwargs.get("until")
        eos = None if end is None else lm.tok_decode(end, skip_special_tokens=False)
        return list(
            handle_stop_sequences([until] if isinstance(until, str) else [*(until or [])], eos)
        )

    def finished_text(self, raw: str, kwargs: Mapping[str, Any], signals: Mapping[str, Any]) -> str:
        """Return the response that the harness's own backend would return for a raw text."""
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

        A task's stop strings occur inside a think block as well, so the harness applies them
        afterwards, to the text after the block.
        """
        return self._until({}) if self._think is not None else self._until(kwargs)

    def stop_finder(self, kwargs: Mapping[str, Any]) -> StopFinder:
        """Return the finder of a request's stop strings."""
        lm: Any = self
        stops = self.stops_sent(kwargs)
        # Without stops of the task only the end's text is searched for, which is rare.
        often = len(stops) > len(self._until({}))
        return StopFinder(
            stops,
            lambda ids: str(lm.tok_decode(ids, skip_special_tokens=False)),
            4 if often else 32,
        )

    def prompt_tokens(self, prompt: str) -> tuple[list[int], bool]:
        """Return a prompt's tokens, encoded on its own, and whether it is truncated."""
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
    """Check that the harness has the methods and helpers that are used here."""
    import lm_eval.models.utils as helpers

    missing = [name for name in _METHODS if not hasattr(type(lm), name)]
    missing += [name for name in _HELPERS if not hasattr(helpers, name)]
    if missing:
        raise ModelConfigError(
            "this release of lm_eval builds its hf backend in a way unknown to this package "
            f"(without {', '.join(missing)}); lm_eval 0.4.12 and 0.4.13 are supported"
        )


class HFSampling(HarnessText, LazyWeights):
    """A sampling mixin before the harness's `HFLM`, with a token loop of its own.

    Every trial draws from its own generator, so its text depends on its prompt and seed, and
    on the other rows of the batch only through the rounding of the forward pass. The
    distribution is the softmax of the logits after temperature, top_k, top_p and min_p; the
    recorded bits are those of the model before any of these.

    Weights are loaded at the first use, so a run whose trials are all stored loads none.

    Trials that the loop does not support (encoder-decoder models, caches of other kinds,
    further generation settings such as `repetition_penalty`) go one at a time through
    transformers' own `generate`, seeded by `torch.manual_seed`.
    """

    takes_seed = False
    seeded = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        check_harness(self)
        lm: Any = self
        commit = getattr(lm.config, "_commit_hash", None)
        self._generation_config = generation_config_of(
            self.given["pretrained"],
            lm.config,
            commit or self.given.get("revision"),
            self.given.get("subfolder"),
        )
        self._ends = end_tokens(self._generation_config, lm.tokenizer)
        self._warned: set[str] = set()
        self._loop: TokenLoop | None = None
        self._why_no_loop = ""
        self._batch = 0
        self._gathers = True
        if lm.backend == "seq2seq":
            self._why_no_loop = "it is an encoder with a decoder"

    @property
    def cannot_record(self) -> tuple[str, ...]:
        """Signals that are not recorded: the bits of an encoder-decoder model."""
        lm: Any = self
        return ("completion_bpt", "prompt_bpt") if lm.backend == "seq2seq" else ()

    # -- the interface of sampling mixins --------------------------------------------------

    def sample(
        self, requests: Sequence[TrialRequest], measure: frozenset[str]
    ) -> Iterator[tuple[TrialRequest, Trial]]:
        """Yield each trial as soon as it has ended.

        Parameters
        ----------
        requests : sequence of TrialRequest
            Batches are filled in this order, except that those of one trial number are sorted
            by the length of the prompt, and that one batch has one set of settings.
        measure : frozenset of str
            Prompts whose ``prompt_bpt`` is measured, with the first trial of each; not for a
            truncated prompt.

        Raises
        ------
        ModelConfigError
            If a generation setting is out of range, or leaves no room for the prompt.
        """
        started = time.perf_counter()
        queue = self._queued(requests)
        if not queue:
            return
        self._warn_of_generation_config(requests[0].kwargs)
        self.load_weights()
        bits = queue.first_of(measure)
        while queue:
            settings, kwargs = queue.next_settings()
            loop = None if settings.others else self._token_loop()
            if loop is None:
                (row,) = queue.take(1)
                prompt_bpt = self._generate_fallback(row, settings, kwargs)
                measured = prompt_bpt if row.request.index in bits else None
                yield row.request, trial_of(row, self, started, measured)
                continue
            rows = queue.take(self._batch_size(len(queue)))
            try:
                yield from self._in_batch(loop, rows, settings, bits, started)
            except NotLoopableError as error:
                self._loop, self._why_no_loop = None, str(error)
                queue.put_back(rows)
            except _out_of_memory() as error:
                self._shrink(len(rows), error)
                queue.put_back([row for row in rows if row.finish_reason is None])

    def fingerprint(self) -> dict[str, Any]:
        """Return what the distribution depends on, without loading weights."""
        return hf_fingerprint(self, self.given, self._ends)

    def versions(self) -> dict[str, str]:
        """Return the versions of the software that generates."""
        return hf_versions()

    # -- rows ------------------------------------------------------------------------------

    def _queued(self, requests: Sequence[TrialRequest]) -> Queue:
        lm: Any = self
        prompts: dict[str, tuple[list[int], bool]] = {}
        kinds: dict[str, tuple[Settings, StopFinder]] = {}
        queue = Queue()
        for request in requests:
            kind = canonical_json({k: as_json(v) for k, v in request.kwargs.items() if k != "seed"})
            if kind not in kinds:
                settings = Settings.of(request.kwargs, int(lm.max_gen_toks))
                kinds[kind] = settings, self.stop_finder(request.kwargs)
            settings, finder = kinds[kind]
            room = int(lm.max_length)
            if lm.backend != "seq2seq":
                room -= settings.max_new_tokens
            if room < 1:
                raise ModelConfigError(
                    f"`max_gen_toks` must leave room for the prompt in the model's max_length of "
                    f"{lm.max_length} tokens; got {settings.max_new_tokens}"
                )
            if request.prompt not in prompts:
                prompts[request.prompt] = self.prompt_tokens(request.prompt)
            tokens, cut = prompts[request.prompt]
            if len(tokens) > room:
                tokens, cut = tokens[-room:], True
            if cut:
                self._warn_of_cut(len(tokens))
            row = Row(request, tokens, cut, settings.max_new_tokens, self._ends, finder)
            queue.add(row, kind, settings, request.kwargs)
        return queue

    # -- running ---------------------------------------------------------------------------

    def _token_loop(self) -> TokenLoop | None:
        lm: Any = self
        if self._loop is None and not self._why_no_loop:
            pad = lm.tokenizer.pad_token_id
            try:
                self._loop = TokenLoop(
                    lm.model, lm.device, 0 if pad is None else pad, lm.mixed_precision_dtype
                )
            except NotLoopableError as error:
                self._why_no_loop = str(error)
        return self._loop

    def _in_batch(
        self,
        loop: TokenLoop,
        rows: Sequence[Row],
        settings: Settings,
        bits: dict[int, float | None],
        started: float,
    ) -> Iterator[tuple[TrialRequest, Trial]]:
        for row in rows:
            if row.request.index in bits and bits[row.request.index] is None:
                bits[row.request.index] = loop.prompt_bits(row.prompt)
        for row in loop.run(rows, settings.sampling):
            yield row.request, trial_of(row, self, started, bits.get(row.request.index))

    def _generate_fallback(
        self, row: Row, settings: Settings, kwargs: Mapping[str, Any]
    ) -> float | None:
        """Generate one trial; return its prompt's bits."""
        lm: Any = self
        reason = self._why_no_loop or f"of {', '.join(sorted(settings.others))}"
        not_recorded = ", ".join(self.cannot_record) or "nothing"
        self._warn_once(
            "fallback",
            "trials are drawn one at a time by transformers' own generate, because %s; this is "
            "slow, and not recorded: %s",
            *(reason, not_recorded),
        )
        stops = self.stops_sent(kwargs)
        return prompt_bits(generate_fallback(lm, row, kwargs, settings.max_new_tokens, stops))

    def _batch_size(self, waiting: int) -> int:
        lm: Any = self
        if not self._batch:
            if lm.batch_size != "auto":
                self._batch = max(1, int(lm.batch_size))
            elif waiting == 1:
                return 1
            else:
                log.info("batch_size=auto: detecting the batch size")
                self._gathers = False
                try:
                    self._batch = max(1, int(lm._detect_batch_size()))
                finally:
                    self._gathers = True
                log.info("batch_size=auto: %d", self._batch)
        return self._batch

    def all_gather(self, tensor: Any) -> Any:
        """Gather over the ranks, except for the batch size: another rank may be idle."""
        return super().all_gather(tensor) if self._gathers else tensor  # type: ignore[misc]

    def _shrink(self, rows: int, error: BaseException) -> None:
        """Halve a batch that did not fit into memory; for a single row that is an error."""
        if rows < 2:
            raise ModelConfigError(
                "the memory is too small for one trial; fewer max_gen_toks, a shorter prompt "
                "or a smaller dtype would help"
            ) from error
        self._batch = rows // 2
        log.warning(
            "a batch of %d trials did not fit into memory; %d continue in batches of %d, with the "
            "same seeds",
            *(rows, rows, self._batch),
        )

    # -- warnings --------------------------------------------------------------------------

    def _warn_once(self, topic: str, message: str, *parts: Any) -> None:
        """Warn once."""
        if topic not in self._warned:
            self._warned.add(topic)
            log.warning(message, *parts)

    def _warn_of_generation_config(self, kwargs: Mapping[str, Any]) -> None:
        wanted = not_applied(self._generation_config, kwargs)
        if wanted:
            self._warn_once(
                "generation config",
                "the model's generation_config.json has %s, which is not applied: the task's "
                "settings are used; add it to --gen_kwargs to apply it",
                ", ".join(f"{name}={value}" for name, value in wanted.items()),
            )

    def _warn_of_cut(self, room: int) -> None:
        self._warn_once(
            "cut",
            "a prompt was cut to its last %d tokens to leave room for max_gen_toks; its answers "
            "may mean nothing (signal prompt_truncated)",
            room,
        )


def _out_of_memory() -> type[BaseException]:
    import torch

    kind: type[BaseException] = torch.cuda.OutOfMemoryError
    return kind
