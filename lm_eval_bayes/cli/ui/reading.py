"""Reading saved runs: its options, and its warnings and progress on standard error."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lm_eval_bayes.cli.ui.errors import named_as_options
from lm_eval_bayes.cli.ui.options import option
from lm_eval_bayes.cli.ui.output import Progress, warn, warn_notes
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes.runs.task_run import SavedRuns

#: Bytes from which reading takes long enough for a progress bar.
_LONG = 50_000_000
#: Bytes of one step of the bar.
_UNIT = 1_000_000
#: Names of files of the harness, and of verdicts on its samples.
_OF_HARNESS = re.compile(r"results(_.*)?\.json|(samples|verdicts)_.*\.jsonl")


def _path(text: str) -> Path:
    if not text:  # as of a variable of the shell that is not set
        raise typer.BadParameter("it is empty")
    return Path(text)


Runs = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN",
        parser=_path,
        help="Output folders of the harness, results_*.json or samples_*.jsonl files, trial "
        "stores, tables (.csv, .jsonl, .parquet, .npz) or logs of other tools: see "
        "`lm-eval-bayes formats`.",
    ),
]
Task = Annotated[
    str | None,
    option(
        "NAME",
        "Only this task, or the tasks of this group. It also names the task of matrices "
        "and counts whose files name none.",
    ),
]
Dedupe = Annotated[
    bool,
    typer.Option(
        "--dedupe",
        help="Count a trial that was saved twice once, instead of refusing it. A trial is "
        "identified by its seed, number or id in the log, in several files by its text too; "
        "without these, records with a text that are equal in every field are one trial. Trials "
        "that both sides of `compare` hold count on both.",
    ),
]


@dataclass(frozen=True)
class ReadingOptions:
    """Which trials of saved runs are counted."""

    task: Task = None
    metric: Annotated[
        str | None,
        option(
            "NAME",
            "The metric to count: one of those in `bayes_metric`, or of a task without repeated "
            "sampling one with values 0 and 1, such as exact_match. By default the only one, or "
            "the first that the task lists.",
        ),
    ] = None
    filter: Annotated[
        str | None,
        option(
            "NAME",
            "The filter pipeline whose output is graded. By default the first that was logged.",
        ),
    ] = None
    dedupe: Dedupe = False
    regrade: Annotated[
        bool,
        typer.Option(
            "--regrade",
            help="Grade every saved text again, as a mathematical answer, against the logged "
            "target. Each text is one trial, even where the task gave several texts one grade.",
        ),
    ] = False

    cluster: Annotated[
        str | None,
        option(
            "FIELD",
            "The field of the logged documents (contest, topic, passage), or the column of a "
            "table, that names the cluster of each question. Scope population then takes the "
            "questions of a cluster as dependent. By default what the task recorded.",
        ),
    ] = None

    columns: Annotated[
        str | None,
        option(
            "KIND=COLUMN,…",
            "The columns of tables with one row per trial, where their names are not known: "
            "question=item,score=pass. Kinds: question, score, model, task, trial, answer, "
            "response, target, tokens, cost, time, cluster, category.",
        ),
    ] = None

    bounds: Annotated[
        str | None,
        option(
            "LOW:HIGH",
            "The lowest and the highest possible score of tables and of other tools' logs. By "
            "default 0:1.",
        ),
    ] = None

    unscored: Annotated[
        Literal["left-out", "wrong"],
        typer.Option(
            help="What becomes of trials without a score in tables and in other tools' logs, as "
            "after an error of an agent: wrong gives them the lowest score."
        ),
    ] = "left-out"

    model: Annotated[
        list[str] | None,
        option(
            "NAME=RUN",
            "The name of the model in RUN, a path that is read, or a file or a folder in one. Runs "
            "of one name are one model: their trials are joined. May be given several times.",
        ),
    ] = None

    skip_unreadable: Annotated[
        bool,
        typer.Option(
            "--skip-unreadable",
            help="Leave out files that are damaged or may not be read, with a warning for each.",
        ),
    ] = False

    def words(self) -> list[str]:
        """Return the options that were given, as words of a command line."""
        words = []
        for field in fields(self):
            given = getattr(self, field.name)
            for value in given if isinstance(given, (list, tuple)) else [given]:
                if value != field.default:
                    words.append(f"--{field.name.replace('_', '-')}")
                    words += [] if value is True else [value]
        return words

    def read(
        self, paths: Sequence[Path], check_independence: bool = True, **arguments: Any
    ) -> SavedRuns:
        """Read runs; warnings, notes and the progress of long reads go to standard error.

        Runs whose trials seem to depend on each other get a warning with `check_independence`.
        Further arguments are those of :func:`lm_eval_bayes.runs.reader.read_runs`.

        Raises
        ------
        InvalidInputError
            If a path holds no run, or the runs contradict each other.
        """
        from lm_eval_bayes.analysis.independence import dependence_note
        from lm_eval_bayes.runs.reader import read_runs
        from lm_eval_bayes.runs.readers.column_names import parse_bounds, parse_columns

        arguments.setdefault("dedupe", self.dedupe)
        if self.regrade:
            from lm_eval_bayes.harness.grading.grade import regraded

            arguments["regrade"] = regraded
        arguments.setdefault("cluster", self.cluster)
        options = ("metric", "filter", "regrade", "cluster", "columns", "bounds", "model")
        with _Bar() as bar, named_as_options(*options):
            arguments["columns"] = parse_columns(self.columns)
            arguments["bounds"] = parse_bounds(self.bounds)
            arguments["models"] = _models(self.model or ())
            saved = read_runs(
                paths,
                task=self.task,
                metric=self.metric,
                filter=self.filter,
                unscored=self.unscored,
                skip_unreadable=self.skip_unreadable,
                progress=bar.show,
                **arguments,
            )
        if check_independence:
            dependent = [
                f"{run.model}, {run.task}: {note}"
                for run in saved.runs
                if (note := dependence_note(run))
            ]
            saved = replace(saved, warnings=(*saved.warnings, *dependent))
        for warning in saved.warnings:
            warn(f"warning: {warning}")
        for note in saved.notes:
            warn(f"note: {note}")
        warn_notes((run.task, [run.model], note) for run in saved.runs for note in run.notes)
        return saved


def _models(named: Iterable[str]) -> dict[str, str]:
    """Return the names of models by their paths."""
    models = {}
    for text in named:
        name, sign, path = text.partition("=")
        if not (name and sign and path) or path in models:
            rule = "be NAME=RUN, with one name for every path"
            raise InvalidInputError.of("model", "format", rule, text)
        models[path] = name
    return models


def check_not_read(
    outputs: Iterable[Path], paths: Sequence[Path], saved: SavedRuns, argument: str = "--output"
) -> None:
    """Refuse to replace a file that runs are read from, whether its task was chosen or not.

    Parameters
    ----------
    outputs : iterable of Path
        The files to be written.
    paths : sequence of Path
        The paths that were read.
    saved : SavedRuns
        The runs in them.
    argument : str
        Name of the argument of the outputs in the error.

    Raises
    ------
    InvalidInputError
        If an output is one of the paths, a file that a run is from, or a file of the harness beside
        it or below one of the paths.
    """
    sources = [*paths, *(Path(source) for run in saved.runs for source in run.sources)]
    read_folders = [os.path.realpath(path) for path in paths if path.is_dir()]
    samples = [path for path in sources if _OF_HARNESS.match(path.name)]
    beside = {os.path.realpath(path.parent) for path in samples}
    for output in outputs:
        if not output.exists():
            continue
        is_read = any(s.exists() and output.samefile(s) for s in sources)
        if not is_read and _OF_HARNESS.match(output.name):
            real = Path(os.path.realpath(output))
            is_below = any(real.is_relative_to(folder) for folder in read_folders)
            is_read = is_below or str(real.parent) in beside
        if is_read:
            rule = "be another file than those that the runs are read from"
            raise InvalidInputError.of(argument, "conflict", rule, str(output))


def check_single_task(saved: SavedRuns, option: str, value: str) -> None:
    """Refuse an option of one task where several were read."""
    if len(saved.tasks) > 1:
        rule = f"be of one task; choose one with --task ({', '.join(saved.tasks)})"
        raise InvalidInputError.of(option, "conflict", rule, value)


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
