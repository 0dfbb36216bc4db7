"""Several metrics of one task: each has rows, from one grading of each response."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from _support.toy import SCRIPT, ScriptedLM, all_rows, evaluate, toy_config
from scipy.special import comb

from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.score_outcomes import ScoreOutcomes

pytestmark = pytest.mark.filterwarnings("default")

NAMES = ("strict", "near", "parts", "left")
GRADED = []
#: The rows of a metric that is not the first one.
SHOWN = (("hbayes@4", ""), ("hbayes@4", "_low"), ("hbayes@4", "_high"), ("avg@4", ""))


def grades(doc, results):
    """The right answer; at most one away from it; a list of two parts; a number."""
    GRADED.append(results[0])
    text, gold = results[0], int(doc["answer"])
    number = int(text) if text.isdigit() else -9
    near = abs(number - gold) <= 1
    return {"strict": number == gold, "near": float(near), "parts": [near, True], "left": 0.5}


def run(**metadata):
    GRADED.clear()
    metrics = [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in NAMES]
    config = toy_config(process_results=grades, metric_list=metrics, metadata=metadata)
    return evaluate(ScriptedLM(SCRIPT), RepeatedSamplingTask(config=config))


@pytest.fixture(scope="module")
def results():
    exact = {"bayes_interval": "exact", "bayes_k": 2}
    return run(bayes_metric=["strict", "near", "parts"], **exact)


def outcomes(results, name):
    return np.array([sample[name] for sample in results["samples"]["toy"]])


def test_every_metric_has_the_rows_of_its_own_grades(results):
    row = {key.removesuffix(",none"): value for key, value in all_rows(results).items()}
    strict, near = outcomes(results, "outcomes"), outcomes(results, "near")
    assert strict.tolist() == [[1, 1, 0, 1], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert near.tolist() == [[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0]]
    for label, trials in (("", strict), ("(near)", near)):
        right = trials.sum(axis=1)
        assert row[f"avg@4{label}"] == pytest.approx(right.mean() / 4)
        assert row[f"pass@2{label}"] == pytest.approx(1 - (comb(4 - right, 2) / 6).mean())
        posterior = hbayes_at_n(Outcomes.from_matrix(trials))
        assert row[f"hbayes@4{label}"] == pytest.approx(posterior.mu, abs=1e-12)
        assert row[f"hbayes@4{label}_stderr"] == pytest.approx(posterior.sigma, abs=1e-12)
        assert row[f"hbayes@4{label}_low"] == pytest.approx(posterior.interval().low, abs=1e-9)


def test_a_list_of_parts_is_a_score_its_mean(results):
    row = {key.removesuffix(",none"): value for key, value in all_rows(results).items()}
    scores = outcomes(results, "parts").mean(axis=2)
    assert scores.tolist() == (0.5 + outcomes(results, "near") / 2).tolist()
    posterior = hbayes_at_n(ScoreOutcomes.from_scores(scores.tolist()))
    assert row["hbayes@4(parts)"] == pytest.approx(posterior.mu, abs=1e-12)
    assert not [name for name in row if name.startswith("pass") and "(parts)" in name]
    assert results["higher_is_better"]["toy"]["hbayes@4(parts)"] is True
    assert results["configs"]["toy"]["metadata"]["lm_eval_bayes"]["bounds"] == {"parts": [0, 1]}


def test_each_response_is_graded_once():
    run(bayes_metric=list(NAMES[:3]), bayes_check=False, bayes_bounds={"parts": [0, 1]})
    assert len(GRADED) == 12


def test_all_of_them_and_those_left_out(caplog):
    with caplog.at_level(logging.INFO):
        run(bayes_metric=["near", "strict"])
    assert "graded by near and strict; parts and left are left out" in caplog.text
    bounds = {"parts": [0, 1], "left": [0, 2]}
    row = all_rows(run(bayes_metric="all", bayes_bounds=bounds))
    assert row["avg@4(left),none"] == 0.5
    row = all_rows(run(bayes_metric="all"))  # a value between 0 and 1 is a score
    assert row["avg@4(left),none"] == 0.5


def test_what_is_found_after_sampling_loses_nothing_of_the_first_metric(caplog):
    metrics = [{"metric": name, "aggregation": "mean"} for name in ("a", "judge")]
    config = toy_config(
        process_results=lambda doc, results: {"a": results[0] == "2", "judge": 3 * len(results[0])},
        metric_list=metrics,
        metadata={"bayes_metric": "all", "bayes_check": False},
    )
    results = evaluate(ScriptedLM(SCRIPT), RepeatedSamplingTask(config=config))
    row = all_rows(results)
    assert row["avg@4,none"] == pytest.approx(3 / 12)
    assert not [name for name in row if "(judge)" in name]
    assert (outcomes(results, "judge") == 3).all()  # what the metric gave
    assert caplog.text.count("the metric `judge` must give") == 1
    assert list(results["configs"]["toy"]["metadata"]["lm_eval_bayes"]["errors"]) == ["judge"]


@pytest.mark.parametrize("value", [0.5, [1, 0]], ids=str)
def test_a_single_score_makes_all_values_scores(value):
    config = toy_config(
        process_results=lambda doc, results: {"a": 1, "b": 1 if doc["answer"] != "6" else value},
        metric_list=[{"metric": name, "aggregation": "mean"} for name in "ab"],
        metadata={"bayes_metric": "all"},
    )
    row = all_rows(evaluate(ScriptedLM(SCRIPT), RepeatedSamplingTask(config=config)))
    posterior = hbayes_at_n(ScoreOutcomes.from_scores([[1.0] * 4, [1.0] * 4, [0.5] * 4]))
    assert (row["avg@4,none"], row["avg@4(b),none"]) == (1.0, pytest.approx(2.5 / 3))
    assert row["hbayes@4(b),none"] == pytest.approx(posterior.mu, abs=1e-12)


def test_the_table_and_the_loggers_show_them(results):
    keys = [key.removesuffix(",none") for key in sorted(results["results"]["toy"]) if "(" in key]
    assert [name for name in keys if not name.endswith("_stderr")] == [
        *(f"{row}({metric}){end}" for metric in ("near", "parts") for row, end in SHOWN)
    ]
