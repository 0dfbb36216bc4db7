"""Ctrl-C while a module is imported that turns an interrupt into an ImportError."""

from __future__ import annotations

import os
import subprocess
import sys

#: As extension modules of numpy do: an interrupt within the import becomes another error.
MODULE = """
import os, signal, time
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.1)
except KeyboardInterrupt:
    raise ImportError("multiarray failed to import") from None
complete = True
"""
START = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it in jobs behind
from lm_eval_bayes._util.interrupts import wait_for_imports
"""
WAITING = """
wait_for_imports()
try:
    import fragile
    import time
    for _ in range(250):  # a long sleep would not be interrupted from within
        time.sleep(0.02)
except KeyboardInterrupt:
    print("interrupted", fragile.complete)
"""


def run(folder, code):
    (folder / "fragile.py").write_text(MODULE, encoding="utf-8")
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-c", START + code],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": path},
    )


def test_an_interrupt_waits_for_the_end_of_an_import(tmp_path):
    done = run(tmp_path, WAITING)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted True\n", "")


def test_outside_of_imports_it_is_raised_at_once(tmp_path):
    code = """
wait_for_imports()
import os
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    print("at once")
"""
    done = run(tmp_path, code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "at once\n", "")
