"""Whether an earlier run has other trials than the runs that it is evidence for."""

from __future__ import annotations

import os
from collections.abc import Sequence

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.task_run import TaskRun


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
