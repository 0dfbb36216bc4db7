"""One model, N raised round by round until the goal is reached: the engine of `run`.

It stands in the place of the harness's `simple_evaluate` while the harness's own command is
executed, so the harness parses the arguments, and writes results and samples as always.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.harness.adaptive.budget import Budget
from lm_eval_bayes.harness.adaptive.goals import Goal, Look
from lm_eval_bayes.harness.adaptive.graded import graded_tasks
from lm_eval_bayes.harness.adaptive.output_check import not_written
from lm_eval_bayes.harness.adaptive.preflight import asked_tasks
from lm_eval_bayes.harness.models.recording import RecordingMixin
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats.sequential.trials_needed import allocate_trials

#: What a run is at: its arguments and tasks, its model, its requests, or the trials.
Stage = Literal["tasks", "model", "requests", "trials"]

Evaluate = Callable[..., dict[str, Any] | None]


@dataclass(frozen=True)
class Round:
    """What a finished round left behind.

    Attributes
    ----------
    trials : int
        Trials a question that were planned so far.
    looks : tuple of Look
        One for each task.
    n_trials : int
        Trials of all questions and tasks.
    tokens : int or None
        Tokens of all completions, where they are counted.
    hours : float
        Since the run began.
    """

    trials: int
    looks: tuple[Look, ...]
    n_trials: int
    tokens: int | None
    hours: float

    @property
    def reached(self) -> bool:
        """Whether every task has reached the goal."""
        return all(look.reached for look in self.looks)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {**vars(self), "looks": [look.to_dict() for look in self.looks]}


@dataclass
class Rounds:
    """Evaluates again and again on a store, with more trials each time.

    Parameters
    ----------
    goal : Goal
        When to stop.
    evaluate : callable
        The harness's `simple_evaluate`.
    make_model : callable
        Makes the recording model from the harness's arguments.
    report : callable
        Told of every Round, and in the end of the reason to stop, as a text.

    Attributes
    ----------
    stage : str
        What the run is at, or was at when it failed.
    store : str
        The file that keeps the trials, once there is a model.
    """

    goal: Goal
    evaluate: Evaluate
    make_model: Callable[[Mapping[str, Any]], RecordingMixin]
    report: Callable[[Round | str], None]
    done: list[Round] = field(default_factory=list)
    reason: str = ""
    interrupted: bool = False
    stage: Stage = "tasks"
    store: str = ""
    _tracker: Any = None
    _logged: dict[str, int] | None = None

    def __call__(self, **arguments: Any) -> dict[str, Any] | None:
        """Run the rounds with the arguments of `simple_evaluate`; return the last results."""
        started = time.monotonic()
        planned = self.goal.rounds
        self._plan(arguments, planned[0], {})
        self.goal.check(asked_tasks(arguments, hashed=self.goal.rival is not None))
        self.stage = "model"
        model = self._model(arguments)
        self.stage = "requests"
        keep_samples = bool(arguments.get("log_samples"))
        last: dict[str, Any] | None = None
        extra: dict[int, int] = {}
        try:
            for trials in planned:
                if last is not None and self._too_dear(trials, started):
                    break
                base, more = self._share_out(trials, last, extra)
                last = self._evaluate(model, arguments, base, more)
                if last is None:
                    return None  # another rank than the first writes nothing
                extra = more
                self._look(graded_tasks(last), trials, started)
                if self.done[-1].reached:
                    self.reason = "the goal is reached"
                    break
            else:
                self.reason = f"{planned[-1]} trials a question are spent"
        except KeyboardInterrupt:
            self.interrupted = True
            self.reason = "interrupted"
            last = self._what_there_is(model, arguments, last, started)
        self.report(self.reason)
        return self._finished(last, arguments, keep_samples)

    def instead_of(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function that stands in the place of `simple_evaluate`."""

        @functools.wraps(original)
        def simple_evaluate(**arguments: Any) -> dict[str, Any] | None:
            return self(**arguments)

        return simple_evaluate

    def not_written(self) -> str | None:
        """Return the name of a file that the harness should have written whole and did not."""
        return None if self._logged is None else not_written(self._tracker, self._logged)

    def _model(self, arguments: Mapping[str, Any]) -> RecordingMixin:
        """Make the model, and notice when its first trials are asked for."""
        model = self.make_model(arguments)
        self.store = str(model.trial_store.path) if model.trial_store is not None else ""
        generate = model.generate_until

        def generate_until(*given: Any, **named: Any) -> list[str]:
            self.stage = "trials"
            return generate(*given, **named)

        model.generate_until = generate_until  # type: ignore[method-assign]
        return model

    def _plan(
        self, arguments: Mapping[str, Any], base: int, extra: Mapping[int, int]
    ) -> dict[str, Any]:
        """Let the tasks that are loaded next have so many trials; return the metadata."""
        manager = arguments["task_manager"]
        metadata = with_trials(arguments.get("metadata") or {}, base, extra)
        # the manager and the factory of its tasks share this mapping
        manager.metadata.clear()
        manager.metadata.update(metadata)
        return metadata

    def _evaluate(
        self,
        model: RecordingMixin,
        arguments: Mapping[str, Any],
        base: int,
        extra: Mapping[int, int],
    ) -> dict[str, Any] | None:
        metadata = self._plan(arguments, base, extra)
        return self.evaluate(
            **{
                **arguments,
                "model": model,
                "metadata": metadata,
                "log_samples": True,
                "batch_size": arguments.get("batch_size"),
            }
        )

    def _share_out(
        self, trials: int, last: Mapping[str, Any] | None, extra: Mapping[int, int]
    ) -> tuple[int, dict[int, int]]:
        """Return N for all questions, and what single ones get beyond it."""
        if not self.goal.allocate or last is None:
            return trials, {}
        (task,) = graded_tasks(last).values()  # Goal.check has seen that there is one
        outcomes = task.outcomes
        have = outcomes.counts.sum(axis=1)
        wanted = trials * have.size - int(have.sum())
        if wanted > 0:
            posterior = self.goal.posterior(outcomes)
            have = have + allocate_trials(posterior, outcomes, wanted, self.goal.max_trials)
        base = int(have.min())
        beyond = zip(task.doc_ids or (), have - base, strict=True)
        return base, {doc_id: int(n) for doc_id, n in beyond if n}

    def _look(self, graded: Mapping[str, TaskRun], trials: int, started: float) -> None:
        tokens = [task.tokens for task in graded.values()]
        this = Round(
            trials=trials,
            looks=tuple(self.goal.look(task, trials) for task in graded.values()),
            n_trials=sum(task.n_trials for task in graded.values()),
            tokens=None if None in tokens else sum(n for n in tokens if n is not None),
            hours=(time.monotonic() - started) / 3600.0,
        )
        self.done.append(this)
        self.report(this)

    def _too_dear(self, trials: int, started: float) -> bool:
        """Say whether the next round would by forecast go beyond the budget."""
        budget, now = self.goal.budget, self.done[-1]
        if budget is None or budget.unit == "trials":
            return False
        grows = trials / now.trials
        hours = (time.monotonic() - started) / 3600.0
        if budget.unit == "hours":
            before = self.done[-2].hours if len(self.done) > 1 else 0.0
            expected: float = hours + (now.hours - before)
        elif now.tokens is None:
            raise TaskConfigError(
                "--budget cannot be in tokens: this backend does not count them; give trials or "
                "hours"
            )
        else:
            expected = now.tokens * grows
        if expected <= budget.amount:
            return False
        spent = hours if budget.unit == "hours" else float(now.tokens or 0)
        if len(self.done) == 1 and spent > budget.amount:
            self.reason = (
                f"the first round already cost {_amount(spent, budget)}, more than the budget of "
                f"{budget}; at least one round is made"
            )
        else:
            about = _amount(expected, budget)
            self.reason = f"a further round would exceed the budget of {budget} (about {about})"
        return True

    def _what_there_is(
        self,
        model: RecordingMixin,
        arguments: Mapping[str, Any],
        last: dict[str, Any] | None,
        started: float,
    ) -> dict[str, Any] | None:
        """Return results of all trials that every question has, without generating any."""
        common = model.common_trials()
        before = self.done[-1].trials if self.done else 0
        if common <= before or (self.goal.allocate and last is not None):
            return last
        last = self._evaluate(model, arguments, common, {})
        if last is not None:
            self._look(graded_tasks(last), common, started)
        return last

    def _finished(
        self, last: dict[str, Any] | None, arguments: Mapping[str, Any], keep_samples: bool
    ) -> dict[str, Any] | None:
        """Give the results the face that the harness's own run has."""
        if last is None:
            return None
        self._tracker = arguments.get("evaluation_tracker")
        self._logged = {}
        if keep_samples:
            self._logged = {task: len(samples) for task, samples in last["samples"].items()}
        else:
            last.pop("samples", None)
        last["config"]["model"] = arguments["model"]
        last["config"]["stopping"] = {
            "reason": self.reason,
            "rounds": [each.to_dict() for each in self.done],
        }
        tracker = getattr(self._tracker, "general_config_tracker", None)
        if tracker is not None:
            tracker.model_source = arguments["model"]
        return last


def _amount(spent: float, budget: Budget) -> str:
    return f"{spent:.3g} hours" if budget.unit == "hours" else f"{spent:,.0f} tokens"


def with_trials(metadata: Mapping[str, Any], base: int, extra: Mapping[int, int]) -> dict[str, Any]:
    """Return a run's metadata for a round: N, further trials, and every k that fits N.

    Examples
    --------
    >>> with_trials({"bayes_k": [1, 8, 64], "a": 1}, 16, {})
    {'a': 1, 'bayes_n': 16, 'bayes_k': [1, 8]}
    """
    own = {"bayes_n", "bayes_k", "bayes_maj_k", "bayes_extra_trials"}
    made = {name: value for name, value in metadata.items() if name not in own}
    made["bayes_n"] = base
    ks = metadata.get("bayes_k")
    if ks is not None:
        ks = ks if isinstance(ks, (list, tuple)) else [ks]
        made["bayes_k"] = [k for k in ks if not isinstance(k, int) or k <= base] or [1]
    maj = metadata.get("bayes_maj_k")
    if isinstance(maj, int) and maj <= base:
        made["bayes_maj_k"] = maj
    if extra:
        made["bayes_extra_trials"] = {str(doc_id): n for doc_id, n in extra.items()}
    return made
