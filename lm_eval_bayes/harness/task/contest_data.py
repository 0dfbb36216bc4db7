"""The datasets of this package's tasks: whether they are cached, or can be fetched."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.files import task_configs_dir

#: Variables that make the hub's libraries work offline.
OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")


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
    tasks: dict[tuple[str, str], list[str]] = {}
    for name, settings in _task_files():
        dataset = settings.get("dataset_path")
        revision = (settings.get("dataset_kwargs") or {}).get("revision")
        if isinstance(dataset, str) and isinstance(revision, str):
            tasks.setdefault((dataset, revision), []).append(name)
    return tuple(Dataset(*key, tuple(names)) for key, names in tasks.items())


def _task_files() -> Iterator[tuple[str, Mapping[str, Any]]]:
    import yaml

    class Loader(yaml.SafeLoader):
        """Reads a task file as the harness does, without calling its functions."""

    Loader.add_multi_constructor("!", lambda loader, suffix, node: None)
    for path in sorted(task_configs_dir().rglob("*.yaml")):
        config = yaml.load(path.read_text(encoding="utf-8"), Loader=Loader)
        if isinstance(config, dict) and isinstance(config.get("task"), str):
            yield config["task"], config


# -- cached -------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """Return where the `datasets` library keeps its prepared datasets."""
    folder_name = os.environ.get("HF_DATASETS_CACHE")
    return Path(folder_name).expanduser() if folder_name else hub_home() / "datasets"


def hub_home() -> Path:
    """Return the folder of the hub's own libraries, ``$HF_HOME`` where that is set."""
    folder_name = os.environ.get("HF_HOME")
    if folder_name:
        return Path(folder_name).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache).expanduser() if cache else Path.home() / ".cache") / "huggingface"


def is_cached(dataset: Dataset) -> bool:
    """Return whether a dataset can be loaded without a network, at its pinned revision."""
    folder = cache_folder() / dataset.name.replace("/", "___")
    try:
        for info in folder.glob(f"*/*/{dataset.revision}/dataset_info.json"):
            if any(file.stat().st_size for file in info.parent.glob("*.arrow")):
                return True
    except OSError:
        return False
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


def query_hub(datasets: Iterable[Dataset], timeout_s: float) -> HubQuery:
    """Query the hub for datasets, in parallel; see :meth:`HubQuery.results`."""
    return HubQuery(tuple(datasets), timeout_s)


class HubQuery:
    """Queries to the hub, each in a daemon thread."""

    def __init__(self, datasets: tuple[Dataset, ...], timeout_s: float) -> None:
        self._ends = time.monotonic() + timeout_s
        self._timeout_s = timeout_s
        self._found: dict[str, str | None] = {}
        self._datasets = datasets
        # A name that cannot be looked up blocks for as long as the system likes; a daemon
        # thread does not delay the end of the program.
        self._threads = [
            threading.Thread(target=self._ask, args=(dataset,), daemon=True) for dataset in datasets
        ]
        for thread in self._threads:
            thread.start()

    def _ask(self, dataset: Dataset) -> None:
        try:
            from huggingface_hub import HfApi

            api = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)
            api.dataset_info(dataset.name, revision=dataset.revision, timeout=self._timeout_s)
        except Exception as error:
            self._found[dataset.name] = _short(error)
        else:
            self._found[dataset.name] = None

    def results(self) -> dict[str, str | None]:
        """Return why each dataset cannot be reached, by name, and None for those that can."""
        for thread in self._threads:
            thread.join(max(0.0, self._ends - time.monotonic()))
        late = f"no answer within {self._timeout_s:g} s"
        return {dataset.name: self._found.get(dataset.name, late) for dataset in self._datasets}


def _short(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = lines[0] if lines else ""
    message = message if len(message) <= 120 else f"{message[:117]}..."
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
