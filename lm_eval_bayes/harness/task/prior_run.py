"""The prior trials of a task that names an earlier run in its metadata, `bayes_prior`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lm_eval_bayes.errors import InvalidInputError, LmEvalBayesError, TaskConfigError
from lm_eval_bayes.harness.task.requests import doc_hash
from lm_eval_bayes.harness.task.result_rows import with_prior_trials
from lm_eval_bayes.harness.task.settings import Settings
from lm_eval_bayes.runs.prior_trials import prior_counts
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats import Outcomes


@dataclass(frozen=True)
class PriorTrials:
    """The outcomes of an earlier run, by question.

    Attributes
    ----------
    run : TaskRun
        The earlier run.
    counts : mapping of str to tuple of int
        The trials by category of each question that has some, by the hash of its document.
    settings : Settings
        Those of the task, with the weight of a prior trial.
    """

    run: TaskRun
    counts: Mapping[str, tuple[int, ...]]
    settings: Settings

    @classmethod
    def read(cls, docs: Iterable[Any], settings: Settings, task: str) -> PriorTrials:
        """Read the earlier run that the settings name, before anything is sampled.

        Parameters
        ----------
        docs : iterable
            The documents of the task's questions.
        settings : Settings
            With `prior`, the path of the run.
        task : str
            The task's name. A run of several tasks has its prior in the task of this name, else
            in the one with most of the questions.

        Raises
        ------
        TaskConfigError
            If the run cannot be read, holds several models, or has none of the questions.
        """
        ids = list(dict.fromkeys(doc_hash(doc) for doc in docs))
        try:
            saved = read_runs(str(settings.prior), argument="bayes_prior")
            run = _run_of(saved.runs, ids, task)
            weights = np.array(settings.weights)
            counts = prior_counts(ids, weights, run, task, "bayes_prior")
        except LmEvalBayesError as error:
            sentence = f"task {task}: {error}"
            raise TaskConfigError(sentence, error.rule, error.argument, error.value) from error
        rows = zip(ids, counts.tolist(), strict=True)
        return cls(run, {digest: tuple(row) for digest, row in rows if any(row)}, settings)

    def of(self, doc: Any) -> tuple[int, ...] | None:
        """Return the prior trials of a question by category; None if it has none."""
        return self.counts.get(doc_hash(doc))

    def inform(self, outcomes: Outcomes, hashes: Sequence[str]) -> Outcomes:
        """Return outcomes with the prior trials of their questions.

        Parameters
        ----------
        outcomes : Outcomes
            Trials of some of the task's questions.
        hashes : sequence of str, length M
            The hashes of their documents.
        """
        counts = [self.counts.get(digest) for digest in hashes]
        return with_prior_trials(outcomes, counts, self.settings) if any(counts) else outcomes

    def check_other_store(self, store: str | os.PathLike[str], task: str) -> None:
        """Refuse the trial store of the evaluation itself, whose trials would count twice.

        Raises
        ------
        TaskConfigError
            If the earlier run was read from it.
        """
        if os.path.realpath(store) in {os.path.realpath(source) for source in self.run.sources}:
            sentence = (
                f"task {task}: `bayes_prior` must hold other trials than those of this run, or "
                f"they would count twice; got its own trial store, {os.fspath(store)}"
            )
            raise TaskConfigError(sentence, "conflict", "bayes_prior", os.fspath(store))


def _run_of(runs: Sequence[TaskRun], ids: Sequence[str], task: str) -> TaskRun:
    of_task = [run for run in runs if run.task == task]
    wanted = set(ids)
    candidates = of_task or [run for run in runs if wanted & set(run.question_ids)]
    if not candidates:
        rule = f"have questions of {task}"
        got = ", ".join(dict.fromkeys(run.task for run in runs)) or "no task"
        raise InvalidInputError.of("bayes_prior", "mismatch", rule, f"a run of {got}")
    models = list(dict.fromkeys(run.model for run in candidates))
    if len(models) > 1:
        raise InvalidInputError.of("bayes_prior", "mismatch", "hold one model", ", ".join(models))
    return max(candidates, key=lambda run: len(wanted & set(run.question_ids)))
