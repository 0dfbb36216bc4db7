"""The questions of this package's tasks: their datasets, the demo's, and errors in loading them."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.files import task_configs_dir
from lm_eval_bayes._util.hashing import hash_text
from lm_eval_bayes._util.text import error_line, one_line
from lm_eval_bayes.errors import DatasetUnavailableError, Rule, TaskConfigError
from lm_eval_bayes.runs.log_fields import cluster_label

_COMMIT = re.compile(r"[0-9a-f]{40}")

#: Variables that make the hub's libraries work offline.
OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")


# -- the datasets that the tasks name -----------------------------------------------------------


@dataclass(frozen=True)
class Dataset:
    """A dataset on the hub that tasks of this package use.

    Attributes
    ----------
    name, revision : str
        Its id on the hub and the pinned commit.
    tasks : tuple of str
        The tasks that use it.
    """

    name: str
    revision: str
    tasks: tuple[str, ...]


def needed() -> tuple[Dataset, ...]:
    """Return the datasets that the task files of this package name.

    Examples
    --------
    >>> [dataset.name for dataset in needed()][:2]
    ['HuggingFaceH4/aime_2024', 'MathArena/aime_2025']
    """
    import yaml

    class Loader(yaml.SafeLoader):
        """Reads a task file as the harness does, without calling its functions."""

    Loader.add_multi_constructor("!", lambda loader, suffix, node: None)
    tasks: dict[tuple[str, str], list[str]] = {}
    for path in sorted(task_configs_dir().rglob("*.yaml")):
        config = yaml.load(path.read_text(encoding="utf-8"), Loader=Loader)
        revision = (config.get("dataset_kwargs") or {}).get("revision")
        if "task" in config and "dataset_path" in config and revision is not None:
            tasks.setdefault((config["dataset_path"], revision), []).append(config["task"])
    return tuple(Dataset(*key, tuple(names)) for key, names in tasks.items())


# -- cached -------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """Return where the `datasets` library keeps its prepared datasets."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    home = Path(os.environ.get("HF_HOME") or cache / "huggingface")
    return Path(os.environ.get("HF_DATASETS_CACHE") or home / "datasets").expanduser()


def is_cached(dataset: Dataset) -> bool:
    """Return whether a dataset can be loaded without a network, at its pinned revision."""
    folder = cache_folder() / dataset.name.replace("/", "___")
    try:
        return any(
            file.stat().st_size
            for info in folder.glob(f"*/*/{dataset.revision}/dataset_info.json")
            for file in info.parent.glob("*.arrow")
        )
    except OSError:
        return False


# -- on the hub --------------------------------------------------------------------------------


def offline() -> str | None:
    """Return the variable that makes the hub's libraries work offline, if one is set.

    Examples
    --------
    >>> import os
    >>> before = {name: os.environ.pop(name, None) for name in OFFLINE}
    >>> offline() is None
    True
    >>> os.environ.update({name: value for name, value in before.items() if value is not None})
    """
    for name in OFFLINE:
        if os.environ.get(name, "").strip().upper() in ("1", "ON", "YES", "TRUE"):
            return name
    return None


class HubQuery:
    """Queries to the hub, each in a daemon thread; :meth:`results` waits for them."""

    def __init__(self, datasets: Iterable[Dataset], timeout_s: float) -> None:
        self._ends = time.monotonic() + timeout_s
        self._timeout_s = timeout_s
        self._problems: dict[str, str | None] = {}
        # A name that cannot be looked up blocks for as long as the system likes; a daemon
        # thread does not delay the end of the program.
        self._threads = {
            dataset.name: threading.Thread(target=self._query, args=(dataset,), daemon=True)
            for dataset in datasets
        }
        for thread in self._threads.values():
            thread.start()

    def _query(self, dataset: Dataset) -> None:
        try:
            from huggingface_hub import HfApi

            api = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)
            api.dataset_info(dataset.name, revision=dataset.revision, timeout=self._timeout_s)
        except Exception as error:
            self._problems[dataset.name] = (
                f"{type(error).__name__}: {one_line(error_line(error), 200)}"
            )
        else:
            self._problems[dataset.name] = None

    def results(self) -> dict[str, str | None]:
        """Return why each dataset cannot be reached, by name, and None for those that can."""
        for thread in self._threads.values():
            thread.join(max(0.0, self._ends - time.monotonic()))
        late = f"no answer within {self._timeout_s:g} s"
        return {name: self._problems.get(name, late) for name in self._threads}


# -- the questions of the demo ------------------------------------------------------------------


def demo_questions(**_: Any) -> dict[str, Any]:
    """Return the demo questions, as the harness's `custom_dataset` wants them.

    The harness calls this with the task's metadata, which includes the model's
    arguments; none of it changes the questions.

    Returns
    -------
    dict
        One split, ``test``: 40 rows with ``id`` (text), ``problem`` (text), ``answer``
        (an integer, as text) and ``level`` (1 for the easiest to 5, eight rows
        each). A fifth field, ``check``, is the problem as an arithmetic expression, from
        which the tests compute the answer again.

    Examples
    --------
    >>> questions = demo_questions()["test"]
    >>> len(questions), questions[0]["problem"], questions[0]["answer"]
    (40, 'What is 7 + 5?', '12')
    """
    import datasets

    lines = files("lm_eval_bayes.harness.task").joinpath("demo_arithmetic.jsonl")
    rows = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    return {"test": datasets.Dataset.from_list(rows)}


# -- errors, raised before anything is sampled --------------------------------------------------


def loading_error(config: Any, error: Exception) -> DatasetUnavailableError:
    """Return the error of questions that cannot be loaded: it says how to cache them."""
    problem = f"{type(error).__name__}: {one_line(error_line(error), 200)}"
    if callable(config.custom_dataset):
        sentence = f"task {config.task}: its `custom_dataset` function fails ({problem})"
        return DatasetUnavailableError(sentence, "failed", "custom_dataset")
    path = config.dataset_path
    arguments = [repr(name) for name in (path, config.dataset_name) if name]
    arguments += [f"{key}={value!r}" for key, value in (config.dataset_kwargs or {}).items()]
    call = f"load_dataset({', '.join(arguments)})"
    sentence = (
        f"task {config.task}: the dataset {path} could not be loaded, or is empty ({problem}). To "
        "run without a network, fetch it once where there is one: "
        f'python -c "from datasets import load_dataset; {call}", '
        "copy that HF_HOME folder here and set HF_HOME and HF_HUB_OFFLINE=1"
    )
    return DatasetUnavailableError(sentence, "failed", "dataset_path", path)


def check_split(dataset: Mapping[str, Any], config: Any) -> None:
    """Raise an error for a missing or empty split.

    Raises
    ------
    DatasetUnavailableError
        If the split does not exist or has no question.
    """
    split = config.test_split or config.validation_split
    sizes = {name: len(rows) for name, rows in dataset.items()}
    if not sizes.get(split):
        listed = ", ".join(f"{name} with {n}" for name, n in sizes.items()) or "no split"
        sentence = (
            f"task {config.task}: the dataset must have questions in the split {split!r}; "
            f"it has {listed}"
        )
        rule: Rule = "empty" if split in sizes else "missing-key"
        raise DatasetUnavailableError(sentence, rule, "split", split)


def check_revision(dataset: Mapping[str, Any], config: Any) -> None:
    """Raise an error for a cached copy of another revision than the pinned one.

    Without a network, `datasets` loads the newest revision in its cache, not the requested one.

    Raises
    ------
    DatasetUnavailableError
        If the questions come from a cache folder of another commit.
    """
    pinned = (config.dataset_kwargs or {}).get("revision")
    if not isinstance(pinned, str) or not _COMMIT.fullmatch(pinned):
        return
    for commit, folder in _commits(dataset):
        if commit != pinned:
            sentence = (
                f"task {config.task}: the questions must be those of revision {pinned} of "
                f"{config.dataset_path}; without a network the newest one in the cache is "
                f"taken, revision {commit}: delete {folder}, or run once with a network"
            )
            raise DatasetUnavailableError(sentence, "mismatch", "revision", commit)


def _commits(dataset: Mapping[str, Any]) -> Iterator[tuple[str, Path]]:
    """Yield the commit of the hub of each cached file of a dataset, and the file's folder."""
    for split in dataset.values():
        for file in getattr(split, "cache_files", None) or []:
            path = Path(file["filename"])
            commits = [part for part in path.parts if _COMMIT.fullmatch(part)]
            if commits:
                yield commits[-1], path.parent


def identity(task: Any) -> dict[str, Any]:
    """Return what identifies the questions of a task.

    Parameters
    ----------
    task : ConfigurableTask
        A task of the harness, with its questions loaded.

    Returns
    -------
    dict
        ``questions``: their number; ``questions_hash``: a hash of all their fields, in order;
        ``revision``: the commit of the hub that they came from, None if there is none.
    """
    docs = list(task.eval_docs)
    texts = [json.dumps(doc, sort_keys=True, default=str) for doc in docs]
    commits = {commit for commit, _ in _commits(task.dataset)}
    return {
        "questions": len(docs),
        "questions_hash": hash_text("\n".join(texts)),
        "revision": min(commits) if len(commits) == 1 else None,
    }


def check_clusters(docs: Iterable[Mapping[str, Any]], field: str, task: str) -> None:
    """Raise an error unless every question has a field that names its cluster, at least two.

    Raises
    ------
    TaskConfigError
        If a question lacks it, or all have the same.
    """
    labels: set[str] = set()
    for number, doc in enumerate(docs):
        label = cluster_label(doc, field)
        if label is None:
            fields = ", ".join(map(str, doc)) if isinstance(doc, Mapping) else "none"
            sentence = (
                f"task {task}: `cluster` must be a field of every question, a text or a number; "
                f"question {number} has no {field} (its fields are {fields})"
            )
            raise TaskConfigError(sentence, "missing-key", "cluster", field)
        labels.add(label)
    if len(labels) == 1:
        sentence = (
            f"task {task}: `cluster` must name at least two clusters; all questions have the "
            f"{field} {min(labels)}"
        )
        raise TaskConfigError(sentence, "unsupported", "cluster", field)


def building_error(task: object, error: Exception) -> TaskConfigError:
    """Return the error of a YAML with which, and with its first question, the harness fails."""
    sentence = (
        f"task {task}: the harness cannot build it from its YAML and its first question "
        f"({type(error).__name__}: {one_line(error_line(error), 200)})"
    )
    return TaskConfigError(sentence, "failed", "task", task)
