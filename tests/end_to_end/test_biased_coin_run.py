"""The default run, from the command line to the printed interval, against the known truth."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from pathlib import Path
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


def test_rows_stand_in_their_order(default_run: Any) -> None:
    n = default_run.trials(TASK)
    ks = [k for k in (1, 2, 4, 8, 16) if k <= n]
    several = ks[1:]
    posteriors = [f"hbayes@{n}", f"hbayes@{n}_population", f"bayes@{n}"]
    family = (
        [f"pass@{k}" for k in ks]
        + [f"pass^{k}" for k in several]
        + [f"g-pass@{k}_0.5" for k in several]
        + [f"mg-pass@{k}" for k in several]
        + ["maj@8"]
    )
    assert [name for name in default_run.rows(TASK) if not name.endswith("_stderr")] == (
        [f"{name}{end}" for name in posteriors for end in ("", "_low", "_high")]
        + [f"avg@{n}"]
        + [f"{name}{end}" for name in family for end in ("", "_low", "_high")]
        + ["grading_errors"]
    )


def test_the_table_shows_the_posterior_sd_as_stderr(default_run: Any) -> None:
    rows, n = default_run.rows(TASK), default_run.trials(TASK)
    for name in (f"hbayes@{n}", f"bayes@{n}", f"avg@{n}"):
        cells = [[c.strip() for c in x.split("|")] for x in default_run.log.splitlines()]
        (line,) = [row for row in cells if name in row]
        assert f"{rows[name]:.4f}" in line
        assert f"{rows[f'{name}_stderr']:.4f}" in line


def test_the_log_holds_every_trial(default_run: Any) -> None:
    samples, n = default_run.samples(TASK), default_run.trials(TASK)
    assert len(samples) == 40
    for sample in samples:
        assert {len(sample[key]) for key in ("outcomes", "answers", "lengths")} == {n}
        assert sample["lengths"] == [len(text) for text in sample["resps"][0]]
        right = [answer == sample["doc"]["answer"] for answer in sample["answers"]]
        assert [bool(c) for c in sample["outcomes"]] == right


@pytest.mark.parametrize(("method", "n"), [("normal", 5), ("hdi", 6)], ids=["normal-N5", "hdi-N6"])
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


# -- the check itself: it must notice what is wrong -------------------------------------------


def spoiled(run: Any, folder: Path, change: Any) -> Any:
    """Copy a run and change the copy's rows."""
    shutil.copytree(run.folder, folder)
    (path,) = folder.rglob("results_*.json")
    results = json.loads(path.read_text(encoding="utf-8"))
    change(results["results"][TASK])
    path.write_text(json.dumps(results), encoding="utf-8")
    return dataclasses.replace(run, folder=folder)


def nudge(rows: dict[str, Any]) -> None:
    rows["mg-pass@4,none"] += 1e-7


def nudge_interval(rows: dict[str, Any]) -> None:
    rows["bayes@8_low,none"] -= 1e-4


def nudge_learned_interval(rows: dict[str, Any]) -> None:
    rows["hbayes@8_high,none"] += 1e-3


def drop(rows: dict[str, Any]) -> None:
    del rows["pass^2,none"]


def add(rows: dict[str, Any]) -> None:
    rows["pass@3,none"] = 0.5


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (nudge, "mg-pass@4,none: printed"),
        (nudge_interval, "bayes@8_low,none: printed"),
        (nudge_learned_interval, "hbayes@8_high,none: printed"),
        (drop, "pass^2,none: 'missing'"),
        (add, "unknown row pass@3,none"),
    ],
)
def test_the_check_notices(default_run: Any, tmp_path: Path, change: Any, named: str) -> None:
    done = spoiled(default_run, tmp_path / "copy", change).recompute()
    assert done.returncode == 1
    assert named in done.stderr
    assert "1 complaints" in done.stdout


def test_the_check_wants_something_to_check(default_run: Any, tmp_path: Path) -> None:
    done = dataclasses.replace(default_run, folder=tmp_path).recompute()
    assert done.returncode == 2
    assert "nothing to check" in done.stderr
