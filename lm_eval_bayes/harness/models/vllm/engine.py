"""vLLM's engine: built when it is first needed, fed with requests, and shut down.

The harness builds `LLM` when a model is created. Here it gets a placeholder that knows the
model's configuration, so that a run whose trials are all stored loads no weights.
"""

from __future__ import annotations

import atexit
import itertools
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from lm_eval_bayes._util.processes import Process, process
from lm_eval_bayes.errors import LmEvalBayesError, ModelConfigError, Rule, TaskConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.interface import TrialRequest
from lm_eval_bayes.harness.models.vllm.processes import (
    ProcessFile,
    bound_to_this_process,
    descendants,
    end,
    end_leftovers,
    shut_down_on_signals,
    sockets_of,
)
from lm_eval_bayes.harness.plugin import patches

log = get_logger(__name__)

#: Finish reasons of requests that were not sampled to their end.
_FAILED = frozenset({"abort", "error"})

_request_numbers = itertools.count()


class EngineFailedError(LmEvalBayesError, RuntimeError):
    """The inference engine stopped before all requests were finished."""

    rule: Rule | None = "failed"


# -- requests ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class EngineRequest:
    """A trial as a request to the engine.

    Attributes
    ----------
    trial_request : TrialRequest
        The trial.
    tokens : sequence of int
        The prompt.
    params : SamplingParams
        vLLM's settings, with the trial's seed.
    truncated : bool
        Whether the prompt was truncated.
    measures_prompt : bool
        Whether the log-probabilities of the prompt are requested too.
    """

    trial_request: TrialRequest
    tokens: Sequence[int]
    params: Any
    truncated: bool = False
    measures_prompt: bool = False


@dataclass(frozen=True, eq=False)
class EngineOutput:
    """The output of a finished request.

    Attributes
    ----------
    request : EngineRequest
        The request.
    output : RequestOutput
        vLLM's output.
    submitted, ended : float or None
        When it was submitted and when its end was noticed, by the monotonic clock.
    concurrency : int or None
        Number of running requests at its end, this one included.
    """

    request: EngineRequest
    output: Any
    submitted: float | None = None
    ended: float | None = None
    concurrency: int | None = None


def sampling_params(
    settings: Mapping[str, Any],
    stops: list[str],
    max_tokens: int,
    seed: int,
    measure_prompt: bool = False,
) -> Any:
    """Return vLLM's settings of one request.

    Parameters
    ----------
    settings : mapping
        The harness's generation settings in vLLM's names, without stops and length.
    stops : list of str
        The stop strings that the engine gets.
    max_tokens : int
        The maximal length of the completion.
    seed : int
        The trial's seed.
    measure_prompt : bool
        Whether the log-probabilities of the prompt are requested too. The prompt is then
        computed without the prefix cache, which holds no log-probabilities.

    Raises
    ------
    TaskConfigError
        If vLLM has no such setting, or refuses its value.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    if settings.get("n", 1) != 1:
        sentence = (
            f"`n` must be left out of the generation settings; got {settings['n']!r} (every "
            "trial is a request of its own, and as fast)"
        )
        raise TaskConfigError(sentence, "conflict", "n", settings["n"])
    fixed: dict[str, Any] = {
        "seed": seed,
        "stop": stops,
        "max_tokens": max_tokens,
        "logprobs": 0,  # the sampled token's alone
        "flat_logprobs": True,
        "output_kind": RequestOutputKind.FINAL_ONLY,
    }
    if settings.get("top_k") == 0:
        fixed["top_k"] = -1  # "all tokens" in every release of vLLM
    if measure_prompt:
        fixed |= {"prompt_logprobs": 0, "skip_reading_prefix_cache": True}
    try:
        return SamplingParams(**{**settings, **fixed})
    except (TypeError, ValueError) as error:
        sentence = f"vLLM refuses the generation settings: {error}"
        raise TaskConfigError(sentence, "unsupported", "generation_kwargs", settings) from error


def run(
    engine: Any,
    requests: Iterable[EngineRequest | None],
    max_running: int,
    lora_request: Any = None,
    is_over: Callable[[], bool] = lambda: False,
) -> Iterator[EngineOutput]:
    """Yield each request's output as soon as it is finished, and start the next one.

    There are no batches that wait for their slowest request. The outputs of one step of the
    engine are yielded after new requests have been submitted, so the engine works while the
    caller stores them. Closing the iterator early aborts the running requests.

    Parameters
    ----------
    engine : LLMEngine
        vLLM's engine.
    requests : iterable of EngineRequest
        Submitted in this order. None says that there is no request at present: the next one is
        asked for after the next step of the engine; the iterator ends if nothing is running.
    max_running : int
        Number of requests that the engine runs concurrently, at least 1. An eighth more is
        submitted, so that the engine has a waiting request when one ends: it steps on while
        outputs are handled, and would run one request less for a step (of 64 requests of 40
        tokens with 16 running, 2% more steps; with two waiting, none).
    lora_request : LoRARequest or None
        The adapter.
    is_over : callable
        Called before every step; running requests are aborted once it returns True.

    Raises
    ------
    EngineFailedError
        If the engine dies or aborts a request.
    """
    waiting = iter(requests)
    submitted: dict[str, tuple[EngineRequest, float]] = {}
    as_prompt = _prompt_maker(engine)
    max_submitted = max_running + max(1, max_running // 8)

    def submit() -> None:
        for request in itertools.islice(waiting, max(0, max_submitted - len(submitted))):
            if request is None:
                return
            name = f"trial-{next(_request_numbers)}"
            submitted[name] = request, time.monotonic()
            prompt = as_prompt(list(request.tokens))
            engine.add_request(name, prompt, request.params, lora_request=lora_request)

    try:
        submit()
        while submitted and not is_over():
            outputs = [output for output in engine.step() if output.finished]
            now, running = time.monotonic(), min(len(submitted), max_running)
            finished = []
            for output in outputs:
                entry = submitted.pop(output.request_id, None)
                if entry is not None:
                    finished.append(EngineOutput(entry[0], output, entry[1], now, running))
            submit()
            for result in finished:
                reason = result.output.outputs[0].finish_reason
                if reason in _FAILED:
                    raise EngineFailedError(
                        f"vLLM's engine aborted a request ({reason}); finished trials are kept: "
                        "start again to continue"
                    )
                yield result
    except Exception as error:
        if type(error).__name__ not in ("EngineDeadError", "EngineGenerateError"):
            raise
        raise EngineFailedError(
            f"vLLM's engine died ({error}); the messages above say why. Finished trials are "
            "kept: start again to continue"
        ) from error
    finally:
        if submitted:
            _abort(engine, list(submitted))


def _abort(engine: Any, names: list[str]) -> None:
    try:
        engine.abort_request(names)
    except Exception:  # the engine may be dead, which may be why this is called
        log.debug("requests could not be aborted", exc_info=True)


def _prompt_maker(engine: Any) -> Callable[[list[int]], Any]:
    """Return the function that makes a prompt of tokens."""
    config = getattr(engine, "model_config", None)
    if not getattr(config, "is_encoder_decoder", False):
        from vllm.inputs.engine import tokens_input

        return tokens_input
    from vllm import TokensPrompt

    return lambda tokens: TokensPrompt(prompt_token_ids=tokens)


# -- building and shutting down ------------------------------------------------------------------


class LazyEngine:
    """An engine that is built at its first use and shut down with its processes.

    Parameters
    ----------
    build : callable
        Returns the engine, vLLM's `LLM`.
    processes_file : Path or None
        The name of the files that record the engine's processes, see
        :class:`~lm_eval_bayes.harness.models.vllm.processes.ProcessFile`; None records nothing.

    Attributes
    ----------
    llm : LLM or None
        The engine, once it is built.
    """

    def __init__(self, build: Callable[[], Any], processes_file: Path | None) -> None:
        self._build = build
        self._file_base = processes_file
        self._file = None if processes_file is None else ProcessFile(processes_file)
        self._earlier: set[Process] = set()
        self._processes: list[Process] = []
        self._owner = os.getpid()
        self._building = self._shutting_down = False
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
        """Take the processes that start inside the block for the engine's."""
        if self._file_base is not None:
            end_leftovers(self._file_base)
        self._earlier = set(descendants(os.getpid()))
        own = [p for p in [process(os.getpid())] if p is not None]
        earlier_sockets = sockets_of(own)
        self._building = True
        try:
            with shut_down_on_signals(self.shut_down), bound_to_this_process():
                yield
        finally:
            self._building = False
        self._processes = self._started()
        if self._file is not None:
            sockets = sockets_of([*own, *self._processes]) - earlier_sockets
            self._file.write(self._processes, sockets)

    def processes(self) -> list[Process]:
        """Return the engine's running processes: those that started while it was built."""
        if self._building:
            return self._started()
        # Processes that this one has started since, such as graders, are not the engine's.
        alive = [p for p in self._processes if p.alive]
        return list({q: None for p in alive for q in (p, *descendants(p.pid))})

    def _started(self) -> list[Process]:
        return [p for p in descendants(self._owner) if p not in self._earlier]

    def shut_down(self) -> None:
        """Shut the engine down and end its processes; a second call meanwhile kills them."""
        if self._owner != os.getpid() or (self.llm is None and not self._building):
            return
        processes = self.processes()
        if self._shutting_down:
            end(processes, patience_s=0.0)
            return
        self._shutting_down = True
        try:
            engine = getattr(self.llm, "llm_engine", None)
            core_shut_down = getattr(getattr(engine, "engine_core", None), "shutdown", None)
            if callable(core_shut_down):
                core_shut_down()
        except Exception:
            log.debug("vLLM's own shutdown failed", exc_info=True)
        finally:
            left = end({*processes, *self.processes()})
            self.llm, self._processes = None, left
            if self._file is not None and not left:
                self._file.remove()
            self._shutting_down = False


def _shut_down_at_exit(reference: weakref.ref[LazyEngine]) -> None:
    engine = reference()
    if engine is not None:
        engine.shut_down()


class _BuiltAtFirstUse:
    """Stands in for an object: has some of its attributes, and builds it for any other."""

    def __init__(self, build: Callable[[], Any], **attributes: Any) -> None:
        vars(self).update(attributes, _build=build)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(vars(self)["_build"](), name)


class LazyLLM(_BuiltAtFirstUse):
    """Stands in for vLLM's `LLM` in the harness's class and builds it at the first use.

    Parameters
    ----------
    lazy_engine : LazyEngine
        Builds the engine.
    model_config : object
        vLLM's configuration of the model, created without its weights.
    """

    def __init__(self, lazy_engine: LazyEngine, model_config: Any) -> None:
        super().__init__(lazy_engine.built)
        self.lazy_engine = lazy_engine
        self._placeholder = _BuiltAtFirstUse(
            lambda: lazy_engine.built().llm_engine, model_config=model_config
        )

    @property
    def llm_engine(self) -> Any:
        """The engine if it is built, else a placeholder that has `model_config`."""
        llm = self.lazy_engine.llm
        return self._placeholder if llm is None else llm.llm_engine


def model_config_of(model_args: Mapping[str, Any]) -> Any:
    """Return vLLM's configuration of a model, without its weights.

    Parameters
    ----------
    model_args : mapping
        The arguments that the harness passes to `LLM`.
    """
    from vllm.engine.arg_utils import EngineArgs

    return EngineArgs(**model_args).create_model_config()


@contextmanager
def lazy_llm(model: Any, processes_file: Path | None, never: bool = False) -> Iterator[None]:
    """Let the harness's `VLLM.__init__` create a `LazyLLM` inside the block.

    The harness finds `LLM` by a name of its module, which is replaced inside the block. The
    engine is built at once, with a line in the log, if there is no configuration without weights;
    and with several ranks, whose processes start together.

    Parameters
    ----------
    model : object
        The instance whose `__init__` runs.
    processes_file : Path or None
        See `LazyEngine`.
    never : bool
        Whether no engine is to be built, because other processes have theirs.

    Raises
    ------
    ModelConfigError
        If there is no such name, or if no engine is to be built and there is no configuration
        without one.
    """
    module = _module_with_llm(type(model))
    with patches.applied(
        patches.VLLM_ENGINE, lambda original: _lazy_creator(original, processes_file, never), module
    ) as problem:
        if problem is not None:
            sentence = f"this release of lm_eval builds vLLM's engine in an unknown way: {problem}"
            raise ModelConfigError(sentence, "unsupported", "lm_eval", problem)
        yield


def _lazy_creator(
    original: Callable[..., Any], processes_file: Path | None, never: bool
) -> Callable[..., Any]:
    def create(**arguments: Any) -> LazyLLM:
        build = _no_engine_here if never else lambda: original(**arguments)
        lazy_engine = LazyEngine(build, processes_file)
        try:
            config = model_config_of(arguments)
        except Exception as error:
            if never:
                raise ModelConfigError(
                    f"vLLM cannot read the model's configuration on this computer: {error}",
                    "unsupported",
                    "pretrained",
                    str(arguments.get("model")),
                ) from error
            log.info("vLLM's engine is built at once: no configuration without it (%s)", error)
            config = lazy_engine.built().llm_engine.model_config
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            lazy_engine.built()
        return LazyLLM(lazy_engine, config)

    return create


def _no_engine_here() -> Any:
    raise EngineFailedError("with executor=ray only the workers have engines")


def _module_with_llm(kind: type) -> ModuleType:
    """Return the module whose `LLM` creates the engine, an empty one if there is none."""
    modules = [sys.modules[base.__module__] for base in kind.__mro__]
    return next((m for m in modules if hasattr(m, "LLM")), ModuleType("no_engine"))
