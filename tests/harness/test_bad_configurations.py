"""A task that cannot give honest trials ends in one sentence when it is built."""

from __future__ import annotations

import sys
from pathlib import Path

import datasets
import pytest

from lm_eval_bayes.errors import DatasetUnavailableError, InvalidInputError, TaskConfigError
from lm_eval_bayes.harness.tasks import RepeatedSamplingTask

sys.path.insert(0, str(Path(__file__).parent))
from toy import toy_config

pytestmark = pytest.mark.filterwarnings("default")


def unreachable(**kwargs):
    raise ConnectionError("Couldn't reach the Hub")


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"metadata": {"bayes_n": 0}}, InvalidInputError, r"`bayes_n` must"),
        ({"metadata": {"bayes_m": 1}}, TaskConfigError, r"no setting `bayes_m`"),
        ({"metadata": {"bayes_weights": [0, 1, 2]}}, InvalidInputError, r"have 2 entries"),
        ({"metadata": {"bayes_metric": "f1"}}, TaskConfigError, r"`bayes_metric` must be one of"),
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
