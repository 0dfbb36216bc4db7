"""The examples of several servers: the Slurm script, with Slurm and vLLM replaced, and Ray Serve's.

The replacements are commands on the PATH: `srun` starts the tasks of a job on this computer,
`scontrol` names it, and `vllm serve` is a loopback server that honours seeds.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from _support.paths import REPOSITORY

from lm_eval_bayes.store.trial_store import TrialStore

EXAMPLES = REPOSITORY / "examples"
REPLICAS = 2

pytestmark = pytest.mark.filterwarnings("default")

VLLM = f"""#!{sys.executable}
import sys, threading
from _support import completions_server as module
assert sys.argv[1] == "serve" and sys.argv[3] == "--port", sys.argv
class Handler(module.Handler):
    def do_GET(self):
        entry = {{"id": sys.argv[2], "root": sys.argv[2], "owned_by": "vllm"}}
        self.reply(200, {{"data": [entry]}})
class Server(module.ThreadingHTTPServer):
    daemon_threads, accuracy = True, 0.6
    def record(self, path, body):
        pass
with Server(("127.0.0.1", int(sys.argv[4])), Handler) as server:
    threading.Timer(300, server.shutdown).start()
    server.serve_forever(poll_interval=0.1)
"""

SRUN = """#!/bin/bash
trap 'kill $(jobs -p)' TERM
shift  # --kill-on-bad-exit=0
for ((task = 0; task < SLURM_NTASKS_PER_NODE; task++)); do SLURM_LOCALID=$task "$@" & done
wait
"""


def free_ports() -> int:
    """Return the first of two ports that are free."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


@pytest.fixture
def job(tmp_path: Path) -> dict[str, str]:
    """The environment of a job on one node with two tasks."""
    commands = tmp_path / "bin"
    commands.mkdir()
    scripts = {"vllm": VLLM, "srun": SRUN, "scontrol": "#!/bin/sh\necho 127.0.0.1\n"}
    for name, text in scripts.items():
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    path = f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n", "SLURM_TMPDIR": str(tmp_path)}
    own = {"MODEL": "org/model", "TASK": "demo_arithmetic_bayes", "TRIALS": "4", "EACH": "4"}
    return {
        **os.environ,
        **slurm,
        **own,
        "SLURM_NTASKS_PER_NODE": str(REPLICAS),
        "PATH": path,
        "PYTHONPATH": str(REPOSITORY / "tests"),
        "PORT": str(free_ports()),
        "RUNS": str(tmp_path / "runs"),
        "NO_PROXY": "127.0.0.1",
        "HF_HUB_OFFLINE": "1",
    }


@pytest.mark.slow
def test_the_slurm_script_samples_from_every_replica_and_goes_on(
    job: dict[str, str], tmp_path: Path
) -> None:
    command = ["bash", str(EXAMPLES / "slurm" / "servers.sbatch")]
    output = tmp_path / "servers-7.log"
    with output.open("w") as log:
        done = subprocess.run(
            command, env=job, cwd=tmp_path, stdout=log, stderr=log, timeout=400, check=False
        )
    assert done.returncode == 0, output.read_text()[-3000:]
    assert "hbayes@4" in output.read_text()
    kept = tmp_path / "runs" / "servers.sqlite"
    with TrialStore.open(kept, mode="read") as store:
        info = store.info()
    assert info.trials % 4 == 0
    assert info.trials > 0
    samples = "".join(p.read_text() for p in (tmp_path / "runs").rglob("samples_*.jsonl"))
    assert len(set(re.findall(r"127\.0\.0\.1:\d+", samples))) == REPLICAS

    # once more, with a store that has everything: nothing is sampled, and Slurm's signal is heard
    assert not list(tmp_path.glob("servers.sqlite.*"))
    process = subprocess.Popen(command, env=job, cwd=tmp_path, stderr=subprocess.DEVNULL)
    time.sleep(3)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) in (0, 143, -signal.SIGTERM)
    with TrialStore.open(kept, mode="read") as store:
        assert store.info().trials == info.trials


@pytest.mark.slow
def test_the_command_of_the_page_samples_from_both_servers(
    job: dict[str, str], tmp_path: Path
) -> None:
    page = (EXAMPLES / "docs" / "sampling.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^lm_eval .*\\\n.*http://node1.*$", page, flags=re.MULTILINE)
    ports = [int(job["PORT"]), int(job["PORT"]) + 1]
    for node, port in zip(("node1:8000", "node2:8000"), ports, strict=True):
        assert node in command
        command = command.replace(node, f"127.0.0.1:{port}")
    command = command.replace("aime25_bayes", "demo_arithmetic_bayes --limit 6 --log_samples")
    command += " --output_path out"
    with ExitStack() as stack:
        for port in ports:
            words = ["vllm", "serve", "Qwen/Qwen3-4B", "--port", str(port)]
            server = stack.enter_context(subprocess.Popen(words, env=job))
            stack.callback(server.terminate)
        for port in ports:
            wait_for(port)
        words = ["bash", "-c", command]
        done = subprocess.run(
            words, env=job, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
    assert done.returncode == 0, done.stderr[-3000:]
    samples = "".join(path.read_text() for path in (tmp_path / "out").rglob("samples_*.jsonl"))
    assert set(re.findall(r"127\.0\.0\.1:\d+", samples)) >= {f"127.0.0.1:{p}" for p in ports}


def wait_for(port: int) -> None:
    for _ in range(600):
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"nothing listens at port {port}")


def test_the_ray_serve_example_fits_its_command() -> None:
    text = (EXAMPLES / "ray_serve_llm.yaml").read_text(encoding="utf-8")
    (application,) = yaml.safe_load(text)["applications"]
    assert application["import_path"] == "ray.serve.llm:build_openai_app"
    (config,) = application["args"]["llm_configs"]
    deployment = config["deployment_config"]
    concurrent = deployment["num_replicas"] * deployment["max_ongoing_requests"]
    assert f"num_concurrent={concurrent}" in text
    assert f"model={config['model_loading_config']['model_id']}," in text
