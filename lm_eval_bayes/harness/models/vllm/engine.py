"""Many requests through vLLM's engine, as many at a time as it runs, each out when it is done."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval_bayes.errors import LmEvalBayesError, TaskConfigError
from lm_eval_bayes.harness.logs import get_logger

log = get_logger(__name__)

#: How vLLM says that a request ended without having been sampled to its end.
_FAILED = frozenset({"abort", "error"})

_numbers = itertools.count()


class EngineFailedError(LmEvalBayesError, RuntimeError):
    """The inference engine stopped before it was done."""


@dataclass(frozen=True, eq=False)
class Request:
    """One request to the engine.

    Attributes
    ----------
    label : object
        What it is for; handed back with the output.
    tokens : sequence of int
        The prompt.
    params : SamplingParams
        vLLM's settings, with the request's own seed.
    """

    label: Any
    tokens: Sequence[int]
    params: Any


@dataclass(frozen=True, eq=False)
class Finished:
    """What came out of one request.

    Attributes
    ----------
    label : object
        As it was given.
    output : RequestOutput
        vLLM's.
    submitted, ended : float or None
        When it was handed over and when it was known to be done, by the monotonic clock.
    concurrency : int or None
        Requests that were running at its end, this one included.
    """

    label: Any
    output: Any
    submitted: float | None = None
    ended: float | None = None
    concurrency: int | None = None


def sampling_params(
    settings: Mapping[str, Any], stops: list[str], max_tokens: int, seed: int, measure: bool
) -> Any:
    """Make vLLM's settings of one request.

    Parameters
    ----------
    settings : mapping
        The harness's generation settings in vLLM's names, without stops and length.
    stops : list of str
        The stop strings that the engine gets.
    max_tokens : int
        The longest completion.
    seed : int
        The request's own.
    measure : bool
        Whether the prompt's log-probabilities are wanted too. The prompt is then computed
        afresh, past the cache of prefixes, which knows no log-probabilities.

    Raises
    ------
    TaskConfigError
        If vLLM knows no such setting, or refuses its value.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    if settings.get("n", 1) != 1:
        raise TaskConfigError(
            f"`n` must be left out of the generation settings; got {settings['n']!r} (every "
            "trial is a request of its own, and as fast)"
        )
    ours: dict[str, Any] = {
        "seed": seed,
        "stop": stops,
        "max_tokens": max_tokens,
        "logprobs": 0,  # the sampled token's alone
        "output_kind": RequestOutputKind.FINAL_ONLY,
    }
    if settings.get("top_k") == 0:
        ours["top_k"] = -1  # all tokens, in the word that every release of vLLM knows
    if hasattr(SamplingParams, "flat_logprobs"):
        ours["flat_logprobs"] = True
    if measure:
        ours["prompt_logprobs"] = 0
        if hasattr(SamplingParams, "skip_reading_prefix_cache"):
            ours["skip_reading_prefix_cache"] = True
    try:
        return SamplingParams(**{**settings, **ours})
    except (TypeError, ValueError) as error:
        raise TaskConfigError(f"vLLM refuses the generation settings: {error}") from error


def run(
    engine: Any, requests: Iterable[Request], seats: int, lora_request: Any = None
) -> Iterator[Finished]:
    """Yield each request as soon as it is done, and start the next one in its place.

    Nothing waits for the slowest of a batch. What is done in one step of the engine is
    yielded after its places are taken again, so the engine works while the caller stores.
    Closing the iterator early takes back what is still under way.

    Parameters
    ----------
    engine : LLMEngine
        vLLM's.
    requests : iterable of Request
        Started in this order.
    seats : int
        How many the engine runs at once, at least 1. An eighth more is handed over, so that the
        engine finds the next one waiting: it goes on stepping while we look at what is done,
        and a place that falls free would stay empty for a step (of 64 requests of 40 tokens
        in 16 places, 2% more steps in all; with two waiting, none).
    lora_request : LoRARequest or None
        The adapter.

    Raises
    ------
    EngineFailedError
        If the engine dies or gives a request up.
    """
    waiting = iter(requests)
    under_way: dict[str, tuple[Request, float]] = {}
    as_prompt = _prompt_maker(engine)
    in_flight = seats + max(1, seats // 8)

    def top_up() -> None:
        for request in itertools.islice(waiting, max(0, in_flight - len(under_way))):
            name = f"trial-{next(_numbers)}"
            under_way[name] = request, time.monotonic()
            prompt = as_prompt(list(request.tokens))
            engine.add_request(name, prompt, request.params, lora_request=lora_request)

    try:
        top_up()
        while under_way:
            outputs = [output for output in engine.step() if output.finished]
            now, busy = time.monotonic(), min(len(under_way), seats)
            done = []
            for output in outputs:
                found = under_way.pop(output.request_id, None)
                if found is not None:
                    done.append(Finished(found[0].label, output, found[1], now, busy))
            top_up()
            for each in done:
                _check(each.output)
                yield each
    except Exception as error:
        if type(error).__name__ not in ("EngineDeadError", "EngineGenerateError"):
            raise
        raise EngineFailedError(
            f"vLLM's engine died ({error}); the messages above say why. What was finished is "
            "kept: start again to go on from there"
        ) from error
    finally:
        if under_way:
            _take_back(engine, list(under_way))


def _take_back(engine: Any, names: list[str]) -> None:
    try:
        engine.abort_request(names)
    except Exception:  # the engine is down, which may be why we are here
        log.debug("requests could not be taken back", exc_info=True)


def _check(output: Any) -> None:
    reason = output.outputs[0].finish_reason
    if reason in _FAILED:
        raise EngineFailedError(
            f"vLLM's engine gave a request up ({reason}); what was finished is kept: start "
            "again to go on from there"
        )


def _prompt_maker(engine: Any) -> Any:
    """Return what makes a prompt of tokens, in the form that this release prefers."""
    config = getattr(engine, "model_config", None)
    if not getattr(config, "is_encoder_decoder", False):
        try:
            from vllm.inputs.engine import tokens_input

            return tokens_input
        except ImportError:
            pass
    from vllm import TokensPrompt

    return lambda tokens: TokensPrompt(prompt_token_ids=tokens)
