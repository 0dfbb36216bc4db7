"""vLLM's engine, built when it is first needed and taken down with its processes."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lm_eval_bayes.harness.logs import get_logger
from lm_eval_bayes.harness.models.vllm.engine import EngineFailedError
from lm_eval_bayes.harness.models.vllm.processes import (
    Process,
    ProcessFile,
    descendants,
    end,
    end_leftovers,
)
from lm_eval_bayes.harness.models.vllm.signal_handling import dying_with_us, ending_on_signals

log = get_logger(__name__)


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
