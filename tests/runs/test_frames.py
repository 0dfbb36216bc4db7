"""Runs from data frames and back."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow
import pytest
from _support.errors import refused

from lm_eval_bayes.runs.frames import read_frame, to_frame
from lm_eval_bayes.runs.task_run import TaskRun

COLUMNS = {
    "agent": ["A", "A", "A", "B", "B"],
    "item": [1, 1, 2, 1, 2],
    "attempt": [0, 1, 0, 0, 0],
    "reward": [1.0, 0.25, None, 0.0, 1.0],
    "cost": [0.1, 0.2, 0.3, None, 0.5],
}


def polars_frame(columns):
    return pytest.importorskip("polars").DataFrame(columns)


@pytest.mark.parametrize("make", [pd.DataFrame, pyarrow.table, dict, polars_frame])
def test_every_kind_of_frame(make):
    first, second = read_frame(make(COLUMNS), task="web")
    assert [run.model for run in (first, second)] == ["A", "B"]
    assert {run.task for run in (first, second)} == {"web"}
    assert first.question_ids == ("1", "2")
    assert [row.tolist() for row in first.outcomes.scores] == [[1.0, 0.25], []]
    assert first.metric == "reward"
    assert second.measured["cost"][1].tolist() == [0.5]


def test_one_run_there_and_back():
    trials = [[1, 0, 1], [0], [1, 1]]
    run = TaskRun.from_trials(
        "A",
        "web",
        trials,
        ["a", "b", "c"],
        clusters=["x", "x", "y"],
        answers=(("1", None, "2"), ("3",), ("4", "5")),
        measured={"completion_tokens": tuple(np.arange(len(row), dtype=float) for row in trials)},
    )
    frame = to_frame(run)
    assert list(frame.columns) == [
        *("model", "task", "question", "trial", "score", "answer", "cluster"),
        "completion_tokens",
    ]
    assert frame.shape == (6, 8)
    (again,) = read_frame(frame)
    assert (again.model, again.task, again.question_ids) == (run.model, run.task, run.question_ids)
    assert [row.tolist() for row in again.trials] == trials
    assert again.clusters == run.clusters
    assert again.answers == run.answers
    assert again.tokens == run.tokens == 4


@pytest.mark.parametrize(
    ("frame", "rule"),
    [
        ({"item": [1]}, "missing-column"),
        ({"item": [1], "score": [1, 0]}, "shape"),
        ([1, 2], "type"),
        ({"item": [1, 1], "trial": [0, 0], "score": [1, 0]}, "duplicate"),
    ],
)
def test_what_is_no_run(frame, rule):
    with refused("frame", rule):
        read_frame(frame)


def test_counts_have_no_trials():
    (run,) = read_frame({"item": [1], "score": [1]})
    counted = TaskRun(run.model, run.task, (), run.outcomes)
    with refused("run", "missing", "model on outcomes"):
        to_frame(counted)
