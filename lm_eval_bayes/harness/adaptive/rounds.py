"""One model, N raised until the goal is reached: the engine of `run`.

It replaces the harness's `simple_evaluate` while the harness's own command runs, so the harness
parses the arguments and writes results and samples. The harness builds the tasks with as many
trials as the run may need; while it waits for the responses, :class:`Sampling` samples them, looks,
and stops. Then the tasks get the N that was reached.

Tasks, questions and the baseline run are checked before the model loads.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lm_eval_bayes._util.hashing import distinct_ids
from lm_eval_bayes._util.plain import Record, json_name
from lm_eval_bayes._util.text import format_duration, plural
from lm_eval_bayes.errors import InvalidInputError, TaskConfigError
from lm_eval_bayes.harness.adaptive.sampling import Sampling
from lm_eval_bayes.harness.adaptive.stopping import Goal, InterimAnalysis
from lm_eval_bayes.harness.evaluation import error_of_run
from lm_eval_bayes.harness.models.trials import RecordingMixin
from lm_eval_bayes.runs.task_run import GRADED, TaskRun


def preflight(arguments: Mapping[str, Any], goal: Goal) -> None:
    """Load the tasks that the harness will evaluate, and check the goal of the run against them.

    Parameters
    ----------
    arguments : mapping
        Those of the harness's `simple_evaluate`.
    goal : Goal
        When the run stops.

    Raises
    ------
    InvalidInputError
        If `--limit` leaves no question, there is no task, or nothing is to be graded; if every
        interval has the width; or if the baseline run lacks a task or has other questions or
        scores.
    TaskConfigError
        If a task was not sampled repeatedly by this package, has scores, or has no question; or if
        trials are to be allocated over more than one task.
    """
    from lm_eval.evaluator_utils import get_sample_size  # it imports the tasks

    from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask
    from lm_eval_bayes.harness.task.requests import doc_hash

    limit = arguments.get("limit")
    if limit is not None and not limit > 0:
        raise InvalidInputError.of("--limit", "empty", "leave at least one question", limit)
    if not arguments["tasks"]:
        raise InvalidInputError.of("--tasks", "empty", "name at least one task", None)
    if arguments.get("predict_only"):
        rule = "be left out: interim analyses need graded trials"
        raise InvalidInputError.of("--predict_only", "conflict", rule, True)
    _seed_as_the_harness(arguments)
    tasks = arguments["task_manager"].load(arguments["tasks"])["tasks"]
    for name, task in tasks.items():
        if not isinstance(task, RepeatedSamplingTask):
            sentence = (
                f"task {name} logs no graded trials, so nothing can be decided about it; use one "
                "of this package's tasks, or RepeatedSamplingTask as the class of your own"
            )
            raise TaskConfigError(sentence, "unsupported", "task", name)
        if task.settings.bounds is not None:
            sentence = (
                f"task {name} has scores within bayes_bounds, for which there is no stopping rule; "
                "sample it with lm_eval"
            )
            raise TaskConfigError(sentence, "unsupported", "bayes_bounds", task.settings.bounds)
        chosen = (arguments.get("samples") or {}).get(name)
        questions = list(task.doc_iterator(limit=get_sample_size(task, limit), samples=chosen))
        if not questions:
            raise TaskConfigError(f"task {name}: there is no question", "empty", "task", name)
        weights = tuple(task.settings.weights)
        if goal.width is not None:
            _check_width(goal.width, name, weights)
        if goal.baseline is not None:
            ids = distinct_ids([doc_hash(doc) for _, doc in questions])
            _check_baseline(goal, name, weights, set(ids))
    if goal.allocate and len(tasks) != 1:
        sentence = (
            f"--allocate questions works on one task at a time; there are {len(tasks)}: "
            f"{', '.join(tasks)}"
        )
        raise TaskConfigError(sentence, "unsupported", "--allocate", list(tasks))


def _check_width(width: float, task: str, weights: Sequence[float]) -> None:
    """Raise an error for a width that every interval has."""
    low, high = min(weights), max(weights)
    if width >= high - low:
        rule = (
            f"be below {high - low:g}, since the score of task {task} goes from {low:g} "
            f"to {high:g} and no interval is wider"
        )
        raise InvalidInputError.of("--width", "range", rule, width)


def _check_baseline(goal: Goal, task: str, weights: tuple[float, ...], ids: set[str]) -> None:
    """Raise an error if the baseline run lacks a task, or has other questions or scores."""
    run, baselines = f"the run {goal.baseline_name}", goal.baseline or {}
    baseline = baselines.get(task)
    if baseline is None:
        sentence = (
            f"--decide: {run} has no graded trials of {task}; "
            f"it has those of {', '.join(sorted(baselines)) or 'no task'}"
        )
        raise InvalidInputError(sentence, "missing", "--decide", task)
    baseline_ids = set(baseline.question_ids)
    differences = [
        f"{verb} {plural(len(questions), 'question')} of {task} that this run {rest}"
        for verb, questions, rest in (
            ("has", baseline_ids - ids, "does not ask"),
            ("lacks", ids - baseline_ids, "asks"),
        )
        if questions
    ]
    if differences:
        sentence = (
            f"--decide: {run} {' and '.join(differences)}; "
            "both must ask the same questions (the same --tasks, --limit and --samples)"
        )
        raise InvalidInputError(sentence, "mismatch", "--decide", differences)
    scores = tuple(baseline.outcomes.weights.tolist())
    if scores != weights:
        listed, own = (", ".join(map("{:g}".format, values)) for values in (scores, weights))
        sentence = (
            f"--decide: {run} scores the categories of {task} with {listed}, and this run with "
            f"{own}"
        )
        raise InvalidInputError(sentence, "mismatch", "--decide", scores)


def _seed_as_the_harness(arguments: Mapping[str, Any]) -> None:
    """Set the global seeds that the harness sets before it loads tasks.

    A task that shuffles choices from them has the same questions now as in the evaluation.
    """
    if arguments.get("random_seed") is not None:
        random.seed(arguments["random_seed"])
    if arguments.get("numpy_random_seed") is not None:
        np.random.seed(arguments["numpy_random_seed"])  # noqa: NPY002


def baseline_runs(runs: Sequence[TaskRun], path: str) -> dict[str, TaskRun]:
    """Return the graded trials of a finished run, task by task.

    Parameters
    ----------
    runs : sequence of TaskRun
        What was read at the path.
    path : str
        The path, for errors.

    Returns
    -------
    dict
        The runs by the names of their tasks.

    Raises
    ------
    InvalidInputError
        If there are runs of several models, or none with graded trials.
    """
    graded = [run for run in runs if run.metric == GRADED and run.trials is not None]
    if not graded:
        rule = "hold graded trials of a task of this package (a run with --log_samples, or a store)"
        raise InvalidInputError.of("--decide", "missing", rule, path)
    by_task = {run.task: run for run in graded}
    for task in by_task:
        models = [run.model for run in graded if run.task == task]
        if len(models) > 1:
            rule = f"hold one model's run of task {task}; name the folder of one of them"
            raise InvalidInputError.of("--decide", "mismatch", rule, ", ".join(models))
    return by_task


#: The stages of a run, in their order.
Stage = Literal["tasks", "model", "requests", "trials"]

Evaluate = Callable[..., dict[str, Any] | None]


@dataclass(frozen=True)
class Round(Record):
    """A finished round.

    Attributes
    ----------
    trials : int
        Trials per question that were planned so far.
    analyses : tuple of InterimAnalysis
        One for each task.
    n_trials : int
        Trials of all questions and tasks.
    tokens : int or None
        Tokens of all completions, where they are counted.
    hours : float
        Since the run began.
    """

    trials: int
    analyses: tuple[InterimAnalysis, ...] = field(metadata=json_name("looks"))
    n_trials: int
    tokens: int | None
    hours: float

    @property
    def reached(self) -> bool:
        """Whether every task has reached the goal."""
        return all(analysis.reached for analysis in self.analyses)


@dataclass
class Rounds:
    """Evaluates once on a trial store, with as many trials as the goal takes.

    Parameters
    ----------
    goal : Goal
        When to stop.
    evaluate : callable
        The harness's `simple_evaluate`.
    make_model : callable
        Creates the recording model from the harness's arguments.
    report : callable
        Called with every Round, and at the end with the reason to stop, a text.

    Attributes
    ----------
    stage : str
        The stage of the run, or the stage at which it failed.
    store : str
        The path of the trial store, once the model is created.
    interruption : KeyboardInterrupt or None
        Ctrl-C, or the signal that stopped the run early.
    """

    goal: Goal
    evaluate: Evaluate
    make_model: Callable[[Mapping[str, Any]], RecordingMixin]
    report: Callable[[Round | str], None]
    done: list[Round] = field(default_factory=list)
    reason: str = ""
    interruption: KeyboardInterrupt | None = None
    stage: Stage = "tasks"
    store: str = ""
    _arguments: Mapping[str, Any] = field(default_factory=dict)
    _started: float = 0.0
    _logged: list[str] | None = None

    def __call__(self, **arguments: Any) -> dict[str, Any] | None:
        """Run with the arguments of `simple_evaluate`; return the results."""
        self._arguments, self._started = arguments, time.monotonic()
        preflight(arguments, self.goal)
        self.stage = "model"
        model = self._model()
        self.stage = "requests"
        try:
            last: Any = self.evaluate(**{**arguments, "model": model})
        except KeyboardInterrupt as interruption:  # while nothing can be counted, or later
            self.interruption, self.reason = interruption, "interrupted"
            self.report(self.reason)
            return None
        if error := error_of_run(last):
            raise TaskConfigError(error, "failed")
        self.report(self.reason)
        return self._final_results(last)

    def missing_output(self) -> str | None:
        """Return the name of an output file that is missing or incomplete, if there is one.

        The harness only logs that a file could not be written, and goes on.
        """
        tracker: Any = self._arguments.get("evaluation_tracker")
        output = getattr(tracker, "output_path", None)
        if self._logged is None or not output:
            return None
        path, stamp, name = Path(output), tracker.date_id or "DATE", "results"
        folder = path / str(tracker.general_config_tracker.model_name_sanitized)
        if path.suffix == ".json":
            folder, name = path.parent, path.stem
        ends = {f"{name}_{stamp}.json": b"\n}"}
        ends |= {f"samples_{task}_{stamp}.jsonl": b"\n" for task in self._logged}
        return next((name for name, end in ends.items() if not _ends_in(folder / name, end)), None)

    def _model(self) -> RecordingMixin:
        """Create the model, whose `generate_until` samples until the goal is reached."""
        model = self.make_model(self._arguments)
        self.store = str(model.trial_store.path) if model.trial_store is not None else ""
        if int(getattr(model, "world_size", 1) or 1) > 1:
            sentence = (
                f"`run` decides in one process when to stop; got {model.world_size} (start it "
                "without accelerate or torchrun, or sample a fixed number with lm_eval)"
            )
            raise TaskConfigError(sentence, "unsupported", "world_size", model.world_size)

        def generate_until(requests: Sequence[Any], disable_tqdm: bool = False) -> Any:
            self.stage = "trials"
            return Sampling(self, model, requests).responses()

        model.generate_until = generate_until  # type: ignore[method-assign]
        return model

    def hours(self) -> float:
        """Return the hours since the run began."""
        return (time.monotonic() - self._started) / 3600.0

    def analyze(self, graded: Mapping[str, TaskRun], trials: int) -> None:
        """Look at the first trials of every question, and report it."""
        tokens = [task.tokens for task in graded.values()]
        finished = Round(
            trials=trials,
            analyses=tuple(self.goal.analyze(task, trials) for task in graded.values()),
            n_trials=sum(task.n_trials for task in graded.values()),
            tokens=None if None in tokens else sum(n for n in tokens if n is not None),
            hours=self.hours(),
        )
        self.done.append(finished)
        self.report(finished)

    def exceeds_budget(self, trials: int) -> bool:
        """Return whether the next round is expected to exceed the budget; if so, set the reason."""
        budget, now = self.goal.budget, self.done[-1]
        if budget is None or budget.unit == "trials":
            return False
        if budget.unit == "hours":
            before = self.done[-2].hours if len(self.done) > 1 else 0.0
            expected = self.hours() + (now.hours - before)
        elif now.tokens is None:
            sentence = (
                "--budget cannot be in tokens: this backend does not count them; give trials or "
                "hours"
            )
            raise TaskConfigError(sentence, "unsupported", "--budget", "tokens")
        else:
            expected = now.tokens * (trials / now.trials)
        if expected <= budget.amount:
            return False
        is_time = budget.unit == "hours"
        about = format_duration(3600.0 * expected) if is_time else f"{expected:,.0f} tokens"
        self.reason = f"a further round would exceed the budget of {budget} (about {about})"
        return True

    def _final_results(self, last: dict[str, Any]) -> dict[str, Any]:
        """Return the last results as those of a run of the harness's own model name."""
        self._logged = list(last["samples"]) if self._arguments.get("log_samples") else []
        last["config"]["model"] = self._arguments["model"]
        last["config"]["stopping"] = {
            "reason": self.reason,
            "rounds": [finished.to_dict() for finished in self.done],
        }
        tracker = self._arguments.get("evaluation_tracker")
        config_tracker = getattr(tracker, "general_config_tracker", None)
        if config_tracker is not None:
            config_tracker.model_source = self._arguments["model"]
        return last


def _ends_in(file: Path, end: bytes) -> bool:
    try:
        with file.open("rb") as content:
            content.seek(-len(end), os.SEEK_END)
            return content.read() == end
    except OSError:
        return False
