"""Runs that the harness saved: the tasks of an output folder, and their logged samples."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from glob import escape
from pathlib import Path
from typing import Any

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.model_arguments import as_mapping, model_name, plain_model_name

#: A task's name and the time of a run, in the name of a samples file.
_STAMPED = re.compile(r"(.+)_(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?)")

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
    name, stamp = _task_and_stamp(file.stem.removeprefix("samples_"))
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


def _task_and_stamp(stem: str) -> tuple[str, str]:
    """Split the name of a samples file; what a copy has behind the time is left out.

    Examples
    --------
    >>> _task_and_stamp("aime25_2026-01-31T10-00-00.5 (1)")
    ('aime25', '2026-01-31T10-00-00.5')
    """
    found = _STAMPED.match(stem)
    if found is not None:
        return found[1], found[2]
    name, _, stamp = stem.rpartition("_")
    return (name, stamp) if name else (stamp, "")


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
    recorded = str(results.get("model_name") or "") or file.parent.name
    if not isinstance(config.get("model_args"), (Mapping, str)):
        return plain_model_name(recorded)
    arguments = as_mapping(config["model_args"])
    backend = str(arguments.get("backend") or config.get("model") or file.parent.name)
    return model_name(arguments, backend, recorded)


def _results(file: Path, argument: str) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInputError.of(argument, f"have a whole {file}", str(error)) from None
    return found if isinstance(found, dict) else {}
