"""The default run, from the command line to the printed interval, against the known truth."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

pytestmark = pytest.mark.slow

TASK = "demo_arithmetic_bayes"


@pytest.fixture(scope="module")
def default_run(run_harness: Any) -> Any:
    return run_harness("--model", "biased_coin", "--model_args", "p=0.6", "--tasks", TASK)


def test_every_row_equals_its_recomputation(default_run: Any) -> None:
    default_run.check()


def test_interval_and_truth(default_run: Any) -> None:
    rows, n = default_run.rows(TASK), default_run.trials(TASK)
    truth = default_run.results["config"]["biased_coin"]["true_score"][TASK]
    assert truth == 0.6
    assert rows[f"bayes@{n}_low"] < truth < rows[f"bayes@{n}_high"]
    # 40 questions, each n tosses of a coin of .6: the frequency's own sd
    assert abs(rows[f"avg@{n}"] - truth) < 4 * math.sqrt(0.24 / (40 * n))


@pytest.mark.parametrize(
    ("method", "n"), [("normal", 5), ("beta", 6)], ids=["normal-N5", "beta-N6"]
)
def test_other_settings(run_harness: Any, method: str, n: int) -> None:
    metadata = {
        "bayes_n": n,
        "bayes_k": [1, 2, 3, n],
        "bayes_tau": 0.28,
        "bayes_maj_k": 3,
        "bayes_interval": method,
        "bayes_level": 0.9,
    }
    run = run_harness(
        *("--model", "biased_coin", "--model_args", "beta=0.3:1.2,seed=7,boxed=0.7"),
        *("--tasks", TASK, "--limit", "12", "--metadata", json.dumps(metadata)),
    )
    run.check()
    rows = run.rows(TASK)
    assert {f"bayes@{n}", f"g-pass@{n}_0.28", f"mg-pass@{n}", "maj@3", f"pass^{n}"} <= set(rows)
