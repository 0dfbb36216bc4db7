"""Questions that cannot be had, said in one sentence before anything is sampled."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lm_eval_bayes.errors import DatasetUnavailableError, LmEvalBayesError

_COMMIT = re.compile(r"[0-9a-f]{40}")


@contextmanager
def loading(config: Any) -> Iterator[None]:
    """Turn a failed download into advice on how to cache the questions."""
    try:
        yield
    except LmEvalBayesError:
        raise
    except Exception as error:
        path = config.dataset_path
        kwargs = dict(config.dataset_kwargs or {})
        call = ", ".join(
            [repr(path)]
            + ([repr(config.dataset_name)] if config.dataset_name else [])
            + [f"{key}={value!r}" for key, value in kwargs.items()]
        )
        raise DatasetUnavailableError(
            f"task {config.task}: the dataset {path} could not be loaded "
            f"({type(error).__name__}: {_first_line(error)}). To run without a network, fetch it "
            f'once where there is one: python -c "from datasets import load_dataset; '
            f'load_dataset({call})", copy that HF_HOME folder here and set HF_HOME and '
            "HF_HUB_OFFLINE=1"
        ) from error


def check_split(dataset: Mapping[str, Any], config: Any) -> None:
    """Refuse a missing or an empty split.

    Raises
    ------
    DatasetUnavailableError
        If the split that is to be asked is not there or has no question.
    """
    split = config.test_split or config.validation_split
    if split not in dataset:
        raise DatasetUnavailableError(
            f"task {config.task}: the dataset must have the split {split!r}; "
            f"it has {', '.join(map(str, dataset)) or 'none'}"
        )
    if len(dataset[split]) == 0:
        raise DatasetUnavailableError(
            f"task {config.task}: the split {split!r} must have at least one question; it has none"
        )


def check_revision(dataset: Mapping[str, Any], config: Any) -> None:
    """Refuse a cached copy of another revision than the pinned one.

    Without a network, `datasets` takes the newest revision in its cache, whatever was asked.

    Raises
    ------
    DatasetUnavailableError
        If the questions come from a cache folder of another commit.
    """
    wanted = (config.dataset_kwargs or {}).get("revision")
    if not isinstance(wanted, str) or not _COMMIT.fullmatch(wanted):
        return
    for split in dataset.values():
        for file in getattr(split, "cache_files", None) or []:
            commits = [p for p in Path(file["filename"]).parts if _COMMIT.fullmatch(p)]
            if commits and commits[-1] != wanted:
                raise DatasetUnavailableError(
                    f"task {config.task}: the questions must be those of revision {wanted} of "
                    f"{config.dataset_path}; the cache holds revision {commits[-1]}"
                )


@contextmanager
def explained(task: str, config: Mapping[str, Any]) -> Iterator[None]:
    """Say which field a question lacks where a template or a field name fails."""
    import jinja2

    try:
        yield
    except LmEvalBayesError:
        raise
    except (jinja2.UndefinedError, KeyError) as error:
        fields = ", ".join(f"`{k}`" for k in ("doc_to_text", "doc_to_target") if k in config)
        raise DatasetUnavailableError(
            f"task {task}: every question must have the fields that {fields or 'the task'} name; "
            f"the first one has none called {_first_line(error)}"
        ) from error
    except IndexError as error:
        raise DatasetUnavailableError(
            f"task {task}: the dataset must have at least one question after `process_docs`; "
            "it has none"
        ) from error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
