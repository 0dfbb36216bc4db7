"""Classification of the trials of several models under rubrics; their scores and ranks.

Trials are classified once (:func:`classify_runs`), with shared thresholds; weights, priors and
intervals can then change without another look at them (:func:`rubric_table`): one table per task.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from lm_eval_bayes._util.plain import NOT_IN_JSON, Record, json_name, to_plain
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.schemata import SCHEMATA, Schema
from lm_eval_bayes.rubric.scoring import Prior, RubricScore, missing_signals, score_categories
from lm_eval_bayes.rubric.signals import source_of
from lm_eval_bayes.rubric.thresholds import (
    PERCENTILES,
    TaskThresholds,
    Thresholds,
    task_thresholds,
)
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats.comparison.shared_questions import UNPAIRED, SharedQuestions
from lm_eval_bayes.stats.intervals import METHODS, SCOPES, Interval, IntervalMethod, Scope
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.results import Posterior
from lm_eval_bayes.stats.tie_rules import best_first, numbered, separations, tie_groups
from lm_eval_bayes.stats.validation import (
    FloatArray,
    IntArray,
    check_confidence,
    check_level,
    check_option,
    check_seed,
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

    def __str__(self) -> str:
        return f"{self.schema} (missing: {self.lacks}, in {', '.join(self.models)})"


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
    *,
    needed: Iterable[str] | None = None,
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
    needed : iterable of str, optional
        Names of schemata that must not be left out; all of them where `schemata` is given.

    Raises
    ------
    InvalidInputError
        If the models answered different questions, were judged by
        different verifiers or only some of them by one, or lack the signals of a schema that
        must not be left out.
    """
    _check_runs(runs)
    task = runs[0].task
    cuts = thresholds.of(task)
    chosen = [*SCHEMATA.values(), *custom_rubrics(runs)] if schemata is None else list(schemata)
    required = {schema.name for schema in chosen} if schemata is not None else set()
    required = required if needed is None else set(needed)
    if any("invalid" in schema.variables for schema in chosen):
        _check_verdicts(runs)
    scores: dict[str, dict[str, RubricScore]] = {}
    left_out = []
    for schema in chosen:
        absent = _lacking(schema, runs)
        if absent is None:
            category = {run.model: schema.classify(run.signal_table, cuts) for run in runs}
            absent = _uncut(schema, runs, category, cuts)
        if absent is None:
            scores[schema.name] = {
                run.model: score_categories(
                    schema, category[run.model], run.signal_table, cuts, run.question_ids
                )
                for run in runs
            }
        elif schema.name in required:
            where = ", ".join(run.label for run in runs if run.model in absent.models)
            rule = f"find what it needs in every run; there is no {absent.lacks}, in {where}"
            raise InvalidInputError.of("schema", rule, schema.name)
        else:
            left_out.append(absent)
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
                raise InvalidInputError.of("runs", rule, run.label)
    return tuple(schemata.values())


# -- what runs must have in common ---------------------------------------------------------------


def _check_runs(runs: Sequence[TaskRun]) -> None:
    if not runs:
        raise InvalidInputError.of("runs", "be at least one", "none")
    models, tasks = [run.model for run in runs], {run.task for run in runs}
    if len({*models}) < len(models):
        raise InvalidInputError.of("runs", "have a name each", models)
    if len(tasks) > 1:
        raise InvalidInputError.of("runs", "be of one task", sorted(tasks))
    first = runs[0]
    for run in runs[1:]:
        for left, right in ((first, run), (run, first)):
            theirs = set(right.question_ids)
            for number, digest in enumerate(left.question_ids):
                if digest not in theirs:
                    doc_id = number if left.doc_ids is None else left.doc_ids[number]
                    rule = (
                        f"have answered the same questions of {run.task} to be ranked: question "
                        f"{doc_id} of {left.label} is none of those of {right.label}"
                    )
                    raise InvalidInputError.of("runs", rule, f"doc_hash {digest[:16]}")


def _check_verdicts(runs: Sequence[TaskRun]) -> None:
    """Refuse runs in which `invalid` would not mean the same."""
    judged = [run for run in runs if run.n_judged]
    verifiers = [dict(run.verifier or {}) for run in judged]
    if judged and len(judged) < len(runs):
        without = next(run for run in runs if not run.n_judged)
        rule = (
            "have a verifier's verdicts, all or none of them, because its C counts as invalid: "
            f"{judged[0].label} has them, {without.label} has not (run lm-eval-bayes verify, or "
            "leave them aside with --ignore-verdicts)"
        )
        raise InvalidInputError.of("runs", rule, f"verdicts in {len(judged)} of {len(runs)}")
    for run, verifier in zip(judged, verifiers, strict=True):
        if verifier != verifiers[0]:
            rule = (
                "have the verdicts of one verifier (or leave them aside with --ignore-verdicts): "
                f"{run.label} has others than {judged[0].label}"
            )
            names = sorted(set(map(verifier_name, verifiers)))
            raise InvalidInputError.of("runs", rule, ", ".join(names))


def verifier_name(verifier: Mapping[str, Any] | None) -> str:
    """Return what to call a verifier.

    Examples
    --------
    >>> verifier_name({"kind": "transformers", "name": "judge-3B"})
    'judge-3B'
    """
    return str((verifier or {}).get("name") or "a verifier")


def _lacking(schema: Schema, runs: Sequence[TaskRun]) -> LeftOut | None:
    lacking = {run.model: missing_signals(schema, run.signal_table) for run in runs}
    names = dict.fromkeys(name for absent in lacking.values() for name in absent)
    if not names:
        return None
    sources: dict[str, list[str]] = {}
    for name in names:
        sources.setdefault(source_of(name), []).append(name)
    lacks = [f"{', '.join(signals)} from {source}" for source, signals in sources.items()]
    models = tuple(model for model, absent in lacking.items() if absent)
    return LeftOut(schema.name, models, " and of ".join(lacks))


def _uncut(
    schema: Schema,
    runs: Sequence[TaskRun],
    category: Mapping[str, IntArray],
    thresholds: TaskThresholds,
) -> LeftOut | None:
    """Tell of runs with trials that a threshold is missing for, not a signal of their own.

    Frozen thresholds may come from runs that recorded less, or were never wrong. To count only
    the trials that need none of those would make another score of it.
    """
    models = []
    for run in runs:
        complete = np.ones(run.signal_table.n_trials, dtype=np.bool_)
        for name in schema.needs:
            complete &= ~np.isnan(run.signal_table.column(name))
        if not np.any(category[run.model] >= 0) or np.any(complete & (category[run.model] < 0)):
            models.append(run.model)
    if not models:
        return None
    absent = [
        name
        for name, value in thresholds.values.items()
        if value is None and PERCENTILES[name][0] in schema.needs
    ]
    lacks = f"{', '.join(absent)} in the thresholds" if absent else "trials with all that it needs"
    return LeftOut(schema.name, tuple(models), lacks)


#: Two models tie where the better one is better with less than this probability, one-sided.
CONFIDENCE = 0.95

#: Means nearer than this share of the range of scores differ by rounding only, as for `rank`.
_ROUNDING = 1e-12
#: Posteriors that are computed at a time: the work is numpy's, which lets other threads run.
_AT_ONCE = min(4, os.cpu_count() or 1)


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
        From 1; tied models share one, and the next number follows.
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
        return int(self.score.counts.sum()) + self.score.missing

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            **super().to_dict(),
            "categories": self.score.categories,
            "missing": self.score.missing,
            "trials": self.n_trials,
            "thresholds": self.score.thresholds,
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
    prior, interval, level, scope, confidence, seed
        As they were given to :func:`rubric_table`.
    """

    classified: ClassifiedRuns = field(metadata=NOT_IN_JSON)
    rows: tuple[SchemaScores, ...] = field(metadata=json_name("schemata"))
    prior: Prior
    interval: IntervalMethod = field(metadata=NOT_IN_JSON)
    level: float
    scope: Scope
    confidence: float
    seed: int

    @property
    def ranks(self) -> IntArray:
        """Ranks, shape (schemata, models)."""
        return np.array([[model.rank for model in row.scores] for row in self.rows], dtype=np.int64)

    @property
    def mu(self) -> FloatArray:
        """Posterior means, shape (schemata, models)."""
        means = [[model.mu for model in row.scores] for row in self.rows]
        return np.array(means, dtype=np.float64)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Limits of the numbers, one sentence each."""
        warnings: list[str] = []
        if self.scope == "population" and self.classified.n_questions < 2:
            warnings += [UNPAIRED] if len(self.classified.models) > 1 else []
        for run in self.classified.runs:
            n_trials = run.signal_table.n_trials
            if 0 < run.n_judged < n_trials:
                warnings.append(
                    f"{run.model}: {run.n_judged:,} of {n_trials:,} trials have a verdict; "
                    "elsewhere `invalid` is what generation alone tells"
                )
        for row in self.rows:
            lacking = [
                f"{score.model} missing {score.score.missing:,} of {score.n_trials:,}"
                for score in row.scores
                if score.score.missing
            ]
            if lacking:
                warnings.append(
                    f"{row.schema.name}: trials that lack a signal or threshold are in no "
                    f"category: {', '.join(lacking)}"
                )
        warnings += [
            f"{row.schema.name}, {score.model}: {score.note}"
            for row in self.rows
            for score in row.scores
            if score.note is not None
        ]
        return tuple(warnings)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        classified = self.classified
        return {
            "task": classified.task,
            "questions": classified.n_questions,
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
            },
            "verifier": to_plain(classified.verifier),
            "ties": "leader",
            **super().to_dict(),
            "left_out": to_plain(classified.left_out),
            "warnings": list(self.warnings),
        }


def rubric_table(
    classified: ClassifiedRuns,
    weights: Mapping[str, Sequence[float]] | None = None,
    prior: Prior = "hbayes",
    interval: IntervalMethod = "beta",
    level: float = 0.95,
    scope: Scope = "benchmark",
    *,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> RubricTable:
    """Score and rank models under every schema.

    Parameters
    ----------
    classified : ClassifiedRuns
        The trials in their categories.
    weights : mapping of str to sequence of float, optional
        Other weights than a schema's own, by its name.
    prior : {"hbayes", "bayes"}
        Learned across questions, or uniform for each.
    interval, level
        The credible intervals; "beta" has the posterior's mean and sd, "exact" and "hdi" are
        drawn for more than two distinct weights, and take longer.
    scope : {"benchmark", "population"}
        About these questions, or about the population of questions. The latter takes the prior
        "hbayes", and models are then compared question by question, as by `rank`.
    confidence : float
        In [0.5, 1): a model shares a rank where z [Hariri 2026, §2.9] with the best of it is below
        its quantile, the rule "leader" of `rank`.
    seed : int
        Of whatever is drawn.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule, or weights of a schema that is not in the table.
    """
    prior = check_option("prior", prior, ("hbayes", "bayes"))
    interval = check_option("interval", interval, METHODS)
    scope = check_option("scope", scope, SCOPES)
    level, confidence = check_level(level), check_confidence(confidence)
    seed = check_seed(seed)
    scores = {name: dict(by_model) for name, by_model in classified.scores.items()}
    for name, given in (weights or {}).items():
        if name not in scores:
            rule = f"be of a schema of this table ({', '.join(scores)})"
            raise InvalidInputError.of("weights", rule, name)
        scores[name] = _reweighted(scores[name], given)

    def model_score(item: tuple[str, RubricScore]) -> tuple[ModelScore, Posterior | None]:
        model, score = item
        posterior = score.posterior(prior, seed, scope)
        ends = posterior.interval(level, interval, seed=seed)
        numbers = ModelScore(model, score, posterior.mu, posterior.sigma, ends, 0, posterior.note)
        # the posterior itself holds a megabyte of draws and is let go where nobody pairs it
        return numbers, (posterior if scope == "population" else None)

    rows = []
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for by_model in scores.values():
            schema = next(iter(by_model.values())).schema
            unranked, posteriors = zip(*pool.map(model_score, by_model.items()), strict=True)
            paired = None if None in posteriors else SharedQuestions.of(posteriors)
            span = max(schema.weights) - min(schema.weights)
            ranks = ranks_of(
                [m.mu for m in unranked], [m.sigma for m in unranked], span, confidence, paired
            )
            ranked = (replace(m, rank=int(r)) for m, r in zip(unranked, ranks, strict=True))
            rows.append(SchemaScores(schema, tuple(ranked)))
    return RubricTable(classified, tuple(rows), prior, interval, level, scope, confidence, seed)


def ranks_of(
    mu: npt.ArrayLike,
    sigma: npt.ArrayLike,
    span: float = 1.0,
    confidence: float = CONFIDENCE,
    paired: SharedQuestions | None = None,
) -> FloatArray:
    """Rank as `rank` does by default, without the joint draws behind its probabilities.

    Parameters
    ----------
    mu, sigma : array, shape (L,)
        Posterior means and standard deviations.
    span : float
        The range of possible scores, which says what is rounding.
    confidence : float
        See :func:`rubric_table`.
    paired : SharedQuestions, optional
        The models' questions, in the order of the input, where z is that of paired questions.

    Returns
    -------
    array, shape (L,)
        Ranks from 1 in the order of the input; who has z below the quantile with the best of a rank
        shares it.

    Examples
    --------
    >>> ranks_of([0.60, 0.71, 0.70], [0.02, 0.02, 0.02]).tolist()
    [2.0, 1.0, 1.0]
    """
    mu, sigma = np.asarray(mu, dtype=np.float64), np.asarray(sigma, dtype=np.float64)
    order, levelled = best_first(mu, sigma, _ROUNDING * span)
    if paired is None:
        z = separations(levelled, sigma[order])
    else:
        unordered = np.empty(order.size)
        unordered[order] = levelled
        z = paired.separations(unordered)[np.ix_(order, order)]
    groups = tie_groups(z, "leader", float(special.ndtri(confidence)))
    ranks = np.empty(order.size)
    ranks[order] = numbered(groups, "dense")
    return ranks


def _reweighted(
    scores: Mapping[str, RubricScore], weights: Sequence[float]
) -> dict[str, RubricScore]:
    schema = next(iter(scores.values())).schema.with_weights(weights)
    return {
        model: replace(
            score,
            schema=schema,
            outcomes=Outcomes.from_counts(
                score.counts, weights=schema.weights, question_ids=score.outcomes.question_ids
            ),
        )
        for model, score in scores.items()
    }
