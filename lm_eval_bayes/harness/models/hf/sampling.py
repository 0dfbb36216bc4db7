"""Trials from transformers' `generate`: each with its own seed and signals, yielded as it ends."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

from lm_eval_bayes._util.hashing import canonical_json
from lm_eval_bayes.errors import LmEvalBayesError, ModelConfigError, TaskConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.generation_settings import is_neutral
from lm_eval_bayes.harness.models.hf.choice import APPLIED, SeededChoice, warpers
from lm_eval_bayes.harness.models.hf.lazy import (
    LazyWeights,
    end_tokens,
    generation_config_of,
    hf_fingerprint,
    neutral_config,
)
from lm_eval_bayes.harness.models.hf.responses import Row, StopFinder, read_trial
from lm_eval_bayes.harness.models.interface import (
    RequestStream,
    TrialRequest,
    bits_per_token,
    installed_versions,
)
from lm_eval_bayes.runs.model_arguments import as_json
from lm_eval_bayes.store.trial import Trial

log = get_logger(__name__)

#: Tokens whose log-probabilities are computed together; each needs logits of the vocabulary.
_CHUNK = 1024


class HFSampling(LazyWeights):
    """A sampling mixin before the harness's `HFLM`, whose `generate` gets seeds.

    Every token is drawn with noise of its trial's seed and position, so a text depends on its
    prompt and seed, and on the other rows of the batch only through the rounding of the forward
    pass. The distribution is that of transformers' own processors and warpers; the recorded bits
    are those of the model before any of these.

    Weights are loaded at the first use, so a run whose trials are all stored loads none.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._generation_config = generation_config_of(self.config, self.given)
        self._ends = end_tokens(self._generation_config, self.tokenizer)
        size = (self.max_batch_size or 64) if self.batch_size == "auto" else self.batch_size
        self._batch_size = max(1, int(size))

    @property
    def cannot_record(self) -> tuple[str, ...]:
        """Signals that are not recorded: the bits of an encoder-decoder model."""
        return ("completion_bpt", "prompt_bpt") if self.backend == "seq2seq" else ()

    # -- the interface of sampling mixins --------------------------------------------------

    @property
    def slots(self) -> int:
        """How many trials are a batch, at most `max_batch_size` with batch_size=auto."""
        return self._batch_size

    def sample(
        self, requests: RequestStream, measure: Set[str]
    ) -> Iterator[tuple[TrialRequest, Trial]]:
        """Yield each trial as soon as it has ended.

        Parameters
        ----------
        requests : RequestStream
            Batches are filled in this order, each with trials of the same settings but for length
            and stop strings. After its end no trial begins.
        measure : set of str
            Prompts whose ``prompt_bpt`` is measured, with the first trial of each; not for a
            truncated prompt.

        Raises
        ------
        ModelConfigError
            If the length leaves no room for the prompt.
        TaskConfigError
            If transformers refuses a generation setting.
        """
        if not requests.questions:
            return
        started, row_of = time.perf_counter(), self._row_maker()
        for question in requests.questions:  # before the weights are loaded
            row_of(question)
            self.warn_not_applied(self._generation_config.to_diff_dict(), question.kwargs)
        self.load()
        measured: set[str] = set()
        waiting: dict[str, list[Row]] = {}
        while not requests.is_over:
            request = next(requests, None)  # None in a pause, and at the end
            if request is not None:
                rows = waiting.setdefault(canonical_json(as_json(_settings(request))), [])
                rows.append(row_of(request))
                if self.backend == "causal" and not rows[-1].cut:
                    # a stream adds to `measure` with the request that measures the prompt
                    rows[-1].measures = request.prompt in measure - measured
                    measured |= measure & {request.prompt}
                due = [rows] if len(rows) >= self._batch_size else []
            else:
                if requests.ended:
                    for rows in waiting.values():
                        rows[:] = [row for row in rows if row.started]
                due = [rows for rows in waiting.values() if rows]
                if not due:
                    return
            for rows in due:
                yield from self._sampled(rows, started, requests)

    def fingerprint(self) -> dict[str, Any]:
        """Return what the distribution depends on, without loading weights."""
        return hf_fingerprint(self, self.given, self._ends)

    def versions(self) -> dict[str, str]:
        """Return the versions of the software that generates."""
        return installed_versions("torch", "transformers", "tokenizers", "accelerate", "lm_eval")

    # -- rows ------------------------------------------------------------------------------

    def _row_maker(self) -> Callable[[TrialRequest], Row]:
        """Return a function from requests to rows, which tokenizes every prompt once."""
        prompts: dict[str, tuple[list[int], bool]] = {}
        finders: dict[tuple[str, ...], StopFinder] = {}

        def decode(ids: Sequence[int]) -> str:
            return str(self.tok_decode(ids, skip_special_tokens=False))

        def row_of(request: TrialRequest) -> Row:
            length, stops = request.kwargs["max_gen_toks"], self.stops_sent(request.kwargs)
            room = int(self.max_length) - (0 if self.backend == "seq2seq" else length)
            if length < 1 or room < 1:
                sentence = (
                    f"`max_gen_toks` must be at least 1 and leave room for the prompt in the "
                    f"model's max_length of {self.max_length} tokens; got {length}"
                )
                raise ModelConfigError(sentence, "range", "max_gen_toks", length)
            if request.prompt not in prompts:
                checked_warpers(_settings(request))
                prompts[request.prompt] = self.prompt_tokens(request.prompt)
            tokens, cut = prompts[request.prompt]
            if len(tokens) > room:
                tokens, cut = tokens[-room:], True
            if cut:
                self.warn_once(
                    "cut",
                    "a prompt was cut to its last %d tokens to leave room for max_gen_toks; its "
                    "answers may mean nothing (signal prompt_truncated)",
                    len(tokens),
                )
            finder = finders.setdefault(tuple(stops), StopFinder(stops, decode))
            return Row(request, tokens, cut, length, self._ends, finder)

        return row_of

    def prompt_tokens(self, prompt: str) -> tuple[list[int], bool]:
        """Return a prompt's tokens, encoded on its own, and whether it is truncated."""
        ids, _ = self.tok_batch_encode([prompt], truncation=self.truncation)
        tokens = ids[0].tolist()
        cut = False
        if self.truncation:
            cut = len(self.tok_batch_encode([prompt], truncation=False)[0][0]) > len(tokens)
        if not tokens:
            sentence = (
                "a prompt must have at least one token; got an empty one (a tokenizer that starts "
                "every text with a token helps: --model_args add_bos_token=True)"
            )
            raise ModelConfigError(sentence, "empty", "prompt", prompt)
        return tokens, cut

    # -- texts -----------------------------------------------------------------------------

    @property
    def think_end(self) -> str:
        """The text that ends a think block; empty if the model has none."""
        end = self.think_end_token
        if isinstance(end, int):
            return str(self.tok_decode([end], skip_special_tokens=False))
        return end or ""

    def _until(self, kwargs: Mapping[str, Any]) -> list[str]:
        """Return the stop strings with the text of the end token, as the harness does."""
        from lm_eval.models.utils import handle_stop_sequences

        end, until = self.eot_token_id, kwargs.get("until")
        eos = None if end is None else self.tok_decode(end, skip_special_tokens=False)
        return list(
            handle_stop_sequences([until] if isinstance(until, str) else [*(until or [])], eos)
        )

    def finished_text(self, raw: str, kwargs: Mapping[str, Any], signals: Mapping[str, Any]) -> str:
        """Return the response that the harness's own backend would return for a raw text."""
        from lm_eval.models.utils import postprocess_generated_text

        # stored by earlier releases, whose texts may lack the token that closes a think block
        raw = raw[int(signals.get("answer_at") or 0) :]
        return str(postprocess_generated_text(raw, self._until(kwargs), self.think_end))

    def stops_sent(self, kwargs: Mapping[str, Any]) -> list[str]:
        """Return the strings that end a trial: of a thinking model, only the sequence's end.

        A task's stop strings occur inside a think block as well, so the harness applies them
        afterwards, to the text after the block.
        """
        return self._until({} if self.think_end else kwargs)

    # -- running ---------------------------------------------------------------------------

    def _sampled(
        self, rows: list[Row], started: float, stream: RequestStream
    ) -> Iterator[tuple[TrialRequest, Trial]]:
        """Yield trials of a batch as they end; rows that have not ended go on in the next one."""
        import torch

        batch = rows[: self._batch_size]
        try:
            for row in batch:
                if row.measures:
                    row.prompt_bpt, row.measures = bits_per_token(self._logprobs(row.prompt)), False
            for row, running in self._in_thread(batch, stream):
                yield row.request, read_trial(row, self, started, running)
        except torch.cuda.OutOfMemoryError as error:
            self._halve(len(batch), error)
        rows[:] = [row for row in rows if row.finish_reason is None]

    def _in_thread(self, rows: Sequence[Row], stream: RequestStream) -> Iterator[tuple[Row, int]]:
        """Yield each row as it ends, with the number of rows that had not; a thread generates."""
        ended: queue.SimpleQueue[tuple[Row, int] | BaseException | None] = queue.SimpleQueue()
        closed = threading.Event()

        def run() -> None:
            try:
                self._generate(rows, ended.put, lambda: closed.is_set() or stream.is_over)
                ended.put(None)
            except BaseException as error:
                ended.put(error)

        thread = threading.Thread(target=run, name="hf-generate", daemon=True)
        thread.start()
        try:
            while (item := ended.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            closed.set()
            thread.join()

    def _generate(
        self,
        rows: Sequence[Row],
        ended: Callable[[tuple[Row, int]], None],
        is_over: Callable[[], bool],
    ) -> None:
        """Generate a batch with transformers, and call `ended` for each row as it ends.

        When half of the rows have ended it returns, for a batch of the others with new ones: they
        go on from their tokens, which costs one forward pass.
        """
        import torch
        from transformers import LogitsProcessorList, StoppingCriteriaList

        settings = _settings(rows[0].request)
        others = {k: v for k, v in settings.items() if k not in APPLIED and not is_neutral(k, v)}
        seeds, sizes = [row.request.seed for row in rows], [len(row.tokens) for row in rows]
        choice = SeededChoice(checked_warpers(settings), seeds, sizes)
        # further settings may count tokens, and a decoder begins with its own
        least = len(rows) // 2 if self.backend == "causal" and not others else 0

        over = False

        def stops(input_ids: Any, scores: Any, **_: Any) -> Any:
            nonlocal over
            running = [] if over else [row for row in rows if row.finish_reason is None]
            drawn = zip(rows, input_ids[:, -1].tolist(), choice.logprobs.tolist(), strict=True)
            for row, token, logprob in drawn:
                if row in running and row.take(token, logprob):
                    if others and self.backend == "causal":
                        row.logprobs = self._logprobs(row.prompt + row.tokens)[-len(row.tokens) :]
                    ended((row, len(running)))
            done = [row.finish_reason is not None for row in rows]
            # on a GPU `generate` may take another step, whose tokens are none
            over = over or done.count(False) <= least or is_over()
            return torch.tensor([over or of_row for of_row in done], device=input_ids.device)

        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)  # of this thread
        for row in rows:
            row.started = row.started or time.perf_counter()
        prompts = [row.prompt + row.tokens for row in rows]
        pad, on_right = self.tokenizer.pad_token_id or 0, self.backend == "seq2seq"
        ids = _padded(prompts, pad, on_right)
        mask = _padded([[1] * len(prompt) for prompt in prompts], 0, on_right)
        # a model may load settings of its own, which `generate` would apply
        self.model.generation_config = neutral_config(self._generation_config)
        with torch.autocast(
            device_type=self.device.type,
            dtype=self.mixed_precision_dtype,
            enabled=self.mixed_precision_dtype is not None,
        ):
            try:
                self.model.generate(
                    input_ids=torch.tensor(ids, device=self.device),
                    attention_mask=torch.tensor(mask, device=self.device),
                    logits_processor=LogitsProcessorList([choice]),
                    stopping_criteria=StoppingCriteriaList([stops]),
                    max_new_tokens=max(row.limit - len(row.tokens) for row in rows),
                    eos_token_id=list(self._ends),
                    pad_token_id=pad,
                    do_sample=False,
                    use_cache=True,
                    **others,
                )
            except (TypeError, ValueError) as error:
                if isinstance(error, LmEvalBayesError) or not others:
                    raise
                raise _refused(others, error) from error

    def _logprobs(self, tokens: Sequence[int]) -> list[float]:
        """Return the natural logarithms of the probabilities of all tokens after the first."""
        import torch

        if len(tokens) < 2:
            return []
        ids = torch.tensor([list(tokens)], device=self.device)
        logits, logprobs = self._model_call(ids[:, :-1])[0], []
        for part, targets in zip(logits.split(_CHUNK), ids[0, 1:].split(_CHUNK), strict=True):
            of_part = part.float().log_softmax(-1).gather(-1, targets[:, None].to(part.device))
            logprobs += of_part[:, 0].tolist()
        return logprobs

    def _halve(self, rows: int, error: BaseException) -> None:
        """Halve the batches after one that did not fit into memory."""
        if rows < 2:
            sentence = (
                "the memory is too small for one trial; fewer max_gen_toks, a shorter prompt "
                "or a smaller dtype would help"
            )
            raise ModelConfigError(sentence, "failed", "batch_size", rows) from error
        self._batch_size = rows // 2
        log.warning(
            "a batch of %d trials did not fit into memory; they continue in batches of %d, with "
            "the same seeds",
            *(rows, self._batch_size),
        )


def _settings(request: TrialRequest) -> dict[str, Any]:
    """Return the settings that the trials of a batch share."""
    return {k: v for k, v in request.kwargs.items() if k not in ("until", "max_gen_toks")}


def _padded(rows: Sequence[list[int]], pad: int, on_right: bool) -> list[list[int]]:
    width = max(map(len, rows))
    gaps = [[pad] * (width - len(row)) for row in rows]
    return [row + gap if on_right else gap + row for row, gap in zip(rows, gaps, strict=True)]


def checked_warpers(settings: Mapping[str, Any]) -> list[Any] | None:
    """Return transformers' warpers of generation settings.

    Raises
    ------
    TaskConfigError
        If transformers refuses one, or if they ask for beams or for several sequences.
    """
    for name in ("num_beams", "num_return_sequences"):
        if settings.get(name) not in (None, 1):
            sentence = (
                f"`{name}` must be left out, since each trial is a sequence that is sampled; got "
                f"{settings[name]!r}"
            )
            raise TaskConfigError(sentence, "conflict", name, settings[name])
    try:
        return warpers(settings)
    except (TypeError, ValueError) as error:
        raise _refused(settings, error) from error


def _refused(settings: Mapping[str, Any], error: Exception) -> TaskConfigError:
    sentence = f"transformers refuses the generation settings {dict(settings)}: {error}"
    return TaskConfigError(sentence, "unsupported", "generation_kwargs", dict(settings))
