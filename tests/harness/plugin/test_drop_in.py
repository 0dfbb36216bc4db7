"""`- metric: bayes` in a YAML that keeps the harness's own task class."""

from __future__ import annotations

import pytest
from _support.errors import refused
from _support.toy import SCRIPT, ScriptedLM, all_rows, evaluate, toy_config
from lm_eval.api.task import ConfigurableTask

from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.harness.plugin import bayes_metric as metrics
from lm_eval_bayes.harness.plugin import wrappers
from lm_eval_bayes.harness.task import pipelines

pytestmark = pytest.mark.filterwarnings("default")


def filters(function):
    return [{"name": "none", "filter": [{"function": function}]}]


@pytest.fixture(autouse=True)
def _installed():
    wrappers.install()
    assert pipelines.KeepAllFilter
    assert metrics.bayes


def bayes_config(options=None, **changes):
    metric = {"metric": "bayes", "aggregation": "bayes", "higher_is_better": True}
    metric["interval"] = "normal"
    bayes = {"metric_list": [{**metric, **(options or {})}], "filter_list": filters("keep_all")}
    return toy_config(**{**bayes, **changes})


def test_it_gives_the_same_rows_as_the_class():
    results = evaluate(ScriptedLM(SCRIPT), ConfigurableTask(config=bayes_config()))
    row = all_rows(results)
    assert row["bayes@4,none"] == pytest.approx((4 / 6 + 2 / 6 + 1 / 6) / 3)
    assert row["bayes@4_stderr,none"] > 0
    assert row["pass@2,none"] == pytest.approx(0.5)
    assert row["maj@4,none"] == pytest.approx(1 / 3)
    assert results["higher_is_better"]["toy"]["pass@4"] is True
    assert results["higher_is_better"]["toy"]["grading_error_share"] is False


def test_its_options_are_the_settings_and_the_graders():
    options = {"k": [3], "interval": "normal", "grader": "math", "maj_k": 2}
    script = {**SCRIPT, "1 + 1 =": [r"\boxed{2}", "so it is 2", r"\boxed{3}", r"\boxed{2.0}"]}
    results = evaluate(ScriptedLM(script), ConfigurableTask(config=bayes_config(options)))
    row = all_rows(results)
    assert {"pass@3,none", "maj@2,none"} <= set(row)
    assert row["avg@4,none"] >= 3 / 12


def test_sampling_settings_are_checked_before_sampling():
    model = ScriptedLM(SCRIPT)
    with pytest.raises(TaskConfigError):
        evaluate(model, ConfigurableTask(config=bayes_config()), gen_kwargs="temperature=0.0")
    assert not model.requests


@pytest.mark.parametrize(
    ("config", "argument", "rule"),
    [
        ({"filter_list": filters("majority_vote")}, "filter_list", "unsupported"),
        ({"unsafe_code": True}, "metric_list", "missing"),
        ({"process_results": lambda *_: {"bayes": 1}}, "process_results", "conflict"),
        ({"doc_to_target": lambda doc: [doc["answer"]]}, "doc_to_target", "unsupported"),
        ({"options": {"levle": 0.9}}, "bayes", "unknown-key"),
        ({"options": {"grader": "judge"}}, "grader", "choice"),
        ({"options": {"aggregation": "mean"}}, "aggregation", "choice"),
    ],
)
def test_a_trap_ends_in_a_clear_error_when_the_task_loads(config, argument, rule):
    with refused(argument, rule, error=TaskConfigError):
        ConfigurableTask(config=bayes_config(**config))
    with refused("bayes_k", "range", 9):
        ConfigurableTask(config=bayes_config(options={"k": 9}))


def test_the_task_s_own_filter_and_metric_grade_every_response(caplog):
    steps = [{"function": "regex", "regex_pattern": r"is (\S+)"}, {"function": "take_first"}]
    exact_match = {
        "metric": "exact_match",
        "aggregation": "mean",
        "higher_is_better": True,
        "regexes_to_ignore": [","],
    }
    metric_list = [exact_match, bayes_config()["metric_list"][0]]
    script = {
        "1 + 1 =": ["it is 2", "it is ,2", "it is 3", "well"],
        "2 + 2 =": ["it is 5", "so it is 5", "it is 4", "well"],
        "3 + 3 =": ["it is 1,0", "is 10", "it is 6", "it is 6"],
    }
    filters = [{"name": "f", "filter": steps}]
    task = ConfigurableTask(config=bayes_config(metric_list=metric_list, filter_list=filters))
    row = all_rows(evaluate(ScriptedLM(script), task))
    assert row["avg@4,f"] == pytest.approx((2 + 1 + 2) / 12)
    assert row["maj@4,f"] == pytest.approx((1 + 0 + 0.5) / 3)  # "well" abstains; 1,0 is 10
    assert "exact_match,f" not in row
    assert "graded 0" not in caplog.text


def test_all_zero_is_warned_of_with_its_cause(caplog):
    script = {prompt: ["The answer is 2.", "So it is 4."] for prompt in SCRIPT}
    evaluate(ScriptedLM(script), ConfigurableTask(config=bayes_config()))
    assert (
        "task toy, filter none: all 12 trials are graded 0; no filter extracts the answer, and "
        "exact_match compares all of a response, such as 'The answer is 2.'" in caplog.text
    )


def test_one_response_never_becomes_a_silent_bayes_at_1():
    with refused("predictions", "type", "2", error=TaskConfigError):
        metrics.bayes(references=["2"], predictions=["2"], task_grading=None)


def test_the_aggregation_without_the_metric_is_refused_before_sampling():
    metric = {"metric": "exact_match", "aggregation": "bayes", "higher_is_better": True}
    with refused("aggregation", "conflict", "exact_match", error=TaskConfigError):
        ConfigurableTask(config=toy_config(metric_list=[metric]))


def test_a_lone_surrogate_is_logged():
    script = {**SCRIPT, "1 + 1 =": ["2", "\udc80", "2", "2"]}
    results = evaluate(ScriptedLM(script), ConfigurableTask(config=bayes_config()))
    assert results["samples"]["toy"][0]["resps"] == [["2", "?", "2", "2"]]
