"""The Slurm recipes without Slurm: copies of the node's store, and what the last job reads."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from _support.paths import REPOSITORY
from _support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.skipif(
    any(shutil.which(name) is None for name in ("bash", "flock")), reason="needs bash and flock"
)

#: Writes the store that it is told, and samples on until it gets a signal if SAMPLE_ON is set.
LM_EVAL = r"""#!/bin/bash
store=$(grep -oE 'store=[^, ]*' <<<"$*"); store=${store#store=}
trap 'echo last >> "$store"; exit 143' TERM
echo "$*" >> "$RUNS/arguments"; echo trials >> "$store"; touch "$store-wal"
if [ -n "${SAMPLE_ON:-}" ]; then sleep 120 & wait; fi
"""

#: `store merge STORES -o TARGET` joins files; without `--keep-first` it fails if FAIL is set or
#: FAIL_ONCE exists.
COMMAND = r"""#!/bin/bash
[ "$2" = merge ] || exit 0
if [ "$3" = --keep-first ]; then
  inputs=("${@:4:$#-5}")
else
  inputs=("${@:3:$#-4}")
  [ -z "${FAIL:-}" ] || exit 2
  if [ -e "${FAIL_ONCE:-}" ]; then rm "$FAIL_ONCE"; exit 2; fi
fi
cat "${inputs[@]}" > "${@: -1}.part" && mv "${@: -1}.part" "${@: -1}"
"""

#: The store of a job on its node and in RUNS, without what follows the number of the job.
STORE = "job3.sqlite"


@pytest.fixture
def start(tmp_path):
    """Return a function that starts the job with some environment variables."""
    (tmp_path / "bin").mkdir()
    commands = {
        "lm_eval": LM_EVAL,
        "lm-eval-bayes": COMMAND,
    }
    for name, text in commands.items():
        path = tmp_path / "bin" / name
        path.write_text(text)
        path.chmod(0o755)
    (tmp_path / "node").mkdir()
    (tmp_path / "runs").mkdir()

    def start(script="trial_slices", **variables):
        own = {
            "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "SLURM_TMPDIR": str(tmp_path / "node"),
            "RUNS": str(tmp_path / "runs"),
            "MODEL": "m",
            "SLURM_JOB_ID": "17",
            "SLURM_ARRAY_TASK_ID": "3",
        }
        path = str(REPOSITORY / f"examples/slurm/{script}.sbatch")
        with open(tmp_path / "errors", "w") as errors:
            return subprocess.Popen(
                ["bash", path], env={**os.environ, **own, **variables}, stderr=errors
            )

    return start


def catches_signals(job):
    """Whether the script has set its trap of SIGTERM."""
    status = Path(f"/proc/{job.pid}/status").read_text()
    return int(re.search(r"SigCgt:\s*(\w+)", status)[1], 16) >> (signal.SIGTERM - 1) & 1


def test_the_store_leaves_the_node_after_the_last_copy(tmp_path, start):
    """A job that is started again goes on with what its earlier start left on the node."""
    (tmp_path / "runs" / STORE).write_text("copy\n")
    earlier = tmp_path / "node" / f"{STORE}.17.0"
    earlier.write_text("earlier\n")
    other = tmp_path / "node" / f"{STORE}.18.0"
    other.write_text("of another job\n")
    assert start(SLURM_RESTART_COUNT="1").wait(PATIENCE_S) == 0
    assert (tmp_path / "runs" / STORE).read_text() == "copy\nearlier\ntrials\n"
    assert list((tmp_path / "node").iterdir()) == [other]


def test_the_signal_of_slurm_copies_before_the_store_is_removed(tmp_path, start):
    job, store = start(SAMPLE_ON="1"), tmp_path / "node" / f"{STORE}.17.0"
    wait_until(store.with_name(f"{store.name}-wal").exists)
    wait_until(lambda: catches_signals(job))
    job.send_signal(signal.SIGTERM)
    assert job.wait(PATIENCE_S) == 143
    assert (tmp_path / "runs" / STORE).read_text() == "trials\nlast\n"
    assert not any((tmp_path / "node").iterdir())


def test_a_store_that_cannot_be_copied_stays(tmp_path, start):
    assert start(FAIL="1").wait(PATIENCE_S) == 2
    assert (tmp_path / "node" / f"{STORE}.17.0").read_text() == "trials\n"


def test_a_copy_that_failed_is_made_again(tmp_path, start):
    failure, copy = tmp_path / "failure", tmp_path / "runs" / STORE
    failure.touch()
    job = start(SAMPLE_ON="1", EVERY="0.2", FAIL_ONCE=str(failure))
    wait_until(copy.exists)
    wait_until(lambda: catches_signals(job))
    assert not failure.exists()
    job.send_signal(signal.SIGTERM)
    assert job.wait(PATIENCE_S) == 143
    assert "the copy failed, and is made again" in (tmp_path / "errors").read_text()


def test_copies_end_with_a_script_that_was_killed(tmp_path, start):
    def copying():
        """Return the processes of this script that copy its store."""
        return [
            process
            for process in psutil.process_iter(["cmdline", "environ"])
            if process.info["cmdline"] == job.args
            and (process.info["environ"] or {}).get("RUNS") == runs
        ]

    runs = str(tmp_path / "runs")
    job = start(SAMPLE_ON="1", EVERY="0.2")
    wait_until((tmp_path / "runs" / STORE).exists)
    job.kill()
    job.wait(PATIENCE_S)
    wait_until(lambda: not copying())


def test_the_last_job_reads_the_stores_of_all_jobs(tmp_path, start):
    runs = tmp_path / "runs"
    assert start("merge_and_score").wait(PATIENCE_S) == 1
    assert "(job*.sqlite): start the array" in (tmp_path / "errors").read_text()
    (runs / "job0.sqlite").write_text("zero\n")
    (runs / "job1.sqlite").write_text("first\n")
    assert start("merge_and_score", OPTIONS="--apply_chat_template").wait(PATIENCE_S) == 0
    (arguments,) = (runs / "arguments").read_text().splitlines()
    assert arguments.endswith("--apply_chat_template")
    assert (runs / "all.sqlite").read_text() == "zero\nfirst\ntrials\n"
