"""Trials from vLLM: a seed for each, everything measured, each out as soon as it is done."""

from __future__ import annotations

import importlib.metadata
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval_bayes import __version__
from lm_eval_bayes.errors import ModelConfigError, TaskConfigError
from lm_eval_bayes.harness.logs import get_logger
from lm_eval_bayes.harness.models.trial_request import Order, Sampled
from lm_eval_bayes.harness.models.vllm.engine import (
    EngineFailedError,
    Finished,
    LazyLLM,
    Request,
    lazy_llm,
    model_config_of,
    run,
    sampling_params,
)
from lm_eval_bayes.harness.models.vllm.fingerprint import (
    vllm_fingerprint,
    warn_of_generation_config,
)
from lm_eval_bayes.harness.models.vllm.signal_handling import ending_on_signals

log = get_logger(__name__)

_BITS = 1.0 / math.log(2.0)


@dataclass(frozen=True, eq=False)
class Asked:
    """What a request of the engine was for.

    Attributes
    ----------
    order : Order
        The trial.
    truncated : bool
        Whether its prompt had to be cut.
    measures : bool
        Whether it brings the prompt's own bits.
    """

    order: Order
    truncated: bool
    measures: bool


def measured(finished: Finished, think_end: str | None) -> Sampled:
    """Return what was measured of a trial.

    Parameters
    ----------
    finished : Finished
        With an `Asked` as its label.
    think_end : str or None
        The text that closes a think block, if the model has one.
    """
    asked, output = finished.label, finished.output
    completion, tokens = output.outputs[0], list(output.prompt_token_ids)
    signals: dict[str, Any] = {
        "completion_bpt": completion_bits(completion),
        "prompt_truncated": asked.truncated,
    }
    if think_end:
        signals["think_closed"] = think_end in completion.text
    queued, generated = times(finished)
    return Sampled(
        text=completion.text,
        signals=signals,
        prompt_tokens=len(tokens),
        completion_tokens=len(completion.token_ids),
        finish_reason=completion.finish_reason,
        stop_reason=completion.stop_reason,
        queued_s=queued,
        generated_s=generated,
        concurrency=finished.concurrency,
        prompt_signals=(
            {"prompt_bpt": prompt_bits(output.prompt_logprobs, tokens)} if asked.measures else None
        ),
    )


def completion_bits(output: Any) -> float | None:
    """Return the mean bits a sampled token cost the untempered model.

    Parameters
    ----------
    output : CompletionOutput
        vLLM's, sampled with `logprobs`.

    Returns
    -------
    float or None
        None without tokens.
    """
    total, count = output.cumulative_logprob, len(output.token_ids)
    return _bits(-float(total), count) if total is not None else None


def prompt_bits(logprobs: Any, tokens: Sequence[int]) -> float | None:
    """Return the mean bits a prompt's token cost the model, without the first, which has none.

    Parameters
    ----------
    logprobs : FlatLogprobs or list of dict
        vLLM's, one entry a token of the prompt; the first holds nothing.
    tokens : sequence of int
        The prompt.

    Returns
    -------
    float or None
        None if there is no second token.
    """
    flat = getattr(logprobs, "logprobs", None)
    if flat is not None:
        # the prompt's own token comes first in each entry
        values = [flat[start] for start in logprobs.start_indices[1:]]
    else:
        pairs = zip(list(logprobs)[1:], tokens[1:], strict=True)
        values = [getattr(entry[token], "logprob", entry[token]) for entry, token in pairs]
    return _bits(-math.fsum(values), len(values))


def _bits(nats: float, count: int) -> float | None:
    bits = nats * _BITS / count if count else math.nan
    return bits if math.isfinite(bits) else None


def times(finished: Finished) -> tuple[float | None, float | None]:
    """Return how long a request waited and how long it ran, in seconds.

    vLLM keeps such times if its statistics are on, by the same monotonic clock. Otherwise
    nothing is known of the wait, and all the time since submission counts as running.

    Parameters
    ----------
    finished : Finished
        Without times of its own for a call that answers all at once: nothing is known then.
    """
    metrics = getattr(finished.output, "metrics", None)
    start = float(getattr(metrics, "scheduled_ts", 0.0) or 0.0)
    stop = float(getattr(metrics, "last_token_ts", 0.0) or 0.0)
    if finished.submitted is None or finished.ended is None:
        return None, None
    if finished.submitted - 1.0 <= start <= stop <= finished.ended + 1.0:
        return max(0.0, start - finished.submitted), stop - start
    return None, finished.ended - finished.submitted


_DISTRIBUTIONS = ("vllm", "torch", "transformers", "lm_eval")


class VLLMSampling:
    """A mixin before the harness's `VLLM`: trials through the engine's own steps.

    The engine is built at the first use, so a run whose trials are all stored loads no
    weights. As many requests are under way as the engine runs at once (`max_num_seqs`), and a
    few wait their turn; when one ends it is yielded and the next one starts. The distribution
    is the softmax of the logits after temperature, min_p, top_k and top_p, in vLLM's order;
    the recorded bits are those of the model itself, before any of these.

    On a CPU `enable_chunked_prefill` is False unless it is given, because a seeded request
    whose prompt is computed in pieces kills vLLM's CPU engine.

    With `data_parallel_size` above 1 the harness starts engines anew in every call and they
    answer together at its end: then all trials are asked in one call, and nothing is stored
    before it returns. `vllm serve` with a recording API backend does better.
    """

    takes_seed = True
    seeded = True
    cannot_record: tuple[str, ...] = ()
    #: Beside which file the engine's processes are noted, so that none is left behind.
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
        self._told: set[str] = set()
        self._one_call = int(getattr(self, "data_parallel_size", 1) or 1) > 1
        if self._one_call:
            self.cannot_record = ("queued_s", "generated_s", "concurrency")
        self._model_config_of_dp: Any = None
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
        return isinstance(llm, LazyLLM) and llm.house.llm is not None

    @property
    def _model_config(self) -> Any:
        lm: Any = self
        if not self._one_call:
            return lm.model.llm_engine.model_config
        if self._model_config_of_dp is None:
            self._model_config_of_dp = model_config_of(lm.model_args)
        return self._model_config_of_dp

    # -- what recording asks ---------------------------------------------------------------

    def sample(
        self, orders: Sequence[Order], measure: frozenset[str]
    ) -> Iterator[tuple[Order, Sampled]]:
        """Yield each trial as soon as the engine has finished it.

        Parameters
        ----------
        orders : sequence of Order
            What is wanted, started in this order.
        measure : frozenset of str
            Prompts whose own bits are wanted; the first trial of each brings them, unless the
            prompt had to be cut.

        Raises
        ------
        TaskConfigError
            If vLLM refuses a generation setting, or the length leaves no room for a prompt.
        EngineFailedError
            If the engine dies; what was yielded before stands.
        """
        lm: Any = self
        requests = self._requests(orders, measure)
        if orders and "generation config" not in self._told:
            self._told.add("generation config")
            warn_of_generation_config(self._model_config, orders[0].kwargs)
        if self._one_call:
            for finished in self._in_one_call(list(requests)):
                yield finished.label.order, measured(finished, lm.think_end_token)
            return
        house = lm.model.house
        with ending_on_signals(house.shut_down):
            engine = house.built().llm_engine
            seats = int(engine.vllm_config.scheduler_config.max_num_seqs)
            try:
                for finished in run(engine, requests, seats, lm.lora_request):
                    yield finished.label.order, measured(finished, lm.think_end_token)
            except EngineFailedError:
                house.shut_down()  # so that a further call builds a sound one
                raise

    def finished_text(self, raw: str, kwargs: Mapping[str, Any], signals: Mapping[str, Any]) -> str:
        """Return what the harness's own backend would have made of a raw text."""
        from lm_eval.models.utils import postprocess_generated_text

        lm: Any = self
        _, until, _ = self._split(kwargs)
        return str(postprocess_generated_text(raw, until, lm.think_end_token))

    def stops_sent(self, kwargs: Mapping[str, Any]) -> list[str]:
        """Return the stop strings that the engine gets: of a thinking model, only its end.

        A task's stop strings stand in the middle of a think block as well, so the harness
        applies them afterwards, to what follows the block.
        """
        _, until, _ = self._split(kwargs)
        eos = self._eos()
        lm: Any = self
        return [s for s in until if s == eos] if lm.think_end_token else list(until)

    def fingerprint(self) -> dict[str, Any]:
        """Return what changes the distribution; no weights are loaded for it."""
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
        found = {"lm_eval_bayes": __version__}
        for name in _DISTRIBUTIONS:
            try:
                found[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
        return found

    # -- requests ----------------------------------------------------------------------------

    def _requests(self, orders: Sequence[Order], measure: frozenset[str]) -> Iterator[Request]:
        """Return the engine's requests, with prompts cut as the harness cuts them.

        Everything that can be wrong is found before the first one.
        """
        from lm_eval.models.utils import maybe_truncate

        lm: Any = self
        # The trials of a question share their settings, so each is looked at once.
        kinds: dict[int, tuple[dict[str, Any], list[str], int]] = {}
        cut: dict[tuple[str, int], tuple[list[int], int, bool]] = {}
        contexts = list(dict.fromkeys(order.context for order in orders))
        encoded = dict(zip(contexts, lm.tok_encode(contexts), strict=True)) if contexts else {}
        for order in orders:
            if id(order.kwargs) not in kinds:
                settings, _, wanted = self._split(order.kwargs)
                kinds[id(order.kwargs)] = settings, self.stops_sent(order.kwargs), wanted
                sampling_params(*kinds[id(order.kwargs)], order.seed, False)
            wanted = kinds[id(order.kwargs)][2]
            if (order.context, wanted) not in cut:
                if wanted >= lm.max_length:
                    raise TaskConfigError(
                        "`max_gen_toks` must leave room for the prompt in the model's "
                        f"{lm.max_length} tokens (max_model_len); got {wanted}"
                    )
                whole = encoded[order.context]
                tokens, longest = maybe_truncate(
                    whole,
                    max_gen_toks=wanted,
                    max_model_len=lm.max_length,
                    side=lm.truncation_side,
                    verbose=True,
                )
                cut[order.context, wanted] = tokens, longest, len(tokens) < len(whole)

        def requests() -> Iterator[Request]:
            to_measure = set(measure)
            for order in orders:
                settings, stops, wanted = kinds[id(order.kwargs)]
                tokens, longest, truncated = cut[order.context, wanted]
                measures = order.prompt in to_measure and not truncated
                if measures:
                    to_measure.remove(order.prompt)
                params = sampling_params(settings, stops, longest, order.seed, measures)
                yield Request(Asked(order, truncated, measures), tokens, params)

        return requests()

    def _split(self, kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], list[str], int]:
        """Return vLLM's settings, all stop strings with the end of the sequence, and length."""
        lm: Any = self
        settings, until, longest = lm.modify_gen_kwargs(
            dict(kwargs), eos=self._eos(), default_max_gen_toks=lm.max_gen_toks
        )
        return settings, until, longest

    def _eos(self) -> str:
        lm: Any = self
        return lm.tokenizer.decode(lm.eot_token_id) or getattr(lm.tokenizer, "eos_token", "") or ""

    def _in_one_call(self, requests: list[Request]) -> Iterator[Finished]:
        lm: Any = self
        if "one call" not in self._told:
            self._told.add("one call")
            log.warning(
                "data_parallel_size=%d loads the model anew in every call and returns only when "
                "all of it is done: nothing is stored before. Serve the model instead (vllm serve "
                "--data-parallel-size %d) and use backend=local-completions",
                lm.data_parallel_size,
                lm.data_parallel_size,
            )
        outputs = lm._model_generate(
            requests=[list(request.tokens) for request in requests],
            generate=True,
            sampling_params=[request.params for request in requests],
        )
        for request, output in zip(requests, outputs, strict=True):
            yield Finished(request.label, output)


def _on_cpu() -> bool:
    platforms = sys.modules.get("vllm.platforms")
    is_cpu = getattr(getattr(platforms, "current_platform", None), "is_cpu", None)
    return bool(callable(is_cpu) and is_cpu())
