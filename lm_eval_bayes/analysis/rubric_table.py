"""Scores and ranks of several models under rubrics, one table per task.

Trials are classified once (:func:`lm_eval_bayes.analysis.rubric_classes.classify_runs`); levels and
scopes can then change without reading them again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lm_eval_bayes._util.plain import NOT_IN_JSON, Record, json_name, to_plain
from lm_eval_bayes.analysis.rubric_classes import ClassifiedRuns
from lm_eval_bayes.rubric.schemata import Schema
from lm_eval_bayes.rubric.scoring import RubricScore
from lm_eval_bayes.stats import (
    CONFIDENCE,
    Interval,
    Scope,
    hbayes_at_n,
    simultaneous_ranks,
)


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
