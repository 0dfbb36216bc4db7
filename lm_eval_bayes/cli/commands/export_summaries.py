"""What the commands that write submissions have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from lm_eval_bayes.cli.ui.reading import IntervalKind, interval_spec

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.summary import TaskSummary
    from lm_eval_bayes.runs.task_run import TaskRun

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")]


def summaries(
    runs: Sequence[TaskRun], level: float, interval: IntervalKind, seed: int
) -> list[TaskSummary]:
    """Summarise runs; what is wrong is told of the options."""
    from lm_eval_bayes.analysis.summary import summarise

    spec = interval_spec(level, seed, interval=interval)
    return [summarise(run, spec) for run in runs]
