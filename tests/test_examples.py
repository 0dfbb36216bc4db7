"""Every example runs."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys

import pytest
from _support.harness_command import lm_eval_command
from _support.paths import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
#: Simulations that take more than five seconds.
SLOW = {
    "anytime_error_rates.py",
    "calibration.py",
    "clusters.py",
    "evidence.py",
    "grading.py",
    "intervals_elsewhere.py",
    "majority_votes.py",
    "noise.py",
    "prior_evidence.py",
    "ray_workers.py",
    "reproduce_paper.py",
    "sampling_slots.py",
    "scores.py",
    "shared_prior.py",
    "simultaneous_ranking.py",
    "stopping_error_rates.py",
    "store_sizes.py",
    "task_means.py",
    "trials_saved.py",
}
#: Smaller than by default, where that takes minutes.
ARGUMENTS = {
    "calibration.py": ("--runs", "5"),
    "noise.py": ("--short", "--runs", "5"),
    "sampling_slots.py": ("--trials", "8", "--median", "0.1"),
}
#: It starts a Ray cluster.
RAY = {"ray_workers.py"}


def marks(name):
    ray = [pytest.mark.ray] if name in RAY else []
    return ray + ([pytest.mark.slow] if name in SLOW else [])


SCRIPTS = [
    pytest.param(path, id=path.name, marks=marks(path.name))
    for path in sorted(EXAMPLES.glob("*.py"))
]


def run(*command, **kwargs):
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, timeout=900, **kwargs
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("script", SCRIPTS)
def test_script(script, tmp_path, monkeypatch, capsys):
    if script.name in SLOW:
        assert run(script, *ARGUMENTS.get(script.name, ()), cwd=tmp_path).strip()
        return
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.syspath_prepend(str(EXAMPLES))
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out.strip()


@pytest.mark.slow
@pytest.mark.parametrize("script", ["reproduce_paper.py", "calibration.py"])
def test_pictures_are_drawn_where_a_folder_is_given(script, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    few = ["--replicates", "50"] if script == "reproduce_paper.py" else ["--runs", "2"]
    run(EXAMPLES / script, *few, "--out", tmp_path / "here")
    pictures = list((tmp_path / "here").glob("*.png"))
    assert pictures
    for picture in pictures:
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.stat().st_size > 5_000


def test_the_yaml_with_the_class_and_the_one_with_the_metric_agree(tmp_path, capsys):
    lm_eval_command(
        *("--model", "biased_coin", "--model_args", "p=0.7,boxed=0"),
        *("--include_path", EXAMPLES / "your_own_yaml"),
        *("--tasks", "products_bayes,products_metric", "--output_path", tmp_path),
    )
    assert re.search(r"\|products_metric.*\|hbayes@16 ", capsys.readouterr().out)
    (path,) = tmp_path.rglob("results_*.json")
    results = json.loads(path.read_text())["posterior"]
    ours, metric = (results[f"products_{name}"]["last-number"] for name in ("bayes", "metric"))
    assert "pass@2" not in metric
    for row in ("bayes@16", "avg@16", "pass@16", "mg-pass@4", "bayes@16_low"):
        assert 0 <= metric[row] <= 1
        assert 0 <= ours[row] <= 1
