"""A process is told from another one by what never changes while it lives."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from lm_eval_bayes._util.processes import Process, process


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_a_change_of_the_clock_is_no_other_process(monkeypatch):
    own = process(os.getpid())
    boot = psutil.boot_time()
    monkeypatch.setattr(psutil, "boot_time", lambda: boot + 3600.0)
    assert own is not None
    assert own.alive
    assert process(os.getpid()) == own


def test_a_process_that_has_ended():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    record = process(child.pid)
    assert record is not None
    assert record.alive
    assert not Process(record.pid, record.started + 1.0).alive
    child.communicate(b"\n")
    assert not record.alive
    assert process(child.pid) is None
