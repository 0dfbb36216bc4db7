"""An engine's processes are known again, ended when orphaned, and never taken for others."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

import pytest
from _support.paths import REPOSITORY

from lm_eval_bayes._util.processes import Process, process
from lm_eval_bayes.harness.models.vllm import processes as engine_processes
from lm_eval_bayes.harness.models.vllm.processes import (
    ProcessFile,
    end,
    end_leftovers,
)
from lm_eval_bayes.harness.plugin import patches

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

SLEEPER = "import time; print('up', flush=True); time.sleep(60)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print('up', flush=True); time.sleep(60)"
)


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


def gone(pid, seconds=5.0):
    deadline = time.monotonic() + seconds
    while process(pid) is not None and time.monotonic() < deadline:
        time.sleep(0.02)
    return process(pid) is None


def test_ending_asks_and_then_insists(started):
    polite, stubborn = started(SLEEPER), started(STUBBORN)
    began = time.monotonic()
    assert end([process(polite.pid), process(stubborn.pid)], patience_s=0.2) == []
    assert 0.15 < time.monotonic() - began < 5
    assert polite.wait() == -signal.SIGTERM
    assert stubborn.wait() == -signal.SIGKILL


# A run that binds sockets, as does its engine, of which it leaves a note; one socket is older.
RUN = """
import socket, subprocess, sys, time
from pathlib import Path
from lm_eval_bayes._util.processes import process
from lm_eval_bayes.harness.models.vllm.processes import ProcessFile, sockets_of
import os
def bound(path):
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen()
    return listening
folder = Path(sys.argv[2])
own = bound(str(folder / "before"))
before = sockets_of([process(os.getpid())])
front = bound(str(folder / "front"))
code = (
    "import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); "
    "c = socket.socket(socket.AF_UNIX); c.connect(sys.argv[2]); print(1, flush=True); "
    "time.sleep(60)"
)
paths = [str(folder / "back"), sys.argv[3]]
engine = subprocess.Popen([sys.executable, "-c", code, *paths], stdout=subprocess.PIPE)
engine.stdout.readline()
file = ProcessFile(Path(sys.argv[1]))
file.write([process(engine.pid)], sockets_of([process(os.getpid()), process(engine.pid)]) - before)
print(engine.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def killed_run(started, tmp_path):
    """Return what a killed run left behind: its note, its engine's id, and a folder of sockets."""
    with tempfile.TemporaryDirectory() as short:  # a socket's path has at most 107 bytes
        folder, beside = Path(short), tmp_path / "aime.sqlite.processes.json"
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.bind(str(folder / "stranger"))
            stranger.listen()
            run = started(RUN, str(beside), short, str(folder / "stranger"))
            run.kill()
            run.wait()
            (note,) = beside.parent.glob("aime.sqlite.processes.*.json")
            engine = int(run.first_line)
            yield beside, note, engine, folder
            left = process(engine)
            if left is not None:
                left.send(signal.SIGKILL)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_engine_of_a_killed_run_is_ended_and_its_sockets_are_removed(killed_run, caplog):
    beside, _, pid, folder = killed_run
    assert process(pid) is not None
    assert names(folder) == ["back", "before", "front", "stranger"]
    assert [p.pid for p in end_leftovers(beside)] == [pid]
    assert gone(pid)
    assert names(folder) == ["before", "stranger"]
    assert list(beside.parent.iterdir()) == []
    assert "had left behind" in caplog.text
    assert end_leftovers(beside) == []


def test_processes_that_a_note_does_not_mean_are_left_alone(killed_run):
    beside, path, pid, folder = killed_run
    note = json.loads(path.read_text())
    engine = note["processes"][0]
    for changes, stays in (
        ({"namespace": "pid:[1]"}, True),  # a container beside this one
        ({"host": "elsewhere"}, True),
        ({"owner": {"pid": 1}}, True),
        ({"owner": process(os.getpid()).to_dict()}, True),  # the run is alive
        ({"sockets": [], "processes": [{**engine, "started": engine["started"] - 0.01}]}, False),
        ({"boot": "an earlier one"}, False),
    ):
        path.write_text(json.dumps({**note, **changes}))
        assert len(names(folder)) == 4
        assert end_leftovers(beside) == []
        assert process(pid) is not None
        assert path.exists() is stays
    assert names(folder) == ["before", "stranger"]


def test_another_file_under_a_recorded_path_stays(killed_run):
    beside, _, _, folder = killed_run
    for name in ("front", "back"):
        (folder / name).unlink()
    (folder / "back").write_text("a file")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(folder / "front"))
        end_leftovers(beside)
        assert names(folder) == ["back", "before", "front", "stranger"]


def test_a_note_is_replaced_and_removed(tmp_path, started):
    file = ProcessFile(tmp_path / "s.processes.json")
    child = process(started(SLEEPER).pid)
    file.write([child])
    note = json.loads(file.path.read_text())
    assert note["owner"]["pid"] == os.getpid()
    assert [Process(**p) for p in note["processes"]] == [child]
    file.write([])
    assert list(tmp_path.iterdir()) == []
    # a note that cannot be written stops nothing
    ProcessFile(tmp_path / "missing" / "s.json").write([child])


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
    time.sleep(60)
"""
CHILD = """
import time
from lm_eval_bayes.harness.models.vllm.processes import die_with_parent
def run(writer):
    die_with_parent()
    writer.send(1)
    time.sleep(60)
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
    assert process(child) is not None
    run.kill()
    assert gone(child, 2.0)


@pytest.fixture
def vllm_modules(monkeypatch):
    """Put classes where vLLM has those that its processes start in."""
    calls = []
    for row in (patches.VLLM_CORE, patches.VLLM_WORKER):
        name, _, target = patches.PATCHES[row].target.partition(":")
        kind, method = target.split(".")
        owner = type(kind, (), {method: staticmethod(lambda *a, k=kind: calls.append((k, a)))})
        module = types.ModuleType(name)
        setattr(module, kind, owner)
        for i in range(1, name.count(".") + 1):
            parent = ".".join(name.split(".")[:i])
            if parent not in sys.modules:
                monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))
        monkeypatch.setitem(sys.modules, name, module)
    return calls


def test_vllms_processes_are_bound_while_an_engine_is_built(vllm_modules, monkeypatch):
    monkeypatch.setattr(engine_processes, "die_with_parent", lambda: vllm_modules.append("bound"))
    core = sys.modules["vllm.v1.engine.core"].EngineCoreProc
    worker = sys.modules["vllm.v1.executor.multiproc_executor"].WorkerProc
    before = core.run_engine_core
    with engine_processes.bound_to_this_process() as bound:
        assert bound
        assert core.run_engine_core is engine_processes.run_core
        core.run_engine_core(1)  # as a forked process would, which inherits what was replaced
        worker.worker_main(2)
    assert core.run_engine_core is before
    assert vllm_modules == ["bound", ("EngineCoreProc", (1,)), "bound", ("WorkerProc", (2,))]
    assert patches.undo(patches.VLLM_WORKER)
    vllm_modules.clear()
    engine_processes.run_core(3)  # as a spawned process would, where nothing was replaced
    assert vllm_modules == ["bound", ("EngineCoreProc", (3,))]
    assert patches.undo(patches.VLLM_WORKER)


# A run under SIGTERM, whose engine is one process.
TERMINATED = """
import signal, subprocess, sys, time
from pathlib import Path
from types import SimpleNamespace
from lm_eval_bayes.harness.models.vllm.processes import shut_down_on_signals
from lm_eval_bayes.harness.models.vllm.engine import LazyEngine
started = []
def build():
    started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))
    print(started[0].pid, flush=True) if sys.argv[2] == "while building" else None
    time.sleep(60 if sys.argv[2] == "while building" else 0)
    return SimpleNamespace()
house = LazyEngine(build, Path(sys.argv[1]))
with shut_down_on_signals(house.shut_down):
    house.built()
    grader = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3)"])
    print(started[0].pid, grader.pid, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("when", ["while building", "afterwards"])
def test_sigterm_ends_engine_and_run(tmp_path, started, when):
    run = started(TERMINATED, str(tmp_path / "s.processes.json"), when)
    engine, *graders = map(int, run.first_line.split())
    assert process(engine) is not None
    assert len(list(tmp_path.iterdir())) == len(graders)
    run.send_signal(signal.SIGTERM)
    assert run.wait(timeout=10) == -signal.SIGTERM
    assert gone(engine)
    assert list(tmp_path.iterdir()) == []
    # what else the run had started is none of the engine's
    assert all(process(pid) is not None for pid in graders)


def test_a_forked_child_leaves_the_engine_alone():
    downs = []
    before = signal.getsignal(signal.SIGTERM)
    with engine_processes.shut_down_on_signals(lambda: downs.append(1)):
        pid = os.fork()
        if pid == 0:
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                os._exit(3 + len(downs))
        _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before
    assert downs == []


def test_a_second_signal_hurries(monkeypatch):
    from lm_eval_bayes.harness.models.vllm.engine import LazyEngine

    patience = []
    monkeypatch.setattr(
        "lm_eval_bayes.harness.models.vllm.engine.end",
        lambda processes, patience_s=5.0: patience.append(patience_s) or [],
    )
    house = LazyEngine(lambda: None, None)
    again = types.SimpleNamespace(shutdown=lambda: house.shut_down())
    house.llm = types.SimpleNamespace(llm_engine=types.SimpleNamespace(engine_core=again))
    house.shut_down()
    assert patience == [0.0, 5.0]


def test_elsewhere_nothing_is_noted(monkeypatch, tmp_path):
    monkeypatch.setattr(engine_processes, "process_scope", lambda: None)
    file = ProcessFile(tmp_path / "s.json")
    file.write([Process(1, 1.0)])
    assert list(tmp_path.iterdir()) == []
