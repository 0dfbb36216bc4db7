"""Names of models on the page."""

import re

import numpy as np
import pytest

from lm_eval_bayes.analysis.report_data import report_data
from lm_eval_bayes.report.page.render import render
from lm_eval_bayes.report.page.text import short_names
from lm_eval_bayes.runs.reader import SavedRuns
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats.intervals import IntervalSpec


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (("a/m (user=x/y)", "b/m (user=x/y)"), ("a/m (user=x/y)", "b/m (user=x/y)")),
        (("a/m", "b/m", "c"), ("a/m", "b/m", "c")),
        (("m", "lab/m"), ("m", "lab/m")),
    ],
)
def test_short_names_stay_distinct(names, short):
    assert short_names(names) == short


def test_long_names_stay_distinct():
    ends = [f"{'x' * 500}{i}" for i in range(3)]
    assert [name[-1] for name in short_names(ends)] == ["0", "1", "2"]
    middles = [f"{'x' * 500}{i}{'y' * 500}" for i in range(3)]
    ends = [name.rpartition("y ")[2] for name in short_names([*middles, "z"])]
    assert ends == ["(1 of 3 like it)", "(2 of 3 like it)", "(3 of 3 like it)", "z"]


def page_of_models(names, scores, tokens):
    """Return the page of models with these trials and tokens per trial."""
    runs = [
        TaskRun.from_trials(
            model,
            "aime",
            trials,
            ["p", "q"],
            measured={"completion_tokens": (np.full(2, n_tokens),) * 2},
        )
        for model, trials, n_tokens in zip(names, scores, tokens, strict=True)
    ]
    return render(report_data(SavedRuns(tuple(runs)), IntervalSpec(method="normal")))


def test_names_of_any_length_stay_distinct():
    names = ["x" * 240 + i + "x" * 240 for i in "12"]
    page = page_of_models(names, [[[1, 1], [1, 0]], [[0, 0], [1, 0]]], (100.0, 200.0))
    shown = re.findall(r'<bdi class="line"[^>]*>([^<]*)', page)
    assert max(map(len, shown)) <= 180
    assert len(set(shown)) >= 2


@pytest.mark.parametrize(
    ("second", "dashed"), [([[0, 0], [0, 0]], False), ([[1, 1], [1, 1]], True)]
)
def test_the_dashed_line_connects_the_models_that_none_beats(second, dashed):
    page = page_of_models(("a", "b"), [[[1, 0], [1, 0]], second], (100.0, 200.0))
    assert ('class="frontier"' in page) is dashed
