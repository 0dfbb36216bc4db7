"""A task that cannot give honest trials ends in one sentence when it is built."""

from __future__ import annotations

import datasets
import pytest
from _support.toy import toy_config

from lm_eval_bayes.errors import DatasetUnavailableError, InvalidInputError, TaskConfigError
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask

pytestmark = pytest.mark.filterwarnings("default")


def unreachable(**kwargs):
    raise ConnectionError("Couldn't reach the Hub")


def raising(*args):
    raise RuntimeError("no grader here")


def filters(*steps, name="f"):
    return {"filter_list": [{"name": name, "filter": list(steps)}]}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            filters({"function": "regex", "regex_pattern": "(("}),
            TaskConfigError,
            r"filter pipeline `f` fails on the first question's own answer .*bayes_check: false",
        ),
        (
            filters({"function": "custom", "filter_fn": lambda resps, docs: None}),
            TaskConfigError,
            r"filter pipeline `f` fails",
        ),
        (
            filters({"function": "nope"}),
            TaskConfigError,
            r"cannot build it from its YAML \(KeyError: .*nope",
        ),
        ({"filter_list": ["x"]}, TaskConfigError, r"`filter_list` must be a list of pipelines"),
        ({"filter_list": [{"name": "a"}]}, TaskConfigError, r"`filter_list` must be a list"),
        (filters("take_first"), TaskConfigError, r"`filter_list` must be .* got .*take_first"),
        (filters(name=3), TaskConfigError, r"`filter_list` must be a list of pipelines"),
        (
            {"process_results": raising},
            TaskConfigError,
            r"grading fails on the first question's own answer \(RuntimeError: no grader here\)",
        ),
        (
            {"process_results": lambda doc: {}},
            TaskConfigError,
            r"grading fails on the first question's own answer \(TypeError",
        ),
        (
            {"process_results": lambda doc, results: None},
            TaskConfigError,
            r"`process_results` must return a dictionary of metrics; got None",
        ),
        (
            {"custom_dataset": lambda **_: 1 / 0},
            DatasetUnavailableError,
            r"its `custom_dataset` function fails \(ZeroDivisionError",
        ),
        ({"metric_list": []}, TaskConfigError, r"one of the task's metrics \(there is none\)"),
        (
            {"metric_list": [{"metric": "exact_mach", "aggregation": "mean"}]},
            TaskConfigError,
            r"the harness has no metric `exact_mach`",
        ),
        (
            {"metric_list": [{"metric": "exact_mach"}]},
            TaskConfigError,
            r"cannot build it from its YAML \(KeyError",
        ),
        (
            {"metadata": {"bayes_metric": ["exact_match", "exact_match"]}},
            InvalidInputError,
            r"`bayes_metric` must be the name of a metric, a list of different ones, or all; got",
        ),
        ({"doc_to_text": "{{ question"}, TaskConfigError, r"cannot build it .*TemplateSyntaxError"),
        ({"no_such_key": 1}, TaskConfigError, r"cannot build it .*no_such_key"),
        ({"generation_kwargs": "abc"}, TaskConfigError, r"cannot build it from its YAML"),
        ({"process_docs": raising}, TaskConfigError, r"cannot build it .*no grader here"),
        (
            {"doc_to_target": lambda doc: doc["gold"]},
            DatasetUnavailableError,
            r"the first one has none called 'gold'",
        ),
        (
            {"process_docs": lambda docs: docs.select([])},
            DatasetUnavailableError,
            r"at least one question after `process_docs`",
        ),
        ({"metadata": {"bayes_n": 0}}, InvalidInputError, r"`bayes_n` must"),
        (
            {"metadata": {"bayes_extra_trials": {"3": 1}}},
            InvalidInputError,
            r"`bayes_extra_trials` must name questions of task toy, 0 to 2; got 3",
        ),
        ({"metadata": {"bayes_m": 1}}, TaskConfigError, r"no setting `bayes_m`"),
        ({"metadata": {"bayes_weights": [0, 1, 2]}}, InvalidInputError, r"have 2 entries"),
        ({"metadata": {"bayes_metric": "f1"}}, TaskConfigError, r"`bayes_metric` must be one of"),
        (
            {"metadata": {"bayes_metric": ["exact_match", "f1"]}},
            TaskConfigError,
            r"one of the task's metrics \(exact_match\); got 'f1'",
        ),
        (
            {"metadata": {"bayes_bounds": {"f1": [0, 1]}}},
            InvalidInputError,
            r"`bayes_bounds` must name metrics of the task \(exact_match\); got 'f1'",
        ),
        ({"output_type": "loglikelihood"}, TaskConfigError, r"`output_type` must be generate"),
        ({"doc_to_target": "{{gold}}"}, DatasetUnavailableError, r"none called 'gold' is undef"),
        ({"test_split": "dev"}, DatasetUnavailableError, r"must have the split 'dev'; it has test"),
        (
            {"custom_dataset": lambda **_: {"test": datasets.Dataset.from_list([])}},
            DatasetUnavailableError,
            r"must have at least one question; it has none",
        ),
        (
            {"custom_dataset": None, "dataset_path": "no-such-org/no-such-dataset"},
            DatasetUnavailableError,
            r"could not be loaded .*HF_HUB_OFFLINE=1",
        ),
        (
            {"process_results": lambda doc, results: {"exact_match": 0.37}},
            TaskConfigError,
            r"must grade a response with a category 0\.\.1; got 0\.37",
        ),
        (
            {"process_results": lambda doc, results: {"f1": 1}},
            TaskConfigError,
            r"must give the metric `exact_match`; got f1",
        ),
        (
            {"metric_list": [{"metric": "bayes", "aggregation": "bayes", "higher_is_better": 1}]},
            TaskConfigError,
            r"metric `bayes` is for YAMLs without this class",
        ),
    ],
)
def test_bad_configurations_end_in_one_sentence(changes, error, message, monkeypatch):
    monkeypatch.setattr("datasets.load_dataset", unreachable)
    with pytest.raises(error, match=message) as caught:
        RepeatedSamplingTask(config=toy_config(**changes))
    assert "\n" not in str(caught.value)


def test_the_trial_run_can_be_skipped():
    config = toy_config(process_results=raising, metadata={"bayes_check": False})
    assert RepeatedSamplingTask(config=config).settings.check is False
