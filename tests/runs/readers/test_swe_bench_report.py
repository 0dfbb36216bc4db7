"""Reports of swebench 5.0.2, which `data/swe_bench/make.py` made.

The outcomes are the letters in `make.py`; `resolved_instances` is what SWE-bench itself counted.
"""

import json
import shutil

import pytest
from _support.tool_logs import (
    DATA,
    all_commands,
    nested,
    outcomes_of,
    same_as_table,
    summary,
)

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.readers.formats import recognise

REPORTS = DATA / "swe_bench"
LOGS = REPORTS / "logs"
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
    return json.loads(WEAK[0].read_text())


def test_the_numbers_are_those_of_a_table(tmp_path):
    same_as_table(tmp_path, OUTCOMES, *WEAK, *STRONG)
    assert outcomes_of(REPORTS) == OUTCOMES


@pytest.mark.parametrize("report", [*WEAK, *STRONG], ids=lambda report: report.stem)
def test_as_many_are_resolved_as_the_tool_says(report):
    content = json.loads(report.read_text())
    (run,) = read_runs([report]).runs
    assert run.outcomes.counts[:, 1].sum() == content["resolved_instances"]
    assert run.n_trials == content["submitted_instances"]
    assert (run.task, run.metric) == ("swe-bench", "resolved")


def test_every_command_reads_reports(tmp_path):
    for model, reports in (("a", WEAK), ("b", STRONG)):
        (tmp_path / model).mkdir()
        for report in reports:
            shutil.copy(report, tmp_path / model)
    all_commands(tmp_path, tmp_path / "a", tmp_path / "b")
    assert recognise(tmp_path / "a")[0].name == "SWE-bench"


def test_what_counts_as_wrong_is_told():
    _, said = summary(*WEAK)
    assert "1 trial without a graded patch counted as wrong, as in SWE-bench's own rate" in said
    assert "(1 error)" in said
    assert "(1 empty patch)" in said
    assert "1 instance that the run did not submit left out" in said


def test_reports_of_instances_are_read_where_there_is_none_of_the_run():
    first = {m: {id: row[:1] for id, row in rows.items()} for m, rows in OUTCOMES.items()}
    assert outcomes_of(LOGS) == first
    one = LOGS / "run_evaluation" / "run_1" / "org__strong" / "sympy__sympy-4" / "report.json"
    assert outcomes_of(one) == {"org/strong": {"sympy__sympy-4": [1]}}
    # the report of the run and those of its instances are the same trials
    with pytest.raises(InvalidInputError, match="4 of 4 trials"):
        read_runs([STRONG[0], LOGS / "run_evaluation" / "run_1" / "org__strong"])
    assert read_runs([REPORTS]).runs[0].n_trials == 12


def test_a_report_that_is_given_twice_is_refused(tmp_path):
    copy = shutil.copy(WEAK[0], tmp_path)
    with pytest.raises(InvalidInputError, match="4 of 4 trials"):
        read_runs([WEAK[0], copy])
    assert read_runs([WEAK[0], copy], dedupe=True).runs[0].n_trials == 4


def test_the_repository_is_the_cluster():
    (run,) = read_runs(WEAK, cluster="repo").runs
    assert run.clusters == ("django__django", "django__django", "sympy__sympy", "sympy__sympy")
    with pytest.raises(InvalidInputError, match="cluster"):
        read_runs(WEAK, cluster="difficulty")


def test_the_query_names_task_and_metric():
    assert read_runs(WEAK, task="verified").tasks == ("verified",)
    assert read_runs(WEAK, metric="resolved").runs[0].n_trials == 12
    with pytest.raises(InvalidInputError, match="be resolved"):
        read_runs(WEAK, metric="accuracy")


def test_reports_of_other_names_are_read(tmp_path, content):
    (tmp_path / "my-agent").mkdir()
    report = tmp_path / "my-agent" / "results.json"
    report.write_text(json.dumps(content))
    assert read_runs([report]).models == ("my-agent",)


def test_an_instance_is_listed_once(tmp_path, content):
    content["unresolved_ids"].append("django__django-1")
    report = tmp_path / "a.run.json"
    report.write_text(json.dumps(content))
    with pytest.raises(InvalidInputError, match="django__django-1 resolved and unresolved"):
        read_runs([report])


@pytest.mark.parametrize("key", ["resolved_ids", "unresolved_ids", "error_ids"])
@pytest.mark.parametrize(
    ("without", "got"),
    [("submitted_instances", "'flask__flask-9'"), ("submitted_ids", "5")],
)
def test_instances_that_were_not_submitted_are_refused(tmp_path, content, key, without, got):
    content[key].append("flask__flask-9")
    del content[without]
    report = tmp_path / "a.run.json"
    report.write_text(json.dumps(content))
    with pytest.raises(InvalidInputError) as refused:
        read_runs([report])
    assert str(refused.value).startswith("`RUN` must")
    assert str(refused.value).endswith(f"got {got}")


def test_submitted_instances_that_are_not_listed_are_refused(tmp_path, content):
    """Only the resolved ones would count: the rate would be 1."""
    n_resolved = len(content["resolved_ids"])
    kept = {key: content[key] for key in ("submitted_instances", "resolved_ids")}
    report = tmp_path / "a.run.json"
    report.write_text(json.dumps(kept))
    with pytest.raises(InvalidInputError) as refused:
        read_runs([report])
    assert str(refused.value).endswith(f"got {n_resolved}")


def test_deep_nesting_is_refused(tmp_path):
    report = tmp_path / "a.run.json"
    report.write_text('{"total_instances": 1, "resolved_ids": ' + nested() + "}")
    with pytest.raises(InvalidInputError, match="nested hundreds deep"):
        read_runs([report])
