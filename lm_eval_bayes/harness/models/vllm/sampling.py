"""Trials from vLLM: each with its own seed and signals, yielded as soon as it is finished."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Set
from typing import Any

from lm_eval_bayes import __version__
from lm_eval_bayes._util.hashing import hash_text
from lm_eval_bayes._util.packages import VLLM, version_of
from lm_eval_bayes.errors import ModelConfigError, TaskConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.interface import (
    RequestStream,
    SamplingMixin,
    TrialRequest,
    bits_per_token,
    installed_versions,
)
from lm_eval_bayes.harness.models.vllm.engine import (
    EngineFailedError,
    EngineOutput,
    EngineRequest,
    lazy_llm,
    run,
    sampling_params,
)
from lm_eval_bayes.harness.models.weights import files_identity
from lm_eval_bayes.runs.model_arguments import identity
from lm_eval_bayes.store.trial import Trial

log = get_logger(__name__)


def read_trial(finished: EngineOutput, think_end: str | None) -> Trial:
    """Return the trial of a finished request, with its signals.

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
        "completion_bpt": bits_per_token(
            [completion.cumulative_logprob], len(completion.token_ids)
        ),
        "prompt_truncated": request.truncated,
    }
    if think_end:
        signals["think_closed"] = think_end in completion.text
    if request.measures_prompt:
        signals["prompt_bpt"] = prompt_bits(output.prompt_logprobs)
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


def prompt_bits(logprobs: Any) -> float | None:
    """Return the negative mean log-probability of a prompt's tokens after the first, in bits.

    Parameters
    ----------
    logprobs : FlatLogprobs
        vLLM's, one entry per token of the prompt; the first entry is empty.

    Returns
    -------
    float or None
        None if the prompt has one token.
    """
    # The prompt's own token is the first of each entry.
    return bits_per_token([logprobs.logprobs[start] for start in logprobs.start_indices[1:]])


def times(finished: EngineOutput) -> tuple[float | None, float]:
    """Return how long a request waited and how long it ran, in seconds.

    vLLM records these times with its statistics, by the same monotonic clock. Without them the
    waiting time is None, and all the time since submission counts as running.
    """
    metrics = getattr(finished.output, "metrics", None)
    start = float(getattr(metrics, "scheduled_ts", 0.0) or 0.0)
    stop = float(getattr(metrics, "last_token_ts", 0.0) or 0.0)
    if finished.submitted - 1.0 <= start <= stop <= finished.ended + 1.0:
        return max(0.0, start - finished.submitted), stop - start
    return None, finished.ended - finished.submitted


#: Arguments of the engine that other entries cover, or that do not change the distribution.
_COVERED = (
    *("model", "revision", "dtype", "quantization", "max_model_len", "enable_lora"),
    *("tokenizer", "tokenizer_mode", "tokenizer_revision", "max_lora_rank"),
)


class VLLMSampling(SamplingMixin):
    """A sampling mixin before the harness's `VLLM`, which steps the engine itself.

    The engine is built at the first use, so a run whose trials are all stored loads no
    weights. As many requests run as the engine allows (`max_num_seqs`), with a few waiting;
    when one ends it is yielded and the next one starts. The distribution is the softmax of the
    logits after temperature, min_p, top_k and top_p, in vLLM's order; the recorded bits are
    those of the model before any of these.

    On a CPU `enable_chunked_prefill` defaults to False, because a seeded request whose prompt
    is computed in pieces kills vLLM's CPU engine.
    """

    takes_seed = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        problem = VLLM.problem(version_of(VLLM.distribution))
        if problem is not None:
            raise ModelConfigError(problem, "unsupported", "vllm")
        if int(kwargs.get("data_parallel_size") or 1) > 1:
            # the harness starts such engines in every call, and returns when all of it is done
            raise ModelConfigError(
                "`data_parallel_size` must be left out, so that every trial is stored as it ends: "
                "executor=ray,workers=8 has eight engines, and so has vllm serve with "
                f"backend=local-completions; got {kwargs['data_parallel_size']!r}",
                "conflict",
                "data_parallel_size",
                kwargs["data_parallel_size"],
            )
        if _on_cpu() and "enable_chunked_prefill" not in kwargs:
            kwargs["enable_chunked_prefill"] = False
            log.debug(
                "enable_chunked_prefill=False: on a CPU, vLLM's engine dies of a seeded request "
                "whose prompt is computed in pieces"
            )
        # vLLM keeps the times of a request only together with its other statistics.
        kwargs.setdefault("disable_log_stats", False)
        self._lora_path = kwargs.get("lora_local_path")
        with lazy_llm(self):
            super().__init__(*args, **kwargs)
        self._model_config = self.model.model_config
        mode = getattr(self._model_config, "logprobs_mode", "raw_logprobs")
        if str(getattr(mode, "value", mode)) != "raw_logprobs":
            sentence = (
                f"`logprobs_mode` must be raw_logprobs, the model's own; got {mode!r} (the "
                "recorded bits are those of the untempered model)"
            )
            raise ModelConfigError(sentence, "unsupported", "logprobs_mode", mode)

    @property
    def weights_loaded(self) -> bool:
        """Whether the engine is built."""
        return self.model.llm is not None

    @property
    def slots(self) -> int:
        """How many requests the engine runs at once."""
        return int(self.model.built().llm_engine.vllm_config.scheduler_config.max_num_seqs)

    def load(self) -> None:
        """Build the engine, if it is not built."""
        self.model.built()

    # -- the interface of sampling mixins ----------------------------------------------------

    def sample(
        self, requests: RequestStream, measure: Set[str]
    ) -> Iterator[tuple[TrialRequest, Trial]]:
        """Yield each trial as soon as the engine has finished it.

        Parameters
        ----------
        requests : RequestStream
            Started in this order. It may give None where it has no request at present.
        measure : set of str
            Prompts whose ``prompt_bpt`` is measured, with the first trial of each; not for a
            truncated prompt.

        Raises
        ------
        TaskConfigError
            If vLLM refuses a generation setting, or the length leaves no room for a prompt.
        EngineFailedError
            If the engine dies; the trials yielded before are valid.
        """
        engine_requests = self._engine_requests(requests, measure)
        if requests.questions:
            config = generation_config(self._model_config)
            self.warn_not_applied(config, requests.questions[0].kwargs)
        slots = self.slots  # builds the engine
        engine = self.model.llm_engine
        running = run(engine, engine_requests, slots, self.lora_request, lambda: requests.is_over)
        try:
            for output in running:
                yield output.request.trial_request, read_trial(output, self.think_end_token)
        except EngineFailedError:
            self.model.shut_down()  # so that a further call builds a new one
            raise

    def finished_text(self, raw: str, kwargs: Mapping[str, Any], signals: Mapping[str, Any]) -> str:
        """Return the response that the harness's own backend would return for a raw text."""
        from lm_eval.models.utils import postprocess_generated_text

        _, until, _ = self._split(kwargs)
        return str(postprocess_generated_text(raw, until, self.think_end_token))

    def stops_sent(self, kwargs: Mapping[str, Any]) -> list[str]:
        """Return the stop strings that the engine gets: of a thinking model, only its end.

        A task's stop strings occur inside a think block as well, so the harness applies them
        afterwards, to the text after the block.
        """
        _, until, _ = self._split(kwargs)
        eos = self._eos()
        return [s for s in until if s == eos] if self.think_end_token else list(until)

    def fingerprint(self) -> dict[str, Any]:
        """Return what the distribution depends on, without loading weights.

        Of the engine's arguments that no other entry covers, `model_arguments.identity` is
        included.
        """
        model_args, model_config, lora = self.model_args, self._model_config, self._lora_path
        pretrained, revision = str(model_args["model"]), model_args.get("revision")
        commit = getattr(getattr(model_config, "hf_config", None), "_commit_hash", None) or revision
        tokenizer = model_args.get("tokenizer") or pretrained
        own_tokenizer = tokenizer == pretrained
        tokenizer_revision = model_args.get("tokenizer_revision")
        chat_template = getattr(self, "hf_chat_template", None)
        eos = generation_config(model_config).get("eos_token_id")
        ends = eos if isinstance(eos, (list, tuple)) else [eos]
        return {
            "backend": "vllm",
            "pretrained": pretrained,
            "revision": revision,
            **files_identity(
                pretrained,
                commit,
                (tokenizer, tokenizer_revision or (commit if own_tokenizer else None)),
                [] if lora is None else [(lora, None)],
            ),
            "peft": lora,
            "dtype": str(getattr(model_config, "dtype", model_args.get("dtype"))).split(".")[-1],
            "quantization": getattr(model_config, "quantization", model_args.get("quantization")),
            "tokenizer": None if own_tokenizer else tokenizer,
            "tokenizer_revision": tokenizer_revision,
            "tokenizer_mode": model_args.get("tokenizer_mode"),
            "tokenization": {
                "add_bos_token": self.add_bos_token,
                "prefix_token_id": self.custom_prefix_token_id,
                "truncation_side": self.truncation_side,
            },
            "chat_template": None if chat_template is None else hash_text(chat_template),
            "max_length": int(self.max_length),
            # The only entry of generation_config.json that vLLM uses if every setting is given.
            "end_tokens": sorted({int(token) for token in ends if token}),
            "engine": identity(
                {n: v for n, v in sorted(model_args.items()) if v is not None and n not in _COVERED}
            ),
        }

    def versions(self) -> dict[str, str]:
        """Return the versions of the software that generates."""
        engine = installed_versions("vllm", "torch", "transformers", "lm_eval")
        return {"lm_eval_bayes": __version__, **engine}

    # -- requests ----------------------------------------------------------------------------

    def _engine_requests(
        self, requests: RequestStream, measure: Set[str]
    ) -> Iterator[EngineRequest | None]:
        """Return the engine's requests, with prompts truncated as the harness truncates them.

        All settings and prompts are checked before the first request is returned.
        """
        from lm_eval.models.utils import maybe_truncate

        # The trials of a question share their settings, so each is read once.
        settings_of: dict[int, tuple[dict[str, Any], list[str], int]] = {}
        prompts: dict[tuple[str, int], tuple[list[int], int, bool]] = {}
        questions = requests.questions
        contexts = list(dict.fromkeys(request.context for request in questions))
        encoded = dict(zip(contexts, self.tok_encode(contexts), strict=True)) if contexts else {}
        for request in questions:
            kwargs = request.kwargs
            if id(kwargs) not in settings_of:
                settings, _, length = self._split(kwargs)
                settings_of[id(kwargs)] = settings, self.stops_sent(kwargs), length
                sampling_params(*settings_of[id(kwargs)], request.seed)
            length = settings_of[id(kwargs)][2]
            if (request.context, length) not in prompts:
                if length >= self.max_length:
                    sentence = (
                        "`max_gen_toks` must leave room for the prompt in the model's "
                        f"{self.max_length} tokens (max_model_len); got {length}"
                    )
                    raise TaskConfigError(sentence, "range", "max_gen_toks", length)
                complete = encoded[request.context]
                tokens, max_tokens = maybe_truncate(
                    complete,
                    max_gen_toks=length,
                    max_model_len=self.max_length,
                    side=self.truncation_side,
                    verbose=True,
                )
                truncated = len(tokens) < len(complete)
                prompts[request.context, length] = tokens, max_tokens, truncated

        def checked_requests() -> Iterator[EngineRequest | None]:
            measured: set[str] = set()
            for request in requests:
                if request is None:
                    yield None
                    continue
                settings, stops, length = settings_of[id(request.kwargs)]
                tokens, max_tokens, truncated = prompts[request.context, length]
                # a stream adds to `measure` with the request that measures the prompt
                new = request.prompt in measure and request.prompt not in measured
                measures = new and not truncated
                if measures:
                    measured.add(request.prompt)
                params = sampling_params(settings, stops, max_tokens, request.seed, measures)
                yield EngineRequest(request, tokens, params, truncated, measures)

        return checked_requests()

    def _split(self, kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], list[str], int]:
        """Return vLLM's settings, all stop strings with the end of the sequence, and length."""
        settings, until, length = self.modify_gen_kwargs(
            dict(kwargs), eos=self._eos(), default_max_gen_toks=self.max_gen_toks
        )
        return settings, until, length

    def _eos(self) -> str:
        return (
            self.tokenizer.decode(self.eot_token_id)
            or getattr(self.tokenizer, "eos_token", "")
            or ""
        )


def _on_cpu() -> bool:
    platforms = sys.modules.get("vllm.platforms")
    is_cpu = getattr(getattr(platforms, "current_platform", None), "is_cpu", None)
    return bool(callable(is_cpu) and is_cpu())


def generation_config(model_config: Any) -> dict[str, Any]:
    """Return a model's generation_config.json; empty if it has none."""
    return dict(model_config.try_get_generation_config() or {})
