"""A task that cannot give honest trials ends in one sentence when it is built."""

from __future__ import annotations

import datasets
import pytest
from _support.errors import refused
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
            ("filter_list", "failed", "f"),
        ),
        (
            filters({"function": "custom", "filter_fn": lambda resps, docs: None}),
            TaskConfigError,
            ("filter_list", "failed", "f"),
        ),
        (
            filters({"function": "nope"}),
            TaskConfigError,
            ("task", "failed", "toy"),
        ),
        ({"filter_list": ["x"]}, TaskConfigError, ("filter_list", "format")),
        ({"filter_list": [{"name": "a"}]}, TaskConfigError, ("filter_list", "format")),
        (filters("take_first"), TaskConfigError, ("filter_list", "format")),
        (filters(name=3), TaskConfigError, ("filter_list", "format")),
        (
            {"process_results": raising},
            TaskConfigError,
            ("process_results", "failed", None),
        ),
        (
            {"process_results": lambda doc: {}},
            TaskConfigError,
            ("process_results", "failed", None),
        ),
        (
            {"process_results": lambda doc, results: None},
            TaskConfigError,
            ("process_results", "type", None),
        ),
        (
            {"custom_dataset": lambda **_: 1 / 0},
            DatasetUnavailableError,
            ("custom_dataset", "failed", None),
        ),
        ({"metric_list": []}, TaskConfigError, ("bayes_metric", "choice", "none")),
        (
            {"metric_list": [{"metric": "exact_mach", "aggregation": "mean"}]},
            TaskConfigError,
            ("process_results", "missing", "exact_mach"),
        ),
        (
            {"metric_list": [{"metric": "exact_mach"}]},
            TaskConfigError,
            ("task", "failed", "toy"),
        ),
        (
            {"metadata": {"bayes_metric": ["exact_match", "exact_match"]}},
            InvalidInputError,
            ("bayes_metric", "format"),
        ),
        ({"doc_to_text": "{{ question"}, TaskConfigError, ("task", "failed", "toy")),
        ({"no_such_key": 1}, TaskConfigError, ("task", "failed", "toy")),
        ({"generation_kwargs": "abc"}, TaskConfigError, ("task", "failed", "toy")),
        ({"process_docs": raising}, TaskConfigError, ("task", "failed", "toy")),
        (
            {"doc_to_target": lambda doc: doc["gold"]},
            DatasetUnavailableError,
            ("doc_to_text", "missing-key", "'gold'"),
        ),
        (
            {"process_docs": lambda docs: docs.select([])},
            DatasetUnavailableError,
            ("process_docs", "empty", None),
        ),
        ({"metadata": {"bayes_n": 0}}, InvalidInputError, ("bayes_n", "range", 0)),
        (
            {"metadata": {"bayes_extra_trials": {"3": 1}}},
            InvalidInputError,
            ("bayes_extra_trials", "range", 3),
        ),
        ({"metadata": {"bayes_m": 1}}, TaskConfigError, ("metadata", "unknown-key", "bayes_m")),
        ({"metadata": {"bayes_weights": [0, 1, 2]}}, InvalidInputError, ("bayes_weights", "shape")),
        ({"metadata": {"bayes_metric": "f1"}}, TaskConfigError, ("bayes_metric", "choice", "f1")),
        (
            {"metadata": {"bayes_metric": ["exact_match", "f1"]}},
            TaskConfigError,
            ("bayes_metric", "choice", "f1"),
        ),
        (
            {"metadata": {"bayes_bounds": {"f1": [0, 1]}}},
            InvalidInputError,
            ("bayes_bounds", "choice", "f1"),
        ),
        (
            {"output_type": "loglikelihood"},
            TaskConfigError,
            ("output_type", "unsupported", "loglikelihood"),
        ),
        (
            {"doc_to_target": "{{gold}}"},
            DatasetUnavailableError,
            ("doc_to_text", "missing-key", "'gold' is undefined"),
        ),
        ({"test_split": "dev"}, DatasetUnavailableError, ("split", "missing-key", "dev")),
        (
            {"custom_dataset": lambda **_: {"test": datasets.Dataset.from_list([])}},
            DatasetUnavailableError,
            ("split", "empty", "test"),
        ),
        (
            {"custom_dataset": None, "dataset_path": "no-such-org/no-such-dataset"},
            DatasetUnavailableError,
            ("dataset_path", "failed", "no-such-org/no-such-dataset"),
        ),
        (
            {"process_results": lambda doc, results: {"exact_match": 0.37}},
            TaskConfigError,
            ("task toy: the metric `exact_match`", "range", 0.37),
        ),
        (
            {"process_results": lambda doc, results: {"f1": 1}},
            TaskConfigError,
            ("process_results", "missing-key", "exact_match"),
        ),
        (
            {"metric_list": [{"metric": "bayes", "aggregation": "bayes", "higher_is_better": 1}]},
            TaskConfigError,
            ("metric_list", "conflict", "bayes"),
        ),
    ],
)
def test_bad_configurations_end_in_one_sentence(changes, error, message, monkeypatch):
    monkeypatch.setattr("datasets.load_dataset", unreachable)
    with refused(*message, error=error) as caught:
        RepeatedSamplingTask(config=toy_config(**changes))
    assert "\n" not in str(caught.value)


def test_the_trial_run_can_be_skipped():
    config = toy_config(process_results=raising, metadata={"bayes_check": False})
    assert RepeatedSamplingTask(config=config).settings.check is False
