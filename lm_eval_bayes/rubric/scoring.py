"""A schema's score of one run: categories, counts, and the posterior over them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lm_eval_bayes._util.validation import check_option
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.schemata import Schema
from lm_eval_bayes.rubric.signals import SignalTable, source_of
from lm_eval_bayes.rubric.thresholds import TaskThresholds
from lm_eval_bayes.stats import IntArray, Outcomes, Posterior, bayes_at_n, hbayes_at_n

Prior = Literal["hbayes", "bayes"]


@dataclass(frozen=True, eq=False)
class RubricScore:
    """The score of one run under one schema.

    Attributes
    ----------
    schema : Schema
        The rubric.
    missing : int
        Trials that lack a signal and are therefore in no category.
    outcomes : Outcomes
        Trials of each question in each category, and the weights of these.
    """

    schema: Schema
    missing: int
    outcomes: Outcomes

    @property
    def categories(self) -> dict[str, int]:
        """The number of trials in each category by its name, and of those that are missing."""
        totals = self.outcomes.counts.sum(axis=0)
        names = [category.name for category in self.schema.categories]
        return {**dict(zip(names, map(int, totals), strict=True)), "missing": self.missing}

    def posterior(self, prior: Prior = "hbayes", seed: int = 0) -> Posterior:
        """Return the posterior of the score.

        Parameters
        ----------
        prior : {"hbayes", "bayes"}
            Learned across questions, or uniform for each [Hariri 2026, Alg. 1]. The uniform
            prior adds one pseudo-trial per category: with seven categories and few trials the
            posterior is then mostly prior.
        seed : int
            Of the learned prior's draws.

        Raises
        ------
        InvalidInputError
            If `prior` is another word.
        """
        check_option("prior", prior, ("hbayes", "bayes"))
        if prior == "bayes":
            return bayes_at_n(self.outcomes)
        return hbayes_at_n(self.outcomes, seed=seed)


def score(schema: Schema, table: SignalTable, thresholds: TaskThresholds) -> RubricScore:
    """Classify every trial of a run and count.

    Parameters
    ----------
    schema : Schema
        The rubric.
    table : SignalTable
        The trials.
    thresholds : TaskThresholds
        The percentiles of the task.

    Raises
    ------
    InvalidInputError
        If no trial has a signal that the schema needs, or none can be classified.

    Examples
    --------
    >>> from lm_eval_bayes.rubric.schemata import SCHEMATA
    >>> table = SignalTable.from_questions(
    ...     [{"is_correct": [1, 0], "repeated_pattern": [0, 0]},
    ...      {"is_correct": [1, 1], "repeated_pattern": [1, None]}]
    ... )
    >>> result = score(SCHEMATA["exact_match"], table, TaskThresholds())
    >>> result.categories
    {'invalid': 1, 'wrong': 1, 'correct': 1, 'missing': 1}
    """
    lacking = missing_signals(schema, table)
    if lacking:
        sources = "; ".join(f"{name} comes from {source_of(name)}" for name in lacking)
        rule = f"find the signals of {schema.name} in the trials: {sources}"
        raise InvalidInputError.of("schema", "missing", rule, f"no {', '.join(lacking)}")
    result = score_categories(schema, schema.classify(table, thresholds), table)
    if table.n_trials and result.missing == table.n_trials:
        none = [name for name, value in thresholds.values.items() if value is None]
        rule = f"let some trial into a category of {schema.name}"
        got = f"none for {', '.join(none) or 'it'}"
        raise InvalidInputError.of("thresholds", "missing", rule, got)
    return result


def score_categories(
    schema: Schema,
    category: IntArray,
    table: SignalTable,
    question_ids: Sequence[Hashable] | None = None,
    clusters: Sequence[Hashable] | None = None,
) -> RubricScore:
    """Score trials that are classified already; −1 stands for a missing category.

    Scope "population" of the score takes the questions of one of `clusters` as dependent.
    """
    width = len(schema.categories)
    classified = category >= 0
    flat = table.question[classified] * width + category[classified]
    counts = np.bincount(flat, minlength=table.n_questions * width)
    counts = counts.reshape(table.n_questions, width)
    outcomes = Outcomes.from_counts(
        counts, weights=schema.weights, question_ids=question_ids, clusters=clusters
    )
    return RubricScore(schema, int((~classified).sum()), outcomes)


def missing_signals(schema: Schema, table: SignalTable) -> tuple[str, ...]:
    """Return the signals that a schema needs and no trial has."""
    return tuple(name for name in schema.needs if not table.has(name))
