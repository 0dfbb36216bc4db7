"""The Slurm recipes on a real Slurm of one node: jobs are requeued and killed, one board comes out.

Needs root and Debian's slurm-wlm, slurmctld, slurmd and munge: `pytest -m slow` of this file starts
the daemons by `examples/slurm/one_node.sh` and ends them. A loopback server in this process answers
after a random time and counts the requests.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from _support.paths import REPOSITORY
from _support.scripted_server import serving
from _support.shared_runs import Requests

from lm_eval_bayes.store.trial_store import TrialStore
from lm_eval_bayes.store.verify import verify

DAEMONS = ("slurmctld", "slurmd", "munged", "sbatch")
QUESTIONS, N, SLOTS = 40, 32, 8

pytestmark = [
    pytest.mark.slow,
    pytest.mark.by_hand,
    pytest.mark.skipif(
        any(shutil.which(name) is None for name in DAEMONS), reason="needs Slurm and munge"
    ),
    pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="slurmd needs root"),
]


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Start a Slurm of one node; return the environment of its commands."""
    folder = tmp_path_factory.mktemp("slurm")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ports = {"SLURMCTLD_PORT": str(free_port()), "SLURMD_PORT": str(free_port())}
    environment = {**os.environ, **ports, "PATH": path, "SLURM_CONF": str(folder / "slurm.conf")}
    script = str(REPOSITORY / "examples/slurm/one_node.sh")
    subprocess.run(["bash", script, "start", str(folder)], env=environment, check=True, timeout=90)
    yield environment
    subprocess.run(["bash", script, "stop", str(folder)], env=environment, check=True, timeout=90)


class Cluster:
    """The jobs of one recipe."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder, self.environment = folder, environment
        shutil.copytree(REPOSITORY / "examples/slurm", folder / "examples/slurm")

    def call(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-ec", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def jobs(self) -> dict[str, tuple[str, str]]:
        """Return id and state of the jobs, by their index in the array, "N/A" for the last."""
        lines = self.call("squeue -h -t all -o '%K %A %T'").splitlines()
        return {index: (job, state) for index, job, state in map(str.split, lines)}

    def wait(self, what: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            if time.monotonic() > deadline:
                logs = {p.name: p.read_text()[-3000:] for p in self.folder.glob("*.log")}
                pytest.fail(f"not in {seconds} s: {self.jobs()}\n{logs}")
            time.sleep(0.2)

    def requeue(self, index: str) -> None:
        job, _ = self.jobs()[index]
        self.call(f"scontrol requeue {job}")
        # it waits for two minutes by itself; at once, its credential would still be revoked
        self.wait(lambda: self.jobs()[index][1] == "PENDING", 60)
        self.call(f"scontrol update JobId={job} StartTime=now+5")

    def results(self, name: str) -> dict[str, Any]:
        path = max((self.folder / "runs" / name).rglob("results_*.json"))
        return dict(json.loads(path.read_text())["results"]["demo_arithmetic_bayes"])


def recipe(part: str) -> list[str]:
    """Return the commands of the page that contain a text, as they are printed."""
    page = (REPOSITORY / "examples/docs/sampling.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```bash\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    (block,) = (block for block in blocks if part in block)
    return list(block.replace("\\\n", " ").splitlines())


@pytest.mark.parametrize("script", ["trials_auto", "trial_slices"])
def test_an_array_that_is_killed_comes_to_one_board(
    script: str, tmp_path: Path, slurm: dict[str, str]
) -> None:
    requests = Requests(0.5, seed=5)
    with serving(requests.script) as server:
        arguments = (
            f"backend=local-completions,model=hash,base_url={server.url()},tokenizer_backend=None,"
            f"num_concurrent={SLOTS}"
        )
        cluster = Cluster(
            tmp_path,
            {
                **slurm,
                "MODEL_ARGS": arguments,
                "LEASE": "10",
                "EVERY": "5",
                "TMPDIR": str(tmp_path),
            },
        )
        commands = "\n".join(recipe(f"{script}.sbatch"))
        # as printed, but for the task, whose questions are on the hub, and the numbers
        commands = commands.replace("aime25_bayes", "demo_arithmetic_bayes")
        commands = commands.replace("TRIALS=80", f"TRIALS={N}").replace("0-9", "0-3")
        cluster.call(commands)
        total = QUESTIONS * N
        cluster.wait(lambda: len(requests.asked) > total * 0.2, 240)
        cluster.requeue("1")
        cluster.wait(lambda: len(requests.asked) > total * 0.5, 240)
        if script == "trials_auto":
            cluster.call(f"scancel --signal=KILL --full {cluster.jobs()['2'][0]}")
        else:
            cluster.wait(lambda: cluster.jobs()["1"][1] == "RUNNING", 60)
            cluster.requeue("1")
        cluster.wait(lambda: cluster.jobs()["N/A"][1] not in ("PENDING", "RUNNING"), 420)
        states = {index: state for index, (_, state) in cluster.jobs().items()}
    killed = {"2": "CANCELLED"} if script == "trials_auto" else {}
    done = dict.fromkeys(["0", "1", "2", "3", "N/A"], "COMPLETED")
    assert states == {**done, **killed}
    asked = [tuple(pair) for pair in requests.asked]
    assert len(set(asked)) == total
    assert len(asked) <= total + 2 * SLOTS  # those that were running at the kills
    store = tmp_path / "runs/all.sqlite"
    assert verify(store).ok
    with TrialStore.open(store, mode="read") as opened:
        assert sum(opened.trial_counts().values()) == total
    board = cluster.results("all")
    assert f"avg@{N},none" in board
    if script == "trials_auto":
        for job in ("job0", "job1", "job3"):
            assert cluster.results(job) == board
    log = (tmp_path / "score.log").read_text()
    assert f"{board[f'hbayes@{N},none']:.3f}" in log.split("all.sqlite: ")[-1]
