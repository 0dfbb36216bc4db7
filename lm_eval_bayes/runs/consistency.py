"""What runs that are looked at together should share, and what a reader must know if not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lm_eval_bayes.runs.model_names import differing_keys
from lm_eval_bayes.runs.provenance import generation
from lm_eval_bayes.runs.task_run import TaskRun


def check_together(runs: Sequence[TaskRun]) -> list[str]:
    """Return what the runs of a task lack, and what differs between them though it need not."""
    by_task: dict[str, list[TaskRun]] = {}
    for run in runs:
        by_task.setdefault(run.task, []).append(run)
    return [told for task, here in by_task.items() for told in _of_task(task, here)]


def _of_task(task: str, runs: Sequence[TaskRun]) -> Iterator[str]:
    for run in runs:
        none = int((run.outcomes.n_trials == 0).sum())
        if none:
            of_all = f"{none:,} of {run.n_questions:,} questions"
            yield f"task {task}: {of_all} have no trial of {run.model}"
    versions = {str(run.made.versions["task"]): run for run in runs if "task" in run.made.versions}
    if len(versions) > 1:
        told = ", ".join(f"{version} ({run.model})" for version, run in versions.items())
        yield f"task {task}: the runs are of different versions, {told}"
    for what, values in (
        ("scores of the categories", {tuple(run.outcomes.weights.tolist()): run for run in runs}),
        ("metrics", {run.metric: run for run in runs}),
        ("filters", {run.filter: run for run in runs}),
    ):
        if len(values) > 1:
            told = ", ".join(f"{value} ({run.model})" for value, run in values.items())
            yield f"task {task}: the runs have different {what}, {told}"
    sent = [generation(run.made.generation_kwargs) for run in runs if run.made.generation_kwargs]
    differing = differing_keys(sent) if sent else []
    if differing:
        told = "; ".join(
            f"{key}: " + ", ".join(dict.fromkeys(str(one.get(key, "unset")) for one in sent))
            for key in differing
        )
        yield f"task {task}: the runs were generated with different settings ({told})"
    yield from _prompts(task, runs)


def _prompts(task: str, runs: Sequence[TaskRun]) -> Iterator[str]:
    asked: dict[str, set[str]] = {}
    for run in runs:
        for id, prompt in zip(run.question_ids, run.prompt_hashes or (), strict=False):
            if prompt:
                asked.setdefault(id, set()).add(prompt)
    differ = sum(len(prompts) > 1 for prompts in asked.values())
    if differ:
        yield (
            f"task {task}: the prompts of {differ:,} of {len(asked):,} questions differ between "
            "the runs, as they do where models have chat templates of their own, and where "
            "something else was asked"
        )
