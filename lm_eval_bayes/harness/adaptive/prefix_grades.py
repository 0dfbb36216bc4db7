"""The grades of the first trials of every question, each graded once, while others are sampled."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_bayes._util.hashing import distinct_ids
from lm_eval_bayes.harness.task.requests import doc_hash
from lm_eval_bayes.runs.task_run import TOKENS, TaskRun

if TYPE_CHECKING:
    from lm_eval_bayes.harness.models.trial_stream import StreamedTrials

_UNKNOWN, _MISSING = -1, -2


class PrefixGrades:
    """Grades of the trials of one evaluation.

    Parameters
    ----------
    tasks : mapping of str to RepeatedSamplingTask
        The evaluated tasks, by the names in the results.
    instances : sequence of Instance
        The requests of all tasks, one for each question.
    trials : StreamedTrials
        The responses.
    """

    def __init__(
        self,
        tasks: Mapping[str, Any],
        instances: Sequence[Any],
        trials: StreamedTrials,
    ) -> None:
        self._tasks, self._instances = tasks, instances
        self._trials = trials
        owner = {id(i): name for name, task in tasks.items() for i in task.instances}
        self._task_of = [owner[id(instance)] for instance in instances]
        self._hashes = [doc_hash(instance.doc) for instance in instances]
        # the tokens of each trial's completion: _UNKNOWN if not counted, _MISSING without the trial
        self._tokens = [array("q") for _ in instances]
        self._outcomes: list[list[int]] = [[] for _ in instances]

    def add(self, position: int, trial: int, response: Any) -> None:
        """Take a response to a question, and grade it unless its task grades several at once."""
        tokens, count = self._tokens[position], response.trial.completion_tokens
        tokens.extend([_MISSING] * (trial + 1 - len(tokens)))
        if tokens[trial] != _MISSING:
            return
        tokens[trial] = _UNKNOWN if count is None else count
        self._tasks[self._task_of[position]].grade_early(self._instances[position], trial, response)

    def graded(self, counts: Sequence[int]) -> dict[str, TaskRun]:
        """Return the graded trials of every task: of each question its first `counts`."""
        for position, count in enumerate(counts):
            outcomes = self._outcomes[position]
            if new := range(len(outcomes), count):
                responses = self._trials.completions(position, new)
                task = self._tasks[self._task_of[position]]
                outcomes += task.graded_outcomes(self._instances[position], responses)
        return {task: self._run(task, counts) for task in self._tasks}

    def _run(self, task: str, counts: Sequence[int]) -> TaskRun:
        """Return the graded trials of one task."""
        positions = [p for p, name in enumerate(self._task_of) if name == task]
        ordered = sorted(positions, key=lambda position: int(self._instances[position].doc_id))
        hashes = [self._hashes[position] for position in ordered]
        tokens = [np.array(self._tokens[p][: counts[p]], dtype=np.float64) for p in ordered]
        return TaskRun.from_trials(
            "",
            task,
            [self._outcomes[position] for position in ordered],
            distinct_ids(hashes),
            weights=self._tasks[task].settings.weights,
            doc_ids=tuple(int(self._instances[position].doc_id) for position in ordered),
            measured={TOKENS: tuple(np.where(column < 0, np.nan, column) for column in tokens)},
        )
