"""Whether runs are about the same questions, and how a question is named in a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.task_run import GRADED, REGRADED, TaskRun

#: Characters of an id, and of a question's text, that are shown.
_ID, _TEXT = 20, 60
#: Ids that an error names for each side.
_NAMED = 3


def check_comparable(runs: Sequence[TaskRun], argument: str = "RUN") -> None:
    """Refuse runs that cannot stand side by side, naming the first questions that differ.

    Raises
    ------
    InvalidInputError
        If there is none, they are of several tasks, two models have the same name, different
        metrics or filters were counted, categories are scored differently, or the models
        answered different questions.
    """
    check_one_task(runs, argument)
    first = runs[0]
    for run in runs[1:]:
        check_counted_alike(first, run, argument)
        check_same_scores(first, run, argument)
        check_same_questions(first, run, argument)


def check_one_task(runs: Sequence[TaskRun], argument: str = "RUN") -> None:
    """Refuse anything but runs of one task by models of different names.

    Raises
    ------
    InvalidInputError
        If there is none, they are of several tasks, or two models have the same name.
    """
    if not runs:
        raise InvalidInputError.of(argument, "be at least one", "none")
    tasks = list(dict.fromkeys(run.task for run in runs))
    if len(tasks) > 1:
        raise InvalidInputError.of(argument, "be of one task", ", ".join(tasks))
    models = [run.model for run in runs]
    if len(set(models)) < len(models):
        raise InvalidInputError.of(argument, "have a name each", ", ".join(models))


def counted_differently(a: TaskRun, b: TaskRun) -> Literal["metric", "filter"] | None:
    """Return in what the counting of two runs differs, None where it does not or is not known."""
    if len({a.metric, b.metric} - {GRADED, REGRADED}) == 2:
        return "metric"
    graded_again = REGRADED in (a.metric, b.metric)
    return "filter" if a.filter and b.filter and a.filter != b.filter and not graded_again else None


def check_counted_alike(a: TaskRun, b: TaskRun, argument: str = "RUN") -> None:
    """Refuse two runs of which different things were counted.

    That is different metrics that a task logged, such as acc and acc_norm, or answers that
    different filters found.

    Raises
    ------
    InvalidInputError
        If they are.
    """
    what = counted_differently(a, b)
    if what is None:
        return
    one, other = (a.metric, b.metric) if what == "metric" else (a.filter, b.filter)
    rule = (
        f"be counted by one {what}; of {a.task} by {a.model} it is {one} (--{what} chooses one "
        "that all have)"
    )
    raise InvalidInputError.of(argument, rule, f"{other} of {b.model}")


def check_same_scores(a: TaskRun, b: TaskRun, argument: str = "RUN") -> None:
    """Refuse two runs whose categories are scored differently.

    Raises
    ------
    InvalidInputError
        If they are.
    """
    weights, others = a.outcomes.weights.tolist(), b.outcomes.weights.tolist()
    if weights != others:
        rule = f"score the trials of {a.task} alike: {a.model} has the scores {weights}"
        raise InvalidInputError.of(argument, rule, f"{others} for {b.model}")


def check_same_questions(a: TaskRun, b: TaskRun, argument: str = "RUN") -> None:
    """Refuse two runs that are not about the same questions, naming the first that differ.

    Raises
    ------
    InvalidInputError
        If they are not.
    """
    only = [told for told in (_only_in(a, b), _only_in(b, a)) if told is not None]
    if only:
        rule = f"have answered the same questions of {a.task}"
        raise InvalidInputError.of(argument, rule, "; ".join(only))


def question_number(run: TaskRun) -> dict[str, int]:
    """Return the place of every question of a run, by its id."""
    return {name: place for place, name in enumerate(run.question_ids)}


def short_id(name: str) -> str:
    """Return an id that fits into a line: ids may differ at either end, so the middle goes.

    Examples
    --------
    >>> short_id("q7"), short_id("0123456789abcdef0123456789abcdef")
    ('q7', '0123456789a…89abcdef')
    """
    return name if len(name) <= _ID else f"{name[:11]}…{name[12 - _ID :]}"


def short_text(text: str) -> str:
    """Return a question's text on one line, cut where it is long.

    Examples
    --------
    >>> short_text(" What is" + chr(10) + "7 + 5?")
    'What is 7 + 5?'
    >>> len(short_text("word " * 1000))
    60
    """
    line = " ".join(text[: 8 * _TEXT].split())
    return line if len(line) <= _TEXT else line[: _TEXT - 1] + "…"


def _only_in(one: TaskRun, other: TaskRun) -> str | None:
    """Name the questions that one run has and the other lacks; None where there is none."""
    theirs = set(other.question_ids)
    only = [name for name in one.question_ids if name not in theirs]
    if not only:
        return None
    more = f" and {len(only) - _NAMED} more" if len(only) > _NAMED else ""
    return f"only {one.model} has {', '.join(map(short_id, only[:_NAMED]))}{more}"
