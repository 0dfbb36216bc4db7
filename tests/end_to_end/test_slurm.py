"""The Slurm recipes on a real Slurm of one node: jobs are requeued and killed, one board comes out.

Needs root and Debian's slurm-wlm, slurmctld, slurmd and munge: `pytest -m slow` of this file starts
the daemons by `examples/slurm/one_node.sh` and ends them. A loopback server in this process answers
after a random time and counts the requests.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from _support.paths import REPOSITORY
from _support.ports import free_port
from _support.scripted_server import Act, serving

from lm_eval_bayes.harness.models.openai.server_checks import PROMPTS
from lm_eval_bayes.store.prune import verify
from lm_eval_bayes.store.trial_store import TrialStore

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


class Requests:
    """The requests for trials that a server got, as (prompt, seed), with random latencies."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self._lock, self._rng = threading.Lock(), random.Random(5)

    def script(self, number: int, body: dict[str, Any]) -> Act | None:
        if body.get("echo") or body["prompt"] in PROMPTS:
            return None  # it measures a prompt, or checks whether seeds are honoured
        with self._lock:
            self.asked.append((body["prompt"], body["seed"]))
            return Act(delay_s=0.5 * self._rng.lognormvariate(0.0, 0.5))


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Start a Slurm of one node; return the environment of its commands."""
    folder = tmp_path_factory.mktemp("slurm")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ports = {"SLURMCTLD_PORT": str(free_port()), "SLURMD_PORT": str(free_port())}
    environment = {**os.environ, **ports, "PATH": path, "SLURM_CONF": str(folder / "slurm.conf")}
    script = str(REPOSITORY / "examples/slurm/one_node.sh")
    subprocess.run(["bash", script, "start", str(folder)], env=environment, check=True, timeout=600)
    yield environment
    subprocess.run(["bash", script, "stop", str(folder)], env=environment, check=True, timeout=600)


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
            timeout=600,
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


def test_an_array_that_is_requeued_comes_to_one_board(
    tmp_path: Path, slurm: dict[str, str]
) -> None:
    requests = Requests()
    with serving(requests.script) as server:
        arguments = (
            f"backend=local-completions,model=hash,base_url={server.url()},tokenizer_backend=None,"
            f"num_concurrent={SLOTS}"
        )
        own = {"MODEL_ARGS": arguments, "EVERY": "5", "TMPDIR": str(tmp_path)}
        cluster = Cluster(tmp_path, {**slurm, **own})
        commands = "\n".join(recipe("trial_slices.sbatch"))
        # as printed, but for the task, whose questions are on the hub, and the numbers
        commands = commands.replace("aime25_bayes", "demo_arithmetic_bayes")
        commands = commands.replace("TRIALS=80", f"TRIALS={N}").replace("0-9", "0-3")
        cluster.call(commands)
        total = QUESTIONS * N
        for share in (0.2, 0.5):
            cluster.wait(lambda share=share: len(requests.asked) > total * share, 240)
            cluster.wait(lambda: cluster.jobs()["1"][1] == "RUNNING", 60)
            cluster.requeue("1")
        cluster.wait(lambda: cluster.jobs()["N/A"][1] not in ("PENDING", "RUNNING"), 420)
        states = {index: state for index, (_, state) in cluster.jobs().items()}
    assert states == dict.fromkeys(["0", "1", "2", "3", "N/A"], "COMPLETED")
    assert len(set(requests.asked)) == total
    assert len(requests.asked) <= total + 2 * SLOTS  # those that were running at the kills
    store = tmp_path / "runs/all.sqlite"
    assert verify(store).ok
    with TrialStore.open(store, mode="read") as opened:
        assert sum(opened.trial_counts().values()) == total
    board = cluster.results("all")
    assert f"avg@{N},none" in board
    log = (tmp_path / "score.log").read_text()
    assert f"{board[f'hbayes@{N},none']:.3f}" in log.split("all.sqlite: ")[-1]
