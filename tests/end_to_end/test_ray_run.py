"""A real language model in two Ray workers, with the harness's `hf` and with vLLM.

Both start a cluster of their own on this computer, or join the one of ``RAY_ADDRESS``. vLLM's runs
need the environment that `vllm_cpu_venv.py` makes, with ray.
"""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest
from _support.stored_trials import stored_trials

TASK = "demo_arithmetic_bayes"
QUESTIONS, TRIALS = 6, 4


def needs(*names: str) -> list[pytest.MarkDecorator]:
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    reason = f"needs {', '.join(missing)}"
    # by itself, as in tests/harness/models/ray/test_ray_processes.py
    return [pytest.mark.slow, pytest.mark.ray, pytest.mark.skipif(bool(missing), reason=reason)]


def sampled(
    run_harness: Any, smollm2: Path, store: Path, backend: str, *model_args: str
) -> tuple[Any, dict[Any, dict[str, Any]]]:
    """Run the harness on a store; return the run, checked, and the stored trials."""
    arguments = (f"backend={backend},store={store},pretrained={smollm2}", *model_args)
    run = run_harness(
        *("--model", "trials", "--model_args", ",".join(arguments), "--apply_chat_template"),
        *("--tasks", TASK, "--metadata", json.dumps({"bayes_n": TRIALS})),
        *("--limit", str(QUESTIONS), "--gen_kwargs", "max_gen_toks=24"),
        timeout=1800,
        RAY_ADDRESS=os.environ.get("RAY_ADDRESS", "local"),
        OMP_NUM_THREADS="1",
        VLLM_CPU_KVCACHE_SPACE="1",
        HF_HUB_OFFLINE="1",
    )
    run.check()
    return run, stored_trials(store)


WITHOUT_TEXT = ("text", "completion_tokens", "finish_reason", "stop_reason", "signals")


def seeds(trials: dict[Any, dict[str, Any]]) -> dict[Any, Any]:
    """Return what does not depend on rounding, by key and number."""
    return {
        identity: {name: value for name, value in trial.items() if name not in WITHOUT_TEXT}
        for identity, trial in trials.items()
    }


@pytest.mark.parametrize(
    ("backend", "model_args"),
    [
        pytest.param(
            *("hf", ("dtype=float32", "device=cpu", "batch_size=1")),
            marks=needs("ray", "torch", "transformers"),
            id="hf",
        ),
        pytest.param(
            *("vllm", ("dtype=bfloat16", "enforce_eager=True", "max_model_len=1024")),
            marks=needs("ray", "vllm"),
            id="vllm",
        ),
    ],
)
def test_two_workers_sample_the_trials_of_one_process(
    run_harness: Any, smollm2: Path, tmp_path: Path, backend: str, model_args: tuple[str, ...]
) -> None:
    _, one = sampled(run_harness, smollm2, tmp_path / "one.sqlite", backend, *model_args)
    run, two = sampled(
        *(run_harness, smollm2, tmp_path / "two.sqlite", backend),
        *(*model_args, "executor=ray", "workers=2"),
    )
    assert "worker 1 on " in run.log
    assert "worker 2 on " in run.log
    assert len(two) == QUESTIONS * TRIALS
    assert seeds(two) == seeds(one)
    same = sum(two[identity]["text"] == one[identity]["text"] for identity in one)
    print(f"{backend}: {same} of {len(one)} texts are the same")
    if backend == "hf":  # one trial at a time in float32: the same sums in the same order
        assert same == len(one)
    # every prompt is measured once, as in one process
    assert all("prompt_bpt" in sample["signals"] for sample in run.samples(TASK))

    again, stored = sampled(
        *(run_harness, smollm2, tmp_path / "two.sqlite", backend),
        *(*model_args, "executor=ray", "workers=2"),
    )
    assert stored == two
    assert "is ready" not in again.log
    assert again.rows(TASK) == run.rows(TASK)
