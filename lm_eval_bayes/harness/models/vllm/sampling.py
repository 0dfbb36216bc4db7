"""Trials from vLLM: each with its own seed and signals, yielded as soon as it is finished."""

from __future__ import annotations

import importlib.metadata
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lm_eval_bayes import __version__
from lm_eval_bayes.errors import ModelConfigError, TaskConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.interface import TrialRequest
from lm_eval_bayes.harness.models.vllm.engine import (
    EngineFailedError,
    EngineOutput,
    EngineRequest,
    LazyLLM,
    lazy_llm,
    model_config_of,
    run,
    sampling_params,
)
from lm_eval_bayes.harness.models.vllm.fingerprint import (
    vllm_fingerprint,
    warn_of_generation_config,
)
from lm_eval_bayes.harness.models.vllm.signal_handling import shut_down_on_signals
from lm_eval_bayes.store.trial import Trial

log = get_logger(__name__)

_BITS_PER_NAT = 1.0 / math.log(2.0)
_DISTRIBUTIONS = ("vllm", "torch", "transformers", "lm_eval")


class VLLMSampling:
    """A sampling mixin before the harness's `VLLM`, which steps the engine itself.

    The engine is built at the first use, so a run whose trials are all stored loads no
    weights. As many requests run as the engine allows (`max_num_seqs`), with a few waiting;
    when one ends it is yielded and the next one starts. The distribution is the softmax of the
    logits after temperature, min_p, top_k and top_p, in vLLM's order; the recorded bits are
    those of the model before any of these.

    On a CPU `enable_chunked_prefill` defaults to False, because a seeded request whose prompt
    is computed in pieces kills vLLM's CPU engine.

    With `data_parallel_size` above 1 the harness starts engines in every call, whose outputs
    come together at its end: then all trials are sampled in one call, and nothing is stored
    before it returns. `vllm serve` with a recording API backend does better.
    """

    takes_seed = True
    seeded = True
    cannot_record: tuple[str, ...] = ()
    #: The name of the files that record the engine's processes.
    processes_file: Path | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if _on_cpu() and "enable_chunked_prefill" not in kwargs:
            kwargs["enable_chunked_prefill"] = False
            log.debug(
                "enable_chunked_prefill=False: on a CPU, vLLM's engine dies of a seeded request "
                "whose prompt is computed in pieces"
            )
        # vLLM keeps the times of a request only together with its other statistics.
        kwargs.setdefault("disable_log_stats", False)
        self._lora_path = kwargs.get("lora_local_path")
        with lazy_llm(self, self.processes_file):
            super().__init__(*args, **kwargs)
        self._warned: set[str] = set()
        self._one_call = int(getattr(self, "data_parallel_size", 1) or 1) > 1
        if self._one_call:
            self.cannot_record = ("queued_s", "generated_s", "concurrency")
        self._data_parallel_config: Any = None
        mode = getattr(self._model_config, "logprobs_mode", "raw_logprobs")
        if str(getattr(mode, "value", mode)) != "raw_logprobs":
            raise ModelConfigError(
                f"`logprobs_mode` must be raw_logprobs, the model's own; got {mode!r} (the "
                "recorded bits are those of the untempered model)"
            )

    @property
    def weights_loaded(self) -> bool:
        """Whether the engine is built."""
        llm = getattr(self, "model", None)
        return isinstance(llm, LazyLLM) and llm.lazy_engine.llm is not None

    @property
    def _model_config(self) -> Any:
        lm: Any = self
        if not self._one_call:
            return lm.model.llm_engine.model_config
        if self._data_parallel_config is None:
            self._data_parallel_config = model_config_of(lm.model_args)
        return self._data_parallel_config

    # -- the interface of sampling mixins ----------------------------------------------------

    def sample(
        self, requests: Sequence[TrialRequest], measure: frozenset[str]
    ) -> Iterator[tuple[TrialRequest, Trial]]:
        """Yield each trial as soon as the engine has finished it.

        Parameters
        ----------
        requests : sequence of TrialRequest
            Started in this order.
        measure : frozenset of str
            Prompts whose ``prompt_bpt`` is measured, with the first trial of each; not for a
            truncated prompt.

        Raises
        ------
        TaskConfigError
            If vLLM refuses a generation setting, or the length leaves no room for a prompt.
        EngineFailedError
            If the engine dies; the trials yielded before are valid.
        """
        lm: Any = self
        engine_requests = self._engine_requests(requests, measure)
        if requests and "generation config" not in self._warned:
            self._warned.add("generation config")
            warn_of_generation_config(self._model_config, requests[0].kwargs)
        if self._one_call:
            for output in self._in_one_call(list(engine_requests)):
                yield output.request.trial_request, trial_of(output, lm.think_end_token)
            return
        lazy_engine = lm.model.lazy_engine
        with shut_down_on_signals(lazy_engine.shut_down):
            engine = lazy_engine.built().llm_engine
            max_running = int(engine.vllm_config.scheduler_config.max_num_seqs)
            try:
                for output in run(engine, engine_requests, max_running, lm.lora_request):
                    yield output.request.trial_request, trial_of(output, lm.think_end_token)
            except EngineFailedError:
                lazy_engine.shut_down()  # so that a further call builds a new one
                raise

    def finished_text(self, raw: str, kwargs: Mapping[str, Any], signals: Mapping[str, Any]) -> str:
        """Return the response that the harness's own backend would return for a raw text."""
        from lm_eval.models.utils import postprocess_generated_text

        lm: Any = self
        _, until, _ = self._split(kwargs)
        return str(postprocess_generated_text(raw, until, lm.think_end_token))

    def stops_sent(self, kwargs: Mapping[str, Any]) -> list[str]:
        """Return the stop strings that the engine gets: of a thinking model, only its end.

        A task's stop strings occur inside a think block as well, so the harness applies them
        afterwards, to the text after the block.
        """
        _, until, _ = self._split(kwargs)
        eos = self._eos()
        lm: Any = self
        return [s for s in until if s == eos] if lm.think_end_token else list(until)

    def fingerprint(self) -> dict[str, Any]:
        """Return what the distribution depends on, without loading weights."""
        lm: Any = self
        return vllm_fingerprint(
            lm.model_args,
            self._model_config,
            max_length=lm.max_length,
            chat_template=getattr(lm, "hf_chat_template", None),
            lora=self._lora_path,
            tokenization={
                "add_bos_token": lm.add_bos_token,
                "prefix_token_id": lm.custom_prefix_token_id,
                "truncation_side": lm.truncation_side,
            },
        )

    def versions(self) -> dict[str, str]:
        """Return the versions of the software that generates."""
        versions = {"lm_eval_bayes": __version__}
        for name in _DISTRIBUTIONS:
            try:
                versions[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
        return versions

    # -- requests ----------------------------------------------------------------------------

    def _engine_requests(
        self, requests: Sequence[TrialRequest], measure: frozenset[str]
    ) -> Iterator[EngineRequest]:
        """Return the engine's requests, with prompts truncated as the harness truncates them.

        All settings and prompts are checked before the first request is returned.
        """
        from lm_eval.models.utils import maybe_truncate

        lm: Any = self
        # The trials of a question share their settings, so each is read once.
        settings_of: dict[int, tuple[dict[str, Any], list[str], int]] = {}
        prompts: dict[tuple[str, int], tuple[list[int], int, bool]] = {}
        contexts = list(dict.fromkeys(request.context for request in requests))
        encoded = dict(zip(contexts, lm.tok_encode(contexts), strict=True)) if contexts else {}
        for request in requests:
            kwargs = request.kwargs
            if id(kwargs) not in settings_of:
                settings, _, length = self._split(kwargs)
                settings_of[id(kwargs)] = settings, self.stops_sent(kwargs), length
                sampling_params(*settings_of[id(kwargs)], request.seed)
            length = settings_of[id(kwargs)][2]
            if (request.context, length) not in prompts:
                if length >= lm.max_length:
                    raise TaskConfigError(
                        "`max_gen_toks` must leave room for the prompt in the model's "
                        f"{lm.max_length} tokens (max_model_len); got {length}"
                    )
                complete = encoded[request.context]
                tokens, max_tokens = maybe_truncate(
                    complete,
                    max_gen_toks=length,
                    max_model_len=lm.max_length,
                    side=lm.truncation_side,
                    verbose=True,
                )
                truncated = len(tokens) < len(complete)
                prompts[request.context, length] = tokens, max_tokens, truncated

        def checked_requests() -> Iterator[EngineRequest]:
            to_measure = set(measure)
            for request in requests:
                settings, stops, length = settings_of[id(request.kwargs)]
                tokens, max_tokens, truncated = prompts[request.context, length]
                measures = request.prompt in to_measure and not truncated
                if measures:
                    to_measure.remove(request.prompt)
                params = sampling_params(settings, stops, max_tokens, request.seed, measures)
                yield EngineRequest(request, tokens, params, truncated, measures)

        return checked_requests()

    def _split(self, kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], list[str], int]:
        """Return vLLM's settings, all stop strings with the end of the sequence, and length."""
        lm: Any = self
        settings, until, length = lm.modify_gen_kwargs(
            dict(kwargs), eos=self._eos(), default_max_gen_toks=lm.max_gen_toks
        )
        return settings, until, length

    def _eos(self) -> str:
        lm: Any = self
        return lm.tokenizer.decode(lm.eot_token_id) or getattr(lm.tokenizer, "eos_token", "") or ""

    def _in_one_call(self, requests: list[EngineRequest]) -> Iterator[EngineOutput]:
        lm: Any = self
        if "one call" not in self._warned:
            self._warned.add("one call")
            log.warning(
                "data_parallel_size=%d loads the model in every call, which returns only when "
                "all its trials are done: nothing is stored before. Serve the model instead "
                "(vllm serve --data-parallel-size %d) and use backend=local-completions",
                lm.data_parallel_size,
                lm.data_parallel_size,
            )
        outputs = lm._model_generate(
            requests=[list(request.tokens) for request in requests],
            generate=True,
            sampling_params=[request.params for request in requests],
        )
        for request, output in zip(requests, outputs, strict=True):
            yield EngineOutput(request, output)


def _on_cpu() -> bool:
    platforms = sys.modules.get("vllm.platforms")
    is_cpu = getattr(getattr(platforms, "current_platform", None), "is_cpu", None)
    return bool(callable(is_cpu) and is_cpu())


# -- what is measured ----------------------------------------------------------------------------


def trial_of(finished: EngineOutput, think_end: str | None) -> Trial:
    """Return the trial of a finished request, with its measurements.

    Parameters
    ----------
    finished : EngineOutput
        The request and its output.
    think_end : str or None
        The text that closes a think block, if the model has one.
    """
    request, output = finished.request, finished.output
    completion, tokens = output.outputs[0], list(output.prompt_token_ids)
    signals: dict[str, Any] = {
        "completion_bpt": completion_bits(completion),
        "prompt_truncated": request.truncated,
    }
    if think_end:
        signals["think_closed"] = think_end in completion.text
    if request.measures_prompt:
        signals["prompt_bpt"] = prompt_bits(output.prompt_logprobs, tokens)
    queued, generated = times(finished)
    return request.trial_request.result(
        completion.text,
        signals=signals,
        prompt_tokens=len(tokens),
        completion_tokens=len(completion.token_ids),
        finish_reason=completion.finish_reason,
        stop_reason=completion.stop_reason,
        queued_s=queued,
        generated_s=generated,
        concurrency=finished.concurrency,
    )


def completion_bits(output: Any) -> float | None:
    """Return the negative mean log-probability of the sampled tokens, in bits.

    Parameters
    ----------
    output : CompletionOutput
        vLLM's output, sampled with `logprobs`.

    Returns
    -------
    float or None
        Under the untempered model; None without tokens.
    """
    total, count = output.cumulative_logprob, len(output.token_ids)
    return _bits(-float(total), count) if total is not None else None


def prompt_bits(logprobs: Any, tokens: Sequence[int]) -> float | None:
    """Return the negative mean log-probability of a prompt's tokens after the first, in bits.

    Parameters
    ----------
    logprobs : FlatLogprobs or list of dict
        vLLM's, one entry per token of the prompt; the first entry is empty.
    tokens : sequence of int
        The prompt.

    Returns
    -------
    float or None
        None if the prompt has one token.
    """
    flat = getattr(logprobs, "logprobs", None)
    if flat is not None:
        # The prompt's own token is the first of each entry.
        values = [flat[start] for start in logprobs.start_indices[1:]]
    else:
        pairs = zip(list(logprobs)[1:], tokens[1:], strict=True)
        values = [getattr(entry[token], "logprob", entry[token]) for entry, token in pairs]
    return _bits(-math.fsum(values), len(values))


def _bits(nats: float, count: int) -> float | None:
    bits = nats * _BITS_PER_NAT / count if count else math.nan
    return bits if math.isfinite(bits) else None


def times(finished: EngineOutput) -> tuple[float | None, float | None]:
    """Return how long a request waited and how long it ran, in seconds.

    vLLM records these times with its statistics, by the same monotonic clock. Without them the
    waiting time is None, and all the time since submission counts as running.

    Parameters
    ----------
    finished : EngineOutput
        Without times of its own, of a call that returns all outputs together, both are None.
    """
    metrics = getattr(finished.output, "metrics", None)
    start = float(getattr(metrics, "scheduled_ts", 0.0) or 0.0)
    stop = float(getattr(metrics, "last_token_ts", 0.0) or 0.0)
    if finished.submitted is None or finished.ended is None:
        return None, None
    if finished.submitted - 1.0 <= start <= stop <= finished.ended + 1.0:
        return max(0.0, start - finished.submitted), stop - start
    return None, finished.ended - finished.submitted
