"""The clusters of questions: runs of one task share them, whichever of them recorded them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lm_eval_bayes._util.text import join_words
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.task_run import TaskRun

#: What a field of clusters has to be, for errors.
_RULE = (
    "divide the questions of every run of right and wrong trials into clusters, at least two: a "
    "field of the documents in samples of the harness, or in the `metadata: cluster:` of a task "
    "with a trial store, or a column of counts"
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
                rule = f"put a question of {run.task} into the same cluster: {other.model} has "
                rule += f"question {question} in {first} (--cluster names a field for all runs)"
                raise InvalidInputError.of("RUN", "mismatch", rule, f"{label} for {run.model}")
    return [_with_clusters(run, by_task[run.task], required) for run in runs]


def _with_clusters(
    run: TaskRun, by_question: dict[str, tuple[str, TaskRun]], required: str | None
) -> TaskRun:
    sources = [by_question[id] for id in run.question_ids if id in by_question]
    labels = tuple(label for label, _ in sources)
    reason = ""
    if run.scored:
        reason = "has scores, whose questions are taken as independent"
    elif len(labels) < run.n_questions or not labels:
        reason = "lacks it"
    elif len(set(labels)) == 1 < len(labels):
        reason = f"has only {labels[0]}"
    if reason and required is not None:
        got = f"{required}, which {run.label} {reason} on {run.task}"
        raise InvalidInputError.of("cluster", "missing", _RULE, got)
    if reason.startswith("has only"):
        note = f"all questions are of one cluster ({labels[0]}), which says nothing about others: "
        note += "for the population of questions they were taken as independent"
        return replace(run, outcomes=replace(run.outcomes, clusters=None), notes=(*run.notes, note))
    if reason or labels == run.clusters:
        return run
    recorded = join_words(list(dict.fromkeys(source.label for _, source in sources)))
    note = f"the run records no clusters of its questions: those of {recorded} were used"
    return replace(run, outcomes=replace(run.outcomes, clusters=labels), notes=(*run.notes, note))
