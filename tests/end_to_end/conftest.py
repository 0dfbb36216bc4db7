"""What the end-to-end runs share: the harness as a command, and the independent check of a run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from _support.paths import REPOSITORY, SHARED

HERE = Path(__file__).resolve().parent
REPO = REPOSITORY


@dataclass
class FinishedRun:
    """A run's output folder, read."""

    folder: Path
    log: str

    @property
    def results(self) -> dict[str, Any]:
        (path,) = self.folder.rglob("results_*.json")
        return json.loads(path.read_text(encoding="utf-8"))

    def rows(self, task: str) -> dict[str, Any]:
        """Return all rows of a task under the filter `none`."""
        return dict(self.results["posterior"][task]["none"])

    def trials(self, task: str) -> int:
        """Return the run's N."""
        return int(self.results["configs"][task]["metadata"]["bayes"]["n"])

    def samples(self, task: str) -> list[dict[str, Any]]:
        (path,) = self.folder.rglob(f"samples_{task}_*.jsonl")
        lines = path.read_text(encoding="utf-8").splitlines()
        return sorted(map(json.loads, lines), key=lambda entry: entry["doc_id"])

    def check(self) -> None:
        """Fail unless every row equals its independent recomputation."""
        done = subprocess.run(
            [sys.executable, str(HERE / "recompute.py"), str(self.folder)],
            capture_output=True,
            encoding="utf-8",
            timeout=600,
            check=False,
        )
        print(done.stdout)
        assert done.returncode == 0, done.stdout + done.stderr


RunHarness = Callable[..., FinishedRun]


@pytest.fixture(scope="session")
def run_harness(tmp_path_factory: pytest.TempPathFactory) -> RunHarness:
    """Run the harness as a user would, with a time-out, and hand back its output folder."""

    def run(*arguments: str, timeout: float = 1800, **environment: str) -> FinishedRun:
        folder = tmp_path_factory.mktemp("run")
        command = [sys.executable, "-m", "lm_eval_bayes", "run", *arguments, "--log_samples"]
        command += ["--output_path", str(folder)]
        environ = {**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", **environment}
        path = filter(None, [str(REPO), environ.get("PYTHONPATH")])
        environ["PYTHONPATH"] = os.pathsep.join(path)
        done = subprocess.run(
            command,
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
            check=False,
        )
        print(done.stdout[-6000:])
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-6000:]}"
        return FinishedRun(folder, done.stdout)

    return run


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Return the folder that `smollm2.py` wrote, or skip."""
    folder = os.environ.get("LM_EVAL_BAYES_SMOLLM2")
    if not folder:
        pytest.skip("LM_EVAL_BAYES_SMOLLM2 does not name a folder written by smollm2.py")
    assert (Path(folder) / "config.json").exists(), f"{folder} holds no model"
    return Path(folder)


@pytest.fixture(scope="session")
def offline_contests(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment in which the contests load from a writable copy of their cache."""
    shared = SHARED
    if not (shared / "hf_home").is_dir():
        pytest.skip(f"no cached contests at {shared / 'hf_home'}")
    copy = tmp_path_factory.mktemp("hf") / "home"
    shutil.copytree(shared / "hf_home", copy)
    return {"HF_HOME": str(copy), "HF_HUB_OFFLINE": "1"}
