"""The samples that the harness's loggers get."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from _support.toy import SCRIPT, ScriptedLM, evaluate, toy_config
from lm_eval.loggers.wandb_logger import WandbLogger

from lm_eval_bayes.harness.plugin import patches, sample_loggers
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask

TrackioLogger = pytest.importorskip("lm_eval.loggers.trackio_logger").TrackioLogger

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def results():
    sample_loggers.install()
    return evaluate(ScriptedLM(SCRIPT), RepeatedSamplingTask(config=toy_config()))


#: Question, response and category of every trial.
TRIALS = [
    (f"{doc}/{trial}", text, int(text == gold))
    for doc, (texts, gold) in enumerate(zip(SCRIPT.values(), "246", strict=True))
    for trial, text in enumerate(texts)
]


def test_wandb_gets_a_row_for_each_trial(results):
    logger = WandbLogger.__new__(WandbLogger)
    config = results["configs"]["toy"]
    table = logger._generate_dataset(results["samples"]["toy"], config)
    rows = zip(table["id"], table["raw_predictions"], table["exact_match"], strict=True)
    assert list(rows) == TRIALS
    assert list(table["answer"]) == [text for _, text, _ in TRIALS]


def test_wandb_has_no_doubled_keys(results):
    logger = WandbLogger.__new__(WandbLogger)
    logger.post_init(results)
    _, logged = logger._sanitize_results_dict()
    assert "toy/avg@4_stderr" in logged
    assert not [key for key in logged if "_stderr_stderr" in key or "_low_stderr" in key]


def test_trackio_gets_a_trace_for_each_trial(results):
    logger = TrackioLogger.__new__(TrackioLogger)
    logged = []
    logger._trackio = SimpleNamespace(
        Trace=lambda **trace: trace, log=lambda values, step: logged.append(values)
    )
    logger.step = None
    logger.post_init(results)
    logger.log_eval_samples(results["samples"])
    traces = [values["toy/sample"] for values in logged]
    found = [
        (
            trace["metadata"]["doc_id"],
            trace["messages"][1]["content"],
            trace["metadata"]["exact_match"],
        )
        for trace in traces
    ]
    assert found == TRIALS


def test_samples_of_other_tasks_are_not_changed():
    sample = {"doc_id": 1, "resps": [["a"]], "filtered_resps": ["a"], "acc": 1.0}
    assert sample_loggers.trials_of_sample(sample, ["acc"]) == [sample]
    data = [{**sample, "target": "a", "arguments": [("prompt", {})]}]
    config = {"metric_list": [{"metric": "acc"}], "output_type": "generate_until"}
    logger = WandbLogger.__new__(WandbLogger)
    original = patches.original(patches.WANDB_TABLE)
    assert logger._generate_dataset(data, config).equals(original(logger, data, config))
