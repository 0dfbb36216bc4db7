"""Reading saved runs for a command, with warnings and progress on standard error."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lm_eval_bayes.cli.ui.errors import named_as_options
from lm_eval_bayes.cli.ui.output import warn
from lm_eval_bayes.cli.ui.progress import Progress

if TYPE_CHECKING:
    from lm_eval_bayes.runs.task_run import SavedRuns

#: Bytes from which reading takes long enough for a progress bar.
_LONG = 50_000_000
#: Bytes of one step of the bar.
_UNIT = 1_000_000


def read(
    paths: Sequence[Path],
    *,
    task: str | None = None,
    metric: str | None = None,
    filter: str | None = None,
    dedupe: bool = False,
    regrade: bool = False,
    merge: bool = True,
    signals: Literal["all", "recorded"] | None = None,
    verdicts: bool = True,
    argument: str = "RUN",
) -> SavedRuns:
    """Read runs; warnings, notes and the progress of long reads go to standard error.

    The arguments are those of :func:`lm_eval_bayes.runs.reader.read_runs`.

    Raises
    ------
    InvalidInputError
        If a path holds no run, or the runs contradict each other.
    """
    from lm_eval_bayes.runs.reader import read_runs

    grader = None
    if regrade:
        from lm_eval_bayes.harness.grading.regrade import regraded

        grader = regraded
    with _Bar() as bar, named_as_options("metric", "filter", "regrade"):
        saved = read_runs(
            paths,
            task=task,
            metric=metric,
            filter=filter,
            dedupe=dedupe,
            regrade=grader,
            merge=merge,
            signals=signals,
            verdicts=verdicts,
            argument=argument,
            progress=bar.show,
        )
    for warning in saved.warnings:
        warn(f"warning: {warning}")
    models: dict[tuple[str, str], list[str]] = {}
    for run in saved.runs:
        for note in run.notes:
            models.setdefault((run.task, note), []).append(run.model)
    for (task_name, note), names in models.items():
        warn(f"note: {', '.join(names)}, {task_name}: {note}")
    return saved


class _Bar(ExitStack):
    """A progress bar of the bytes read, which appears if there are many."""

    _progress: Progress | None = None

    def show(self, done: int, total: int) -> None:
        """Set the number of bytes read so far, and of all."""
        if total < _LONG:
            return
        if self._progress is None:
            self._progress = self.enter_context(Progress("megabytes read", total // _UNIT))
        if done // _UNIT > self._progress.done:
            self._progress.advance(done // _UNIT - self._progress.done)
