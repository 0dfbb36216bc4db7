"""The Slurm recipe of fixed slices without Slurm: the store leaves the node after the last copy."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time

import pytest
from _support.paths import REPOSITORY

pytestmark = pytest.mark.skipif(
    any(shutil.which(name) is None for name in ("bash", "flock")), reason="needs bash and flock"
)

#: Writes the store that it is told, and samples on until it gets a signal if SAMPLE_ON is set.
LM_EVAL = r"""#!/bin/bash
store=$(grep -oE 'store=[^,]*' <<<"$*"); store=${store#store=}
echo trials >> "$store"; touch "$store-wal" "$store.processes.json"
if [ -n "${SAMPLE_ON:-}" ]; then trap 'echo last >> "$store"; exit 143' TERM; sleep 30 & wait; fi
"""

#: `store snapshot STORE -o COPY --overwrite` copies a file, unless FAIL is set.
COMMAND = r"""#!/bin/bash
[ "$2" = snapshot ] || { cat "${@:4:$#-5}" > "${@: -1}"; exit; }
[ -z "${FAIL:-}" ] || exit 2
cp "$3" "$5"
"""


@pytest.fixture
def start(tmp_path):
    """Return a function that starts the job with some environment variables."""
    (tmp_path / "bin").mkdir()
    for name, text in (("lm_eval", LM_EVAL), ("lm-eval-bayes", COMMAND)):
        path = tmp_path / "bin" / name
        path.write_text(text)
        path.chmod(0o755)
    (tmp_path / "node").mkdir()

    def start(**variables):
        own = {
            "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "SLURM_TMPDIR": str(tmp_path / "node"),
            "RUNS": str(tmp_path / "runs"),
            "MODEL": "m",
            "SLURM_JOB_ID": "17",
            "SLURM_ARRAY_TASK_ID": "3",
        }
        script = str(REPOSITORY / "examples/slurm/trial_slices.sbatch")
        return subprocess.Popen(["bash", script], env={**os.environ, **own, **variables})

    return start


def test_the_store_leaves_the_node_after_the_last_copy(tmp_path, start):
    earlier = tmp_path / "node" / "job3.sqlite.17.0"
    earlier.write_text("earlier\n")
    other = tmp_path / "node" / "job3.sqlite.18.0"
    other.write_text("of another job\n")
    assert start(SLURM_RESTART_COUNT="1").wait(20) == 0
    assert (tmp_path / "runs" / "job3.sqlite").read_text() == "earlier\ntrials\n"
    assert list((tmp_path / "node").iterdir()) == [other]


def test_the_signal_of_slurm_copies_before_the_store_is_removed(tmp_path, start):
    job, store = start(SAMPLE_ON="1"), tmp_path / "node" / "job3.sqlite.17.0"
    while not (store.exists() and store.with_name(f"{store.name}.processes.json").exists()):
        time.sleep(0.02)
    time.sleep(0.1)  # the traps are set
    job.send_signal(signal.SIGTERM)
    assert job.wait(20) == 143
    assert (tmp_path / "runs" / "job3.sqlite").read_text() == "trials\nlast\n"
    assert not any((tmp_path / "node").iterdir())


def test_a_store_that_cannot_be_copied_stays(tmp_path, start):
    assert start(FAIL="1").wait(20) == 2
    assert (tmp_path / "node" / "job3.sqlite.17.0").read_text() == "trials\n"
