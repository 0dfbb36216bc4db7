"""Where models stand among anchors, from saved runs of one task [Xiao 2025]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lm_eval_bayes.analysis.comparability import check_comparable, question_number
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats.anchors.capability import (
    RANGE_METHODS,
    Between,
    CapabilityPosterior,
    PeakSweep,
    RangeMethod,
    capability_intervals,
    sample_size_sweep,
)
from lm_eval_bayes.stats.anchors.checks import (
    IndependenceCheck,
    OrderingReport,
    QueryFilter,
    filter_queries,
    ordering_violations,
    query_independence,
)
from lm_eval_bayes.stats.anchors.matrix import AnchorMatrix, take_queries
from lm_eval_bayes.stats.intervals import SCOPES, Scope
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.validation import check_level, check_option, check_seed

#: From here on the checks of the method's assumptions have failed: the p-value of independent
#: questions, and the share of comparisons in which a weaker anchor does better.
_SURELY_DEPENDENT, _OUT_OF_ORDER = 0.01, 0.2


@dataclass(frozen=True, eq=False)
class Placed:
    """One model's place among anchors.

    Attributes
    ----------
    model : str
        The model.
    score : float
        Its mean over the questions that count.
    anchors : AnchorMatrix
        The anchors, on those questions, this model not among them.
    posterior : CapabilityPosterior
        The posterior over the intervals between them.
    inside : tuple of int
        First and last of the neighbouring intervals that hold the level.
    sweep : PeakSweep or None
        How sure fewer questions would be.
    """

    model: str
    score: float
    anchors: AnchorMatrix
    posterior: CapabilityPosterior
    inside: tuple[int, int]
    sweep: PeakSweep | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "model": self.model,
            "score": self.score,
            "ability": self.anchors.ability.tolist(),
            "posterior": self.posterior.to_dict(),
            "p_above": {name: self.posterior.p_above(name) for name in self.anchors.names},
            "inside": list(self.inside),
            "sweep": None if self.sweep is None else self.sweep.to_dict(),
        }


@dataclass(frozen=True, eq=False)
class AnchorStudy:
    """Models placed among anchors, and what the method rests on.

    Attributes
    ----------
    task : str
        The task.
    question_ids : tuple of str
        Of all M questions.
    kept : QueryFilter or None
        Which of them count, where a filter was asked for.
    anchors : AnchorMatrix
        All anchors on the questions that count, weakest first.
    ordering : OrderingReport
        Where a stronger anchor does worse.
    independence : IndependenceCheck or None
        Whether questions come out independently, given the model; None for single trials.
    level, interval : float, str
        Of `inside`.
    scope : str
        Of the posteriors.
    placed : tuple of Placed
        The models that were placed.
    """

    task: str
    question_ids: tuple[str, ...]
    kept: QueryFilter | None
    anchors: AnchorMatrix
    ordering: OrderingReport
    independence: IndependenceCheck | None
    level: float
    interval: RangeMethod
    scope: Scope
    placed: tuple[Placed, ...]

    @property
    def doubtful(self) -> bool:
        """Whether the checks say that the posteriors claim more than is known."""
        check = self.independence
        dependent = check is not None and check.p_value < _SURELY_DEPENDENT
        return dependent or self.ordering.share > _OUT_OF_ORDER

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "task": self.task,
            "question_ids": list(self.question_ids),
            "kept": None if self.kept is None else self.kept.to_dict(),
            "anchors": self.anchors.to_dict(),
            "ordering": self.ordering.to_dict(),
            "independence": None if self.independence is None else self.independence.to_dict(),
            "level": self.level,
            "interval": self.interval,
            "scope": self.scope,
            "doubtful": self.doubtful,
            "placed": [one.to_dict() for one in self.placed],
        }


def anchor_study(
    runs: Sequence[TaskRun],
    *,
    targets: Sequence[str] = (),
    anchors: Sequence[str] = (),
    keep: tuple[float, float] | None = None,
    epsilon: float = 0.01,
    between: Between = "shared",
    pseudo_count: float = 0.0,
    level: float = 0.95,
    interval: RangeMethod = "hdi",
    scope: Scope = "benchmark",
    sweep: bool = False,
    seed: int = 0,
    argument: str = "RUN",
) -> AnchorStudy:
    """Place models among others that answered the same questions of a task.

    Parameters
    ----------
    runs : sequence of TaskRun
        One a model.
    targets : sequence of str
        The models to place; left out, every model that is not named as an anchor, and where
        no anchor is named each model among all the others.
    anchors : sequence of str
        The models to place them among; left out, all that are not placed.
    keep : tuple of float, optional
        Count only the questions that so large a share of the anchors solve, both ends included:
        [Xiao 2025] take .01 to .5.
    epsilon, between
        As in `lm_eval_bayes.capability_intervals`.
    pseudo_count : float
        As in `AnchorMatrix.from_outcomes`.
    level, interval : float, {"hdi", "exact"}
        Of the range of intervals that is told, as in `CapabilityPosterior.interval`.
    scope : {"benchmark", "population"}
        As in `lm_eval_bayes.capability_intervals`.
    sweep : bool
        Whether to tell how sure fewer questions would be.
    seed : int
        Of the permutations, the bootstrap and the sweep.
    argument : str
        What errors call the runs.

    Returns
    -------
    AnchorStudy

    Raises
    ------
    InvalidInputError
        If the models answered different questions, a name is none of theirs, no question is
        left, or an argument breaks its rule.

    Examples
    --------
    >>> solved = {"S": [1, 0, 0, 0], "M": [1, 1, 0, 0], "L": [1, 1, 1, 0], "new": [1, 1, 0, 0]}
    >>> runs = [
    ...     TaskRun.from_trials(name, "aime", [[c] * 4 for c in row], list("abcd"))
    ...     for name, row in solved.items()
    ... ]
    >>> study = anchor_study(runs, targets=["new"])
    >>> study.anchors.names, study.placed[0].posterior.labels[study.placed[0].posterior.peak]
    (('S', 'M', 'L'), 'S to M')
    """
    level, seed = check_level(level), check_seed(seed)
    interval = check_option("interval", interval, RANGE_METHODS)
    scope = check_option("scope", scope, SCOPES)
    check_comparable(runs, argument)
    outcomes = {run.model: _in_order(run, runs[0]) for run in runs}
    for option, names in (("target", targets), ("anchors", anchors)):
        for name in names:
            if name not in outcomes:
                rule = f"be one of the models that were read ({', '.join(outcomes)})"
                raise InvalidInputError.of(option, rule, name)
    if set(targets) & set(anchors):
        both = ", ".join(name for name in anchors if name in targets)
        raise InvalidInputError.of("anchors", "leave out the models to place", both)
    each_in_turn = not targets and not anchors
    to_place = list(dict.fromkeys(targets)) or [one for one in outcomes if one not in anchors]
    among = list(dict.fromkeys(anchors)) or [
        one for one in outcomes if each_in_turn or one not in to_place
    ]
    if not to_place:
        raise InvalidInputError.of("anchors", "leave a model to place", ", ".join(among))
    if len(among) < (2 if each_in_turn else 1):
        rule = f"be a model to place and at least one anchor ({runs[0].task})"
        raise InvalidInputError.of(argument, rule, ", ".join(outcomes))
    everyone = _anchors({name: outcomes[name] for name in among}, pseudo_count)
    kept = None
    if keep is not None:
        kept = filter_queries(everyone, *keep)
        if not kept.kept.size:
            told = f"leave a question; {keep[0]:g} to {keep[1]:g} of the anchors solve"
            raise InvalidInputError.of("keep", told, f"none of {runs[0].n_questions}")
        everyone = everyone.take(kept.kept)
        outcomes = {name: take_queries(one, kept.kept) for name, one in outcomes.items()}
    placed = []
    for name in to_place:
        others = {one: outcomes[one] for one in among if one != name}
        matrix = _anchors(others, pseudo_count)
        posterior = capability_intervals(
            matrix, outcomes[name], epsilon, between=between, scope=scope, seed=seed
        )
        swept = None
        if sweep:
            swept = sample_size_sweep(
                matrix, outcomes[name], epsilon=epsilon, between=between, seed=seed
            )
        placed.append(
            Placed(
                model=name,
                score=_score(outcomes[name]),
                anchors=matrix,
                posterior=posterior,
                inside=posterior.interval(level, interval),
                sweep=swept,
            )
        )
    return AnchorStudy(
        task=runs[0].task,
        question_ids=runs[0].question_ids,
        kept=kept,
        anchors=everyone,
        ordering=ordering_violations(everyone),
        independence=_independence(runs, seed),
        level=level,
        interval=interval,
        scope=scope,
        placed=tuple(placed),
    )


def _in_order(run: TaskRun, first: TaskRun) -> Outcomes:
    """Return a run's outcomes with the questions in the order of the first run's."""
    place = question_number(run)
    return take_queries(run.outcomes, [place[name] for name in first.question_ids])


def _anchors(models: Mapping[str, Outcomes], pseudo_count: float) -> AnchorMatrix:
    return AnchorMatrix.from_outcomes(models, pseudo_count=pseudo_count)


def _score(outcomes: Outcomes) -> float:
    """Return the mean share of right answers over the questions that have a trial."""
    right = outcomes.counts[:, outcomes.weights == outcomes.weights.max()].sum(axis=1)
    total = outcomes.n_trials
    return float((right[total > 0] / total[total > 0]).mean())


def _independence(runs: Sequence[TaskRun], seed: int) -> IndependenceCheck | None:
    """Check the trials that all models have, where they have two and their order is known."""
    if any(run.trials is None for run in runs):
        return None
    n = min(run.n_common for run in runs)
    if n < 2 or runs[0].n_questions < 2 or not all(run.binary for run in runs):
        return None
    return query_independence(np.stack([run.matrix()[:, :n] for run in runs]), seed=seed)
