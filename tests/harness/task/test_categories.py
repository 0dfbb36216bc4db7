"""`bayes_categories`: what can be known of a grader before sampling is said before sampling."""

from __future__ import annotations

import pytest
from _support.errors import refused
from _support.toy import toy_config

from lm_eval_bayes.harness.grading.grade import process_results_math
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask

THREE = {"metadata": {"bayes_categories": 3}}


def graded(category):
    """A task whose own grader gives every response this category."""
    metric = [{"metric": "level", "aggregation": "mean", "higher_is_better": True}]
    return toy_config(
        process_results=lambda doc, results: {"level": category}, metric_list=metric, **THREE
    )


@pytest.mark.parametrize("grader", [None, process_results_math], ids=["the harness's", "ours"])
def test_right_or_wrong_has_no_third_category(grader):
    with refused("bayes_categories", "mismatch", 3):
        RepeatedSamplingTask(config=toy_config(process_results=grader, **THREE))


@pytest.mark.parametrize(("category", "warned"), [(1, True), (2, False)])
def test_the_own_answer_below_the_top_is_pointed_at(caplog, category, warned):
    assert RepeatedSamplingTask(config=graded(category)).settings.weights == (0.0, 0.5, 1.0)
    warning = "the first question's own answer is graded 1 of the categories 0..2"
    assert (warning in caplog.text) == warned
