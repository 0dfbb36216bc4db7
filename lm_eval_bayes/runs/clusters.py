"""The clusters of questions: runs of one task share them, whichever of them recorded them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lm_eval_bayes._util.text import join_words
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.task_run import TaskRun

#: What holds clusters, for errors.
_SOURCES = (
    "samples of the harness, with documents that have the field, a trial store of a task with the "
    "field in its `metadata: cluster:`, or a column of counts"
)


def share_clusters(runs: Sequence[TaskRun], required: str | None = None) -> list[TaskRun]:
    """Give the runs of a task the clusters of its questions, where all of a run's are known.

    A cluster is recorded with the logged samples and in the trial store, and a matrix holds none:
    its questions get the clusters that another run of the task recorded, matched by id. Scores have
    no clusters.

    Parameters
    ----------
    runs : sequence of TaskRun
        Runs of any models and tasks.
    required : str, optional
        The field that was asked for by name; every run then has to have clusters, at least two.

    Returns
    -------
    list of TaskRun
        In the same order. Without `required`, a run whose questions are of one cluster has none,
        and a note.

    Raises
    ------
    InvalidInputError
        If runs of one task put a question into different clusters, or `required` cannot be met, as
        for scores.

    Examples
    --------
    >>> ids, trials = ["p", "q", "r"], [[1], [0], [1]]
    >>> known = TaskRun.from_trials("A", "aime", trials, ids, clusters=["I", "I", "II"])
    >>> other = TaskRun.from_trials("B", "aime", trials, ids)
    >>> share_clusters([known, other])[1].clusters
    ('I', 'I', 'II')
    """
    by_task: dict[str, dict[str, tuple[str, TaskRun]]] = {}
    for run in runs:
        by_question = by_task.setdefault(run.task, {})
        for question, label in zip(run.question_ids, run.clusters or (), strict=False):
            first, other = by_question.setdefault(question, (label, run))
            if label != first:
                rule = (
                    f"put a question of {run.task} into the same cluster: {other.model} has "
                    f"question {question} in {first} (--cluster names a field for all runs)"
                )
                raise InvalidInputError.of("RUN", "mismatch", rule, f"{label} for {run.model}")
    return [_with_clusters(run, by_task[run.task], required) for run in runs]


def _with_clusters(
    run: TaskRun, by_question: dict[str, tuple[str, TaskRun]], required: str | None
) -> TaskRun:
    if run.scored:
        if required is not None:
            rule = (
                "be left out for scores, whose questions are taken as independent: clusters are "
                "used where trials are right or wrong, or in categories"
            )
            got = f"{required}, and {run.model} has scores on {run.task}"
            raise InvalidInputError.of("cluster", "conflict", rule, got)
        return run
    if not all(question in by_question for question in run.question_ids) or not run.question_ids:
        if required is not None:
            rule = f"name what all runs have: {_SOURCES}"
            got = f"{required}, which {run.label} lacks on {run.task}"
            raise InvalidInputError.of("cluster", "missing", rule, got)
        return run
    labels = tuple(by_question[question][0] for question in run.question_ids)
    if required is not None and len(set(labels)) == len(labels):
        note = (
            f"every question has a {required} of its own: clusters of one question change nothing"
        )
        run = replace(run, notes=(*run.notes, note))
    if len(set(labels)) == 1 and len(labels) > 1:
        if required is not None:
            rule = f"name at least two clusters of the questions of {run.task}"
            raise InvalidInputError.of(
                "cluster", "empty", rule, f"only {labels[0]} in field {required}"
            )
        note = (
            f"all questions are of one cluster ({labels[0]}), which says nothing about others: for "
            "the population of questions they were taken as independent"
        )
        return replace(run, outcomes=replace(run.outcomes, clusters=None), notes=(*run.notes, note))
    if labels == run.clusters:
        return run
    sources = {by_question[question][1].label: None for question in run.question_ids}
    recorded = join_words(list(sources))
    note = f"the run records no clusters of its questions: those of {recorded} were used"
    return replace(run, outcomes=replace(run.outcomes, clusters=labels), notes=(*run.notes, note))
