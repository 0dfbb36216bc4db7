"""The arguments that every command that reads saved runs has, and the reading itself."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Optional

import typer

from lm_eval_bayes.cli.ui.errors import named_as_options
from lm_eval_bayes.cli.ui.output import warn
from lm_eval_bayes.cli.ui.progress import Progress
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes.runs.task_run import SavedRuns
    from lm_eval_bayes.stats.intervals import IntervalSpec


class Scope(str, Enum):
    """What a statement is about: these questions, or questions like these."""

    benchmark = "benchmark"
    population = "population"


class IntervalKind(str, Enum):
    """How a credible interval is made."""

    exact = "exact"
    hdi = "hdi"
    beta = "beta"
    normal = "normal"


class Ties(str, Enum):
    """Whom a model is compared with to share a rank."""

    adjacent = "adjacent"
    leader = "leader"
    pairwise = "pairwise"
    none = "none"


#: RUN…, as every command takes them.
Runs = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN",
        help="Output folders of the harness, results_*.json or samples_*.jsonl files, trial "
        "stores, outcome matrices (.csv, .npz) or files of counts (.csv, .jsonl).",
        show_default=False,
    ),
]
Task = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="NAME",
        help="Only this task, or the tasks of this group. Matrices and counts in files that name "
        "no task are taken for it.",
    ),
]
Metric = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="NAME",
        help="The logged 0/1 metric to count in tasks that were not sampled repeatedly, such as "
        "exact_match. By default the only one there is, or the first that the task lists.",
    ),
]
Filter = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="NAME",
        help="The filter pipeline whose output counts; by default the first that was logged.",
    ),
]
Dedupe = Annotated[
    bool,
    typer.Option(
        "--dedupe",
        help="Count a trial that was saved twice once, instead of refusing. Trials are told by "
        "their seeds, else by their numbers and texts.",
    ),
]
Regrade = Annotated[
    bool,
    typer.Option(
        "--regrade",
        help="Grade every saved text again, as a mathematical answer, against the logged target; "
        "each is a trial then, also where the task gave them one grade.",
    ),
]
Level = Annotated[float, typer.Option(metavar="P", help="Posterior mass of the intervals.")]
ScopeOption = Annotated[
    Scope, typer.Option(help="About these questions, or about questions like these.")
]
OneScope = Annotated[
    Optional[Scope],  # noqa: UP045
    typer.Option(
        help="Only hbayes@N about these questions, or only the one about questions like these. "
        "By default both.",
        show_default=False,
    ),
]
Interval = Annotated[IntervalKind, typer.Option(help="How credible intervals are made.")]
Seed = Annotated[int, typer.Option(metavar="N", help="Seed of whatever is drawn.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


#: Bytes from which on the reading takes long enough to be watched.
_LONG = 50_000_000
#: What the bar counts.
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
    """Read runs, with a progress bar where it takes long; warnings and notes go to standard error.

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
        found = read_runs(
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
    for warning in found.warnings:
        warn(f"warning: {warning}")
    models: dict[tuple[str, str], list[str]] = {}
    for run in found.runs:
        for note in run.notes:
            models.setdefault((run.task, note), []).append(run.model)
    for (of, note), names in models.items():
        warn(f"note: {', '.join(names)}, {of}: {note}")
    return found


def interval_spec(
    level: float,
    seed: int,
    scope: Scope = Scope.benchmark,
    interval: IntervalKind = IntervalKind.exact,
) -> IntervalSpec:
    """Return the interval settings of a command; errors name its options."""
    from lm_eval_bayes.stats.intervals import IntervalSpec

    with named_as_options("level", "seed"):
        return IntervalSpec(level, scope.value, interval.value, seed)


def check_level_and_seed(level: float, seed: int) -> None:
    """Refuse, before anything is read, what every command would refuse in the end.

    Raises
    ------
    InvalidInputError
        Naming the option.
    """
    from lm_eval_bayes.stats.validation import check_level, check_seed

    with named_as_options("level", "seed"):
        check_level(level)
        check_seed(seed)


def numbers_in(option: str, text: str) -> list[int]:
    """Read `1,2,4`.

    Raises
    ------
    InvalidInputError
        If it is no list of whole numbers from 1.

    Examples
    --------
    >>> numbers_in("--k", "1, 2,8")
    [1, 2, 8]
    """
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        found = []
    if not found or found[0] < 1:
        rule = "be whole numbers from 1 with commas between them, as in 1,2,4"
        raise InvalidInputError.of(option, rule, text)
    return found


class _Bar(ExitStack):
    """Begins to tell of the bytes that were read when it knows that they are many."""

    _progress: Progress | None = None

    def show(self, done: int, total: int) -> None:
        """Tell that so many bytes of all are read."""
        if total < _LONG:
            return
        if self._progress is None:
            self._progress = self.enter_context(Progress("megabytes read", total // _UNIT))
        if done // _UNIT > self._progress.done:
            self._progress.advance(done // _UNIT - self._progress.done)
