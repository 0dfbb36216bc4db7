"""Many requests through vLLM's engine, as many at a time as it runs, each out when it is done."""

from __future__ import annotations

import atexit
import itertools
import os
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval_bayes.errors import LmEvalBayesError, TaskConfigError
from lm_eval_bayes.harness.logs import get_logger
from lm_eval_bayes.harness.models.vllm.processes import (
    Process,
    ProcessFile,
    descendants,
    end,
    end_leftovers,
)
from lm_eval_bayes.harness.models.vllm.signal_handling import dying_with_us, ending_on_signals

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


class EngineHouse:
    """Builds an engine, knows its processes, and takes both down.

    Parameters
    ----------
    build : callable
        Makes the engine, vLLM's `LLM`.
    processes_file : Path or None
        Beside what file the engine's processes are noted; None notes nothing.
    """

    def __init__(self, build: Callable[[], Any], processes_file: Path | None) -> None:
        self._build = build
        self._beside = processes_file
        self._file = None if processes_file is None else ProcessFile(processes_file)
        self._before: set[Process] = set()
        self._mine: list[Process] = []
        self._owner = os.getpid()
        self._building = self._hurry = False
        self.llm: Any = None
        atexit.register(_shut_down_at_exit, weakref.ref(self))

    def built(self) -> Any:
        """Return the engine; build it first if there is none."""
        if self.llm is None:
            with self.building():
                self.llm = self._build()
        return self.llm

    @contextmanager
    def building(self) -> Iterator[None]:
        """Take for the engine's processes those that start meanwhile."""
        if self._beside is not None:
            end_leftovers(self._beside)
        self._before = set(descendants(os.getpid()))
        self._building = True
        try:
            with ending_on_signals(self.shut_down), dying_with_us():
                yield
        finally:
            self._building = False
        self._mine = self._newcomers()
        if self._file is not None:
            self._file.write(self._mine)

    def processes(self) -> list[Process]:
        """Return the engine's running processes: those that came while it was built."""
        if self._building:
            return self._newcomers()
        # Whatever else this process has started since, such as graders, is not the engine's.
        mine = [p for p in self._mine if p.alive]
        return list({q: None for p in mine for q in (p, *descendants(p.pid))})

    def _newcomers(self) -> list[Process]:
        return [p for p in descendants(self._owner) if p not in self._before]

    def shut_down(self) -> None:
        """Take the engine down and end its processes; a second call meanwhile does so at once."""
        if self._owner != os.getpid() or (self.llm is None and not self._building):
            return
        processes = self.processes()
        if self._hurry:
            end(processes, patience_s=0.0)
            return
        self._hurry = True
        try:
            engine = getattr(self.llm, "llm_engine", None)
            core_shut_down = getattr(getattr(engine, "engine_core", None), "shutdown", None)
            if callable(core_shut_down):
                core_shut_down()
        except Exception:
            log.debug("vLLM's own shutdown failed", exc_info=True)
        finally:
            left = end({*processes, *self.processes()})
            self.llm, self._mine = None, left
            if self._file is not None and not left:
                self._file.remove()
            self._hurry = False


def _shut_down_at_exit(house: weakref.ref[EngineHouse]) -> None:
    there = house()
    if there is not None:
        there.shut_down()


class _EngineToBe:
    """Stands for an engine: knows the model's configuration, and has the rest built."""

    def __init__(self, house: EngineHouse, model_config: Any) -> None:
        self._house = house
        self.model_config = model_config

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._house.built().llm_engine, name)


class LazyLLM:
    """Stands for vLLM's `LLM` in the harness's class: builds it at the first real use.

    Parameters
    ----------
    house : EngineHouse
        Builds the engine.
    model_config : object
        vLLM's configuration of the model, made without its weights.
    """

    def __init__(self, house: EngineHouse, model_config: Any) -> None:
        self.house = house
        self._to_be = _EngineToBe(house, model_config)

    @property
    def llm_engine(self) -> Any:
        """The engine if it is built; else what stands for it and knows `model_config`."""
        return self._to_be if self.house.llm is None else self.house.llm.llm_engine

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.house.built(), name)


def model_config_of(model_args: Mapping[str, Any]) -> Any:
    """Return vLLM's configuration of a model, without its weights.

    Parameters
    ----------
    model_args : mapping
        What the harness passes to `LLM`.
    """
    from vllm.engine.arg_utils import EngineArgs

    return EngineArgs(**model_args).create_model_config()


@contextmanager
def lazy_llm(model: Any, processes_file: Path | None) -> Iterator[None]:
    """Have the harness's `VLLM.__init__` make a `LazyLLM` while it runs.

    The harness calls `LLM` by a name of its module; that name is another one meanwhile. Where
    there is no such name, or no configuration without weights, the engine is built at once,
    and one line says so. The same with several ranks, whose processes start together.

    Parameters
    ----------
    model : object
        The instance that is being made.
    processes_file : Path or None
        See `EngineHouse`.
    """
    names = _names_of_llm(type(model))
    if names is None:
        log.info("this release of lm_eval makes its vLLM engine elsewhere: it is built at once")
        house = EngineHouse(_no_second_one, processes_file)
        with house.building():
            yield
        house.llm = getattr(model, "model", None)
        if house.llm is not None:
            model.model = LazyLLM(house, house.llm.llm_engine.model_config)
        return
    original = names["LLM"]

    def make(**arguments: Any) -> LazyLLM:
        house = EngineHouse(lambda: original(**arguments), processes_file)
        try:
            config = model_config_of(arguments)
        except Exception as error:
            log.info("vLLM's engine is built at once: no configuration without it (%s)", error)
            config = house.built().llm_engine.model_config
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            house.built()
        return LazyLLM(house, config)

    names["LLM"] = make
    try:
        yield
    finally:
        names["LLM"] = original


def _no_second_one() -> Any:
    raise EngineFailedError("vLLM's engine was shut down, and only a new run can build another")


def _names_of_llm(kind: type) -> dict[str, Any] | None:
    """Return the module names in which the class that makes the engine finds `LLM`."""
    for base in kind.__mro__:
        code = base.__dict__.get("__init__")
        names: dict[str, Any] = getattr(code, "__globals__", {})
        if "LLM" in names and "LLM" in getattr(getattr(code, "__code__", None), "co_names", ()):
            return names
    return None
