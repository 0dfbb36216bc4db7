"""The grades of the first trials of every question, each graded once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_bayes._util.hashing import distinct_ids
from lm_eval_bayes.harness.task.requests import doc_hash
from lm_eval_bayes.runs.task_run import TOKENS, TaskRun

if TYPE_CHECKING:
    from lm_eval_bayes.harness.models.trial_stream import StreamedTrials


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
        self._outcomes: list[list[int]] = [[] for _ in instances]
        # the tokens of each trial's completion, NaN where they are not counted
        self._tokens: list[list[float]] = [[] for _ in instances]

    def graded(self, counts: Sequence[int]) -> dict[str, TaskRun]:
        """Return the graded trials of every task: of each question its first `counts`."""
        for position, count in enumerate(counts):
            if new := range(len(self._outcomes[position]), count):
                responses: Mapping[int, Any] = self._trials.completions(position, new)
                tokens = [response.trial.completion_tokens for response in responses.values()]
                self._tokens[position] += [math.nan if n is None else n for n in tokens]
                task = self._tasks[self._task_of[position]]
                graded = task.graded_outcomes(self._instances[position], responses)
                self._outcomes[position] += graded
        return {task: self._run(task) for task in self._tasks}

    def _run(self, task: str) -> TaskRun:
        """Return the graded trials of one task."""
        positions = [p for p, name in enumerate(self._task_of) if name == task]
        ordered = sorted(positions, key=lambda position: int(self._instances[position].doc_id))
        return TaskRun.from_trials(
            "",
            task,
            [self._outcomes[position] for position in ordered],
            distinct_ids([self._hashes[position] for position in ordered]),
            weights=self._tasks[task].settings.weights,
            doc_ids=tuple(int(self._instances[position].doc_id) for position in ordered),
            measured={TOKENS: tuple(np.array(self._tokens[p], dtype=float) for p in ordered)},
        )
