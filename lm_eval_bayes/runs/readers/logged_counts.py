"""What the metric `bayes` logs in a task of the harness's own class: counts, not single trials."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.logged_texts import LoggedLine
from lm_eval_bayes.runs.partial_runs import PartQuestion
from lm_eval_bayes.runs.provenance import mapping
from lm_eval_bayes.runs.readers import logged_rows as rows
from lm_eval_bayes.runs.readers.logged_trials import Counted
from lm_eval_bayes.runs.saved_tasks import SavedTask
from lm_eval_bayes.runs.task_run import GRADED
from lm_eval_bayes.stats.validation import MOST_TRIALS, check_weights

#: The row of a question's average score over N trials.
_AVERAGE = re.compile(r"avg@([1-9]\d{0,11})")


def average_row(row: Mapping[str, Any]) -> str | None:
    """Return the name of the average that the metric `bayes` logged; None where it did not.

    Examples
    --------
    >>> average_row({"metrics": ["bayes@16", "avg@16"], "bayes@16": 0.5, "avg@16": 0.5})
    'avg@16'
    >>> average_row({"metrics": ["avg@4"], "avg@4": 0.5}) is None
    True
    """
    names = rows.metrics(row)
    found = [name for name in names if _AVERAGE.fullmatch(name)]
    return next((name for name in found if name.replace("avg", "bayes") in names), None)


@dataclass
class LoggedCounts:
    """Questions of which the score of N trials is known, and so how many were right.

    Attributes
    ----------
    saved : SavedTask
        The task.
    argument : str
        What to call the run in an error.
    row : str
        The name of the average, "avg@N".
    """

    saved: SavedTask
    argument: str
    row: str
    questions: list[PartQuestion] = field(default_factory=list)

    def __post_init__(self) -> None:
        listed = self.saved.config.get("metric_list")
        entries = [mapping(one) for one in listed] if isinstance(listed, list) else []
        given = next((one for one in entries if one.get("metric") == "bayes"), {})
        weights = check_weights(given.get("weights") or (0.0, 1.0)).tolist()
        if len(weights) != 2 or not weights[0] < weights[1]:
            rule = f"score a right answer above a wrong one in task {self.saved.task}"
            raise InvalidInputError.of(self.argument, rule, weights)
        self.weights = (float(weights[0]), float(weights[1]))

    def add(self, row: Mapping[str, Any], text: str, prompt: str, line: LoggedLine) -> None:
        """Take a line, and count the right ones of its trials."""
        found, value = _AVERAGE.fullmatch(self.row), row.get(self.row)
        low, high = self.weights
        n = int(found[1]) if found is not None else 0
        right = -1.0
        if isinstance(value, (int, float)) and 0 < n <= MOST_TRIALS:
            right = n * (value - low) / (high - low)
        # a float keeps fifteen digits, so that c of N trials come back as a whole number
        if not (-0.01 < right < n + 0.01) or abs(right - round(right)) > 0.01:
            rule = f"log the average score of {n} trials ({self.saved.samples.name})"
            got = f"question {row.get('doc_id')}: {self.row} = {value!r}"
            raise InvalidInputError.of(self.argument, rule, got)
        none = np.empty(0, dtype=np.int64)
        counts = (n - round(right), round(right))
        self.questions.append(
            PartQuestion("", none, none, text, prompt, counts=counts, doc_id=line.doc_id)
        )

    def counted(self) -> Counted:
        """Return the questions with their counts."""
        note = (
            f"the metric bayes of task {self.saved.task} logs how many trials were right and not "
            "which: what needs their order needs --regrade"
        )
        return Counted(self.questions, GRADED, self.weights, (note,))
