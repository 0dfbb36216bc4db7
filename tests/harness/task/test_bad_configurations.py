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


def raising(*args, **kwargs):
    raise RuntimeError("no grader here")


def no_list(resps, docs):
    return None


def first(resps, docs):
    return [responses[:1] for responses in resps]


def no_questions(docs):
    return docs.select([])


def empty(**kwargs):
    return {"test": datasets.Dataset.from_list([])}


def metric(name):
    return {"metric": name, "aggregation": "mean", "higher_is_better": True}


def filters(*steps, name="f"):
    return {"filter_list": [{"name": name, "filter": list(steps)}]}


LEAVES_ONE = ("filter_list", "mismatch")
FAILED_FILTER = ("filter_list", "failed")
NO_METRIC = ("process_results", "missing-key")
NO_CATEGORY = ("metric_list", "range")
NO_FIELD = ("doc_to_text", "missing-key")
NO_QUESTION = ("bayes_extra_trials", "range")


@pytest.mark.parametrize(
    ("changes", "error", "argument", "rule"),
    [
        (filters({"function": "regex", "regex_pattern": "(("}), TaskConfigError, *FAILED_FILTER),
        (filters({"function": "custom", "filter_fn": no_list}), TaskConfigError, *FAILED_FILTER),
        (filters({"function": "custom", "filter_fn": first}), TaskConfigError, *LEAVES_ONE),
        (filters({"function": "nope"}), TaskConfigError, "task", "failed"),
        (filters("take_first"), TaskConfigError, "filter_list", "format"),
        (filters(name=3), TaskConfigError, "filter_list", "format"),
        ({"process_results": raising}, TaskConfigError, "process_results", "failed"),
        ({"process_results": lambda *_: None}, TaskConfigError, "process_results", "type"),
        ({"process_results": lambda *_: {"f1": 1}}, TaskConfigError, *NO_METRIC),
        ({"process_results": lambda *_: {"exact_match": 1.37}}, TaskConfigError, *NO_CATEGORY),
        ({"custom_dataset": raising}, DatasetUnavailableError, "custom_dataset", "failed"),
        ({"metric_list": []}, TaskConfigError, "bayes_metric", "choice"),
        ({"metric_list": [metric("exact_mach")]}, TaskConfigError, "process_results", "missing"),
        ({"metric_list": [metric("bayes")]}, TaskConfigError, "metric_list", "conflict"),
        ({"doc_to_text": "{{ question"}, TaskConfigError, "task", "failed"),
        ({"doc_to_target": lambda doc: doc["gold"]}, DatasetUnavailableError, *NO_FIELD),
        ({"process_docs": no_questions}, DatasetUnavailableError, "process_docs", "empty"),
        ({"custom_dataset": empty}, DatasetUnavailableError, "split", "empty"),
        ({"test_split": "dev"}, DatasetUnavailableError, "split", "missing-key"),
        (
            {"custom_dataset": None, "dataset_path": "no-such-org/no-such-dataset"},
            DatasetUnavailableError,
            "dataset_path",
            "failed",
        ),
        ({"output_type": "loglikelihood"}, TaskConfigError, "output_type", "unsupported"),
        ({"metadata": {"bayes_extra_trials": {"3": 1}}}, InvalidInputError, *NO_QUESTION),
        ({"metadata": {"bayes_metric": "f1"}}, TaskConfigError, "bayes_metric", "choice"),
        ({"metadata": {"bayes_metric": ["a", "a"]}}, InvalidInputError, "bayes_metric", "format"),
    ],
)
def test_bad_configurations_end_in_one_sentence(changes, error, argument, rule, monkeypatch):
    monkeypatch.setattr("datasets.load_dataset", unreachable)
    with refused(argument, rule, error=error) as caught:
        RepeatedSamplingTask(config=toy_config(**changes))
    assert "\n" not in str(caught.value)


def test_the_trial_run_can_be_skipped():
    config = toy_config(process_results=raising, metadata={"bayes_check": False})
    assert RepeatedSamplingTask(config=config).settings.check is False
