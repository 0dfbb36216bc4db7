"""A real language model through the harness's own `hf` backend."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

TASK = "demo_arithmetic_bayes"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("torch", "transformers")),
        reason="needs lm-eval[hf] and torch",
    ),
]


def test_smollm2_on_the_demo_task(run_harness: Any, smollm2: Path) -> None:
    run = run_harness(
        *("--model", "hf", "--model_args", f"pretrained={smollm2},dtype=bfloat16"),
        *("--device", "cpu", "--batch_size", "40", "--apply_chat_template"),
        *("--tasks", TASK, "--metadata", json.dumps({"bayes_n": 4})),
        *("--gen_kwargs", "max_gen_toks=48"),
        timeout=1800,
        HF_HUB_OFFLINE="1",
    )
    run.check()
    samples = run.samples(TASK)
    assert len(samples) == 40
    texts = [sample["resps"][0] for sample in samples]
    assert {len(t) for t in texts} == {4}
    # a small model at temperature .6 repeats itself now and then, but not everywhere
    assert sum(len(set(t)) > 1 for t in texts) > 20
    rows = run.rows(TASK)
    assert 0 < rows["avg@4"] < 1
    assert rows["bayes@4_low"] < rows["bayes@4"] < rows["bayes@4_high"]
    assert rows["pass@1"] < rows["pass@4"]
