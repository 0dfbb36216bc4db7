"""Runs from data frames and back: pandas, polars and pyarrow, one row per trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.merging import merge_runs
from lm_eval_bayes.runs.query import Query
from lm_eval_bayes.runs.readers.column_names import find_columns
from lm_eval_bayes.runs.readers.protocol import errors_of
from lm_eval_bayes.runs.readers.trial_table import TrialTable, check_columns, table_contents
from lm_eval_bayes.stats import FloatArray, ScoreOutcomes

if TYPE_CHECKING:
    import pandas

    from lm_eval_bayes.runs.task_run import TaskRun


def read_frame(
    frame: Any,
    *,
    model: str = "model",
    task: str | None = None,
    columns: Mapping[str, str] | None = None,
    bounds: tuple[float, float] | None = None,
) -> list[TaskRun]:
    """Return the runs of a data frame with one row per trial.

    Parameters
    ----------
    frame : pandas.DataFrame, polars.DataFrame, pyarrow.Table, or mapping of columns
        Columns of questions and scores; optionally of models, tasks, trials, clusters,
        categories, answers, tokens, costs and times, by the names that `doctor --formats`
        lists. A score is a number between the bounds, a bool, or a word such as "pass"; a missing
        one is a trial without a grade, which is left out.
    model : str
        The model, where no column names one.
    task : str, optional
        The task, where no column names one.
    columns : mapping, optional
        The columns by what they hold, such as ``{"question": "item", "score": "pass"}``.
    bounds : tuple of float, optional
        The lowest and the highest possible score, 0 and 1 by default.

    Returns
    -------
    list of TaskRun
        One per model and task.

    Raises
    ------
    InvalidInputError
        If a column is missing, a score is none, or a trial occurs twice.

    Examples
    --------
    >>> frame = {"item": ["a", "a", "b"], "passed": [True, False, True]}
    >>> (run,) = read_frame(frame, model="A", task="demo")
    >>> run.question_ids, run.outcomes.counts.tolist()
    (('a', 'b'), [[1, 1], [0, 1]])
    """
    by_name = _columns(frame)
    query = Query(task=task, columns=columns or {}, bounds=bounds, dedupe=None)
    kinds = find_columns(list(by_name), query.columns)
    rows = partial(zip, *by_name.values(), strict=True)
    table = TrialTable(Path("frame"), list(by_name), kinds, by_name, rows)
    with errors_of("frame", "frame"):
        check_columns(list(by_name), kinds)
        contents = table_contents(table, query, model)
    notes = (*contents.notes, *contents.warnings)
    partials = [replace(run, notes=(*notes, *run.notes)) for run in contents.runs]
    runs, _, _ = merge_runs(partials, dedupe=None, by_path=False, argument="frame")
    return runs


def _columns(frame: Any) -> dict[str, list[Any]]:
    """Return the columns of a data frame as lists, missing values as None."""
    if isinstance(frame, Mapping):
        columns = {str(name): list(column) for name, column in frame.items()}
    elif hasattr(frame, "to_pydict"):  # pyarrow
        columns = frame.to_pydict()
    elif hasattr(frame, "to_dicts"):  # polars
        columns = frame.to_dict(as_series=False)
    elif hasattr(frame, "iloc"):  # pandas
        columns = frame.astype(object).where(frame.notna(), None).to_dict("list")
    else:
        rule = "be a data frame of pandas, polars or pyarrow, or a mapping of columns"
        raise InvalidInputError.of("frame", "type", rule, type(frame).__name__)
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1:
        raise InvalidInputError.of("frame", "shape", "have columns of one length", sorted(lengths))
    return {str(name): column for name, column in columns.items()}


def to_frame(run: TaskRun) -> pandas.DataFrame:
    """Return the trials of a run as a pandas data frame, one row per trial.

    Returns
    -------
    pandas.DataFrame
        Columns model, task, question, trial (from 0), score, and where they are known answer,
        cluster, category and every measurement of the trials.

    Raises
    ------
    InvalidInputError
        If only counts are known.
    """
    import pandas

    if run.trials is None and not run.scored:
        rule = "tell the trials one by one, not only their counts"
        raise InvalidInputError.of("run", "missing", rule, f"{run.model} on {run.task}")
    scores = _scores(run)
    sizes = [row.size for row in scores]
    columns: dict[str, Any] = {
        "model": run.model,
        "task": run.task,
        "question": np.repeat(np.array(run.question_ids, dtype=object), sizes),
        "trial": np.concatenate([np.arange(size) for size in sizes]),
        "score": np.concatenate(scores),
    }
    if run.answers is not None:
        columns["answer"] = [answer for row in run.answers for answer in row]
    for name, labels in (("cluster", run.clusters), ("category", run.categories)):
        if labels is not None:
            columns[name] = np.repeat(np.array(labels, dtype=object), sizes)
    columns |= {name: np.concatenate(arrays) for name, arrays in run.measured.items()}
    return pandas.DataFrame(columns)


def _scores(run: TaskRun) -> list[FloatArray]:
    """Return the score of every trial, an array per question."""
    if isinstance(run.outcomes, ScoreOutcomes):
        return list(run.outcomes.scores)
    return [run.outcomes.weights[categories] for categories in run.trials or ()]
