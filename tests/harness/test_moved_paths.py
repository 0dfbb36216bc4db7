"""Paths that YAML files of earlier releases name: all work, each warns once, in a real run too."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys

import pytest

import lm_eval_bayes.tasks
from lm_eval_bayes import harness

OLD_PATHS = {
    f"{module}.{name}": target
    for module, attributes in harness.MOVED.items()
    for name, target in attributes.items()
}

#: What README, examples and task files named before the move.
DOCUMENTED = {
    "lm_eval_bayes.harness.tasks.RepeatedSamplingTask",
    "lm_eval_bayes.harness.rubrics.task.RubricTask",
    "lm_eval_bayes.harness.grading.process_results_aime",
    "lm_eval_bayes.harness.grading.process_results_math",
    "lm_eval_bayes.harness.demo.load",
    "lm_eval_bayes.harness.rows.HBAYES_AT_N",
    "lm_eval_bayes.harness.rows.BAYES_AT_N",
    "lm_eval_bayes.harness.rows.AVG_AT_N",
}

YAML = """
task: old_demo
class: !function lm_eval_bayes.harness.tasks.RepeatedSamplingTask
custom_dataset: !function lm_eval_bayes.harness.demo.load
test_split: test
output_type: generate_until
doc_to_text: "{{problem}}"
doc_to_target: "{{answer}}"
process_results: !function lm_eval_bayes.harness.grading.process_results_math
metric_list: [{metric: exact_match}]
generation_kwargs: {do_sample: true, temperature: 1.0, until: []}
repeats: 3
"""

GROUP = """
group: old_group
task: [old_demo]
aggregate_metric_list:
  - {metric: !function lm_eval_bayes.harness.rows.BAYES_AT_N, weight_by_size: false}
"""


@pytest.fixture(autouse=True)
def _nothing_warned_yet(monkeypatch):
    monkeypatch.setattr(harness, "_warned", set())


def resolve(path):
    """Resolve a path as `!function` does."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def test_every_documented_path_is_there():
    assert set(OLD_PATHS) == DOCUMENTED


@pytest.mark.parametrize("old", sorted(OLD_PATHS))
def test_an_old_path_is_the_same_object_and_warns_once(old):
    with pytest.warns(FutureWarning, match=f"{old} has moved: write {OLD_PATHS[old]}"):
        resolved = resolve(old)
    assert resolve(old) is resolved  # a second warning would be an error
    assert resolved is getattr(lm_eval_bayes.tasks, OLD_PATHS[old].rpartition(".")[2])


@pytest.mark.parametrize("module", sorted(harness.MOVED))
def test_a_name_that_never_was_is_an_attribute_error(module):
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'nothing'"):
        resolve(f"{module}.nothing")


@pytest.mark.slow
def test_a_run_of_old_yaml_files_gives_the_rows_and_each_warning_once(tmp_path):
    (tmp_path / "old.yaml").write_text(YAML)
    (tmp_path / "group.yaml").write_text(GROUP)
    command = (
        *("-m", "lm_eval", "run", "--model", "biased_coin", "--model_args", "p=0.5", "--tasks"),
        *("old_group", "--include_path", str(tmp_path), "--limit", "2"),
        *("--output_path", str(tmp_path / "out")),
    )
    run = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    (results,) = (tmp_path / "out").rglob("results_*.json")
    rows = json.loads(results.read_text())
    assert {"bayes@3,none", "hbayes@3,none", "pass@2,none"} <= set(rows["results"]["old_demo"])
    assert rows["groups"]["old_group"]["bayes@3,none"] == pytest.approx(
        rows["results"]["old_demo"]["bayes@3,none"]
    )
    for old in (
        "lm_eval_bayes.harness.tasks.RepeatedSamplingTask",
        "lm_eval_bayes.harness.demo.load",
        "lm_eval_bayes.harness.grading.process_results_math",
        "lm_eval_bayes.harness.rows.BAYES_AT_N",
    ):
        assert run.stderr.count(f"{old} has moved") == 1, run.stderr
