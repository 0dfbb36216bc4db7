"""Percentiles that divide signals into high and low, and the file that fixes them.

They are computed per task over a named set of runs. Written to a file they stay fixed, so that
one more model in a comparison does not change the scores of the others.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.signals import SignalTable
from lm_eval_bayes.stats import FloatArray

FORMAT, VERSION = "lm-eval-bayes-thresholds", 1

#: Every threshold: the signal, the percentile, and the trials it is computed over.
PERCENTILES: Mapping[str, tuple[str, float, str]] = MappingProxyType(
    {
        "tau_high": ("completion_bpt", 40.0, "all"),
        "tau_low_wrong": ("completion_bpt", 60.0, "wrong"),
        "tau_prompt": ("prompt_bpt", 90.0, "all"),
        "ratio_p33": ("token_ratio", 33.0, "all"),
        "ratio_p66": ("token_ratio", 66.0, "all"),
        "corr_p33": ("completion_bpt", 33.0, "correct"),
        "corr_p66": ("completion_bpt", 66.0, "correct"),
    }
)


#: The note of scores of a single run under thresholds of its own.
OWN_THRESHOLDS = (
    "The thresholds are this run's own percentiles: another run's scores are comparable only under "
    "the same ones (score the runs together, or with frozen thresholds)."
)


@dataclass(frozen=True)
class TaskThresholds:
    """The thresholds of one task; None where no trial had the signal [Hariri 2026, Table 4].

    Attributes
    ----------
    tau_high, tau_low_wrong : float or None
        40th percentile of completion_bpt, and its 60th among wrong trials; bits per token.
    tau_prompt : float or None
        90th percentile of prompt_bpt.
    ratio_p33, ratio_p66 : float or None
        33rd and 66th percentiles of token_ratio.
    corr_p33, corr_p66 : float or None
        33rd and 66th percentiles of completion_bpt among correct trials.
    counts : mapping of str to int
        The number of trials that each was computed over.

    Examples
    --------
    >>> TaskThresholds(tau_high=1.5).value("tau_high")
    1.5
    """

    tau_high: float | None = None
    tau_low_wrong: float | None = None
    tau_prompt: float | None = None
    ratio_p33: float | None = None
    ratio_p66: float | None = None
    corr_p33: float | None = None
    corr_p66: float | None = None
    counts: Mapping[str, int] = field(default_factory=dict)

    def value(self, name: str) -> float:
        """Return one threshold, NaN where there is none."""
        threshold = getattr(self, name)
        return math.nan if threshold is None else float(threshold)

    @property
    def values(self) -> dict[str, float | None]:
        """The thresholds by name."""
        # 2 and 2.0 must have one hash
        thresholds = {name: getattr(self, name) for name in PERCENTILES}
        return {name: None if v is None else float(v) for name, v in thresholds.items()}

    @property
    def hash(self) -> str:
        """A short hash of the values, which results carry."""
        return _digest(self.values)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {"values": self.values, "counts": dict(self.counts)}


def task_thresholds(tables: Sequence[SignalTable]) -> TaskThresholds:
    """Compute the percentiles over all trials of the given runs on one task.

    A trial that lacks a signal does not count for that signal's percentiles; trials that are
    invalid do. Percentiles are numpy's, linear between neighbours.

    Parameters
    ----------
    tables : sequence of SignalTable
        One per run.

    Returns
    -------
    TaskThresholds

    Examples
    --------
    >>> run = SignalTable.from_questions(
    ...     [{"completion_bpt": [1, 2, 3, 4, 5], "is_correct": [1, 1, 1, 0, 0]}]
    ... )
    >>> result = task_thresholds([run])
    >>> round(result.tau_high, 2), round(result.tau_low_wrong, 2), result.counts["tau_low_wrong"]
    (2.6, 4.6, 2)
    """
    values: dict[str, float | None] = {}
    counts = {}
    for name, (signal, percentile, among) in PERCENTILES.items():
        pooled = _pooled(tables, signal, among)
        counts[name] = int(pooled.size)
        values[name] = float(np.percentile(pooled, percentile)) if pooled.size else None
    return TaskThresholds(**values, counts=counts)


def _pooled(tables: Sequence[SignalTable], signal: str, among: str) -> FloatArray:
    parts = [np.empty(0)]
    for table in tables:
        column, correct = table.column(signal), table.column("is_correct")
        chosen = ~np.isnan(column)
        if among != "all":
            chosen &= correct == (1.0 if among == "correct" else 0.0)
        parts.append(column[chosen])
    return np.concatenate(parts)


@dataclass(frozen=True)
class Thresholds:
    """The thresholds of several tasks, and the runs they were computed over.

    Attributes
    ----------
    tasks : mapping of str to TaskThresholds
        By the task's name.
    runs : tuple of str
        The runs they were computed over.
    date : str
        The day, as YYYY-MM-DD.

    Examples
    --------
    >>> frozen = Thresholds({"aime25": TaskThresholds(tau_high=1.5)}, ("run 1",), "2026-01-31")
    >>> Thresholds.from_json(frozen.to_json()) == frozen
    True
    """

    tasks: Mapping[str, TaskThresholds]
    runs: tuple[str, ...]
    date: str = field(default_factory=lambda: datetime.date.today().isoformat())

    @property
    def hash(self) -> str:
        """A short hash of all values."""
        return _digest({task: thresholds.values for task, thresholds in self.tasks.items()})

    def of(self, task: str) -> TaskThresholds:
        """Return the thresholds of one task, or of another task with the same questions.

        ``aime25_rubric`` and ``aime25_bayes`` are tasks with the same questions.

        Raises
        ------
        InvalidInputError
            If there are none.
        """
        if task not in self.tasks:
            for name, thresholds in self.tasks.items():
                if _questions(name) == _questions(task):
                    return thresholds
            rule = f"hold task {task}; the file has {', '.join(self.tasks) or 'none'}"
            raise InvalidInputError.of("thresholds", "missing", rule, task)
        return self.tasks[task]

    def to_json(self) -> str:
        """Return the file's text."""
        content = {
            "format": FORMAT,
            "version": VERSION,
            "date": self.date,
            "runs": list(self.runs),
            "hash": self.hash,
            "tasks": {task: thresholds.to_dict() for task, thresholds in self.tasks.items()},
        }
        return json.dumps(content, indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, name: str = "thresholds") -> Thresholds:
        """Read the file's text.

        Parameters
        ----------
        text : str
            What `to_json` wrote.
        name : str
            The file's name, for errors.

        Raises
        ------
        InvalidInputError
            If it is not such a file, is of a newer version, or its values do not have its hash.
        """
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidInputError.of(
                name, "format", "be a JSON file of thresholds", error
            ) from None
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            rule = f'be a file of thresholds, with "format": "{FORMAT}"'
            raise InvalidInputError.of(name, "format", rule, str(content)[:60])
        if content.get("version") != VERSION:
            rule = f"be of version {VERSION}, the newest that this release knows"
            raise InvalidInputError.of(name, "schema", rule, content.get("version"))
        try:
            tasks = {
                task: TaskThresholds(**of_task["values"], counts=of_task["counts"])
                for task, of_task in content["tasks"].items()
            }
            read = cls(tasks, tuple(content["runs"]), content["date"])
            is_intact = content["hash"] == read.hash
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError):
            is_intact = False
        if not is_intact:
            rule = "have the hash of its values, but they were changed (freeze the thresholds anew)"
            raise InvalidInputError.of(name, "damaged", rule, content.get("hash"))
        return read


def _questions(task: str) -> str:
    return task.removesuffix("_bayes").removesuffix("_rubric")


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, allow_nan=False)
    return "blake2b-64:" + hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
