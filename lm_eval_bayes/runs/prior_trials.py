"""Trials of an earlier run as prior trials of the same questions."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats import FloatArray, IntArray

#: Ids that an error names, and characters of each.
_N_SHOWN, _N_CHARACTERS = 2, 12


def prior_counts(
    question_ids: Sequence[str],
    weights: FloatArray,
    prior: TaskRun,
    task: str,
    argument: str = "prior",
) -> IntArray:
    """Return the prior trials of every question by category, (M, C+1).

    A question that the prior run lacks has none.

    Parameters
    ----------
    question_ids : sequence of str, length M
        The questions.
    weights : array, shape (C+1,)
        The scores of the categories.
    prior : TaskRun
        The earlier run.
    task : str
        The task of the questions, for an error.
    argument : str
        The name of the prior run in an error.

    Raises
    ------
    InvalidInputError
        If the scores of the categories differ, or no question is in both.
    """
    prior.require_graded(argument)
    if prior.outcomes.weights.tolist() != weights.tolist():
        rule = f"have the category weights of {task}, {weights.tolist()}"
        got = f"{prior.outcomes.weights.tolist()} in {prior.label}"
        raise InvalidInputError.of(argument, "mismatch", rule, got)
    rows = {name: row for row, name in enumerate(prior.question_ids)}
    counts = np.zeros((len(question_ids), weights.size), dtype=np.int64)
    matched = [i for i, name in enumerate(question_ids) if name in rows]
    if not matched:
        rule = f"have questions of {task}, such as {_listed(question_ids)}"
        got = f"only others, such as {_listed(prior.question_ids)}, in {prior.label}"
        raise InvalidInputError.of(argument, "mismatch", rule, got)
    counts[matched] = prior.outcomes.counts[[rows[question_ids[i]] for i in matched]]
    if not counts.any():
        rule = f"have a trial of a question of {task}"
        raise InvalidInputError.of(argument, "mismatch", rule, prior.label)
    return counts


def check_other_trials(runs: Sequence[TaskRun], prior: TaskRun) -> None:
    """Refuse a prior run whose trials are counted already.

    Raises
    ------
    InvalidInputError
        If a file of the prior run is one of those that `runs` were read from, or if a run of the
        same model has the same trials with the same seeds.
    """
    files = _files(prior)
    for run in runs:
        if files & _files(run) or _same_trials(run, prior):
            rule = f"hold other trials than those of {run.model}, or they would count twice"
            raise InvalidInputError.of("prior", "duplicate", rule, prior.label)


def _files(run: TaskRun) -> set[str]:
    return {os.path.realpath(source) for source in run.sources}


def _same_trials(run: TaskRun, prior: TaskRun) -> bool:
    """Return whether two runs are copies of each other."""
    if run.task != prior.task or run.seeds is None or run.seeds != prior.seeds:
        return False
    if run.model.split(" (")[0] != prior.model or run.trials is None or prior.trials is None:
        return False
    same = run.question_ids == prior.question_ids
    return same and all(map(np.array_equal, run.trials, prior.trials))


def _listed(question_ids: Sequence[str]) -> str:
    return ", ".join(name[:_N_CHARACTERS] for name in question_ids[:_N_SHOWN])
