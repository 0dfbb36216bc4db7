"""Reports of swebench 5.0.2, which `data/swe_bench/make.py` made.

The outcomes are the letters in `make.py`; `resolved_instances` is what SWE-bench itself counted.
"""

import json

import pytest
from _support.errors import refused
from _support.tool_logs import DATA, content_of, outcomes_of, written

from lm_eval_bayes.runs.reader import read_runs

REPORTS = DATA / "swe_bench"
WEAK = [REPORTS / f"org__weak-1.5.run_{n}.json" for n in (1, 2, 3)]
STRONG = [REPORTS / f"org__strong.run_{n}.json" for n in (1, 2, 3)]

IDS = ("django__django-1", "django__django-2", "sympy__sympy-3", "sympy__sympy-4")
OUTCOMES = {
    "org/weak-1.5": ([1, 1, 1], [0, 0, 0], [0, 0, 1], [0, 1, 0]),
    "org/strong": ([1, 1, 1], [1, 1, 1], [0, 0, 1], [1, 0, 1]),
}
OUTCOMES = {model: dict(zip(IDS, rows, strict=True)) for model, rows in OUTCOMES.items()}


@pytest.fixture
def content():
    return content_of(WEAK[0])


def test_the_outcomes_were_counted_by_hand():
    assert outcomes_of(REPORTS) == OUTCOMES


@pytest.mark.parametrize("report", [*WEAK, *STRONG], ids=lambda report: report.stem)
def test_as_many_are_resolved_as_the_tool_says(report):
    content = content_of(report)
    (run,) = read_runs([report]).runs
    assert run.outcomes.counts[:, 1].sum() == content["resolved_instances"]
    assert run.n_trials == content["submitted_instances"]
    assert (run.task, run.metric) == ("swe-bench", "resolved")


def test_the_repository_is_the_cluster():
    (run,) = read_runs(WEAK, cluster="repo").runs
    assert run.clusters == ("django__django", "django__django", "sympy__sympy", "sympy__sympy")


def test_the_query_names_task_and_metric():
    assert read_runs(WEAK, task="verified").tasks == ("verified",)
    assert read_runs(WEAK, metric="resolved").runs[0].n_trials == 12


def test_reports_of_other_names_are_read(tmp_path, content):
    (tmp_path / "my-agent").mkdir()
    report = tmp_path / "my-agent" / "results.json"
    report.write_text(json.dumps(content))
    assert read_runs([report]).models == ("my-agent",)


def test_an_instance_is_listed_once(tmp_path, content):
    content["unresolved_ids"].append("django__django-1")
    report = written(tmp_path, content, "a.run.json")
    with refused("RUN", "duplicate"):
        read_runs([report])


@pytest.mark.parametrize("key", ["resolved_ids", "unresolved_ids", "error_ids"])
@pytest.mark.parametrize("without", ["submitted_instances", "submitted_ids"])
def test_instances_that_were_not_submitted_are_refused(tmp_path, content, key, without):
    content[key].append("flask__flask-9")
    del content[without]
    report = written(tmp_path, content, "a.run.json")
    with refused("RUN", "mismatch", 5):
        read_runs([report])


def test_submitted_instances_that_are_not_listed_are_refused(tmp_path, content):
    """Only the resolved ones would count: the rate would be 1."""
    resolved = {"resolved_ids": content["resolved_ids"]}
    report = written(tmp_path, {"submitted_instances": 4, **resolved}, "a.run.json")
    with refused("RUN", "mismatch", 1):
        read_runs([report])
    with refused("RUN", "missing"):
        read_runs([written(tmp_path, {"total_instances": 4, **resolved}, "a.run.json")])


def test_results_of_the_repository_of_experiments_count_where_they_list_all(tmp_path):
    folder = tmp_path / "verified" / "20240620_agent" / "results"
    folder.mkdir(parents=True)
    content = {"no_generation": ["a__b-1"], "no_logs": [], "resolved": ["a__b-2", "a__b-3"]}
    with refused("RUN", "missing"):
        read_runs([written(folder, content)])
    written(folder, content | {"generated": ["a__b-2", "a__b-3", "a__b-4"]})
    expected = {"a__b-1": [0], "a__b-2": [1], "a__b-3": [1], "a__b-4": [0]}
    assert outcomes_of(tmp_path) == {"20240620_agent": expected}
