"""A prior run holds other trials than the run that it informs."""

import pytest
from _support.errors import refused

from lm_eval_bayes.runs.merging import check_other_trials
from lm_eval_bayes.runs.task_run import TaskRun


def run(trials, seeds=None, model="m"):
    return TaskRun.from_trials(model, "t", trials, ["p", "q"], seeds=seeds)


RUN = run([[1, 0, 1, 0], [0, 0, 1, 1]], ((1, 2, 3, 4), (5, 6, 7, 8)))
BARE = run([[1, 0, 1, 0], [0, 0, 1, 1]])


@pytest.mark.parametrize(
    ("informed", "prior"),
    [(RUN, run([[0, 1], [1, 0]], ((2, 3), (7, 9)))), (RUN, RUN)],
    ids=["a slice", "a copy"],
)
def test_trials_that_both_hold_are_refused(informed, prior):
    with refused("prior", "duplicate"):
        check_other_trials([informed], prior)


@pytest.mark.parametrize(
    ("informed", "prior"),
    [
        (RUN, run([[0, 1], [0, 0]], ((2, 3), (7, 9)))),  # the seeds of an earlier checkpoint
        (RUN, run([[0, 1], [1, 0]], ((2, 3), (7, 9)), model="other")),
        (BARE, run([[1, 0, 1, 0], [0, 0, 1, 0]])),
        (run([[1], [1]], ((1,), (2,))), run([[1, 1], [1, 1]], ((1, 3), (2, 4)))),  # all alike
    ],
)
def test_other_trials_are_no_error(informed, prior):
    check_other_trials([informed], prior)
