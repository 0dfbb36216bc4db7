"""Outcome matrices in NPZ files: R of shape (M, N), or (L, M, N) for L models."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.partial_runs import Part
from lm_eval_bayes.runs.readers.matrix_files import IDS, MODELS, TASKS, Rows, parts_of
from lm_eval_bayes.stats.validation import MOST_HELD, check_weights

#: What the array of outcomes may be called, if it is not the only one of its shape.
_OUTCOMES = ("R", "outcomes", "r")


def matrices_of_npz(path: Path, argument: str, task: str) -> list[Part]:
    """Read an outcome matrix R of shape (M, N) or (L, M, N).

    The array is called ``R`` or ``outcomes``, or is the only one of two or three dimensions.
    Beside it may stand ``models`` (L names), ``question_ids`` (M names), ``weights`` (the score
    of each category; without them the outcomes are 0 and 1) and ``task``. NaN is a trial that
    is missing. Nothing in the file is executed: arrays of Python objects are refused.

    Raises
    ------
    InvalidInputError
        If the file is no such thing.
    """
    arrays = _arrays(path, argument)
    name, outcomes = _outcomes(arrays, path, argument)
    whole = outcomes if outcomes.ndim == 3 else outcomes[None]
    n_models, n_questions, _ = whole.shape
    weights = arrays.get("weights")
    scores = (0.0, 1.0) if weights is None else tuple(check_weights(weights).tolist())
    categories = _checked(name, whole, len(scores), weights is None, argument, path)
    models = _names(arrays, MODELS, n_models, argument, path)
    if models is None:
        models = [path.stem if n_models == 1 else f"{path.stem} {i + 1}" for i in range(n_models)]
    ids = _names(arrays, IDS, n_questions, argument, path)
    if ids is None:
        ids = [str(i) for i in range(n_questions)]
    tasks = _names(arrays, TASKS, 1, argument, path) or [task]
    found: Rows = {
        (model, tasks[0]): dict(zip(ids, rows, strict=True))
        for model, rows in zip(models, categories, strict=True)
    }
    return parts_of(found, path, scores)


def _arrays(path: Path, argument: str) -> dict[str, npt.NDArray[Any]]:
    rule = f"have an NPZ file of numbers and names in {path.name}"
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > 8 * MOST_HELD:
            raise InvalidInputError.of(argument, rule, f"{size:,} bytes, too many to be held")
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except InvalidInputError:
        raise
    except Exception as error:
        # whatever zipfile, zlib and numpy make of a file that only looks like one
        told = " ".join(str(error).split()) or type(error).__name__
        raise InvalidInputError.of(argument, rule, told) from None


def _outcomes(
    arrays: dict[str, npt.NDArray[Any]], path: Path, argument: str
) -> tuple[str, npt.NDArray[Any]]:
    fitting = {n: a for n, a in arrays.items() if a.ndim in (2, 3) and a.dtype.kind in "biuf"}
    name = next((n for n in _OUTCOMES if n in fitting), None)
    if name is None and len(fitting) == 1:
        (name,) = fitting
    if name is None:
        rule = f"hold one outcome matrix R, (M, N) or (L, M, N), in {path.name}"
        told = [f"{n} {a.dtype} {a.shape}" for n, a in arrays.items()]
        raise InvalidInputError.of(argument, rule, ", ".join(told) or "no array")
    if 0 in fitting[name].shape:
        rule = f"not be empty in {path.name} (M >= 1 questions, N >= 1 trials)"
        raise InvalidInputError.of(argument, rule, f"shape {fitting[name].shape}")
    return name, fitting[name]


def _checked(
    name: str,
    values: npt.NDArray[Any],
    n_categories: int,
    guessed: bool,
    argument: str,
    path: Path,
) -> npt.NDArray[np.float64]:
    floats = values.astype(np.float64)
    missing = np.isnan(floats)
    good = missing | ((floats >= 0) & (floats < n_categories) & (floats == np.floor(floats)))
    if not good.all():
        rule = f"hold categories 0..{n_categories - 1} in the array {name} of {path.name}"
        rule += "; more need an array `weights`, one score a category" if guessed else ""
        bad = tuple(int(i) for i in np.argwhere(~good)[0])
        raise InvalidInputError.of(argument, rule, f"{floats[bad]:g} at {bad}")
    return floats


def _names(
    arrays: dict[str, npt.NDArray[Any]],
    called: frozenset[str],
    n: int,
    argument: str,
    path: Path,
) -> list[str] | None:
    name = next((one for one in arrays if one in called), None)
    if name is None:
        return None
    found = [_text(value) for value in np.atleast_1d(arrays[name]).ravel().tolist()]
    if len(found) != n or len(set(found)) != n or not all(found):
        rule = f"hold {n} different names in the array {name} of {path.name}"
        raise InvalidInputError.of(argument, rule, f"{len(found)} of them: {', '.join(found)}")
    return found


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
