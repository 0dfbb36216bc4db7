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
    if run.trials is not None:
        outcomes = run.trials[number].tolist()
    answers: tuple[str, ...] = ()
    logged: dict[int, tuple[str | None, int | None]] = {}
    n_damaged = 0
    for line, trials in texts.by_line():
        chosen = texts.index[trials, 1].tolist()
        if isinstance(line, ToolTrials):
            found = line.log.read(line.places[chosen].tolist())
            right = next((trial.right_answers for trial in found if trial.right_answers), ())
            answers = answers or tuple(map(replace_surrogates, right))
            n_damaged += sum(trial.damaged for trial in found)
            logged |= {
                trial: (None if text is None else replace_surrogates(text), None)
                for trial, (text, _, _) in zip(trials.tolist(), found, strict=True)
            }
            continue
        row = read_line(line)
        answers = answers or tuple(map(replace_surrogates, right_answers(row)))
        responses, graded = generated_texts(row) or [], row.get("outcomes")
        for trial, response in zip(trials.tolist(), chosen, strict=True):
            outcome = graded[response] if isinstance(graded, list) else None
            if outcome is not None or run.metric == REGRADED or graded is None:
                logged[trial] = (replace_surrogates(responses[response]), outcome)
    if len(texts.index) == len(outcomes):
        counted = [logged.get(trial, (None, None)) for trial in range(len(outcomes))]
    else:  # trials without a grade are logged too
        counted = [logged[trial] for trial in sorted(logged)]
    # a file that was replaced since may hold other texts
    same = len(counted) == len(outcomes) and (
        run.metric == REGRADED
        or all(
            outcome in (None, category)
            for (_, outcome), category in zip(counted, outcomes, strict=True)
        )
    )
    shown = tuple(text for text, _ in counted) if same else ()
    return QuestionTexts(answers, shown, n_damaged)
