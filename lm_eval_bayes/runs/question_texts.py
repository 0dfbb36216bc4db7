"""The texts of a question's trials and its right answers, from where the run logged them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lm_eval_bayes._util.text import replace_surrogates
from lm_eval_bayes.runs.task_run import TaskRun


class QuestionTexts(NamedTuple):
    """What is logged of a question.

    Attributes
    ----------
    right_answers : tuple of str
        The right answers; empty where none is logged.
    responses : tuple of str or None
        The text of every trial that was counted, None for one that is missing.
    n_damaged : int
        How many texts are logged and cannot be read.
    """

    right_answers: tuple[str, ...] = ()
    responses: tuple[str | None, ...] = ()
    n_damaged: int = 0


def question_texts(run: TaskRun, number: int) -> QuestionTexts:
    """Read the texts of a question.

    Parameters
    ----------
    run : TaskRun
        A run.
    number : int
        The question, from 0.

    Raises
    ------
    InvalidInputError
        If a file is no longer what was read before.
    StoreError
        If a store cannot be read.
    """
    if run.texts is None:
        return QuestionTexts()
    texts = run.texts[number]
    if run.is_graded is not None:
        texts = texts[np.flatnonzero(run.is_graded[number])]
    trials = texts.read()
    right = next((trial.right_answers for trial in trials if trial.right_answers), ())
    responses = tuple(None if t.text is None else replace_surrogates(t.text) for t in trials)
    n_damaged = sum(trial.damaged for trial in trials)
    return QuestionTexts(tuple(map(replace_surrogates, right)), responses, n_damaged)
