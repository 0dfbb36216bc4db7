"""The texts of a question's trials and its right answers, from where the run logged them."""

from __future__ import annotations

from typing import NamedTuple

from lm_eval_bayes._util.text import replace_surrogates
from lm_eval_bayes.runs.log_fields import generated_texts, right_answers
from lm_eval_bayes.runs.logged_texts import ToolTrials, read_line
from lm_eval_bayes.runs.task_run import REGRADED, TaskRun


class QuestionTexts(NamedTuple):
    """What is logged of a question.

    Attributes
    ----------
    right_answers : tuple of str
        The right answers; empty where none is logged.
    responses : tuple of str or None
        The text of every trial that was counted, None for one that is missing; empty where the
        logged texts are not those of the trials that were counted.
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
    outcomes: list[int | None] = [None] * int(run.outcomes.n_trials[number])
    if run.trials is not None and run.metric != REGRADED:
        outcomes = run.trials[number].tolist()
    answers: tuple[str, ...] = ()
    logged: dict[int, tuple[str | None, int | None]] = {}
    n_damaged = 0
    for line, trials in texts.by_line():
        chosen = texts.index[trials, 1].tolist()
        if isinstance(line, ToolTrials):
            found = line.log.read(line.places[chosen].tolist())
            right = next((list(trial.right_answers) for trial in found if trial.right_answers), [])
            n_damaged += sum(trial.damaged for trial in found)
            logged |= zip(trials.tolist(), ((trial.text, None) for trial in found), strict=True)
        else:
            row = read_line(line)
            right, responses = right_answers(row), generated_texts(row) or []
            graded = row.get("outcomes") if run.metric != REGRADED else None
            for trial, n in zip(trials.tolist(), chosen, strict=True):
                outcome = graded[n] if isinstance(graded, list) else None
                if outcome is not None or graded is None:
                    logged[trial] = (responses[n], outcome)
        answers = answers or tuple(map(replace_surrogates, right))
    if len(texts.index) == len(outcomes):
        counted = [logged.get(trial, (None, None)) for trial in range(len(outcomes))]
    else:  # trials without a grade are logged too
        counted = [logged[trial] for trial in sorted(logged)]
    # a file that was replaced since may hold other texts
    pairs = zip((outcome for _, outcome in counted), outcomes, strict=False)
    if len(counted) != len(outcomes) or any(now not in (None, then) for now, then in pairs):
        counted = []
    shown = tuple(None if text is None else replace_surrogates(text) for text, _ in counted)
    return QuestionTexts(answers, shown, n_damaged)
