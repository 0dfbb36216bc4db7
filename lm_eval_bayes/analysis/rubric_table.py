"""Scores and ranks of several models under rubrics, one table per task.

Trials are classified once (:func:`lm_eval_bayes.analysis.rubric_table.classify_runs`); levels and
scopes can then change without reading them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from lm_eval_bayes._util.plain import NOT_IN_JSON, Record, json_name, to_plain
from lm_eval_bayes.analysis.comparability import check_one_task, check_same_questions
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.schemata import SCHEMATA, Schema
from lm_eval_bayes.rubric.scoring import RubricScore, missing_signals, score_categories
from lm_eval_bayes.rubric.signals import source_of
from lm_eval_bayes.rubric.thresholds import (
    OWN_THRESHOLDS,
    PERCENTILES,
    TaskThresholds,
    Thresholds,
    task_thresholds,
)
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats import (
    CONFIDENCE,
    IntArray,
    Interval,
    Scope,
    hbayes_at_n,
    simultaneous_ranks,
)


def pooled_thresholds(runs: Iterable[TaskRun]) -> Thresholds:
    """Take the thresholds of every task over all runs on it.

    Parameters
    ----------
    runs : iterable of TaskRun
        Of one task or of several.

    Returns
    -------
    Thresholds
        With the labels of the runs and today's date.
    """
    by_task: dict[str, list[TaskRun]] = {}
    for run in runs:
        by_task.setdefault(run.task, []).append(run)
    tasks = {
        task: task_thresholds([run.signal_table for run in of_task])
        for task, of_task in by_task.items()
    }
    return Thresholds(tasks, tuple(run.label for of_task in by_task.values() for run in of_task))


@dataclass(frozen=True)
class LeftOut(Record):
    """A schema that not all runs can give.

    Attributes
    ----------
    schema : str
        Its name.
    models : tuple of str
        The models whose runs lack something.
    lacks : str
        What they lack, and what it comes from.
    """

    schema: str
    models: tuple[str, ...]
    lacks: str


@dataclass(frozen=True, eq=False)
class ClassifiedRuns:
    """The trials of several models on one task, in the categories of several schemata.

    Attributes
    ----------
    task : str
        The task.
    runs : tuple of TaskRun
        One per model.
    source : Thresholds
        Where the thresholds come from.
    scores : mapping of str to mapping of str to RubricScore
        By schema, then by model.
    left_out : tuple of LeftOut
        What could not be classified.
    """

    task: str
    runs: tuple[TaskRun, ...]
    source: Thresholds
    scores: Mapping[str, Mapping[str, RubricScore]]
    left_out: tuple[LeftOut, ...] = ()

    @property
    def thresholds(self) -> TaskThresholds:
        """Those of the task."""
        return self.source.of(self.task)

    @property
    def thresholds_note(self) -> str | None:
        """`OWN_THRESHOLDS` where a schema uses thresholds of this one run; None elsewhere."""
        own = len(self.runs) == 1 and self.source.runs == (self.runs[0].label,)
        by_schema = [next(iter(by_model.values())) for by_model in self.scores.values()]
        used = any(score.schema.uses_thresholds for score in by_schema)
        return OWN_THRESHOLDS if own and used else None

    @property
    def models(self) -> tuple[str, ...]:
        """The models, in the order of the runs."""
        return tuple(run.model for run in self.runs)

    @property
    def n_questions(self) -> int:
        """M."""
        return self.runs[0].n_questions

    @property
    def verifier(self) -> Mapping[str, Any] | None:
        """The verifier whose verdicts are among the signals; None where there are none."""
        return next((run.verifier for run in self.runs if run.n_judged), None)


def classify_runs(
    runs: Sequence[TaskRun],
    thresholds: Thresholds,
    schemata: Iterable[Schema] | None = None,
    weights: Mapping[str, Sequence[float]] = MappingProxyType({}),
) -> ClassifiedRuns:
    """Classify the trials of several models on one task.

    Parameters
    ----------
    runs : sequence of TaskRun
        One per model, of one task and the same questions.
    thresholds : Thresholds
        Those of all models.
    schemata : iterable of Schema, optional
        Left out, the twelve, and the rubrics of their own that the tasks ran with.
    weights : mapping of str to sequence of float, optional
        Other weights than a schema's own, by its name; it must not be left out, as are none of
        `schemata`.

    Raises
    ------
    InvalidInputError
        If the models answered different questions, were judged by
        different verifiers or only some of them by one, or lack the signals of a schema that
        must not be left out, or weights break their rule.
    """
    check_one_task(runs)
    for run in runs[1:]:
        check_same_questions(runs[0], run)
    task = runs[0].task
    cuts = thresholds.of(task)
    chosen = [*SCHEMATA.values(), *custom_rubrics(runs)] if schemata is None else list(schemata)
    unknown = [name for name in weights if name not in [schema.name for schema in chosen]]
    if unknown:
        rule = f"be of one of the schemata ({', '.join(schema.name for schema in chosen)})"
        raise InvalidInputError.of("weights", "choice", rule, unknown[0])
    chosen = [s.with_weights(weights[s.name]) if s.name in weights else s for s in chosen]
    required = {*weights, *(() if schemata is None else [schema.name for schema in chosen])}
    if any("invalid" in schema.variables for schema in chosen):
        _check_verdicts(runs)
    scores: dict[str, dict[str, RubricScore]] = {}
    left_out = []
    for schema in chosen:
        category = {run.model: schema.classify(run.signal_table, cuts) for run in runs}
        absent = _lacking(schema, runs, category, cuts)
        if absent is None:
            scores[schema.name] = {
                run.model: score_categories(
                    *(schema, category[run.model], run.signal_table),
                    question_ids=run.question_ids,
                    clusters=run.clusters,
                )
                for run in runs
            }
        elif schema.name in required:
            where = ", ".join(run.label for run in runs if run.model in absent.models)
            rule = f"find what it needs in every run; there is no {absent.lacks}, in {where}"
            raise InvalidInputError.of("schema", "missing", rule, schema.name)
        else:
            left_out.append(absent)
    if not scores:
        least = min(left_out, key=lambda left: len(left.lacks))
        rule = (
            f"have the signals of a schema in every run of {task}; the fewest are missing of "
            f"{least.schema}: {least.lacks}"
        )
        raise InvalidInputError.of("RUN", "missing", rule, ", ".join(run.label for run in runs))
    return ClassifiedRuns(task, tuple(runs), thresholds, scores, tuple(left_out))


def custom_rubrics(runs: Iterable[TaskRun]) -> tuple[Schema, ...]:
    """Return the rubrics of their own that some runs' tasks ran with.

    Raises
    ------
    InvalidInputError
        If two of one name differ in more than their weights.
    """
    schemata: dict[str, Schema] = {}
    for run in runs:
        for schema in run.custom_rubrics:
            first = schemata.setdefault(schema.name, schema)
            if first.rules != schema.rules:
                rule = f"have the same rules for their own rubric {schema.name}"
                raise InvalidInputError.of("runs", "mismatch", rule, run.label)
    return tuple(schemata.values())


# -- what runs must have in common ---------------------------------------------------------------


def _check_verdicts(runs: Sequence[TaskRun]) -> None:
    """Refuse runs in which `invalid` would not mean the same."""
    of_runs = {run.label: run.verifier if run.n_judged else None for run in runs}
    others = [label for label, of_run in of_runs.items() if of_run != of_runs[runs[0].label]]
    if others:
        rule = (
            "have the verdicts of one verifier, or none, because its C counts as invalid: "
            f"{others[0]} has others than {runs[0].label} (run `study verify`, or leave them aside "
            "with --ignore-verdicts)"
        )
        verifiers = [verifier_name(of_run) for of_run in of_runs.values()]
        raise InvalidInputError.of("runs", "mismatch", rule, ", ".join(dict.fromkeys(verifiers)))


def verifier_name(verifier: Mapping[str, Any] | None) -> str:
    """Return what to call a verifier, "none" where there is none.

    Examples
    --------
    >>> verifier_name({"kind": "transformers", "name": "judge-3B"})
    'judge-3B'
    """
    return "none" if verifier is None else str(verifier.get("name") or "a verifier")


def _lacking(
    schema: Schema,
    runs: Sequence[TaskRun],
    category: Mapping[str, IntArray],
    thresholds: TaskThresholds,
) -> LeftOut | None:
    """Tell of runs without a signal, or with trials that a threshold alone is missing for.

    Frozen thresholds may come from runs that recorded less, or were never wrong. To count only
    the trials that need none of those would make another score of it.
    """
    absent = {run.model: missing_signals(schema, run.signal_table) for run in runs}
    names = dict.fromkeys(name for of_model in absent.values() for name in of_model)
    if names:
        sources = " and ".join(dict.fromkeys(map(source_of, names)))
        models = tuple(model for model, of_model in absent.items() if of_model)
        return LeftOut(schema.name, models, f"{', '.join(names)} (from {sources})")
    models = tuple(run.model for run in runs if _uncut(schema, run, category[run.model]))
    if not models:
        return None
    cuts = [name for name, value in thresholds.values.items() if value is None]
    of_schema = [name for name in cuts if PERCENTILES[name][0] in schema.needs]
    lacks = "trials with all that it needs"
    if of_schema:
        lacks = f"{', '.join(of_schema)} in the thresholds"
    return LeftOut(schema.name, models, lacks)


def _uncut(schema: Schema, run: TaskRun, category: IntArray) -> bool:
    """Return whether no trial has a category, or some has every signal and none."""
    columns = [run.signal_table.column(name) for name in schema.needs]
    complete = ~np.isnan(columns).any(axis=0)
    return bool(not np.any(category >= 0) or np.any(complete & (category < 0)))


@dataclass(frozen=True, eq=False)
class ModelScore(Record):
    """One schema's score of one model.

    Attributes
    ----------
    model : str
        The model.
    score : RubricScore
        Its counts.
    mu, sigma : float
        Posterior mean and standard deviation of the score.
    interval : Interval
        Its credible interval.
    rank : int
        From 1: one below the lowest-ranked model that is better, by simultaneous comparisons of all
        pairs.
    note : str or None
        What a reader must know of the posterior.
    """

    model: str
    score: RubricScore = field(metadata=NOT_IN_JSON)
    mu: float
    sigma: float
    interval: Interval
    rank: int
    note: str | None = None

    @property
    def n_trials(self) -> int:
        """Trials, those included that are in no category."""
        return int(self.score.outcomes.counts.sum()) + self.score.missing

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            **super().to_dict(),
            "categories": self.score.categories,
            "missing": self.score.missing,
            "trials": self.n_trials,
        }


@dataclass(frozen=True, eq=False)
class SchemaScores:
    """One schema's scores of all models.

    Attributes
    ----------
    schema : Schema
        With the weights that were used.
    scores : tuple of ModelScore
        In the order of the models.
    """

    schema: Schema
    scores: tuple[ModelScore, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {**self.schema.to_dict(), "scores": [score.to_dict() for score in self.scores]}


@dataclass(frozen=True, eq=False)
class RubricTable(Record):
    """Scores and ranks of models on one task, schema by schema.

    Attributes
    ----------
    classified : ClassifiedRuns
        What was scored.
    rows : tuple of SchemaScores
        One a schema.
    level, scope, seed
        As they were given to :func:`rubric_table`.
    confidence : float
        Of all comparisons of models under a schema together.
    """

    classified: ClassifiedRuns = field(metadata=NOT_IN_JSON)
    rows: tuple[SchemaScores, ...] = field(metadata=json_name("schemata"))
    level: float
    scope: Scope
    confidence: float
    seed: int

    @property
    def n_clusters(self) -> int | None:
        """Number of clusters of the questions, in scope "population"; None without."""
        index = self.classified.runs[0].outcomes.cluster_index
        return None if index is None or self.scope == "benchmark" else int(index.max()) + 1

    @property
    def warnings(self) -> tuple[str, ...]:
        """Limits of the numbers, one sentence each."""
        warnings: list[str] = []
        for run in self.classified.runs:
            n_trials = run.signal_table.n_trials
            if 0 < run.n_judged < n_trials:
                warnings.append(
                    f"{run.model}: {run.n_judged:,} of {n_trials:,} trials have a verdict; "
                    "elsewhere `invalid` is what generation alone tells"
                )
        for row in self.rows:
            name, lacking = row.schema.name, []
            for score in row.scores:
                if score.score.missing:
                    n = f"{score.score.missing:,} of {score.n_trials:,}"
                    lacking.append(f"{score.model} missing {n}")
            if lacking:
                why = "trials that lack a signal or threshold are in no category"
                warnings.append(f"{name}: {why}: {', '.join(lacking)}")
        return tuple(warnings)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        classified = self.classified
        return {
            "task": classified.task,
            "questions": classified.n_questions,
            "clusters": self.n_clusters,
            "runs": [
                {
                    "model": run.model,
                    "samples": run.file_names,
                    "trials": run.signal_table.n_trials,
                    "judged": run.n_judged,
                }
                for run in classified.runs
            ],
            "thresholds": {
                "hash": classified.thresholds.hash,
                **classified.thresholds.to_dict(),
                "pooled_over": list(classified.source.runs),
                "date": classified.source.date,
                "note": classified.thresholds_note,
            },
            "verifier": to_plain(classified.verifier),
            "ties": "simultaneous",
            **super().to_dict(),
            "left_out": to_plain(classified.left_out),
            "warnings": list(self.warnings),
        }


def rubric_table(
    classified: ClassifiedRuns,
    level: float = 0.95,
    scope: Scope = "benchmark",
    *,
    seed: int = 0,
) -> RubricTable:
    """Score and rank models under every schema, with a prior that is learned across questions.

    With 95% confidence no pair of models is separated the wrong way under a schema, as by the rule
    "simultaneous" of `rank`. Every schema has a ranking of its own, without a correction for their
    number.

    Parameters
    ----------
    classified : ClassifiedRuns
        The trials in their categories.
    level : float
        Posterior mass of the credible intervals.
    scope : {"benchmark", "population"}
        About these questions, or about the population of questions; models are then compared
        question by question, as by `rank`.
    seed : int
        Of whatever is drawn.
    """
    rows = []
    for by_model in classified.scores.values():
        posteriors = {m: hbayes_at_n(s.outcomes, scope, seed=seed) for m, s in by_model.items()}
        ranks = simultaneous_ranks(posteriors, CONFIDENCE, seed)
        ranked = []
        for model, post in posteriors.items():
            interval, score = post.interval(level), by_model[model]
            numbers = (post.mu, post.sigma, interval, ranks[model], post.note)
            ranked.append(ModelScore(model, score, *numbers))
        rows.append(SchemaScores(ranked[0].score.schema, tuple(ranked)))
    return RubricTable(classified, tuple(rows), level, scope, CONFIDENCE, seed)
