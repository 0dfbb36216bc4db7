"""The sampling of a run: one stream of trials, and looks whenever every question has the next.

A look counts the first n trials of every question, by their numbers. Which of them came first does
not matter, so that answers which are short, and therefore early, are not seen before others. Trials
beyond the last look stay in the store and are not counted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_bayes._util.hashing import distinct_ids
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.evaluation import current_evaluation
from lm_eval_bayes.harness.models.stored_texts import responses_in_turn
from lm_eval_bayes.harness.task.requests import doc_hash
from lm_eval_bayes.runs.log_fields import protocol_label
from lm_eval_bayes.runs.task_run import TOKENS, TaskRun
from lm_eval_bayes.stats import allocate_trials

if TYPE_CHECKING:
    from lm_eval_bayes.harness.adaptive.rounds import Rounds
    from lm_eval_bayes.harness.models.trials import RecordingMixin

log = get_logger(__name__)

#: After the last look the running trials may end, for this share of the time spent on sampling.
WAIT_SHARE = 0.1


class Sampling:
    """Samples the questions of one evaluation until the goal of the run is reached.

    Parameters
    ----------
    run : Rounds
        The run, with its goal, budget and looks.
    model : RecordingMixin
        The recording model.
    requests : sequence of Instance
        The requests of all tasks as the harness repeats them.
    """

    def __init__(self, run: Rounds, model: RecordingMixin, requests: Sequence[Any]) -> None:
        evaluation: Any = current_evaluation()  # the harness's `evaluate` is running
        self._run, self._clones = run, requests
        self._instances = list({id(request): request for request in requests}.values())
        self._trials = model.streamed_trials(self._instances)
        self._tasks: dict[str, Any] = dict(evaluation.named_tasks)
        owner = {id(i): name for name, task in self._tasks.items() for i in task.instances}
        self._task_of = [owner[id(instance)] for instance in self._instances]
        # of each request the position of the first one of its question, which may have variants
        asked = zip(self._task_of, [instance.doc_id for instance in self._instances], strict=True)
        positions: dict[tuple[str, Any], int] = {}
        self._first_of = [positions.setdefault(key, p) for p, key in enumerate(asked)]
        self._hashes = [doc_hash(instance.doc) for instance in self._instances]
        # by first request, of the trials that were looked at: outcomes, tokens (NaN: not counted)
        self._outcomes: list[list[int]] = [[] for _ in self._instances]
        self._tokens: list[list[float]] = [[] for _ in self._instances]
        self._planned = run.goal.rounds
        self._counts = [0] * len(self._instances)  # after the last look
        self._graded: dict[str, TaskRun] = {}
        self._began = time.monotonic()
        for name, baseline in (run.goal.baseline or {}).items():
            own = getattr(self._tasks.get(name), "protocol", None)
            labels = {protocol_label(own), baseline.provenance.protocol} - {""}
            if len(labels) > 1:
                message = "task %s: this run and %s were asked under different protocols, %s"
                log.warning(message, name, run.goal.baseline_name, " and ".join(sorted(labels)))

    def responses(self) -> Sequence[Any]:
        """Sample; return a response for each request, "" for those that do not count.

        Raises
        ------
        KeyboardInterrupt
            If it comes before every question has a trial.
        """
        try:
            while not self._run.reason:
                self._sample(self._next_targets())
        except KeyboardInterrupt as interruption:
            self._interrupted(interruption)
        base = min(self._counts)
        extra = {
            int(instance.doc_id): count - base
            for instance, count in zip(self._instances, self._counts, strict=True)
            if count > base
        }
        for task in self._tasks.values():
            task.count_trials(base, extra)
        by_question = zip(self._instances, self._trials.responses(self._counts), strict=True)
        by_id = {id(instance): responses for instance, responses in by_question}
        return responses_in_turn(self._clones, by_id, further="")

    # -- looks -------------------------------------------------------------------------------

    def _sample(self, targets: list[list[int]]) -> None:
        """Sample to the last of some numbers of trials, with a look at each."""
        waiting = self._look_at_complete(targets)
        if self._run.reason or not waiting:
            return
        with closing(self._trials.sample(targets[-1])) as arrivals:
            for arrival in arrivals:
                if self._run.reason:
                    continue  # it was running when the last look stopped the run
                waiting.discard(arrival[:2])
                if waiting:
                    continue
                waiting = self._look_at_complete(targets)
                if self._run.reason:
                    self._end()
                elif not waiting or not self._trials.are_coming(waiting):
                    return

    def _look_at_complete(self, targets: list[list[int]]) -> set[tuple[int, int]]:
        """Look at those of the targets that every question has; drop them from the list.

        Returns
        -------
        set of (int, int)
            Question and trial that the next look waits for.
        """
        while len(targets) > 0 and not self._run.reason:
            self._read(targets[0])
            missing = self._trials.missing(targets[0])
            if missing:
                return missing
            self._look(targets[0])
            if len(targets) == 1:
                break
            del targets[0]
        return set()

    def _read(self, counts: list[int]) -> None:
        for _ in self._trials.read(counts):
            pass

    def _look(self, counts: list[int]) -> None:
        """Look at the first trials of every question, and decide whether to go on."""
        run, done = self._run, len(self._run.done)
        self._counts, self._graded = counts, self._grade(counts)
        run.analyze(self._graded, self._planned[done])
        if run.done[-1].reached:
            run.reason = "the goal is reached"
        elif done + 1 == len(self._planned):
            run.reason = f"{self._planned[-1]} trials per question are reached"
        else:
            run.exceeds_budget(self._planned[done + 1])

    def _grade(self, counts: list[int]) -> dict[str, TaskRun]:
        """Return the graded trials of every task: of each question its first `counts`."""
        for position, count in enumerate(counts):
            new, first = range(self._counts[position], count), self._first_of[position]
            responses: Mapping[int, Any] = self._trials.completions(position, new)
            if responses:
                tokens = [response.trial.completion_tokens for response in responses.values()]
                self._tokens[first] += [math.nan if n is None else n for n in tokens]
                task = self._tasks[self._task_of[position]]
                graded = task.graded_outcomes(self._instances[position], responses)
                self._outcomes[first] += graded
        return {name: self._graded_run(name) for name in self._tasks}

    def _graded_run(self, name: str) -> TaskRun:
        """Return the graded trials of one task."""
        positions = [p for p in dict.fromkeys(self._first_of) if self._task_of[p] == name]
        doc_ids = {p: int(self._instances[p].doc_id) for p in positions}
        ordered = sorted(positions, key=doc_ids.__getitem__)
        return TaskRun.from_trials(
            "",
            name,
            [self._outcomes[p] for p in ordered],
            distinct_ids([self._hashes[p] for p in ordered]),
            weights=self._tasks[name].settings.weights,
            doc_ids=tuple(doc_ids[p] for p in ordered),
            measured={TOKENS: tuple(np.array(self._tokens[p], dtype=float) for p in ordered)},
        )

    def _next_targets(self) -> list[list[int]]:
        """Return the trials of each question at the next looks, to which trials may be started.

        Where the next trials depend on the last look, that is one look: where they are allocated
        to questions, and where a budget of tokens allows a first round whatever it costs.
        """
        done, goal = len(self._run.done), self._run.goal
        further = self._planned[done:]
        if goal.allocate and done:
            return [self._allocated(further[0])]
        if goal.allocate:
            further = further[:1]
        elif goal.budget is not None and goal.budget.unit == "tokens":
            further = [further[0], *(n for n in further[1:] if self._affordable(n))]
        return [[n] * len(self._instances) for n in further]

    def _affordable(self, trials: int) -> bool:
        """Return whether a budget of tokens is expected to allow so many trials per question."""
        last = self._run.done[-1] if self._run.done else None
        if last is None or last.tokens is None or self._run.goal.budget is None:
            return False
        return last.tokens * (trials / last.trials) <= self._run.goal.budget.amount

    def _allocated(self, trials: int) -> list[int]:
        """Return the trials of each question, most for the uncertain ones, at a mean number."""
        (task,) = self._graded.values()  # the preflight has seen that there is one
        outcomes, goal = task.outcomes, self._run.goal
        have = outcomes.counts.sum(axis=1)
        wanted = trials * have.size - int(have.sum())
        if wanted > 0:
            posterior = goal.posterior(outcomes)
            have = have + allocate_trials(posterior, outcomes, wanted, goal.max_trials)
        counts = dict(zip(task.doc_ids or (), have.tolist(), strict=True))
        return [int(counts[int(instance.doc_id)]) for instance in self._instances]

    # -- the end -----------------------------------------------------------------------------

    def _end(self) -> None:
        """Start no further trial, and give the running ones a share of the time spent."""
        wait_s = WAIT_SHARE * (time.monotonic() - self._began)
        budget = self._run.goal.budget
        if budget is not None and budget.unit == "hours":
            wait_s = min(wait_s, max(0.0, 3600.0 * (budget.amount - self._run.hours())))
        self._trials.end(wait_s)

    def _interrupted(self, interruption: KeyboardInterrupt) -> None:
        """Count the trials that every question has; after the last look nothing is lost."""
        if self._run.reason:
            log.warning("interrupted while the last trials were running; they are not stored")
            return
        self._run.interruption = interruption
        done, allocated = self._run.done, self._run.goal.allocate
        before = done[-1].trials if done else 0
        common = self._trials.common(self._planned[-1])
        self._read([common] * len(self._instances))
        common = self._trials.common(common)  # a stored trial may not be readable
        if common > before and not (allocated and done):
            counts = [common] * len(self._instances)
            self._counts, self._graded = counts, self._grade(counts)
            self._run.analyze(self._graded, common)
        elif not done:
            raise interruption
        self._run.reason = "interrupted"
