"""Earlier runs as prior evidence: which is whose, the weight of their trials, and their effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lm_eval_bayes._util.plain import Record, json_name
from lm_eval_bayes._util.text import first_names
from lm_eval_bayes.analysis.comparability import (
    check_same_metric,
    check_same_weights,
    identical_runs,
)
from lm_eval_bayes.analysis.pass_rows import rows_to_dict
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.merging import check_other_trials
from lm_eval_bayes.runs.task_run import SavedRuns, TaskRun
from lm_eval_bayes.stats import (
    SAME_CHANCES,
    IntervalSpec,
    LearnedShift,
    Outcomes,
    Posterior,
    Strength,
    check_strength,
    hbayes_by,
    learn_shift,
)


@dataclass(frozen=True, eq=False)
class GivenPrior:
    """An earlier run, as it was given.

    Attributes
    ----------
    saved : SavedRuns
        What was read.
    model : str or None
        The model whose prior it is; None for the model of the same name, or the only one.
    """

    saved: SavedRuns
    model: str | None = None


@dataclass(frozen=True, eq=False)
class PriorEffect(Record):
    """A model's hbayes@N on a task with the prior trials, and without.

    Attributes
    ----------
    task, model : str
        The task and the model.
    prior_model : str
        The model of the earlier run.
    sources : tuple of str
        The files of the earlier run.
    n_questions : int
        How many of the questions have prior trials.
    n_trials : int
        The prior trials of these questions.
    strength : float or None
        λ, the weight of one prior trial; None where a shift was learned.
    shift : float or None
        The mean of the learned scale of shifts between the runs, in logits; None with λ.
    informed, without : Posterior
        With the prior trials, and without.
    note : str or None
        What the numbers with the prior trials assume, if they have a weight.
    """

    task: str
    model: str
    prior_model: str
    sources: tuple[str, ...]
    n_questions: int = field(metadata=json_name("questions"))
    n_trials: int = field(metadata=json_name("trials"))
    strength: float | None
    shift: float | None
    informed: Posterior = field(metadata=json_name("with"))
    without: Posterior
    note: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types, the posteriors as mean, sd and interval."""
        sides = {"with": self.informed, "without": self.without}
        return super().to_dict() | rows_to_dict(sides)


@dataclass(frozen=True, eq=False)
class PriorRuns:
    """Runs of which some have prior trials.

    Attributes
    ----------
    runs : tuple of TaskRun
        All runs, in their order; the outcomes of some have prior trials and their weight.
    priors : mapping of int to TaskRun
        The earlier runs, by the positions of these.
    """

    runs: tuple[TaskRun, ...]
    priors: Mapping[int, TaskRun]

    def effects(self, spec: IntervalSpec) -> tuple[PriorEffect, ...]:
        """Return the effects of the prior trials on hbayes@N, with these intervals."""
        return tuple(_effect(self.runs[i], prior, spec) for i, prior in sorted(self.priors.items()))


def _effect(run: TaskRun, prior: TaskRun, spec: IntervalSpec) -> PriorEffect:
    outcomes, strength = run.outcomes, run.outcomes.prior_strength
    shift = strength.scale if isinstance(strength, LearnedShift) else None
    informed, without = (hbayes_by(side, spec) for side in (outcomes, outcomes.without_prior()))
    return PriorEffect(
        task=run.task,
        model=run.model,
        prior_model=prior.model,
        sources=prior.sources,
        n_questions=int((outcomes.prior_counts.sum(axis=1) > 0).sum()),
        n_trials=int(outcomes.prior_counts.sum()),
        strength=None if isinstance(strength, LearnedShift) else strength,
        shift=shift,
        informed=informed,
        without=without,
        note=SAME_CHANCES if shift is None else None,
    )


def assign_priors(
    runs: Sequence[TaskRun],
    priors: Sequence[GivenPrior],
    strength: Strength,
    *,
    seed: int = 0,
) -> PriorRuns:
    """Give runs the trials of earlier runs as prior trials.

    Questions are matched by their ids. Where shifts are learned, it is from all models of a task,
    see :func:`~lm_eval_bayes.stats.prior_evidence.learn_shift`.

    Parameters
    ----------
    runs : sequence of TaskRun
        One per model and task.
    priors : sequence of GivenPrior
        The earlier runs.
    strength : "auto" or float
        λ in [0, 1], the weight of a prior trial; "auto": a shift is learned.
    seed : int
        As for `hbayes_at_n`.

    Returns
    -------
    PriorRuns

    Raises
    ------
    InvalidInputError
        If a prior is of no model among the runs, of other questions or categories, has trials of
        `runs`, or if a run has two priors.

    Examples
    --------
    >>> new = TaskRun.from_trials("new", "aime", [[0, 1], [1, 1]], ["p", "q"])
    >>> old = TaskRun.from_trials("old", "aime", [[0, 0, 1]], ["p"])
    >>> informed = assign_priors([new], [GivenPrior(SavedRuns((old,)))], 0.5)
    >>> informed.runs[0].outcomes.prior_counts.tolist()
    [[2, 1], [0, 0]]
    """
    strength = check_strength(strength)
    prior_by_run: dict[int, TaskRun] = {}
    for given in priors:
        of_runs = enumerate(_prior_of(run, runs, given) for run in runs)
        matches = [(i, prior) for i, prior in of_runs if prior is not None]
        if not matches:
            rule = f"have questions of {', '.join(dict.fromkeys(run.task for run in runs))}"
            got = f"a run of {', '.join(given.saved.tasks)} without any of these questions"
            raise InvalidInputError.of("prior", "mismatch", rule, got)
        for i, prior in matches:
            if i in prior_by_run:
                rule = f"be one run for {runs[i].model} on {runs[i].task}"
                got = f"{prior_by_run[i].label}, {prior.label}"
                raise InvalidInputError.of("prior", "duplicate", rule, got)
            check_other_trials(runs, prior)
            check_same_metric(runs[i], prior, "prior")
            same_questions = set(runs[i].question_ids) == set(prior.question_ids)
            if same_questions and identical_runs([runs[i], prior]):
                rule = f"hold other trials than {runs[i].label}: these are the same, one by one"
                raise InvalidInputError.of("prior", "duplicate", rule, prior.label)
            prior_by_run[i] = prior
    informed = {i: _with_counts(runs[i], prior) for i, prior in prior_by_run.items()}
    all_runs, fixed = list(runs), 0.0 if strength == "auto" else strength
    for task in dict.fromkeys(runs[i].task for i in informed):
        of_task = [i for i in informed if runs[i].task == task]
        weight: float | LearnedShift = fixed
        if strength == "auto":
            weight = learn_shift([informed[i] for i in of_task], seed=seed)
        for i in of_task:
            outcomes = replace(informed[i], prior_strength=weight)
            all_runs[i] = replace(runs[i], outcomes=outcomes)
    return PriorRuns(tuple(all_runs), prior_by_run)


def _with_counts(run: TaskRun, prior: TaskRun) -> Outcomes:
    """Return a run's outcomes with the prior trials of its questions, of which some have none."""
    run.require_graded()
    prior.require_graded("prior")
    check_same_weights(run, prior, "prior")
    counts_of = dict(zip(prior.question_ids, prior.outcomes.counts, strict=True))
    none = np.zeros(run.outcomes.n_categories, dtype=np.int64)
    counts = [counts_of.get(id, none) for id in run.question_ids]
    return replace(run.outcomes, prior_counts=np.array(counts, dtype=np.int64))


def _prior_of(run: TaskRun, runs: Sequence[TaskRun], given: GivenPrior) -> TaskRun | None:
    """Return the earlier run of this run's model and task; None where there is none.

    Of a task of another name it is that with the most trials of these questions.
    """
    n_trials = [(prior, _n_trials(run, prior)) for prior in _runs_of_model(run, runs, given)]
    candidates = [(prior.task == run.task, n, prior) for prior, n in n_trials if n]
    return max(candidates, key=lambda candidate: candidate[:2], default=(False, 0, None))[2]


def _n_trials(run: TaskRun, prior: TaskRun) -> int:
    """Return the number of trials that the earlier run has of this run's questions.

    Positions in a matrix identify the questions of one task only.
    """
    if run.task != prior.task and None in (run.doc_ids, prior.doc_ids):
        return 0
    counted = dict(zip(prior.question_ids, prior.outcomes.n_trials.tolist(), strict=True))
    return sum(int(counted.get(id, 0)) for id in run.question_ids)


def _runs_of_model(run: TaskRun, runs: Sequence[TaskRun], given: GivenPrior) -> tuple[TaskRun, ...]:
    """Return the earlier runs of this run's model, of any task."""
    models = list(dict.fromkeys(run.model for run in runs))
    earlier = given.saved.models
    if given.model is not None or len(models) == 1:
        if len(earlier) != 1:
            rule = "hold one model"
            raise InvalidInputError.of("prior", "mismatch", rule, ", ".join(earlier) or "none")
        if given.model not in (None, *models):
            rule = f"be given to one of {first_names(models, 8)}, as MODEL=RUN"
            raise InvalidInputError.of("prior", "choice", rule, given.model)
        if given.model not in (None, run.model):
            return ()
        return tuple(given.saved.runs)
    unknown = [model for model in earlier if model not in models]
    if unknown:
        rule = f"hold models named as those of the runs ({first_names(models, 8)}), or be MODEL=RUN"
        raise InvalidInputError.of("prior", "mismatch", rule, ", ".join(unknown))
    return tuple(given.saved.of_model(run.model))
