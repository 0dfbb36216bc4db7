"""The rows of this package's tasks in the table that the harness prints."""

from __future__ import annotations

import copy

import pytest
from _support.errors import refused
from _support.toy import SCRIPT, ScriptedLM, evaluate, toy_config
from lm_eval.api.task import ConfigurableTask
from lm_eval.utils import make_table

from lm_eval_bayes.harness.plugin import patches, registration
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask

pytestmark = pytest.mark.filterwarnings("default")


#: What the table reads.
KEYS = ("results", "configs", "versions", "n-shot", "higher_is_better")


@pytest.fixture(autouse=True, scope="module")
def _installed():
    registration.register_all()


def printed(results):
    """Return the rows of the printed table: name -> value and Stderr."""
    import lm_eval.utils

    lines = [line.split("|")[1:-1] for line in lm_eval.utils.make_table(results).splitlines()[2:]]
    cells = [[cell.strip() for cell in line] for line in lines if line]
    return {row[4]: (row[6], row[8]) for row in cells}


@pytest.fixture(scope="module")
def short():
    return evaluate(ScriptedLM(SCRIPT), RepeatedSamplingTask(config=toy_config()))


def choosing(results, rows):
    """Return results whose task prints these rows."""
    changed = copy.deepcopy({key: results[key] for key in KEYS})
    changed["configs"]["toy"]["metadata"]["bayes"]["rows"] = rows
    return changed


def test_the_table_of_a_run_is_short(short):
    rows = printed(short)
    assert list(rows) == [
        *("hbayes@4", "hbayes@4_low", "hbayes@4_high", "bayes@4", "avg@4"),
        *("pass@1", "pass@4", "hpass@4", "maj@4", "hmaj@4"),
    ]
    values = short["results"]["toy"]
    assert rows["bayes@4"] == (
        f"{values['bayes@4,none']:.4f}",
        f"{values['bayes@4_stderr,none']:.4f}",
    )
    # estimates of the saved trials stand without sd, posterior means with theirs
    assert rows["pass@4"] == (f"{values['pass@4,none']:.4f}", "")
    assert rows["hpass@4"] == (
        f"{values['hpass@4,none']:.4f}",
        f"{values['hpass@4_stderr,none']:.4f}",
    )
    assert rows["hbayes@4_low"] == (f"{values['hbayes@4_low,none']:.4f}", "")


def test_all_rows_come_in_the_order_of_the_results(short):
    results = choosing(short, "all")
    keys = [key.partition(",")[0] for key in results["results"]["toy"] if "," in key]
    assert list(printed(results)) == [key for key in keys if not key.endswith("_stderr")]


def test_the_number_of_rows_that_are_not_printed(short, caplog):
    caplog.set_level("INFO")
    results = choosing(short, "all")
    # a hash, as a task with rubrics records it
    results["results"]["toy"]["rubric_thresholds,none"] = "0123456789abcdef"
    n_rows = len(printed(results))
    assert "more row" not in caplog.text
    n_hidden = n_rows - len(printed(short))
    assert f"{n_hidden} more rows are in the results" in caplog.text


def test_rows_are_chosen_by_pattern(short):
    config = toy_config(metadata={"bayes_rows": "hmaj@*"})
    results = evaluate(ScriptedLM(SCRIPT), RepeatedSamplingTask(config=config))
    assert list(printed(results)) == ["hmaj@4", "hmaj@4_low", "hmaj@4_high"]
    assert list(printed(choosing(short, ["pass@?", "hbayes@4"]))) == [
        *("pass@1", "pass@2", "pass@4"),
        "hbayes@4",
    ]


@pytest.mark.parametrize(
    ("rows", "rule"),
    [("some", "choice"), (["hbayes@8"], "choice"), ([], "format"), ([3], "format")],
)
def test_rows_that_do_not_exist_are_refused_before_sampling(rows, rule):
    with refused("bayes_rows", rule):
        RepeatedSamplingTask(config=toy_config(metadata={"bayes_rows": rows}))


def test_grading_errors_are_shown_where_there_are_any(short):
    results = choosing(short, "short")
    results["results"]["toy"]["grading_errors,none"] = 2.0
    assert printed(results)["grading_errors"] == ("2.0000", "")


def test_the_metric_form_has_its_own_rows_beside_the_others():
    metric = {"metric": "bayes", "aggregation": "bayes", "higher_is_better": True}
    keep = [{"name": "none", "filter": [{"function": "keep_all"}]}]
    config = toy_config(
        metric_list=[{**metric, "rows": ["avg@4"], "interval": "normal"}], filter_list=keep
    )
    results = evaluate(ScriptedLM(SCRIPT), ConfigurableTask(config=config))
    assert list(printed(results)) == ["avg@4"]
    results["results"]["toy"]["exact_match,none"] = 0.25
    assert list(printed(results)) == ["avg@4", "exact_match"]


def test_other_tables_are_not_changed():
    results = {
        "results": {"other": {"alias": "other", "b@2,none": 0.5, "a,none": "text"}},
        "versions": {"other": 1},
        "n-shot": {"other": 0},
    }
    original = patches.original(patches.MAKE_TABLE)
    assert make_table(results) == original(results)
    assert list(results["results"]["other"]) == ["alias", "b@2,none", "a,none"]
