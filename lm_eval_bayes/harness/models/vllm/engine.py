"""vLLM's engine: built when it is first needed, fed with requests, and shut down.

The harness builds `LLM` when a model is created. Here it gets a placeholder that knows the
model's configuration, so that a run whose trials are all stored loads no weights.

An engine runs in a process of its own, which vLLM leaves alive for minutes, with the accelerator's
memory, where the run is killed. Here the kernel kills it when the run ends; the engine's own
workers watch it, as vLLM has them do. On Linux alone, and for engines of the main thread.
"""

from __future__ import annotations

import ctypes
import itertools
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from lm_eval_bayes.errors import LmEvalBayesError, ModelConfigError, Rule, TaskConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.interface import TrialRequest
from lm_eval_bayes.harness.plugin import patches

log = get_logger(__name__)


_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    parent = multiprocessing.parent_process()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if parent is not None and os.getppid() != parent.pid:
        os._exit(1)  # it ended before prctl was called


def run_core(*args: Any, **kwargs: Any) -> Any:
    """Run vLLM's engine core in this process, which then dies with its parent."""
    die_with_parent()
    return patches.original(patches.VLLM_CORE)(*args, **kwargs)


@contextmanager
def bound_to_this_process() -> Iterator[None]:
    """Let the process of an engine that is built inside the block die with this one.

    In the main thread, since the kernel watches the thread that starts a process.
    """
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        yield
        return
    with patches.applied(patches.VLLM_CORE, lambda original: run_core):
        yield


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
    submitted, ended : float
        When it was submitted and when its end was noticed, by the monotonic clock.
    concurrency : int
        Number of running requests at its end, this one included.
    """

    request: EngineRequest
    output: Any
    submitted: float
    ended: float
    concurrency: int


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
    from vllm.inputs.engine import tokens_input

    waiting = iter(requests)
    submitted: dict[str, tuple[EngineRequest, float]] = {}
    max_submitted = max_running + max(1, max_running // 8)

    def submit() -> None:
        for request in itertools.islice(waiting, max(0, max_submitted - len(submitted))):
            if request is None:
                return
            name = f"trial-{next(_request_numbers)}"
            submitted[name] = request, time.monotonic()
            prompt = tokens_input(list(request.tokens))
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


# -- building and shutting down ------------------------------------------------------------------


class LazyLLM:
    """Stands in for vLLM's `LLM` in the harness's class and builds it at the first use.

    Parameters
    ----------
    build : callable
        Returns the engine, vLLM's `LLM`.
    model_config : object
        vLLM's configuration of the model, created without its weights.

    Attributes
    ----------
    llm : LLM or None
        The engine, once it is built.
    """

    def __init__(self, build: Callable[[], Any], model_config: Any) -> None:
        self._build, self.model_config = build, model_config
        self.llm: Any = None

    def built(self) -> Any:
        """Return the engine; build it first if there is none."""
        if self.llm is None:
            with bound_to_this_process():
                self.llm = self._build()
        return self.llm

    @property
    def llm_engine(self) -> Any:
        """The engine if it is built, else this object, which has its `model_config`."""
        return self if self.llm is None else self.llm.llm_engine

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Generate with vLLM, as the harness does for log-likelihoods."""
        return self.built().generate(*args, **kwargs)

    def shut_down(self) -> None:
        """Shut the engine down, if it is built; the next use builds another one."""
        llm, self.llm = self.llm, None
        if llm is not None:
            llm.llm_engine.engine_core.shutdown()


@contextmanager
def lazy_llm(model: Any) -> Iterator[None]:
    """Let the harness's `VLLM.__init__` create a `LazyLLM` inside the block.

    The harness finds `LLM` by a name of its module, which is replaced inside the block. With
    several ranks, whose processes start together, the engine is built at once.

    Parameters
    ----------
    model : object
        The instance whose `__init__` runs.

    Raises
    ------
    ModelConfigError
        If there is no such name, or vLLM cannot read the model's configuration.
    """
    modules = [sys.modules[base.__module__] for base in type(model).__mro__]
    module = next((m for m in modules if hasattr(m, "LLM")), ModuleType("no_engine"))
    with patches.applied(patches.VLLM_ENGINE, _lazy_creator, module) as problem:
        if problem is not None:
            sentence = f"this release of lm_eval builds vLLM's engine in an unknown way: {problem}"
            raise ModelConfigError(sentence, "unsupported", "lm_eval", problem)
        yield


def _lazy_creator(original: Callable[..., Any]) -> Callable[..., LazyLLM]:
    def create(**arguments: Any) -> LazyLLM:
        from vllm.engine.arg_utils import EngineArgs

        try:
            config = EngineArgs(**arguments).create_model_config()
        except Exception as error:  # those of its validation are of many classes
            sentence = f"vLLM cannot read the model's configuration: {error}"
            model = str(arguments.get("model"))
            raise ModelConfigError(sentence, "unsupported", "pretrained", model) from error
        lazy = LazyLLM(lambda: original(**arguments), config)
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            lazy.built()
        return lazy

    return create
