"""Several metrics of one task: each has rows, from one grading of each response."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from _support.errors import refused
from _support.toy import SCRIPT, ScriptedLM, evaluate, toy_config
from scipy.special import comb

from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.harness.plugin.results_table import chosen_rows
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.score_outcomes import ScoreOutcomes

pytestmark = pytest.mark.filterwarnings("default")

NAMES = ("strict", "near", "parts", "left")
GRADED = []


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
    row = {key.removesuffix(",none"): value for key, value in results["results"]["toy"].items()}
    strict, near = outcomes(results, "outcomes"), outcomes(results, "outcomes(near)")
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
    assert "grading_errors" in row
    assert "grading_errors(near)" not in row


def test_a_list_of_parts_is_a_score_its_mean(results):
    row = {key.removesuffix(",none"): value for key, value in results["results"]["toy"].items()}
    scores = outcomes(results, "scores(parts)")
    assert scores.tolist() == (0.5 + outcomes(results, "outcomes(near)") / 2).tolist()
    posterior = hbayes_at_n(ScoreOutcomes.from_scores(scores.tolist()))
    assert row["hbayes@4(parts)"] == pytest.approx(posterior.mu, abs=1e-12)
    assert not [name for name in row if name.startswith("pass") and "(parts)" in name]
    assert results["higher_is_better"]["toy"]["hbayes@4(parts)"] is True


def test_each_response_is_graded_once():
    run(bayes_metric=list(NAMES[:3]), bayes_check=False, bayes_bounds={"parts": [0, 1]})
    assert len(GRADED) == 12


def test_all_of_them_and_those_left_out(caplog):
    with caplog.at_level(logging.INFO):
        run(bayes_metric=["near", "strict"])
    assert "graded by near and strict; parts and left are left out" in caplog.text
    bounds = {"parts": [0, 1], "left": [0, 2]}
    row = run(bayes_metric="all", bayes_bounds=bounds)["results"]["toy"]
    assert row["avg@4(left),none"] == 0.5
    with refused("metric_list", "range", 0.5, error=TaskConfigError):
        run(bayes_metric="all")


def test_what_is_found_after_sampling_loses_nothing_of_the_first_metric(caplog):
    results = run(bayes_metric="all", bayes_check=False)
    row = results["results"]["toy"]
    assert row["avg@4,none"] == pytest.approx(4 / 12)
    assert row["avg@4(parts),none"] == pytest.approx(outcomes(results, "scores(parts)").mean())
    assert np.isnan(row["avg@4(left),none"])
    assert (outcomes(results, "scores(left)") == 0.5).all()  # what the metric gave
    assert caplog.text.count("the metric `left` must grade") == 1


@pytest.mark.parametrize("value", [0.5, [1, 0]], ids=str)
def test_a_metric_does_not_become_a_score_between_two_questions(value):
    config = toy_config(
        process_results=lambda doc, results: {"a": 1, "b": 1 if doc["answer"] != "6" else value},
        metric_list=[{"metric": name, "aggregation": "mean"} for name in "ab"],
        metadata={"bayes_metric": "all"},
    )
    row = evaluate(ScriptedLM(SCRIPT), RepeatedSamplingTask(config=config))["results"]["toy"]
    assert row["avg@4,none"] == 1.0
    assert np.isnan(row["avg@4(b),none"])


def test_the_table_and_the_loggers_show_them(results):
    shown = chosen_rows(results["results"]["toy"], "short")
    labelled = [key.removesuffix(",none") for key in sorted(shown) if "(" in key]
    assert [name for name in labelled if not name.endswith("_stderr")] == [
        *(f"hbayes@4(near){end}" for end in ("", "_low", "_high")),
        *("avg@4(near)", "hbayes@4(parts)", "hbayes@4(parts)_low", "hbayes@4(parts)_high"),
        "avg@4(parts)",
    ]
