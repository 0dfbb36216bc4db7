"""Trials from transformers: each with its own generator and signals, yielded as it ends."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import Any

from lm_eval_bayes._util.hashing import canonical_json
from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.hf.generation import (
    NotLoopableError,
    Settings,
    TokenLoop,
    generate_fallback,
)
from lm_eval_bayes.harness.models.hf.lazy import (
    LazyWeights,
    end_tokens,
    generation_config_of,
    hf_fingerprint,
)
from lm_eval_bayes.harness.models.hf.responses import Row, StopFinder, read_trial
from lm_eval_bayes.harness.models.interface import (
    RequestStream,
    TrialRequest,
    bits_per_token,
    check_harness,
    installed_versions,
)
from lm_eval_bayes.runs.model_arguments import as_json
from lm_eval_bayes.store.trial import Trial

log = get_logger(__name__)

#: The methods of the harness's class, and its helpers, that are used here.
_METHODS = ("tok_batch_encode", "tok_decode", "_model_generate", "_model_call", "_create_model")
_HELPERS = ("handle_stop_sequences", "postprocess_generated_text")


class HFSampling(LazyWeights):
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

    streams = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        import lm_eval.models.utils as helpers

        check_harness("its hf backend", (type(self), _METHODS), (helpers, _HELPERS))
        self._generation_config = generation_config_of(self.config, self.given)
        self._ends = end_tokens(self._generation_config, self.tokenizer)
        self._loop: TokenLoop | None = None
        self._why_no_loop = ""
        self._batch = 0
        self._gathers = True
        if self.backend == "seq2seq":
            self._why_no_loop = "it is an encoder with a decoder"

    @property
    def cannot_record(self) -> tuple[str, ...]:
        """Signals that are not recorded: the bits of an encoder-decoder model."""
        return ("completion_bpt", "prompt_bpt") if self.backend == "seq2seq" else ()

    # -- the interface of sampling mixins --------------------------------------------------

    @property
    def slots(self) -> int:
        """How many trials are a batch; of batch_size=auto it is detected."""
        return self._batch_size(2)

    def sample(
        self, requests: Sequence[TrialRequest] | RequestStream, measure: frozenset[str]
    ) -> Iterator[tuple[TrialRequest, Trial]]:
        """Yield each trial as soon as it has ended.

        Parameters
        ----------
        requests : sequence of TrialRequest, or RequestStream
            Batches are filled in this order, except that those of one trial number are sorted
            by the length of the prompt, and that one batch has one set of settings. The batches
            of a stream are those of the same requests as a list; after its end no batch begins.
        measure : frozenset of str
            Prompts whose ``prompt_bpt`` is measured, with the first trial of each; not for a
            truncated prompt.

        Raises
        ------
        ModelConfigError
            If a generation setting is out of range, or leaves no room for the prompt.
        """
        import torch

        started = time.perf_counter()
        stream = requests if isinstance(requests, RequestStream) else None
        questions = requests.questions if isinstance(requests, RequestStream) else requests
        if not questions:
            return
        row_of = self._row_maker()
        for request in questions:  # before the weights are loaded
            row_of(request)
        queue = Queue(map(row_of, requests), len(requests), measure)
        self.warn_not_applied(self._generation_config.to_diff_dict(), questions[0].kwargs)
        self.load()
        bits = queue.bits
        while stream is None or not stream.ended:
            settings = queue.next_settings()
            if settings is None:
                return
            loop = None if settings.others else self._token_loop()
            if loop is None:
                (row,) = queue.take(1)
                prompt_bpt = self._generate_fallback(row, settings)
                measured = prompt_bpt if row.request.index in bits else None
                yield row.request, read_trial(row, self, started, measured)
                continue
            rows = queue.take(self._batch_size(len(queue)))
            try:
                for row in rows:
                    if bits.get(row.request.index, 0.0) is None:
                        bits[row.request.index] = loop.prompt_bits(row.prompt)
                is_over = () if stream is None else (lambda: stream.is_over,)
                for row in loop.run(rows, settings.sampling, *is_over):
                    trial = read_trial(row, self, started, bits.get(row.request.index))
                    yield row.request, trial
            except NotLoopableError as error:
                self._loop, self._why_no_loop = None, str(error)
                queue.put_back(rows)
            except torch.cuda.OutOfMemoryError as error:
                self._shrink(len(rows), error)
                queue.put_back([row for row in rows if row.finish_reason is None])

    def fingerprint(self) -> dict[str, Any]:
        """Return what the distribution depends on, without loading weights."""
        return hf_fingerprint(self, self.given, self._ends)

    def versions(self) -> dict[str, str]:
        """Return the versions of the software that generates."""
        return installed_versions("torch", "transformers", "tokenizers", "accelerate", "lm_eval")

    # -- rows ------------------------------------------------------------------------------

    def _row_maker(self) -> Callable[[TrialRequest], tuple[Row, Settings]]:
        """Return a function from requests to rows with settings; equal ones are one object."""
        prompts: dict[str, tuple[list[int], bool]] = {}
        kinds: dict[str, tuple[Settings, StopFinder]] = {}

        def row_of(request: TrialRequest) -> tuple[Row, Settings]:
            kind = canonical_json(as_json(request.kwargs))
            if kind not in kinds:
                kinds[kind] = Settings.of(request.kwargs), self.stop_finder(request.kwargs)
            settings, finder = kinds[kind]
            room = int(self.max_length)
            if self.backend != "seq2seq":
                room -= settings.max_new_tokens
            if room < 1:
                sentence = (
                    f"`max_gen_toks` must leave room for the prompt in the model's max_length of "
                    f"{self.max_length} tokens; got {settings.max_new_tokens}"
                )
                raise ModelConfigError(sentence, "range", "max_gen_toks", settings.max_new_tokens)
            if request.prompt not in prompts:
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
            return Row(request, tokens, cut, settings.max_new_tokens, self._ends, finder), settings

        return row_of

    # -- prompts and texts -------------------------------------------------------------------

    @property
    def _think(self) -> str | int | None:
        return None if self.think_end_token == "" else self.think_end_token

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

        think = self._think
        if isinstance(think, int):
            raw = raw[int(signals.get("answer_at") or 0) :].lstrip()
        think = think if isinstance(think, str) else None
        return str(postprocess_generated_text(raw, self._until(kwargs), think))

    def stops_sent(self, kwargs: Mapping[str, Any]) -> list[str]:
        """Return the strings that end a trial: of a thinking model, only the sequence's end.

        A task's stop strings occur inside a think block as well, so the harness applies them
        afterwards, to the text after the block.
        """
        return self._until({}) if self._think is not None else self._until(kwargs)

    def stop_finder(self, kwargs: Mapping[str, Any]) -> StopFinder:
        """Return the finder of a request's stop strings."""
        stops = self.stops_sent(kwargs)
        # Without stops of the task only the end's text is searched for, which is rare.
        often = len(stops) > len(self._until({}))
        return StopFinder(
            stops,
            lambda ids: str(self.tok_decode(ids, skip_special_tokens=False)),
            4 if often else 32,
        )

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

    # -- running ---------------------------------------------------------------------------

    def _token_loop(self) -> TokenLoop | None:
        if self._loop is None and not self._why_no_loop:
            pad = self.tokenizer.pad_token_id
            try:
                self._loop = TokenLoop(
                    self.model, self.device, 0 if pad is None else pad, self.mixed_precision_dtype
                )
            except NotLoopableError as error:
                self._why_no_loop = str(error)
        return self._loop

    def _generate_fallback(self, row: Row, settings: Settings) -> float | None:
        """Generate one trial; return its prompt's bits."""
        reason = self._why_no_loop or f"of {', '.join(sorted(settings.others))}"
        not_recorded = ", ".join(self.cannot_record) or "nothing"
        self.warn_once(
            "fallback",
            "trials are drawn one at a time by transformers' own generate, because %s; this is "
            "slow, and not recorded: %s",
            *(reason, not_recorded),
        )
        stops = self.stops_sent(row.request.kwargs)
        return bits_per_token(generate_fallback(self, row, settings.max_new_tokens, stops))

    def _batch_size(self, waiting: int) -> int:
        if not self._batch:
            if self.batch_size != "auto":
                self._batch = max(1, int(self.batch_size))
            elif waiting == 1:
                return 1
            else:
                log.info("batch_size=auto: detecting the batch size")
                self._gathers = False
                try:
                    self._batch = max(1, int(self._detect_batch_size()))
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
            sentence = (
                "the memory is too small for one trial; fewer max_gen_toks, a shorter prompt "
                "or a smaller dtype would help"
            )
            raise ModelConfigError(sentence, "failed", "batch_size", rows) from error
        self._batch = rows // 2
        log.warning(
            "a batch of %d trials did not fit into memory; %d continue in batches of %d, with the "
            "same seeds",
            *(rows, rows, self._batch),
        )


class Queue:
    """Trials by trial number, with one set of settings per batch.

    Of one trial number the longest prompts come first: a batch then has little padding, and a
    lack of memory is noticed at once. The trials of a number are taken from the rows when those
    of earlier numbers no longer fill a batch.

    Parameters
    ----------
    rows : iterable of (Row, Settings)
        The trials in the order of the requests; those whose settings are one object may share a
        batch.
    total : int
        The number of rows, unless they end early.
    measure : set of str
        The prompts to measure.

    Attributes
    ----------
    bits : dict
        The index of the first trial of each of these prompts, with None for its bits; none for
        cut prompts.
    """

    def __init__(
        self, rows: Iterable[tuple[Row, Settings]], total: int, measure: Set[str] = frozenset()
    ) -> None:
        self._rows = iter(rows)
        self._next = next(self._rows, None)
        self._left, self._round = total, 0
        self._measure = set(measure)
        self.bits: dict[int, float | None] = {}
        self._waiting: dict[int, tuple[Settings, deque[Row]]] = {}
        self._due: deque[Row] = deque()

    def __len__(self) -> int:
        """Return the number of trials that were not taken, unless the rows end early."""
        return self._left

    def add_round(self) -> bool:
        """Add the trials of the next number; return whether there are any."""
        if self._next is None:
            return False
        self._round += 1
        trial = self._next[0].request.trial
        added: dict[int, list[Row]] = {key: [] for key in self._waiting}
        while self._next is not None and self._next[0].request.trial == trial:
            row, settings = self._next
            row.round = self._round
            self._waiting.setdefault(id(settings), (settings, deque()))
            added.setdefault(id(settings), []).append(row)
            self._next = next(self._rows, None)
        for key, rows in added.items():
            self._waiting[key][1].extend(sorted(rows, key=_longest_first))
        for row in sorted(chain.from_iterable(added.values()), key=_longest_first):
            if row.request.prompt in self._measure and not row.cut:
                self._measure.remove(row.request.prompt)
                self.bits[row.request.index] = None
        return True

    def next_settings(self) -> Settings | None:
        """Select the settings whose trials are due, and return them; None if there is no trial."""
        waiting = [(settings, rows) for settings, rows in self._waiting.values() if rows]
        if not waiting:
            return self.next_settings() if self.add_round() else None
        settings, self._due = min(waiting, key=lambda entry: entry[1][0].round)
        return settings

    def take(self, count: int) -> list[Row]:
        """Take at most `count` trials of the settings that `next_settings` selected."""
        while len(self._due) < count and self.add_round():
            pass
        taken = [self._due.popleft() for _ in range(min(count, len(self._due)))]
        self._left -= len(taken)
        return taken

    def put_back(self, rows: Sequence[Row]) -> None:
        """Return trials that were taken and have not ended to their positions."""
        self._left += len(rows)
        for row in reversed(rows):
            row.start_over()
            self._due.appendleft(row)


def _longest_first(row: Row) -> int:
    return -len(row.prompt)
