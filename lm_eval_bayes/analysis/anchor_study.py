"""Models placed among anchor models, from saved runs of a task [Xiao 2025]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lm_eval_bayes._util.plain import NOT_IN_JSON, Record, json_name
from lm_eval_bayes.analysis.comparability import aligned_rows, check_comparable
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats import (
    DEFAULT_INTERVAL,
    AnchorMatrix,
    CapabilityPosterior,
    IndependenceCheck,
    IntervalSpec,
    OrderingReport,
    Outcomes,
    QueryFilter,
    capability_intervals,
    filter_queries,
    ordering_violations,
    query_independence,
)

#: Limits beyond which the method's assumptions are taken to be violated: the p-value of
#: independent questions, and the share of comparisons in which a weaker anchor does better.
_MIN_P_VALUE, _MAX_VIOLATIONS = 0.01, 0.2


@dataclass(frozen=True, eq=False)
class Placement(Record):
    """A model's position among the anchors.

    Attributes
    ----------
    model : str
        The model.
    score : float
        Its mean over the selected questions.
    anchors : AnchorMatrix
        The anchors on those questions, without this model.
    posterior : CapabilityPosterior
        The posterior over the intervals between them.
    inside : tuple of int
        First and last of the neighbouring intervals whose probability is at least the level.
    """

    model: str
    score: float
    anchors: AnchorMatrix = field(metadata=NOT_IN_JSON)
    posterior: CapabilityPosterior
    inside: tuple[int, int]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            **super().to_dict(),
            "ability": self.anchors.ability.tolist(),
            "p_above": {name: self.posterior.p_above(name) for name in self.anchors.names},
        }


@dataclass(frozen=True, eq=False)
class AnchorStudy(Record):
    """Models placed among anchors, and checks of the method's assumptions.

    Attributes
    ----------
    task : str
        The task.
    question_ids : tuple of str
        All M questions.
    question_filter : QueryFilter or None
        The selected questions, if a filter was given.
    anchors : AnchorMatrix
        All anchors on the selected questions, weakest first.
    ordering : OrderingReport
        Questions on which a stronger anchor does worse.
    independence : IndependenceCheck or None
        Test that questions are independent given the model; None for single trials.
    spec : IntervalSpec
        Level of `inside`, scope of the posteriors, and the seed.
    placements : tuple of Placement
        One per placed model.
    """

    task: str
    question_ids: tuple[str, ...]
    question_filter: QueryFilter | None = field(metadata=json_name("kept"))
    anchors: AnchorMatrix
    ordering: OrderingReport
    independence: IndependenceCheck | None
    spec: IntervalSpec = field(metadata=NOT_IN_JSON)
    placements: tuple[Placement, ...] = field(metadata=json_name("placed"))

    @property
    def doubtful(self) -> bool:
        """Whether an assumption is violated, so that the posteriors are overconfident."""
        check = self.independence
        dependent = check is not None and check.p_value < _MIN_P_VALUE
        return dependent or self.ordering.share > _MAX_VIOLATIONS

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            **super().to_dict(),
            "level": self.spec.level,
            "scope": self.spec.scope,
            "doubtful": self.doubtful,
        }


def anchor_study(
    runs: Sequence[TaskRun],
    spec: IntervalSpec = DEFAULT_INTERVAL,
    *,
    targets: Sequence[str] = (),
    anchors: Sequence[str] = (),
    keep: tuple[float, float] | None = None,
    pseudo_count: float = 0.0,
) -> AnchorStudy:
    """Place models among anchor models that answered the same questions of a task.

    Parameters
    ----------
    runs : sequence of TaskRun
        One per model.
    spec : IntervalSpec
        Level of the reported range of intervals, as in `CapabilityPosterior.interval`; scope of
        the posteriors, as in `lm_eval_bayes.capability_intervals`; and seed of the permutations
        and the bootstrap. The method does not matter here.
    targets : sequence of str
        The models to place; by default every model that is not an anchor, or, without anchors,
        every model among all the others.
    anchors : sequence of str
        The models to place them among; by default all that are not placed.
    keep : tuple of float, optional
        Select the questions whose share of anchors that solve them is in this closed range:
        [Xiao 2025] take .01 to .5.
    pseudo_count : float
        As in `AnchorMatrix.from_outcomes`.

    Returns
    -------
    AnchorStudy

    Raises
    ------
    InvalidInputError
        If the models answered different questions, a name is unknown, no question is selected,
        or an argument breaks its rule.

    Examples
    --------
    >>> solved = {"S": [1, 0, 0, 0], "M": [1, 1, 0, 0], "L": [1, 1, 1, 0], "new": [1, 1, 0, 0]}
    >>> runs = [
    ...     TaskRun.from_trials(name, "aime", [[c] * 4 for c in row], list("abcd"))
    ...     for name, row in solved.items()
    ... ]
    >>> study = anchor_study(runs, targets=["new"])
    >>> posterior = study.placements[0].posterior
    >>> study.anchors.names, posterior.labels[posterior.peak]
    (('S', 'M', 'L'), 'S to M')
    """
    spec.require_these()
    check_comparable(runs)
    runs[0].require_graded()
    outcomes = {run.model: run.outcomes.take(aligned_rows(run, runs[0])) for run in runs}
    for option, names in (("target", targets), ("anchors", anchors)):
        for name in names:
            if name not in outcomes:
                rule = f"be one of the models that were read ({', '.join(outcomes)})"
                raise InvalidInputError.of(option, "choice", rule, name)
    if set(targets) & set(anchors):
        both = ", ".join(name for name in anchors if name in targets)
        raise InvalidInputError.of("anchors", "conflict", "leave out the models to place", both)
    leave_one_out = not targets and not anchors
    to_place = list(dict.fromkeys(targets)) or [name for name in outcomes if name not in anchors]
    anchor_names = list(dict.fromkeys(anchors)) or [
        name for name in outcomes if leave_one_out or name not in to_place
    ]
    if not to_place:
        got = ", ".join(anchor_names)
        raise InvalidInputError.of("anchors", "empty", "leave a model to place", got)
    if len(anchor_names) < (2 if leave_one_out else 1):
        rule = f"be a model to place and at least one anchor ({runs[0].task})"
        raise InvalidInputError.of("RUN", "empty", rule, ", ".join(outcomes))
    all_anchors = AnchorMatrix.from_outcomes(
        {name: outcomes[name] for name in anchor_names}, pseudo_count=pseudo_count
    )
    question_filter = None
    if keep is not None:
        question_filter = filter_queries(all_anchors, *keep)
        selected = question_filter.kept
        if not selected.size:
            rule = f"leave a question; {keep[0]:g} to {keep[1]:g} of the anchors solve"
            raise InvalidInputError.of("keep", "empty", rule, f"none of {runs[0].n_questions}")
        all_anchors = all_anchors.take(selected)
        outcomes = {name: of_model.take(selected) for name, of_model in outcomes.items()}
    placements = []
    for name in to_place:
        others = {anchor: outcomes[anchor] for anchor in anchor_names if anchor != name}
        matrix = AnchorMatrix.from_outcomes(others, pseudo_count=pseudo_count)
        posterior = capability_intervals(matrix, outcomes[name], scope=spec.scope, seed=spec.seed)
        inside = posterior.interval(spec.level)
        score = _score(outcomes[name])
        placements.append(Placement(name, score, matrix, posterior, inside))
    return AnchorStudy(
        task=runs[0].task,
        question_ids=runs[0].question_ids,
        question_filter=question_filter,
        anchors=all_anchors,
        ordering=ordering_violations(all_anchors),
        independence=_independence(runs, spec.seed),
        spec=spec,
        placements=tuple(placements),
    )


def _score(outcomes: Outcomes) -> float:
    """Return the mean share of right answers over the questions that have trials."""
    right = outcomes.counts[:, outcomes.weights == outcomes.weights.max()].sum(axis=1)
    total = outcomes.n_trials
    return float((right[total > 0] / total[total > 0]).mean())


def _independence(runs: Sequence[TaskRun], seed: int) -> IndependenceCheck | None:
    """Test the trials that all models have; None if they are single or of unknown order."""
    if any(run.trials is None for run in runs):
        return None
    n = min(run.n_common for run in runs)
    if n < 2 or runs[0].n_questions < 2 or not all(run.binary for run in runs):
        return None
    return query_independence(np.stack([run.matrix()[:, :n] for run in runs]), seed=seed)
