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

    Raises
    ------
    InvalidInputError
        If the scores of the categories differ, or no question is in both.
    """
    prior.require_graded("prior")
    of_prior = prior.outcomes
    if of_prior.weights.tolist() != weights.tolist():
        rule = f"have the category weights of {task}, {weights.tolist()}"
        got = f"{of_prior.weights.tolist()} in {prior.label}"
        raise InvalidInputError.of("prior", "mismatch", rule, got)
    rows = dict(zip(prior.question_ids, of_prior.counts, strict=True))
    none = np.zeros(weights.size, dtype=np.int64)
    counts = np.array([rows.get(id, none) for id in question_ids], dtype=np.int64)
    if not counts.any():
        rule = f"have trials of questions of {task}, such as {_listed(question_ids)}"
        got = f"questions such as {_listed(prior.question_ids)} in {prior.label}"
        raise InvalidInputError.of("prior", "mismatch", rule, got)
    return counts


def check_other_trials(runs: Sequence[TaskRun], prior: TaskRun) -> None:
    """Refuse a prior run whose trials are counted already.

    Raises
    ------
    InvalidInputError
        If a file of the prior run is one of those that `runs` were read from, or if a run of the
        same model has some of its trials.
    """
    files = set(map(os.path.realpath, prior.sources))
    for run in runs:
        if not files.isdisjoint(map(os.path.realpath, run.sources)) or _share_trials(run, prior):
            rule = f"hold other trials than those of {run.model}, or they would count twice"
            raise InvalidInputError.of("prior", "duplicate", rule, prior.label)


def _share_trials(run: TaskRun, prior: TaskRun) -> bool:
    """Return whether runs of one model have trials of one seed, all with the same outcomes.

    Of outcomes that are all alike nothing is known.
    """
    names = [(of.model.split(" (")[0], of.task) for of in (run, prior)]
    if names[0] != names[1]:
        return False
    outcomes, others = _outcomes(run), _outcomes(prior)
    common = outcomes.keys() & others.keys()
    same = all(outcomes[trial] == others[trial] for trial in common)
    return same and len({outcomes[trial] for trial in common}) > 1


def _outcomes(run: TaskRun) -> dict[tuple[str, int], tuple[int, str | None]]:
    """Return the outcome and the answer of every trial with a seed, by its question and seed."""
    outcomes: dict[tuple[str, int], tuple[int, str | None]] = {}
    if run.seeds is None or run.trials is None:
        return outcomes
    for row, id in enumerate(run.question_ids):
        answers = run.answers[row] if run.answers else (None,) * run.trials[row].size
        trials = zip(run.seeds[row], run.trials[row].tolist(), answers, strict=True)
        outcomes |= {(id, seed): (outcome, a) for seed, outcome, a in trials if seed is not None}
    return outcomes


def _listed(question_ids: Sequence[str]) -> str:
    return ", ".join(name[:_N_CHARACTERS] for name in question_ids[:_N_SHOWN])
