"""Trials from transformers' `generate`: each with its own seed and signals, yielded as it ends.

The token with the largest sum of log-probability, behind transformers' own warpers, and Gumbel
noise is an exact draw from the softmax. A row's noise depends on its seed and on the number of its
tokens alone, so neither on the other rows of the batch nor on their number, and small errors of the
logits, as of another batch size, rarely change the token.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from lm_eval_bayes._util.hashing import sha256_text
from lm_eval_bayes.errors import ModelConfigError, TaskConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.generation_settings import is_neutral
from lm_eval_bayes.harness.models.hf.model import LazyWeights, Row, read_trial
from lm_eval_bayes.harness.models.interface import (
    RequestStream,
    TrialRequest,
    bits_per_token,
    installed_versions,
)
from lm_eval_bayes.store.trial import Trial

if TYPE_CHECKING:
    from torch import Tensor


log = get_logger(__name__)


#: transformers' warpers in its order: the setting of each, and the values at which it has no
#: effect.
_WARPERS = (
    ("temperature", "TemperatureLogitsWarper", (1.0,)),
    ("top_h", "TopHLogitsWarper", ()),
    ("top_k", "TopKLogitsWarper", (0,)),
    ("top_p", "TopPLogitsWarper", (1.0,)),
    ("min_p", "MinPLogitsWarper", (0.0,)),
    ("typical_p", "TypicalLogitsWarper", (1.0,)),
    ("epsilon_cutoff", "EpsilonLogitsWarper", (0.0,)),
    ("eta_cutoff", "EtaLogitsWarper", (0.0,)),
)

#: The settings that are applied here and not by `generate`.
APPLIED = ("do_sample", *(name for name, _, _ in _WARPERS))

#: Settings that ask for several sequences.
_SEVERAL = ("num_beams", "num_return_sequences")


def warpers(settings: Mapping[str, Any]) -> list[Any] | None:
    """Return the warpers of generation settings; None if they are greedy.

    Raises
    ------
    TaskConfigError
        If `generate` has no such setting, or it asks for several sequences.
    TypeError, ValueError
        If transformers refuses a value.
    """
    import transformers

    for name, value in settings.items():
        is_setting = hasattr(transformers.GenerationConfig(), name) and name not in _SEVERAL
        if not is_setting and not is_neutral(name, value):
            rule = "be a setting of transformers' generate for one sequence"
            raise TaskConfigError.of(name, "unsupported", rule, value)
    if settings["temperature"] == 0:
        return None
    return [
        getattr(transformers, kind)(settings[name])
        for name, kind, neutral in _WARPERS
        if settings.get(name) is not None and settings[name] not in neutral
    ]


class SeededChoice:
    """A logits processor after which the largest score is that of a draw.

    Parameters
    ----------
    warpers : list or None
        What :func:`warpers` returns.
    seeds, positions : sequence of int
        The seed of every row, and the number of tokens that it has.

    Attributes
    ----------
    logprobs : Tensor, (B,)
        Natural logarithms of the probabilities of the last tokens, before the warpers.
    """

    logprobs: Tensor

    def __init__(
        self, warpers: list[Any] | None, seeds: Sequence[int], positions: Sequence[int]
    ) -> None:
        self._warpers, self._seeds, self._positions = warpers, seeds, list(positions)

    def __call__(self, input_ids: Any, scores: Tensor) -> Tensor:
        """Return the scores with the noise of the next positions."""
        logprobs = scores.log_softmax(-1)
        if self._warpers is not None:
            for warper in self._warpers:
                scores = warper(input_ids, scores)
            scores = scores + gumbel_noise(self._seeds, self._positions, scores)
        self._positions = [position + 1 for position in self._positions]
        self.logprobs = logprobs.gather(-1, scores.argmax(-1, keepdim=True))[:, 0]
        return scores


def gumbel_noise(seeds: Sequence[int], positions: Sequence[int], like: Tensor) -> Tensor:
    """Return standard Gumbel noise of the shape, type and device of a tensor (B, V)."""
    import torch

    # as float32 they would be multiples of 2**-24, too coarse for tokens that are less likely
    device = "cpu" if like.device.type == "mps" else like.device
    exponential = torch.empty(like.shape, dtype=torch.float64, device=device)
    generator = torch.Generator(device)
    for row, seed, position in zip(exponential, seeds, positions, strict=True):
        key = int(sha256_text(f"{seed} {position}")[:15], 16)
        row.exponential_(generator=generator.manual_seed(key))
    return -exponential.log_().to(like)


#: Tokens whose log-probabilities are computed together; each needs logits of the vocabulary.
_CHUNK = 1024

#: Rows as they end, each with the number of rows that ran; None at the end of the batch.
_Ended: TypeAlias = "queue.SimpleQueue[tuple[Row, int] | None]"


class HFSampling(LazyWeights):
    """A sampling mixin before the harness's `HFLM`, whose `generate` gets seeds.

    Every token is drawn with noise of its trial's seed and position, so a text depends on its
    prompt and seed, and on the other rows of the batch only through the rounding of the forward
    pass. The distribution is that of transformers' own processors and warpers; the recorded bits
    are those of the model before any of these.

    Weights are loaded at the first use, so a run whose trials are all stored loads none.
    """

    #: The size of a batch, at most `max_batch_size` with batch_size=auto.
    slots = 1

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.slots = int(self.max_batch_size if self.batch_size == "auto" else self.batch_size)

    @property
    def cannot_record(self) -> tuple[str, ...]:
        """Signals that are not recorded: the bits of an encoder-decoder model."""
        return ("completion_bpt", "prompt_bpt") if self.backend == "seq2seq" else ()

    # -- the interface of sampling mixins --------------------------------------------------

    def sample(
        self, requests: RequestStream, measure: Set[str]
    ) -> Iterator[tuple[TrialRequest, Trial]]:
        """Yield each trial as soon as it has ended.

        Parameters
        ----------
        requests : RequestStream
            As many are taken, in this order, as a batch has trials; those with the settings of the
            first, but for length and stop strings, are one. After its end no trial begins.
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
        started, prompt_tokens = time.perf_counter(), cache(self._prompt_tokens)
        for question in requests.questions:  # before the weights are loaded
            warpers(self._row(question, prompt_tokens).settings)
            self.warn_not_applied(self._generation_config.to_diff_dict(), question.kwargs)
        self.load()
        measured: set[str] = set()
        rows: list[Row] = []
        while not requests.is_over:
            # None in a pause, and at the end
            while len(rows) < self.slots and (request := next(requests, None)) is not None:
                row = self._row(request, prompt_tokens)
                rows.append(row)
                # a stream adds to `measure` with the request that measures the prompt
                if request.prompt in measure - measured and not (row.cut or self.cannot_record):
                    measured.add(request.prompt)
                    row.prompt_bpt = bits_per_token(self._logprobs(row.prompt))
            if requests.ended:
                rows = [row for row in rows if row.started]
            batch = [row for row in rows if row.settings == rows[0].settings]
            if not batch:
                return
            yield from self._sampled(batch[: self.slots], started, requests)
            rows = [row for row in rows if row.finish_reason is None]

    def versions(self) -> dict[str, str]:
        """Return the versions of the software that generates."""
        return installed_versions("torch", "transformers", "tokenizers", "accelerate", "lm_eval")

    # -- rows ------------------------------------------------------------------------------

    def _row(
        self, request: TrialRequest, prompt_tokens: Callable[[str, int], tuple[list[int], bool]]
    ) -> Row:
        """Return a request as a row without tokens, and check that the length fits."""
        length = request.kwargs["max_gen_toks"]
        room = int(self.max_length) - (0 if self.backend == "seq2seq" else length)
        if length < 1 or room < 1:
            rule = f"be at least 1 and leave room in the model's {self.max_length} tokens"
            raise ModelConfigError.of("max_gen_toks", "range", rule, length)
        tokens, cut = prompt_tokens(request.prompt, room)
        if cut:
            message = "a prompt was cut to its last %d tokens, so its answers may mean nothing"
            self.warn_once("cut", message, len(tokens))
        return Row(request, tokens, cut, length, self.stops_sent(request.kwargs))

    def _prompt_tokens(self, prompt: str, room: int) -> tuple[list[int], bool]:
        """Return a prompt's tokens, encoded on its own, and whether it is truncated."""
        complete, tokens = (
            self.tok_batch_encode([prompt], truncation=truncation)[0][0].tolist()
            for truncation in (False, self.truncation)
        )
        if not tokens:
            rule = "have at least one token (add_bos_token=True starts every text with one)"
            raise ModelConfigError.of("prompt", "empty", rule, prompt)
        return tokens[-room:], min(len(tokens), room) < len(complete)

    # -- texts -----------------------------------------------------------------------------

    def decode(self, tokens: Any) -> str:
        """Return the text of tokens, special ones included, as the harness does for stops."""
        return str(self.tok_decode(tokens, skip_special_tokens=False))

    @property
    def think_end(self) -> str:
        """The text that ends a think block; empty if the model has none."""
        end = self.think_end_token
        return self.decode([end]) if isinstance(end, int) else end or ""

    def _until(self, kwargs: Mapping[str, Any]) -> list[str]:
        """Return the stop strings with the text of the end token, as the harness does."""
        from lm_eval.models.utils import handle_stop_sequences

        eos = self.decode(self.eot_token_id)
        return list(handle_stop_sequences(list(kwargs.get("until", [])), eos))

    def finished_text(self, raw: str, kwargs: Mapping[str, Any], signals: Mapping[str, Any]) -> str:
        """Return the response that the harness's own backend would return for a raw text."""
        from lm_eval.models.utils import postprocess_generated_text

        return str(postprocess_generated_text(raw, self._until(kwargs), self.think_end))

    def stops_sent(self, kwargs: Mapping[str, Any]) -> list[str]:
        """Return the strings that end a trial: of a thinking model, only the sequence's end.

        A task's stop strings occur inside a think block as well, so the harness applies them
        afterwards, to the text after the block.
        """
        return self._until({} if self.think_end else kwargs)

    # -- running ---------------------------------------------------------------------------

    def _sampled(
        self, rows: Sequence[Row], started: float, stream: RequestStream
    ) -> Iterator[tuple[TrialRequest, Trial]]:
        """Yield trials of a batch as they end, while a thread generates.

        If it does not fit into memory, further batches have half as many trials.
        """
        import torch

        ended: _Ended = queue.SimpleQueue()
        closed = threading.Event()
        with ThreadPoolExecutor(1, "hf-generate") as thread:
            generated = thread.submit(self._generate, rows, stream, ended, closed)
            generated.add_done_callback(lambda _: ended.put(None))
            try:
                for row, running in iter(ended.get, None):
                    yield row.request, read_trial(row, self, started, running)
                generated.result()
            except torch.cuda.OutOfMemoryError:
                if len(rows) < 2:
                    raise
                self.slots = len(rows) // 2
                message = "%d trials do not fit into memory; they go on in batches of %d"
                log.warning(message, len(rows), self.slots)
            finally:
                closed.set()

    def _generate(
        self, rows: Sequence[Row], stream: RequestStream, ended: _Ended, closed: threading.Event
    ) -> None:
        """Generate a batch with transformers, and put each row into a queue as it ends.

        With it goes the number of rows that ran until then. When half of the rows have ended it
        returns, for a batch of the others with new ones: they go on from their tokens, which costs
        one forward pass. It also returns at the end of the stream, and once it is closed.
        """
        import torch
        from lm_eval.models.huggingface import pad_and_concat
        from transformers import GenerationConfig

        settings = rows[0].settings
        others = {k: v for k, v in settings.items() if k not in APPLIED and not is_neutral(k, v)}
        seeds, sizes = [row.request.seed for row in rows], [len(row.tokens) for row in rows]
        choice = SeededChoice(warpers(settings), seeds, sizes)
        # further settings may count tokens, and a decoder begins with its own
        least = len(rows) // 2 if self.backend == "causal" and not others else 0
        running = list(rows)

        def stops(input_ids: Any, scores: Any, **_: Any) -> Any:
            concurrency = len(running)
            drawn = zip(rows, input_ids[:, -1].tolist(), choice.logprobs.tolist(), strict=True)
            for row, token, logprob in drawn:
                if row in running and row.take(token, logprob, self):
                    running.remove(row)
                    if others and self.backend == "causal":
                        row.logprobs = self._logprobs(row.prompt + row.tokens)[-len(row.tokens) :]
                    ended.put((row, concurrency))
            if len(running) <= least or stream.is_over or closed.is_set():
                running.clear()  # on a GPU `generate` may take another step, whose tokens are none
            return torch.tensor([row not in running for row in rows], device=input_ids.device)

        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)  # of this thread
        for row in rows:
            row.started = row.started or time.perf_counter()
        prompts = [torch.tensor(row.prompt + row.tokens, device=self.device) for row in rows]
        width, side = max(map(len, prompts)), "left" if self.backend == "causal" else "right"
        ids, mask = (
            pad_and_concat(width, tensors, padding_side=side)
            for tensors in (prompts[:], [torch.ones_like(prompt) for prompt in prompts])
        )
        # a model may load settings of its own, which `generate` would apply
        own = self._generation_config.to_diff_dict().items()
        self.model.generation_config = GenerationConfig(
            **{k: v for k, v in own if k.endswith("_token_id") or k == "cache_implementation"}
        )
        dtype = self.mixed_precision_dtype
        with torch.autocast(self.device.type, dtype, enabled=dtype is not None):
            self.model.generate(
                input_ids=ids,
                attention_mask=mask,
                logits_processor=[choice],
                stopping_criteria=[stops],
                max_new_tokens=max(row.limit - len(row.tokens) for row in rows),
                eos_token_id=list(self.ends),
                pad_token_id=self.tokenizer.pad_token_id,
                do_sample=False,
                use_cache=True,
                **others,
            )

    def _logprobs(self, tokens: Sequence[int]) -> list[float]:
        """Return the natural logarithms of the probabilities of all tokens after the first."""
        import torch
        from torch.nn.functional import cross_entropy

        if len(tokens) < 2:
            return []
        ids = torch.tensor([list(tokens)], device=self.device)
        logits = self._model_call(ids[:, :-1])[0]
        parts = zip(logits.split(_CHUNK), ids[0, 1:].to(logits.device).split(_CHUNK), strict=True)
        losses = [cross_entropy(part.float(), target, reduction="none") for part, target in parts]
        return list((-torch.cat(losses)).tolist())
