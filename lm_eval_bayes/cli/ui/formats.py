"""The files that can be read, and which of them a path is: what `doctor` prints of files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.text import one_line, plural
from lm_eval_bayes.cli.screens.layout import say_table
from lm_eval_bayes.cli.ui.output import say, say_json, warn
from lm_eval_bayes.errors import InvalidInputError


def list_formats() -> None:
    """List the files that every command reads."""
    from lm_eval_bayes.runs.readers.column_names import ALIASES
    from lm_eval_bayes.runs.readers.formats import FORMATS

    for format in FORMATS:
        say(f"{format.name}: {format.files}")
    say()
    say("columns of a table of trials, by what they hold (or --columns KIND=NAME):")
    for kind, aliases in ALIASES.items():
        say(f"  {kind}: {', '.join(aliases)}")


def describe(paths: Sequence[Path], as_json: bool) -> None:
    """Show what every path is taken for: its format, models, tasks, questions and trials.

    Raises
    ------
    InvalidInputError
        After the last path, if one is of no format, or broken.
    """
    from lm_eval_bayes.store.locations import store_of

    records, errors = [], []
    # As in reading, the companions of a store that a shell names for runs/* are left out.
    for path in [path for path in paths if store_of(path) is None] or paths[:1]:
        try:
            record = _described(path)
        except InvalidInputError as error:
            errors.append(error)
            records.append({"path": str(path), "error": str(error)})
            if not as_json:
                warn(f"{one_line(path)}: {error}")
            continue
        records.append(record)
        if not as_json:
            _show(record)
    if as_json:
        say_json({"files": records})
    if errors:
        raise errors[0]


def _described(path: Path) -> dict[str, Any]:
    from lm_eval_bayes.runs.reader import read_runs
    from lm_eval_bayes.runs.readers.formats import recognise

    format, found = recognise(path)
    saved = read_runs([path], dedupe=True)
    return {
        "path": str(path),
        "format": format.name,
        "files": [str(file) for file in found.files],
        "runs": [
            {
                "model": run.model,
                "task": run.task,
                "questions": run.n_questions,
                "trials": run.n_trials,
                "metric": run.counted,
            }
            for run in saved.runs
        ],
        "notes": [*saved.notes, *saved.warnings],
    }


def _show(record: dict[str, Any]) -> None:
    say(f"{one_line(record['path'])}: {record['format']}, {plural(len(record['files']), 'file')}")
    for note in record["notes"]:
        warn(f"note: {note}")
    runs = record["runs"]
    say_table("", list(runs[0]), [tuple(run.values()) for run in runs])
    say()
