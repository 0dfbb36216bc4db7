"""Errors about a task's questions, raised before anything is sampled."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lm_eval_bayes.errors import DatasetUnavailableError, LmEvalBayesError, TaskConfigError

_COMMIT = re.compile(r"[0-9a-f]{40}")


@contextmanager
def loading(config: Any) -> Iterator[None]:
    """Turn a failed download into an error that says how to cache the questions."""
    try:
        yield
    except LmEvalBayesError:
        raise
    except Exception as error:
        if callable(config.custom_dataset):
            raise DatasetUnavailableError(
                f"task {config.task}: its `custom_dataset` function fails "
                f"({type(error).__name__}: {_first_line(error)})"
            ) from error
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
    """Raise an error for a missing or empty split.

    Raises
    ------
    DatasetUnavailableError
        If the split does not exist or has no question.
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
    for split in dataset.values():
        for file in getattr(split, "cache_files", None) or []:
            commits = [p for p in Path(file["filename"]).parts if _COMMIT.fullmatch(p)]
            if commits and commits[-1] != pinned:
                raise DatasetUnavailableError(
                    f"task {config.task}: the questions must be those of revision {pinned} of "
                    f"{config.dataset_path}; without a network the newest one in the cache is "
                    f"taken, revision {commits[-1]}: delete {Path(file['filename']).parent}, "
                    "or run once with a network"
                )


@contextmanager
def explained(task: str, config: Mapping[str, Any]) -> Iterator[None]:
    """Turn an error of the harness while it builds a task into one sentence.

    Raises
    ------
    DatasetUnavailableError
        If a question lacks a field, or no question is left.
    TaskConfigError
        If anything else is wrong with the YAML.
    """
    import jinja2

    try:
        yield
    except LmEvalBayesError:
        raise
    except Exception as error:
        functions = _harness_functions(error)
        in_questions = not _OF_QUESTIONS.isdisjoint(functions)
        if isinstance(error, (jinja2.UndefinedError, KeyError)) and in_questions:
            fields = ", ".join(f"`{k}`" for k in ("doc_to_text", "doc_to_target") if k in config)
            raise DatasetUnavailableError(
                f"task {task}: every question must have the fields that {fields or 'the task'} "
                f"name; the first one has none called {_first_line(error)}"
            ) from error
        if isinstance(error, IndexError) and functions[-1:] == ["__init__"]:
            raise DatasetUnavailableError(
                f"task {task}: the dataset must have at least one question after "
                "`process_docs`; it has none"
            ) from error
        raise TaskConfigError(
            f"task {task}: the harness cannot build it from its YAML "
            f"({type(error).__name__}: {_first_line(error)})"
        ) from error


#: The harness's functions that read a question's fields.
_OF_QUESTIONS = frozenset({"doc_to_text", "doc_to_target", "doc_to_choice"})


def _harness_functions(error: BaseException) -> list[str]:
    """Return the functions of the harness's task through which an error came, outermost first."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return [f.f_code.co_name for f in frames if f.f_globals.get("__name__") == "lm_eval.api.task"]


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
