"""One trial a question of any task of the harness: a metric that it logged, 0 or 1."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.logged_texts import LoggedLine, LoggedTexts
from lm_eval_bayes.runs.partial_runs import PartQuestion
from lm_eval_bayes.runs.provenance import mapping
from lm_eval_bayes.runs.readers import logged_rows as rows
from lm_eval_bayes.runs.readers.logged_trials import Counted, NothingToCountError
from lm_eval_bayes.runs.saved_tasks import SavedTask
from lm_eval_bayes.stats.validation import IntArray


@dataclass
class LoggedMetric:
    """The questions of a task that was not sampled repeatedly by this package.

    Attributes
    ----------
    saved : SavedTask
        The task.
    argument : str
        What to call the run in an error.
    wanted : str or None
        The metric that counts; None for the first that the task lists and that is 0 or 1.
    """

    saved: SavedTask
    argument: str
    wanted: str | None
    questions: list[PartQuestion] = field(default_factory=list)
    #: By metric, the outcome of every question, -1 for none; one that is anything else goes.
    values: dict[str, list[int]] = field(default_factory=dict)
    logged: list[str] = field(default_factory=list)
    #: Texts that were given one grade.
    repeated: int = 0
    generated: bool = False

    def add(self, row: Mapping[str, Any], text: str, prompt: str, line: LoggedLine) -> None:
        """Take a line."""
        if not self.questions:
            self.logged = rows.metrics(row)
            self.values = {name: [] for name in self.logged}
        for name in list(self.values):
            value = rows.right_or_wrong(row[name]) if name in row else None
            if value is None:
                del self.values[name]
            else:
                self.values[name].append(value)
        if rows.asked(row)[1] is not None:
            self.generated = True
            self.repeated = max(self.repeated, len(rows.texts(row) or ()))
        single = len(rows.texts(row) or ()) == 1
        # its outcome comes when all is read, and it is known which metrics are 0 or 1
        self.questions.append(
            PartQuestion(
                id="",
                trials=np.empty(0, dtype=np.int64),
                numbers=np.zeros(1, dtype=np.int64),
                text=text,
                prompt=prompt,
                answers=_answer(row),
                digests=np.array([hash(repr(row.get("resps")))], dtype=np.int64),
                doc_id=line.doc_id,
                logged=LoggedTexts.of_line(line, 1) if single else None,
            )
        )

    def counted(self) -> Counted:
        """Choose the metric, and give every question its outcome.

        Raises
        ------
        InvalidInputError
            If there is no such metric.
        """
        graded = {name: v for name, v in self.values.items() if any(one >= 0 for one in v)}
        metric = self._chosen(graded)
        questions = [
            _with_outcome(question, value)
            for question, value in zip(self.questions, graded[metric], strict=True)
        ]
        notes = []
        others = [name for name in graded if name != metric]
        if others and self.wanted is None:
            notes.append(
                f"{metric} was counted; --metric chooses among {either([metric, *others])}"
            )
        if self.repeated > 1:
            notes.append(
                f"the task gave the {self.repeated} texts of a question one grade, which was "
                "counted as one trial; --regrade grades each"
            )
        return Counted(questions, metric, notes=tuple(notes))

    def _chosen(self, graded: Mapping[str, Any]) -> str:
        task = self.saved.task
        if self.wanted is not None:
            if self.wanted not in graded:
                there = f", {either(graded)}" if graded else "; it has none"
                rule = f"be a metric of zeros and ones that task {task} logs{there}"
                raise InvalidInputError.of("metric", rule, self.wanted)
            return self.wanted
        directions = mapping(mapping(self.saved.results.get("higher_is_better")).get(task))
        fitting = [name for name in graded if directions.get(name) is not False]
        if not fitting:
            logs = ", ".join(self.logged) or "no metric"
            rule = f"log graded trials or a metric of zeros and ones of task {task}"
            rule += " (--regrade grades the texts)" if self.generated else ""
            what = f"task {task}, which logs no metric of zeros and ones ({logs})"
            raise NothingToCountError.of_task(self.argument, rule, logs, what)
        listed = self.saved.config.get("metric_list")
        order = [mapping(one).get("metric") for one in listed] if isinstance(listed, list) else []
        return next((name for name in order if name in fitting), fitting[0])


def _answer(row: Mapping[str, Any]) -> tuple[str | None] | None:
    """Return what a filter took out of the text, where one did."""
    found = row.get("filtered_resps")
    if row.get("filter") in (None, "", "none") or not isinstance(found, list) or len(found) != 1:
        return None
    return (found[0],) if isinstance(found[0], str) else None


def _with_outcome(question: PartQuestion, value: int) -> PartQuestion:
    trials: IntArray = np.array([value] if value >= 0 else [], dtype=np.int64)
    if not trials.size:
        return replace(question, numbers=trials, answers=None, digests=None, logged=None)
    return replace(question, trials=trials)


def either(names: Collection[str] | Sequence[str]) -> str:
    """Return names as a choice.

    Examples
    --------
    >>> either(["acc", "acc_norm", "f1"]), either(["acc"])
    ('acc, acc_norm or f1', 'acc')
    """
    listed = list(names)
    return " or ".join([", ".join(listed[:-1]), listed[-1]] if len(listed) > 1 else listed)
