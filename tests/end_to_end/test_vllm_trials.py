"""Real vLLM: trials are reproducible and measured right, and no engine outlives its run.

Runs in the environment that `vllm_cpu_venv.py` makes; the engine is started twice.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from _support.paths import REPOSITORY, SUPPORT
from _support.waiting import is_alive, wait_until_gone

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="needs vLLM"),
]

HERE = Path(__file__).resolve().parent
REPO = REPOSITORY
UNTIL_READY_S = 1800.0

Start = Callable[..., tuple[subprocess.Popen[str], dict[str, Any]]]


@pytest.fixture(scope="module")
def start(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Start the script and return it with the lines that it has printed, once it samples."""
    running = []

    def launch(*options: str) -> tuple[subprocess.Popen[str], dict[str, Any]]:
        log = tmp_path_factory.mktemp("log") / "stderr"
        with open(log, "w", encoding="utf-8") as errors:
            child = subprocess.Popen(
                [sys.executable, str(HERE / "vllm_trials.py"), str(smollm2), *options],
                stdout=subprocess.PIPE,
                stderr=errors,
                encoding="utf-8",
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(
                        filter(None, [str(REPO), str(SUPPORT.parent), os.environ.get("PYTHONPATH")])
                    ),
                    "VLLM_CPU_KVCACHE_SPACE": "2",
                    "HF_HUB_OFFLINE": "1",
                },
            )
        running.append(child)
        said: dict[str, Any] = {}
        deadline = time.monotonic() + UNTIL_READY_S
        assert child.stdout is not None
        for line in child.stdout:
            word, _, rest = line.partition(" ")
            if word in ("MEASURED", "SAMPLING"):
                said[word] = json.loads(rest)
            if word == "SAMPLING" or time.monotonic() > deadline:
                break
        if "SAMPLING" not in said:
            child.kill()
            pytest.fail(log.read_text(encoding="utf-8")[-4000:])
        return child, said

    yield launch
    for child in running:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


@pytest.fixture(scope="module")
def measured(start: Start) -> dict[str, Any]:
    """Measure with one engine, which SIGTERM then stops while it samples."""
    child, said = start("--measure")
    child.send_signal(signal.SIGTERM)
    code = child.wait(timeout=600)
    return {
        **said["MEASURED"],
        "processes": said["SAMPLING"],
        "code": code,
    }


def test_weights_are_loaded_when_they_are_needed(measured: dict[str, Any]) -> None:
    assert measured["loaded"] is False
    assert measured["fingerprint"]["dtype"] == "float32"
    assert measured["fingerprint"]["weights"].startswith("sha256:")


def test_a_seed_settles_a_text_whatever_runs_beside_it(measured: dict[str, Any]) -> None:
    texts = measured["texts"]
    assert len(set(texts)) > len(texts) / 2
    assert measured["unmeasured"] == texts
    assert measured["shuffled"] == texts
    assert measured["alone"] == texts[:4]
    assert measured["unfinished"] == 0


def test_the_harness_says_the_same_with_the_same_seeds(measured: dict[str, Any]) -> None:
    assert measured["harness"] == measured["finished"]


def test_bits_are_those_of_a_forward_pass(measured: dict[str, Any]) -> None:
    bits = measured["bits"]
    assert len(bits["completions"]) >= 8
    assert max(bits["completions"]) < 1e-3
    assert len(bits["prompts"]) >= 2
    assert max(bits["prompts"]) < 1e-3


def test_what_is_recorded(measured: dict[str, Any]) -> None:
    for record in measured["records"]:
        assert 1 <= record["tokens"] <= 24
        assert record["finish_reason"] in (
            ["stop", "length"] if record["tokens"] == 24 else ["stop"]
        )
        assert record["prompt_tokens"] > 10
        assert record["queued_s"] >= 0
        assert record["generated_s"] > 0
        assert 1 <= record["concurrency"] <= 6
        assert record["signals"]["prompt_truncated"] is False


def test_sigterm_takes_the_engine_down(measured: dict[str, Any]) -> None:
    assert measured["processes"]
    assert measured["code"] == -signal.SIGTERM
    wait_until_gone(measured["processes"])


def test_kill_9_takes_the_engine_down(start: Start) -> None:
    child, said = start()
    pids = said["SAMPLING"]
    assert pids
    assert all(map(is_alive, pids))
    child.kill()
    child.wait()
    wait_until_gone(pids)
