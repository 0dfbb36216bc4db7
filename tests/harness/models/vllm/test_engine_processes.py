"""An engine's process dies with the run that started it."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
from _support.paths import REPOSITORY
from _support.waiting import is_alive, wait_until_gone

from lm_eval_bayes.harness.models.vllm import engine as engine_processes
from lm_eval_bayes.harness.plugin import patches

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


@pytest.fixture
def started():
    children = []

    def launch(code, *arguments):
        child = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdout=subprocess.PIPE,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        )
        children.append(child)
        child.first_line = child.stdout.readline().strip()
        return child

    yield launch
    for child in children:
        child.kill()
        child.wait()
        child.stdout.close()


# A parent whose child, spawned afresh, asks to die with it.
PARENT = """
import multiprocessing, sys, time
sys.path.insert(0, sys.argv[1])
import dying_child
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    reader, writer = context.Pipe()
    child = context.Process(target=dying_child.run, args=(writer,))
    child.start()
    reader.recv()
    print(child.pid, flush=True)
    time.sleep(600)
"""
CHILD = """
import time
from lm_eval_bayes.harness.models.vllm.engine import die_with_parent
def run(writer):
    die_with_parent()
    writer.send(1)
    time.sleep(600)
"""


def test_a_child_dies_with_its_parent(tmp_path, started):
    (tmp_path / "dying_child.py").write_text(CHILD)
    (tmp_path / "parent.py").write_text(PARENT)
    code = (
        "import runpy, sys; sys.argv = sys.argv[1:]; "
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    run = started(code, str(tmp_path / "parent.py"), str(tmp_path))
    child = int(run.first_line)
    assert is_alive(child)
    run.kill()
    wait_until_gone([child])


@pytest.fixture
def vllm_modules(monkeypatch):
    """Put a class where vLLM has the one that its engine's process starts in."""
    calls = []
    name, _, target = patches.VLLM_CORE.target.partition(":")
    kind, method = target.split(".")
    module = types.ModuleType(name)
    setattr(
        module, kind, type(kind, (), {method: staticmethod(lambda *a: calls.append((kind, a)))})
    )
    for i in range(1, name.count(".") + 1):
        parent = ".".join(name.split(".")[:i])
        if parent not in sys.modules:
            monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))
    monkeypatch.setitem(sys.modules, name, module)
    return calls


def test_vllms_processes_are_bound_while_an_engine_is_built(vllm_modules, monkeypatch):
    monkeypatch.setattr(engine_processes, "die_with_parent", lambda: vllm_modules.append("bound"))
    core = sys.modules["vllm.v1.engine.core"].EngineCoreProc
    before = core.run_engine_core
    with engine_processes.bound_to_this_process():
        assert core.run_engine_core is engine_processes.run_core
        core.run_engine_core(1)  # as a forked process would, which inherits what was replaced
    assert core.run_engine_core is before
    assert vllm_modules == ["bound", ("EngineCoreProc", (1,))]
    vllm_modules.clear()
    engine_processes.run_core(3)  # as a spawned process would, where nothing was replaced
    assert vllm_modules == ["bound", ("EngineCoreProc", (3,))]
