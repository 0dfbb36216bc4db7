"""Runs that the harness saved: the tasks of an output folder, and their logged samples."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from glob import escape
from pathlib import Path
from typing import Any

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.schemata import Schema, schema_from
from lm_eval_bayes.runs.model_names import differing_keys, with_settings
from lm_eval_bayes.runs.provenance import arguments_of, generation, mapping, origin

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
    stamp : str
        The time in the names of the run's files.
    results : mapping
        All that the results file says; empty where there is none.
    """

    model: str
    task: str
    samples: Path
    config: Mapping[str, Any]
    stamp: str = ""
    results: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of repeated sampling that the task ran with; empty if it had none."""
        metadata = self.config.get("metadata")
        found = metadata.get("bayes") if isinstance(metadata, Mapping) else None
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

    @cached_property
    def made_by(self) -> Mapping[str, Any]:
        """What makes the trials of one task other ones, as far as the results say."""
        made = origin(self, None)
        found = {**arguments_of(self, made), **generation(made.generation_kwargs)}
        asked = mapping(self.results.get("config"))
        seed = made.model_args.get("seed", asked.get("random_seed"))
        return {**found, "seed": seed} if seed is not None else found

    @property
    def n_answered(self) -> int | None:
        """How many questions the run answered, None where the results do not say."""
        return self._counted("effective")

    @property
    def n_there(self) -> int | None:
        """How many questions the task has, None where the results do not say."""
        return self._counted("original")

    def _counted(self, what: str) -> int | None:
        counted = self.results.get("n-samples")
        of_task = counted.get(self.task) if isinstance(counted, Mapping) else None
        found = of_task.get(what) if isinstance(of_task, Mapping) else None
        return found if isinstance(found, int) else None

    def rows(self, argument: str = "run") -> list[dict[str, Any]]:
        """Read the logged questions in their order; of several filters the first one logged.

        Raises
        ------
        InvalidInputError
            If a line is cut off or holds no graded trials.
        """
        rows = list(_lines(self.samples, argument))
        if not rows:
            raise InvalidInputError.of(argument, "hold samples", str(self.samples))
        if any("outcomes" not in row or "doc_id" not in row for row in rows):
            rule = "hold graded trials of a task of this package (`outcomes` in every line)"
            raise InvalidInputError.of(argument, rule, str(self.samples))
        numbers = [row["doc_id"] for row in rows]
        if any(isinstance(n, bool) or not isinstance(n, int) for n in numbers):
            rule = f"number its questions (`doc_id` in every line of {self.samples})"
            raise InvalidInputError.of(
                argument, rule, next(n for n in numbers if type(n) is not int)
            )
        chosen = rows[0].get("filter")
        kept = [row for row in rows if row.get("filter") == chosen]
        counted = Counter(row["doc_id"] for row in kept)
        twice = [number for number, times in counted.items() if times > 1]
        if twice:
            rule = f"log every question once ({self.samples})"
            raise InvalidInputError.of(argument, rule, f"question {twice[0]} twice")
        if self.n_answered is not None and len(kept) < self.n_answered:
            rule = (
                f"log all {self.n_answered} questions that the run answered; "
                f"{self.samples} is cut off"
            )
            raise InvalidInputError.of(argument, rule, f"{len(kept)} questions")
        return sorted(kept, key=lambda row: int(row["doc_id"]))


def saved_tasks(
    paths: Iterable[str | Path], argument: str = "run", task: str | None = None
) -> tuple[SavedTask, ...]:
    """Find the tasks of saved runs.

    Parameters
    ----------
    paths : iterable of str or Path
        Folders that the harness wrote into, `results_*.json` or `samples_*.jsonl` files. Of a
        run that was resumed or extended in one folder, with the same model, settings and seed,
        the samples with the most trials count, the newest of several.
    argument : str
        What to call a path in an error.
    task : str, optional
        Only tasks of this name.

    Returns
    -------
    tuple of SavedTask
        In the order of the paths. Models of one name and task are told apart by the settings
        that differ, ``name (temperature=0.2)``, or else by a number: ``name``, ``name (2)``.

    Raises
    ------
    InvalidInputError
        If a path holds no saved run with logged samples.
    """
    found: list[SavedTask] = []
    for path in paths:
        here = list(_tasks_at(path, argument))
        if task is not None:
            named = [one for one in here if one.task == task]
            if not named:
                rule = f"hold task {task}; there is {', '.join(sorted({t.task for t in here}))}"
                raise InvalidInputError.of(argument, rule, str(path))
            here = named
        known = {one.samples.resolve() for one in found}
        found += [one for one in here if one.samples.resolve() not in known]
    return tuple(_told_apart(found))


def found_tasks(path: str | Path, argument: str = "run") -> Iterator[SavedTask]:
    """Find every task that was ever saved at a path, not only the newest samples of each.

    Parameters
    ----------
    path : str or Path
        A folder that the harness wrote into, or one of its files.
    argument : str
        What to call the path in an error.

    Yields
    ------
    SavedTask
        In the order of the folders and of the files' names.

    Raises
    ------
    InvalidInputError
        If the path holds no saved run with logged samples.
    """
    place = Path(path).expanduser()
    if place.is_dir():
        files = sorted(file for file in place.rglob("samples_*.jsonl") if file.is_file())
    elif place.suffix == ".json" and "_" in place.stem and place.is_file():
        stamp = place.stem.rpartition("_")[2]
        files = sorted(place.parent.glob(f"samples_*_{escape(stamp)}.jsonl"))
    elif place.name.startswith("samples_") and place.suffix == ".jsonl" and place.is_file():
        files = [place]
    else:
        raise InvalidInputError.of(argument, _RULE, str(path))
    if not files:
        rule = f"{_RULE}, with logged samples (--log_samples)"
        raise InvalidInputError.of(argument, rule, str(path))
    read: dict[Path, dict[str, Any]] = {}
    for file in files:
        yield saved_task(file, argument, read)


def _tasks_at(path: str | Path, argument: str) -> Iterator[SavedTask]:
    chosen: dict[tuple[Path, str, str], SavedTask] = {}
    for one in found_tasks(path, argument):
        key = (
            one.samples.parent,
            one.task,
            json.dumps(one.made_by, sort_keys=True, default=str),
        )
        # their names end with the time, so that later ones come later
        if key not in chosen or _trials(one) >= _trials(chosen[key]):
            chosen[key] = one
    yield from chosen.values()


def _trials(saved: SavedTask) -> int:
    n = saved.settings.get("n")
    return n if isinstance(n, int) else 0


def saved_task(
    file: Path, argument: str = "run", read: dict[Path, dict[str, Any]] | None = None
) -> SavedTask:
    """Return the task whose samples are in a file, with what the results beside it say.

    Parameters
    ----------
    file : Path
        The samples.
    argument : str
        What to call the run in an error.
    read : dict, optional
        Keeps the results files that were read.

    Raises
    ------
    InvalidInputError
        If the results file cannot be read.
    """
    read = {} if read is None else read
    name, _, stamp = file.stem.removeprefix("samples_").rpartition("_")
    name, stamp = (name, stamp) if name else (stamp, "")
    beside = _results_beside(file, stamp)
    if beside not in read:
        read[beside] = _results(beside, argument)
    results = read[beside]
    configs = results.get("configs")
    configs = configs if isinstance(configs, Mapping) else {}
    # the harness writes a task's slashes as two underscores
    task = next((t for t in configs if t.replace("/", "__") == name), name)
    config = configs.get(task)
    config = config if isinstance(config, Mapping) else {}
    return SavedTask(_model_name(results, file), task, file, config, stamp, results)


def _results_beside(samples: Path, stamp: str) -> Path:
    """Return where the results are: with `--output_path x.json` their name begins with x."""
    usual = samples.with_name(f"results_{stamp}.json")
    if usual.is_file() or not stamp:
        return usual
    return min(samples.parent.glob(f"*_{escape(stamp)}.json"), default=usual)


def _model_name(results: Mapping[str, Any], file: Path) -> str:
    """Return what to call a run's model: the harness names those without a path by a hash."""
    config = results.get("config")
    config = config if isinstance(config, Mapping) else {}
    arguments = config.get("model_args")
    keys = ("pretrained", "model", "model_name", "engine", "path")
    if not isinstance(arguments, Mapping) or any(arguments.get(key) for key in keys):
        return plain_model_name(str(results.get("model_name") or "") or file.parent.name)
    kind = str(arguments.get("backend") or config.get("model") or file.parent.name)
    told = [f"{key}={value}" for key, value in arguments.items() if key not in _NOT_THE_MODEL]
    return " ".join([kind, *told])


def plain_model_name(name: str) -> str:
    """Return a model's name; of a local path the last part, unless nothing is left.

    Examples
    --------
    >>> plain_model_name("org/model"), plain_model_name("/data/checkpoint-500")
    ('org/model', 'checkpoint-500')
    """
    local = Path(name).is_absolute() or name.startswith((".", "~"))
    return (Path(name).name or name) if local else name


def _results(file: Path, argument: str) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInputError.of(argument, f"have a whole {file}", str(error)) from None
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
    rule = f"have a whole samples file; {file} cannot be read"
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
    alike: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for one in found:
        alike.setdefault((one.model, one.task), []).append(one.made_by)
    differing = {key: differing_keys(settings) for key, settings in alike.items()}
    seen: dict[tuple[str, str], int] = {}
    for one in found:
        name = with_settings(one.model, one.made_by, differing[one.model, one.task])
        times = seen[name, one.task] = seen.get((name, one.task), 0) + 1
        yield replace(one, model=name if times == 1 else f"{name} ({times})")
