"""What outcome matrices in files of any kind have in common."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lm_eval_bayes.runs.partial_runs import Part, PartQuestion
from lm_eval_bayes.stats.validation import IntArray

#: What a column or an array of question ids may be called.
IDS = frozenset(
    (
        *("id", "ids", "question", "questions", "question_id", "question_ids", "doc_id"),
        *("problem", "problem_id", "qid", "index"),
    )
)
#: What a column of model names, and of tasks, may be called.
MODELS, TASKS = frozenset({"model", "models", "model_name"}), frozenset({"task", "benchmark"})

#: By a model's name and a task's, the trials of every question, NaN where one is missing.
Rows = dict[tuple[str, str], dict[str, Any]]


def parts_of(
    found: Rows, path: Path, weights: Sequence[float], notes: tuple[str, ...] = ()
) -> list[Part]:
    """Return what a file holds, a part for every model and task; missing trials are left out."""
    return [
        Part(
            model=model,
            task=task,
            sources=(str(path),),
            arguments=named_by(path, model),
            questions={id: _question(id, trials) for id, trials in questions.items()},
            weights=tuple(weights),
            notes=notes,
        )
        for (model, task), questions in found.items()
    ]


def named_by(path: Path, model: str) -> dict[str, str]:
    """Return the file as what makes a model another one, where its name is that of the file.

    So the trials of two models in files of one name are never brought together.
    """
    return {"file": str(path)} if model.startswith(path.stem) else {}


def _question(id: str, trials: Any) -> PartQuestion:
    values = np.asarray(trials, dtype=np.float64)
    there: IntArray = np.flatnonzero(~np.isnan(values)).astype(np.int64)
    return PartQuestion(id, values[there].astype(np.int64), there)
