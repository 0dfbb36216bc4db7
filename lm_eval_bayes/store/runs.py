"""Runs that the harness saved: the tasks of an output folder, and their logged samples."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.schemata import Schema, schema_from

#: Arguments of a model that say nothing about it.
_NOT_THE_MODEL = frozenset(
    {"backend", "store", "trials", "seed_scheme", "synchronous", "batch_size"}
)

_RULE = "be a run's output folder, or one of its results_*.json or samples_*.jsonl files"


@dataclass(frozen=True, eq=False)
class SavedTask:
    """One task of one saved run.

    Attributes
    ----------
    model : str
        What the run calls its model.
    task : str
        The task's name.
    samples : Path
        The file of its logged samples.
    config : mapping
        The task's configuration; empty where no results file is there.
    """

    model: str
    task: str
    samples: Path
    config: Mapping[str, Any]

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of repeated sampling that the task ran with; empty if it had none."""
        found = (self.config.get("metadata") or {}).get("bayes")
        return found if isinstance(found, Mapping) else {}

    @property
    def weights(self) -> tuple[float, ...]:
        """The score of each graded category."""
        return tuple(self.settings.get("weights") or (0.0, 1.0))

    @property
    def own_rubrics(self) -> tuple[Schema, ...]:
        """The rubrics of its own that the task ran with.

        Raises
        ------
        InvalidInputError
            If what the results say of them is no rubric.
        """
        rubrics = self.settings.get("rubrics")
        own = rubrics.get("own") if isinstance(rubrics, Mapping) else None
        return tuple(schema_from(one) for one in own) if isinstance(own, list) else ()

    def rows(self, argument: str = "run") -> list[dict[str, Any]]:
        """Read the logged questions in their order; of several filters the first one logged.

        Raises
        ------
        InvalidInputError
            If a line is cut off or holds no graded trials.
        """
        rows = list(_lines(self.samples, argument))
        if not rows:
            raise InvalidInputError.of(argument, "hold samples", self.samples.name)
        if any("outcomes" not in row or "doc_id" not in row for row in rows):
            rule = "hold graded trials of a task of this package (`outcomes` in every line)"
            raise InvalidInputError.of(argument, rule, self.samples.name)
        numbers = [row["doc_id"] for row in rows]
        if any(isinstance(n, bool) or not isinstance(n, int) for n in numbers):
            rule = f"number its questions (`doc_id` in every line of {self.samples.name})"
            raise InvalidInputError.of(
                argument, rule, next(n for n in numbers if type(n) is not int)
            )
        chosen = rows[0].get("filter")
        kept = [row for row in rows if row.get("filter") == chosen]
        counted = Counter(row["doc_id"] for row in kept)
        twice = [number for number, times in counted.items() if times > 1]
        if twice:
            rule = f"log every question once ({self.samples.name})"
            raise InvalidInputError.of(argument, rule, f"question {twice[0]} twice")
        return sorted(kept, key=lambda row: int(row["doc_id"]))


def saved_tasks(
    paths: Iterable[str | Path], argument: str = "run", task: str | None = None
) -> tuple[SavedTask, ...]:
    """Find the tasks of saved runs.

    Parameters
    ----------
    paths : iterable of str or Path
        Folders that the harness wrote into, `results_*.json` or `samples_*.jsonl` files. Of a
        folder the newest samples of every model and task count.
    argument : str
        What to call a path in an error.
    task : str, optional
        Only tasks of this name.

    Returns
    -------
    tuple of SavedTask
        In the order of the paths. Models of one name and task get a number: ``name``,
        ``name (2)``.

    Raises
    ------
    InvalidInputError
        If a path holds no saved run with logged samples.
    """
    found: list[SavedTask] = []
    for path in paths:
        here = list(_tasks_at(Path(path).expanduser(), str(path), argument))
        if task is not None:
            named = [one for one in here if one.task == task]
            if not named:
                rule = f"hold task {task}; there is {', '.join(sorted({t.task for t in here}))}"
                raise InvalidInputError.of(argument, rule, str(path))
            here = named
        known = {one.samples.resolve() for one in found}
        found += [one for one in here if one.samples.resolve() not in known]
    return tuple(_told_apart(found))


def _tasks_at(place: Path, path: str, argument: str) -> Iterator[SavedTask]:
    if place.is_dir():
        files = sorted(place.rglob("samples_*.jsonl"))
    elif place.name.startswith("results_") and place.suffix == ".json" and place.is_file():
        stamp = place.stem.removeprefix("results_")
        files = sorted(place.parent.glob(f"samples_*_{stamp}.jsonl"))
    elif place.name.startswith("samples_") and place.suffix == ".jsonl" and place.is_file():
        files = [place]
    else:
        raise InvalidInputError.of(argument, _RULE, path)
    newest: dict[tuple[Path, str], SavedTask] = {}
    for file in files:  # their names end with the time, so that later ones replace earlier ones
        one = _saved_task(file, argument)
        newest[file.parent, one.task] = one
    if not newest:
        rule = f"{_RULE}, with logged samples (--log_samples)"
        raise InvalidInputError.of(argument, rule, path)
    yield from newest.values()


def _saved_task(file: Path, argument: str) -> SavedTask:
    name, _, stamp = file.stem.removeprefix("samples_").rpartition("_")
    results = _results(file.with_name(f"results_{stamp}.json"), argument)
    configs = results.get("configs")
    configs = configs if isinstance(configs, Mapping) else {}
    # the harness writes a task's slashes as two underscores
    task = next((t for t in configs if t.replace("/", "__") == name), name)
    return SavedTask(_model_name(results, file), task, file, configs.get(task) or {})


def _model_name(results: Mapping[str, Any], file: Path) -> str:
    """Return what to call a run's model: the harness names those without a path by a hash."""
    config = results.get("config")
    config = config if isinstance(config, Mapping) else {}
    arguments = config.get("model_args")
    keys = ("pretrained", "model", "model_name", "engine", "path")
    if not isinstance(arguments, Mapping) or any(arguments.get(key) for key in keys):
        name = str(results.get("model_name") or "") or file.parent.name
        # of a local path the last part, unless nothing is left; a name on the hub has a slash too
        local = Path(name).is_absolute() or name.startswith((".", "~"))
        return (Path(name).name or name) if local else name
    kind = str(arguments.get("backend") or config.get("model") or file.parent.name)
    told = [f"{key}={value}" for key, value in arguments.items() if key not in _NOT_THE_MODEL]
    return " ".join([kind, *told])


def _results(file: Path, argument: str) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInputError.of(argument, f"have a whole {file.name}", error) from None
    return found if isinstance(found, dict) else {}


def _lines(file: Path, argument: str) -> Iterator[dict[str, Any]]:
    try:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError) as error:
                    told = getattr(error, "msg", str(error))
                    raise _cut_off(file, argument, f"line {number}: {told}") from None
                if not isinstance(row, dict):
                    raise _cut_off(file, argument, f"line {number} is no object")
                yield row
    except (OSError, UnicodeDecodeError) as error:
        raise _cut_off(file, argument, str(error)) from None


def _cut_off(file: Path, argument: str, told: str) -> InvalidInputError:
    rule = f"have a whole samples file; {file.name} cannot be read"
    return InvalidInputError.of(argument, rule, told)


def distinct(hashes: Sequence[str]) -> tuple[str, ...]:
    """Tell apart the places of a question that stands twice in a task.

    Examples
    --------
    >>> distinct(["a", "b", "a"])
    ('a', 'b', 'a#2')
    """
    seen: dict[str, int] = {}
    ids = []
    for digest in hashes:
        seen[digest] = seen.get(digest, 0) + 1
        ids.append(digest if seen[digest] == 1 else f"{digest}#{seen[digest]}")
    return tuple(ids)


def _told_apart(found: Sequence[SavedTask]) -> Iterator[SavedTask]:
    seen: dict[tuple[str, str], int] = {}
    for one in found:
        times = seen[one.model, one.task] = seen.get((one.model, one.task), 0) + 1
        name = one.model if times == 1 else f"{one.model} ({times})"
        yield SavedTask(name, one.task, one.samples, one.config)
