"""SmolLM2 as a stand-in verifier: mechanics, arithmetic by hand, killed and resumed.

It is far too small to judge anything, which the tests do not ask of it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from _support.paths import REPOSITORY
from _support.waiting import wait_until

REPO = REPOSITORY
COMMAND = ("-m", "lm_eval_bayes.cli.main", "study", "verify")
QUESTIONS, TRIALS = 3, 4
THOUGHTS = "<think>Let me see, perhaps 7, or 8.</think>"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("torch", "transformers")),
        reason="needs lm-eval[hf] and torch",
    ),
]

ANSWERS = ["The final answer is \\boxed{12}.", "I do not know", "It is 9 " * 200 + "so 12", ""]


def write_samples(folder: Path) -> Path:
    """Write a run of the harness: answers of four kinds, some after thoughts, some twice."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "samples_sums_2026-01-31T10-00-00.512000.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for n in range(QUESTIONS):
            texts = [ANSWERS[(n + i) % 4] for i in range(TRIALS - 1)]
            texts.append(THOUGHTS + texts[0])
            doc = {"problem": f"What is {n} + {12 - n}?", "answer": "12"}
            line = {"doc_id": n, "doc": doc, "target": "12", "resps": [texts], "filter": "none"}
            file.write(json.dumps({**line, "outcomes": [0] * TRIALS}) + "\n")
    return path


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    path = os.pathsep.join(filter(None, [str(REPO), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, *COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", **environment},
    )


def verify(*arguments: str, code: int = 0, **environment: str) -> tuple[str, str]:
    child = start(*arguments, **environment)
    printed, told = child.communicate(timeout=1500)
    assert child.returncode == code, told[-3000:]
    return printed, told


def read(path: Path) -> tuple[dict[str, Any], dict[tuple[int, int], dict[str, Any]]]:
    header, *lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return header, {(line["doc_id"], line["trial"]): line for line in lines}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_samples(tmp_path_factory.mktemp("run") / "model")


@pytest.fixture(scope="module")
def whole(run: Path, smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The verdicts of one uninterrupted run, a prompt at a time."""
    out = tmp_path_factory.mktemp("whole") / "verdicts.jsonl"
    verify(
        *(str(run), "--verifier", str(smollm2), "--device", "cpu"),
        *("--batch-size", "1", "--max-length", "600", "--out", str(out)),
    )
    return out


def test_every_trial_is_judged_and_equal_ones_alike(run: Path, whole: Path, smollm2: Path) -> None:
    header, lines = read(whole)
    assert header["samples"] == run.name
    told = header["verifier"]
    assert (told["kind"], told["name"], told["dtype"]) == (
        "transformers",
        smollm2.resolve().name,
        "float32",
    )
    assert told["weights"].startswith("sha256:")
    assert list(told["labels"]) == ["A", "B", "C"]
    assert set(lines) == {(q, i) for q in range(QUESTIONS) for i in range(TRIALS)}
    for n in range(QUESTIONS):
        first, last = lines[n, 0], lines[n, TRIALS - 1]
        assert {**first, "trial": 0} == {**last, "trial": 0}  # but for the thoughts the same
        digest = hashlib.blake2b(
            json.dumps(
                [f"What is {n} + {12 - n}?", "12", ANSWERS[n % 4].strip()], separators=(",", ":")
            ).encode(),
            digest_size=16,
        ).hexdigest()
        assert first["text"] == f"blake2b-128:{digest}"
    assert len({line["text"] for line in lines.values()}) == QUESTIONS * (TRIALS - 1)
    for line in lines.values():
        assert line["a"] + line["b"] + line["c"] == pytest.approx(1, abs=1e-12)
    assert len({round(line["a"], 6) for line in lines.values()}) > 6


def test_the_verdicts_are_the_arithmetic_of_an_independent_forward_pass(
    whole: Path, smollm2: Path
) -> None:
    """softmax((s − b)/τ), with s and b from a plain forward pass, in float64 from the logits on.

    The prompt is the only thing that is taken from the package.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from lm_eval_bayes.rubric.verifier_prompt import VerifierInput, verifier_prompt

    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    model = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32).eval()

    def logits(case: VerifierInput) -> list[float]:
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": verifier_prompt(case)}],
            tokenize=False,
            add_generation_prompt=True,
        )
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")
        with torch.no_grad():
            last = model(**ids).logits[0, -1].double()
        found = []
        for label in "ABC":
            (token,) = tokenizer(label, add_special_tokens=False)["input_ids"]
            found.append(float(last[token]))
        return found

    header, lines = read(whole)
    nothing = logits(VerifierInput("N/A", "N/A", "N/A"))
    baseline = header["baseline"]
    for k in (1, 2):  # a log-probability is a logit less something that all labels share
        assert baseline[k] - baseline[0] == pytest.approx(nothing[k] - nothing[0], abs=1e-4)
    checked = 0
    for n in range(QUESTIONS):
        for i in range(TRIALS - 1):
            answer = ANSWERS[(n + i) % 4]
            if len(answer) > 1000:
                continue  # it was shortened, see below
            case = logits(VerifierInput(f"What is {n} + {12 - n}?", "12", answer))
            weights = [math.exp(s - b) for s, b in zip(case, nothing, strict=True)]
            expected = [weight / sum(weights) for weight in weights]
            line = lines[n, i]
            assert [line["a"], line["b"], line["c"]] == pytest.approx(expected, abs=1e-4)
            checked += 1
    assert checked == 6


@pytest.mark.by_hand
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "ctrl-c"])
def test_a_run_that_was_stopped_and_resumed_equals_one_that_was_not(
    run: Path, whole: Path, smollm2: Path, tmp_path: Path, how: signal.Signals
) -> None:
    out = tmp_path / "verdicts.jsonl"
    arguments = (
        *(str(run), "--verifier", str(smollm2), "--device", "cpu"),
        *("--batch-size", "1", "--max-length", "600", "--out", str(out)),
    )
    child = start(*arguments)

    def judges():
        assert child.poll() is None, "it ended before it could be stopped"
        return out.exists() and out.read_bytes().count(b"\n") >= 4

    try:
        wait_until(judges)
    finally:
        child.send_signal(how)
        _, told = child.communicate(timeout=600)
    if how == signal.SIGINT:
        assert child.returncode == 130
        assert "the verdicts so far are saved" in told
        assert told.endswith("stopped\n")
    else:
        assert child.returncode == -signal.SIGKILL
    kept = read(out)[1]
    assert 3 <= len(kept) < QUESTIONS * TRIALS
    if how == signal.SIGKILL:  # as if it had come in the middle of a line
        with out.open("ab") as file:
            file.write(b'{"doc_id": 3, "trial": 2, "te')

    printed, told = verify(*arguments)
    assert f"({len(kept)} judged before)" in printed
    (header, lines), (whole_header, whole_lines) = read(out), read(whole)
    assert header == whole_header
    assert lines == whole_lines

    if how == signal.SIGINT:
        return
    printed, told = verify(*arguments)
    assert "to be judged: 0 different answers" in told
    assert "Loading weights" not in told
