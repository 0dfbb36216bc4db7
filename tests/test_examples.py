"""Every example runs."""

from __future__ import annotations

import json
import math
import re
import runpy
import subprocess
import sys

import pytest
import yaml
from _support.harness_command import lm_eval_command
from _support.paths import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
#: Simulations that take more than five seconds.
SLOW = {
    "anytime_error_rates.py",
    "clusters.py",
    "evidence.py",
    "grading.py",
    "intervals_elsewhere.py",
    "majority_votes.py",
    "noise.py",
    "prior_evidence.py",
    "ray_workers.py",
    "reproduce_bowyer.py",
    "reproduce_paper.py",
    "reproduce_xiao.py",
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
    "noise.py": ("--short", "--runs", "5"),
    "intervals_elsewhere.py": ("--replicates", "2"),
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
        [sys.executable, *map(str, command)], capture_output=True, text=True, timeout=1800, **kwargs
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


def test_evidence_names_every_script_and_pages_show_every_picture():
    docs = EXAMPLES / "docs"
    texts = {page.name: page.read_text(encoding="utf-8") for page in docs.glob("*.md")}
    scripts = {path.name for path in EXAMPLES.glob("*.py")} - {"make_docs.py"}
    assert set(re.findall(r"\b(\w+\.py)\b", texts["evidence.md"])) == scripts
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"pictures/([^)]+)\)", "".join([readme, *texts.values()])))
    assert shown == {path.name for path in (docs / "pictures").iterdir()}


def test_the_yamls_with_metrics_and_aggregations_agree_with_the_class(tmp_path, capsys):
    folder, options = EXAMPLES / "your_own_yaml", {}
    names = ["products", "products_bayes", "products_metric", "products_interval"]
    for path in (*folder.glob("*.yaml"), *folder.glob("aggregations/*.yaml")):
        config = yaml.safe_load(path.read_text().replace("!function", ""))
        options[config["task"]] = config["metric_list"][0] if "metric_list" in config else {}
    assert set(names) < set(options)
    lm_eval_command(
        *("--model", "trials", "--log_samples", "--output_path", tmp_path / "out"),
        *("--model_args", f"backend=biased_coin,p=0.7,boxed=0,store={tmp_path / 'a.sqlite'}"),
        *("--include_path", folder, "--tasks", ",".join(options)),
    )
    capsys.readouterr()
    (path,) = tmp_path.rglob("results_*.json")
    saved = json.loads(path.read_text())
    results = saved["results"]
    (path,) = tmp_path.rglob("samples_products_metric_*.jsonl")
    samples = [json.loads(line) for line in path.read_text().splitlines()]
    right = [sum(sample["outcomes"]) for sample in samples]
    assert 60 < sum(right) < 160
    # the tasks have the same prompts, so the store gives them the same trials
    metric, of_class = results["products_metric"], results["products_bayes"]
    for row in ("bayes@16", "avg@16", "pass@16", "bayes@16_low", "hbayes@16"):
        key = f"{row},last-number"
        assert metric[key] == pytest.approx(of_class[key], abs=1e-12)
    rows, of_class = (saved["posterior"][f"products_{name}"] for name in ("metric", "bayes"))
    assert "pass@2" not in rows["last-number"]
    assert rows["last-number"]["mg-pass@4"] == of_class["last-number"]["mg-pass@4"]
    plain = results["products"]["exact_match,last-number"]
    assert metric["exact_match,last-number"] == plain == sum(s["outcomes"][0] for s in samples) / 10
    low, high = (
        results["products_interval"][f"bayes@16_{end},last-number"] for end in ("low", "high")
    )
    assert metric["bayes@16_low,last-number"] < low < high < metric["bayes@16_high,last-number"]
    assert 0 < results["products_rubric"]["rubric_format_aware@16,last-number"] < 1

    def chance(k, count):
        """Mean over questions of a function of the right ones among k of the 16 trials."""
        weights = [
            [math.comb(c, j) * math.comb(16 - c, k - j) * count(j) for j in range(k + 1)]
            for c in right
        ]
        return sum(map(sum, weights)) / math.comb(16, k) / len(right)

    expected = {
        "avg_at_n": sum(right) / 160,
        "pass_at_k": chance(4, lambda j: j >= 1),
        "pass_hat_k": chance(4, lambda j: j == 4),
        "g_pass_at_k": chance(4, lambda j: j >= 3),
        "mg_pass_at_k": chance(4, lambda j: max(j - 2, 0) / 2),
    }
    aggregated = {name: entry.get("aggregation") for name, entry in options.items()}
    found = {
        aggregation: results[name]["exact_match,last-number"]
        for name, aggregation in aggregated.items()
        if options[name].get("metric") == "exact_match" and aggregation != "mean"
    }
    assert found == pytest.approx({**found, **expected})
    assert set(found) == {"bayes", "maj_at_k", *expected}
    # a vote is right more often than one trial; under a learned prior the mean moves little
    assert found["maj_at_k"] > found["avg_at_n"]
    assert abs(found["bayes"] - found["avg_at_n"]) < 0.03
    sd = results["products_posterior"]["exact_match_stderr,last-number"]
    assert sd > results["products_avg_at_n"]["exact_match_stderr,last-number"] / 2
