"""The trials of one model on one task: the record that every command reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.schemata import Schema, schema_from
from lm_eval_bayes.rubric.signals import SignalTable
from lm_eval_bayes.runs.log_fields import lookup, protocol_label
from lm_eval_bayes.runs.logged_texts import LoggedTexts
from lm_eval_bayes.runs.model_arguments import redacted, shown
from lm_eval_bayes.stats import FloatArray, IntArray, Outcomes, ScoreOutcomes

#: `TaskRun.metric` of trials that a task of this package graded, and of texts graded again.
GRADED, REGRADED = "graded trials", "graded again"

#: Names of measurements of trials.
TOKENS, SECONDS, CONCURRENCY = "completion_tokens", "generated_s", "concurrency"
COST, CUT_OFF, EMPTY = "cost", "cut_off", "empty"

#: No trial has more tokens, seconds or cost.
MOST_OF_TRIAL = 1e12


#: Attributes of a provenance that may hold addresses or secrets.
_REDACTED = ("backend", "dataset", "revision", "generation_kwargs", "metadata", "config")


@dataclass(frozen=True)
class Provenance:
    """How the trials of a run came about: model, settings, versions; empty where not recorded.

    Attributes
    ----------
    backend : str
        The harness's name of the backend, such as "vllm".
    model_args, generation_kwargs, metadata : mapping
        What the run was given.
    date : float or None
        When it ended, in seconds since 1970 UTC.
    versions : mapping
        Versions of what took part, by name: "lm_eval", "task", "transformers", ….
    seconds : float or None
        How long the whole evaluation took.
    dataset : str
        The dataset's id on the hub, with its configuration where it has one.
    revision : str
        The revision that was pinned.
    n_questions : int or None
        How many questions the task has, of which fewer may have been asked.
    setup : mapping or None
        What tells agents of one model apart besides the generation settings, such as the simulated
        user; None where the log is not of such a tool.
    ks : tuple of int
        The k whose pass^k the tool itself reports, such as every k up to the number of its trials.
    config : mapping
        The task's whole configuration, as the harness wrote it.

    Notes
    -----
    Of whatever is given, only what may be printed is kept, see
    :mod:`~lm_eval_bayes.runs.model_arguments`. The harness adds a model's arguments to the
    metadata of its tasks; there they are left out.
    """

    backend: str = ""
    model_args: Mapping[str, Any] = field(default_factory=dict)
    generation_kwargs: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    date: float | None = None
    versions: Mapping[str, Any] = field(default_factory=dict)
    seconds: float | None = None
    dataset: str = ""
    revision: str = ""
    n_questions: int | None = None
    setup: Mapping[str, Any] | None = None
    ks: tuple[int, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        plain: dict[str, Any] = {name: redacted(getattr(self, name)) for name in _REDACTED}
        for record in (plain, plain["config"]):
            if isinstance(metadata := record.get("metadata"), Mapping):
                own = {key: v for key, v in metadata.items() if key not in self.model_args}
                record["metadata"] = own
        for name, value in {**plain, "model_args": shown(self.model_args)}.items():
            object.__setattr__(self, name, value)

    @property
    def protocol(self) -> str:
        """How the questions were asked, see :func:`~.log_fields.protocol_label`."""
        return protocol_label(lookup(self.metadata, "lm_eval_bayes", "protocol"))


@dataclass(frozen=True, eq=False)
class TaskRun:
    """The trials of one model on one task.

    Attributes
    ----------
    model, task : str
        Models of one name are distinguished: ``name``, ``name (2)``.
    sources : tuple of str
        The files that the trials were read from.
    outcomes : Outcomes
        How many trials of every question ended in every category, with the scores of the
        categories and the questions' ids. Where trials have scores between two bounds, a
        `ScoreOutcomes`.
    trials : tuple of array of int, length M, or None
        The category of every trial of every question, in the order of the trials; None where
        only counts are known. An ungraded trial is not among them.
    answers : tuple of tuple, length M, or None
        The answer extracted from every trial (None where there is none), where answers are logged.
    measured : mapping
        By name, the measurements of every trial: M arrays of one float per trial, NaN where one
        is missing. A name of which no trial has a measurement is absent.
    questions : tuple of str, length M
        The text of every question, "" where there is none. Untrusted: escape it.
    prompt_hashes : tuple of str, length M, or None
        The hashes of the prompts, "several" where settings have other ones.
    seeds : tuple of tuple, length M, or None
        The seed of every trial (None where there was none), where they were logged.
    settings : tuple of str
        The settings in which the model was run, such as its runs; empty where there is one.
    setting : tuple of array of int, length M, or None
        The number of every graded trial's setting; None where there is one.
    doc_ids : tuple of int, length M, or None
        The numbers of the questions in the task; None where no log or store gives them.
    texts : tuple of LoggedTexts, length M, or None
        Where the texts of the trials are logged, those of ungraded trials included; they are read
        on demand, not held in memory.
    is_graded : tuple of array of bool, length M, or None
        Which trials of every question have a grade, of all that are logged; None where unknown.
    categories : tuple of str or None, length M, or None
        What the questions are grouped by, such as their subject, for scores of every group; None
        where none is known. No category of outcomes, and not used for the score of all questions.
    signals : mapping
        By name, the signals of every trial: M arrays of one float per trial, NaN where a trial
        lacks one. A trial that was not graded is among them, without a grade: rubrics that need
        none count it. Empty unless the reader was asked for signals.
    signals_error : InvalidInputError or None
        Why the signals could not be read.
    verifiers : tuple of mapping
        The verifiers whose verdicts are among the signals, each once.
    metric : str
        What was counted: "graded trials", or the name of a metric that the task logged.
    filter : str
        The harness's filter pipeline whose output was graded; "" where there is none.
    provenance : Provenance
        How the trials were made.
    notes : tuple of str
        What a reader should know: what was left out, what differs.
    threshold : float or None
        The score from which on a trial passes, where trials have scores and the task names one.
    """

    model: str
    task: str
    sources: tuple[str, ...]
    outcomes: Outcomes
    trials: tuple[IntArray, ...] | None = None
    answers: tuple[tuple[str | None, ...], ...] | None = None
    measured: Mapping[str, tuple[FloatArray, ...]] = field(default_factory=dict)
    questions: tuple[str, ...] = ()
    prompt_hashes: tuple[str, ...] | None = None
    seeds: tuple[tuple[int | None, ...], ...] | None = None
    settings: tuple[str, ...] = ()
    setting: tuple[IntArray, ...] | None = None
    doc_ids: tuple[int, ...] | None = None
    texts: tuple[LoggedTexts, ...] | None = None
    is_graded: tuple[npt.NDArray[np.bool_], ...] | None = None
    categories: tuple[str | None, ...] | None = None
    signals: Mapping[str, tuple[FloatArray, ...]] = field(default_factory=dict)
    signals_error: InvalidInputError | None = None
    verifiers: tuple[Mapping[str, Any], ...] = ()
    metric: str = GRADED
    filter: str = ""
    provenance: Provenance = field(default_factory=Provenance)
    notes: tuple[str, ...] = ()
    threshold: float | None = None

    @classmethod
    def from_trials(
        cls,
        model: str,
        task: str,
        trials: Sequence[Sequence[int] | IntArray],
        question_ids: Sequence[str],
        weights: Sequence[float] = (0.0, 1.0),
        clusters: Sequence[str] | None = None,
        **more: Any,
    ) -> TaskRun:
        """Count trials: the category, 0..C, of every trial of every question.

        Raises
        ------
        InvalidInputError
            If a category is none of those that have a score, or another argument breaks its rule.

        Examples
        --------
        >>> run = TaskRun.from_trials("A", "aime", [[0, 1, 1], [1]], ["q1", "q2"])
        >>> run.outcomes.counts.tolist(), run.n_common
        ([[1, 2], [0, 1]], 1)
        """
        arrays = tuple(np.asarray(categories, dtype=np.int64) for categories in trials)
        for array in arrays:
            if array.size and not 0 <= array.min() <= array.max() < len(weights):
                rule = f"be categories from 0 to {len(weights) - 1}"
                raise InvalidInputError.of("trials", "range", rule, array.tolist())
            array.setflags(write=False)
        counts = [np.bincount(array, minlength=len(weights)) for array in arrays]
        outcomes = Outcomes.from_counts(
            np.stack(counts), weights=weights, question_ids=tuple(question_ids), clusters=clusters
        )
        more = {"sources": (), "trials": arrays, **more}
        return cls(model=model, task=task, outcomes=outcomes, **more)

    @classmethod
    def from_scores(
        cls,
        model: str,
        task: str,
        scores: Sequence[Sequence[float] | FloatArray],
        question_ids: Sequence[str],
        bounds: tuple[float, float] = (0.0, 1.0),
        **more: Any,
    ) -> TaskRun:
        """Return the run of trials, M questions of them, that have scores between two bounds.

        Raises
        ------
        InvalidInputError
            If a score is not within the bounds, or another argument breaks its rule.

        Examples
        --------
        >>> run = TaskRun.from_scores("A", "summaries", [[0.5, 0.7], [0.2]], ["q1", "q2"])
        >>> run.scored, run.n_trials, run.binary
        (True, 3, False)
        """
        outcomes = ScoreOutcomes.from_scores(scores, bounds, tuple(question_ids))
        return cls(model=model, task=task, outcomes=outcomes, **{"sources": (), **more})

    @property
    def question_ids(self) -> tuple[str, ...]:
        """The identifiers of the questions, by which runs of several models match them."""
        return tuple(map(str, self.outcomes.question_ids or ()))

    def question_name(self, row: int) -> str:
        """Return what people know a question by: its number in the task, else its identifier."""
        return self.question_ids[row] if self.doc_ids is None else str(self.doc_ids[row])

    @property
    def clusters(self) -> tuple[str, ...] | None:
        """The cluster of every question, such as its contest; None where they are unknown."""
        labels = self.outcomes.clusters
        return None if labels is None else tuple(map(str, labels))

    @property
    def n_questions(self) -> int:
        """M, the number of questions."""
        return self.outcomes.n_questions

    @property
    def n_trials(self) -> int:
        """Trials in all."""
        return int(self.outcomes.n_trials.sum())

    @property
    def n_common(self) -> int:
        """N, the trials that every question has."""
        return self.outcomes.trials_range[0]

    @property
    def counted(self) -> str:
        """What was counted, in words: the metric, with the filter if it has a name."""
        metric, (low, high) = self.metric, self.outcomes.bounds
        if self.scored:
            metric = f"{'scores' if metric == GRADED else metric} from {low:g} to {high:g}"
        unfiltered = self.filter in ("", "none") or metric == REGRADED
        return metric if unfiltered else f"{metric}, filter {self.filter}"

    @property
    def binary(self) -> bool:
        """Whether a trial is right or wrong and nothing else."""
        return self.outcomes.n_categories == 2 and not self.scored

    @property
    def scored(self) -> bool:
        """Whether trials have scores between two bounds."""
        return self.outcomes.scored

    @cached_property
    def right_or_wrong(self) -> Outcomes | None:
        """The counts of right and wrong trials, of which Pass@k and its family are.

        Of scores those that reach the threshold are right. None for scores without one, for more
        than two categories, and where a right trial does not score more than a wrong one.
        """
        outcomes = self.outcomes
        if not isinstance(outcomes, ScoreOutcomes):
            return outcomes if self.binary and outcomes.weights[0] < outcomes.weights[1] else None
        if self.threshold is None:
            return None
        passed = [int((row >= self.threshold).sum()) for row in outcomes.scores]
        counts = [(n - c, c) for n, c in zip(outcomes.n_trials.tolist(), passed, strict=True)]
        return Outcomes.from_counts(counts, question_ids=outcomes.question_ids)

    def require_graded(self, argument: str = "RUN") -> None:
        """Raise if trials have scores, and so are neither right or wrong nor of a category.

        Raises
        ------
        InvalidInputError
            The message names `argument`.
        """
        if self.scored:
            rule = f"have right and wrong trials, or categories, of {self.task}"
            raise InvalidInputError.of(argument, "unsupported", rule, f"scores of {self.model}")

    def matrix(self) -> IntArray:
        """Return the first N trials, which every question has, of all questions, (M, N).

        Raises
        ------
        InvalidInputError
            If trials have scores, only counts are known, or a question has no trial.
        """
        self.require_graded()
        got = ", ".join(self.sources) or self.model
        if self.trials is None:
            rule = f"tell the order of the trials of {self.task}, not only their counts"
            raise InvalidInputError.of("RUN", "missing", rule, got)
        if not self.n_common:
            rule = f"have a trial of every question of {self.task}"
            raise InvalidInputError.of("RUN", "empty", rule, got)
        return np.stack([categories[: self.n_common] for categories in self.trials])

    @property
    def label(self) -> str:
        """The model with the names of the files that its trials were read from."""
        return f"{self.model} ({self.file_names})"

    @property
    def file_names(self) -> str:
        """The names of the files, without their folders."""
        return ", ".join(Path(source).name for source in self.sources)

    @cached_property
    def signal_table(self) -> SignalTable:
        """The signals of all trials, one row per trial.

        Raises
        ------
        InvalidInputError
            If trials have scores, the signals could not be read, or one has a value that it cannot
            have.
        """
        self.require_graded()
        if self.signals_error is not None:
            raise self.signals_error
        if not self.signals:
            rule = "hold graded trials of a task of this package (`outcomes` in every line)"
            got = ", ".join(self.sources) or self.model
            raise InvalidInputError.of("RUN", "missing", rule, got)
        sizes = [column.size for column in next(iter(self.signals.values()))]
        question = np.repeat(np.arange(self.n_questions), sizes)
        columns = {name: np.concatenate(arrays) for name, arrays in self.signals.items()}
        try:
            return SignalTable(question, columns, self.n_questions)
        except InvalidInputError as error:
            rule = f"have signals with possible values; {', '.join(self.sources)}"
            raise InvalidInputError.of("RUN", "range", rule, str(error)) from None

    @property
    def n_judged(self) -> int:
        """Trials with a verdict of a verifier."""
        return sum(int((~np.isnan(c)).sum()) for c in self.signals.get("verifier_c", ()))

    @property
    def verifier(self) -> Mapping[str, Any] | None:
        """The verifier whose verdicts are among the signals; None where there are none.

        Raises
        ------
        InvalidInputError
            If several verifiers have judged parts of the run.
        """
        if len(self.verifiers) > 1:
            rule = f"have the verdicts of one verifier in all files of {self.model} on {self.task} "
            rule += "(or leave them aside with --ignore-verdicts)"
            names = ", ".join(str(verifier.get("name")) for verifier in self.verifiers)
            raise InvalidInputError.of("RUN", "mismatch", rule, names)
        return self.verifiers[0] if self.verifiers else None

    @property
    def custom_rubrics(self) -> tuple[Schema, ...]:
        """The custom rubrics that the task was configured with.

        Raises
        ------
        InvalidInputError
            If the configuration of one is not a rubric.
        """
        schemata = lookup(self.provenance.config, "metadata", "bayes", "rubrics", "own")
        return tuple(map(schema_from, schemata)) if isinstance(schemata, list) else ()

    @cached_property
    def tokens(self) -> int | None:
        """Tokens of all completions; None where they are not known for every trial."""
        tokens = self._total(self.measured.get(TOKENS))
        return None if tokens is None else int(tokens)

    @cached_property
    def cost(self) -> float | None:
        """The cost of all trials, in the unit of the log; None where not known for every trial."""
        return self._total(self.measured.get(COST))

    @property
    def shares(self) -> dict[str, float]:
        """The shares of responses that were cut off and that are empty, by row, where not 0."""
        counts = {n: sum(map(np.nansum, self.measured.get(n, ()))) for n in (CUT_OFF, EMPTY)}
        return {f"{name}_share": n / self.n_trials for name, n in counts.items() if n}

    @cached_property
    def busy_seconds(self) -> float | None:
        """Seconds of all trials, each divided by the number of concurrent trials.

        None where they were not measured for every trial.
        """
        seconds, concurrency = self.measured.get(SECONDS), self.measured.get(CONCURRENCY)
        if seconds is None or concurrency is None:
            return self._total(seconds)
        shares = [s / np.fmax(c, 1.0) for s, c in zip(seconds, concurrency, strict=True)]
        return self._total(shares)

    @staticmethod
    def _total(columns: Sequence[FloatArray] | None) -> float | None:
        """Return the sum over all trials; None where it is missing or impossible for one."""
        if columns is None or not all((column <= MOST_OF_TRIAL).all() for column in columns):
            return None
        return float(sum(float(column.sum()) for column in columns))


@dataclass(frozen=True, eq=False)
class SavedRuns:
    """Runs in the order of their paths, with the groups of their tasks and with warnings.

    Attributes
    ----------
    runs : tuple of TaskRun
        One per model and task.
    groups : mapping
        The tasks of every group that was run, by the name of the group.
    warnings : tuple of str
        What was left out, and what differs between runs though it should not.
    paths : tuple of int
        For every run the index of the path that it was read from, or of the first of them.
    notes : tuple of str
        How files were read, such as the columns of a table.
    """

    runs: tuple[TaskRun, ...]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    paths: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks, in order."""
        return tuple(dict.fromkeys(run.task for run in self.runs))

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the models, in order."""
        return tuple(dict.fromkeys(run.model for run in self.runs))

    def of_path(self, number: int) -> SavedRuns:
        """Return the runs of one of the paths."""
        chosen = [i for i, path in enumerate(self.paths) if path == number]
        runs = tuple(self.runs[i] for i in chosen)
        return replace(self, runs=runs, paths=(number,) * len(runs))

    def of_task(self, task: str) -> tuple[TaskRun, ...]:
        """Return the runs of a task, one per model."""
        return tuple(run for run in self.runs if run.task == task)

    def of_model(self, model: str) -> tuple[TaskRun, ...]:
        """Return the runs of a model, one per task."""
        return tuple(run for run in self.runs if run.model == model)
