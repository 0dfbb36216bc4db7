"""Convergence of scores and rankings as trials are added: posteriors after the first n trials."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lm_eval_bayes._util.plain import NOT_IN_JSON, Record, json_name
from lm_eval_bayes.analysis.comparability import aligned_rows, check_comparable
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats import (
    BINARY_WEIGHTS,
    DEFAULT_INTERVAL,
    LINEAR,
    Convergence,
    IntArray,
    Interval,
    IntervalSpec,
    KendallCurve,
    Metric,
    Outcomes,
    Posterior,
    convergence_at_n,
    hbayes_by,
    kendall_curve,
    prefix_scores,
)

#: The k of Pass@k that are ranked by default.
_DEFAULT_KS = (2, 4, 8)
_PASS_FAMILY_NAME = re.compile(r"((?:m?g-)?pass@|pass\^)(\d{1,9})(?:_(\d*\.?\d+))?")
#: Metrics by the beginnings of names.
_PASS_FAMILY_METRICS: dict[str, Metric] = {
    "pass@": "pass@k",
    "pass^": "pass^k",
    "g-pass@": "g-pass",
    "mg-pass@": "mg-pass",
}


@dataclass(frozen=True)
class Score:
    """A score by which models are ranked.

    Attributes
    ----------
    name : str
        Its name: "bayes@N", "avg@N", "pass@8", "pass^4", "g-pass@8_0.5", "mg-pass@4".
    metric : str
        The `metric` argument of `convergence_at_n`.
    k : int or None
        k of the pass family.
    tau : float or None
        Threshold of G-Pass.
    """

    name: str
    metric: Metric
    k: int | None = None
    tau: float | None = None


def score_named(text: str) -> Score:
    """Parse the name of a score.

    Raises
    ------
    InvalidInputError
        If it is not the name of a score.

    Examples
    --------
    >>> score_named("bayes"), score_named("g-pass@8_0.5").tau
    (Score(name='bayes@N', metric='bayes', k=None, tau=None), 0.5)
    >>> score_named("pass^4").metric
    'pass^k'
    """
    name = text.strip().lower()
    for metric in LINEAR:
        if name in (metric, f"{metric}@n"):
            return Score(f"{metric}@N", metric)
    match = _PASS_FAMILY_NAME.fullmatch(name)
    if match:
        beginning, k, tau = match.groups(default="")
        if bool(tau) == (beginning == "g-pass@"):
            return Score(name, _PASS_FAMILY_METRICS[beginning], int(k), float(tau) if tau else None)
    rule = "be bayes, avg, pass@8, pass^8, g-pass@8_0.5 or mg-pass@8 with any k"
    raise InvalidInputError.of("score", "choice", rule, text)


@dataclass(frozen=True, eq=False)
class RankingConvergence(Record):
    """When the ranking by a score stops changing.

    Attributes
    ----------
    score : Score
        The score.
    convergence : Convergence
        Of rankings in which only equal scores tie.
    tied : Convergence or None
        Of rankings in which neighbours tie unless z reaches a threshold; None for the pass
        family.
    kendall : KendallCurve or None
        Agreement with the ranking by bayes@N on all trials; None if all models tie there.
    """

    score: Score
    convergence: Convergence
    tied: Convergence | None = field(metadata=json_name("with_ties"))
    kendall: KendallCurve | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {**super().to_dict(), "score": self.score.name}


@dataclass(frozen=True, eq=False)
class TaskConvergence(Record):
    """Convergence of the scores and rankings of a task's models.

    Attributes
    ----------
    task : str
        The task.
    models : tuple of str
        The L models.
    n_questions, n_trials : int
        M, and N: the trials that every question of every model has.
    spec : IntervalSpec
        Settings of the intervals.
    prefixes : mapping of str to tuple of PrefixPosterior
        By model, hbayes@n after 1, 2, 4, … and all of its trials.
    rankings : tuple of RankingConvergence
        One per score; none for a single model or a single trial.
    notes : tuple of str
        Warnings: what was left out, and why.
    """

    task: str
    models: tuple[str, ...]
    n_questions: int = field(metadata=json_name("questions"))
    n_trials: int = field(metadata=json_name("trials"))
    spec: IntervalSpec = field(metadata=NOT_IN_JSON)
    prefixes: Mapping[str, tuple[PrefixPosterior, ...]] = field(metadata=json_name("along"))
    rankings: tuple[RankingConvergence, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            **super().to_dict(),
            "level": self.spec.level,
            "scope": self.spec.scope,
            "interval": self.spec.method,
        }


def task_convergence(
    runs: Sequence[TaskRun],
    spec: IntervalSpec = DEFAULT_INTERVAL,
    *,
    scores: Sequence[Score] | None = None,
    replicates: int = 2000,
) -> TaskConvergence:
    """Return how the scores of a task's models, and their ranking, converge.

    Parameters
    ----------
    runs : sequence of TaskRun
        One per model. Their questions are matched by id.
    spec : IntervalSpec
        Settings of the intervals of hbayes@n; its seed is also that of the resampling.
    scores : sequence of Score, optional
        The scores that rank; by default bayes@N and, if trials are right or wrong, Pass@2, 4 and
        8 up to N/2.
    replicates : int
        As in `lm_eval_bayes.convergence_at_n`.

    Returns
    -------
    TaskConvergence

    Raises
    ------
    InvalidInputError
        If the order of some model's trials is unknown, models answered different questions, or
        an argument breaks its rule.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> ids = [f"q{i}" for i in range(20)]
    >>> runs = [
    ...     TaskRun.from_trials(name, "aime", (rng.random((20, 16)) < p).astype(int), ids)
    ...     for name, p in (("small", 0.3), ("large", 0.6))
    ... ]
    >>> result = task_convergence(runs, replicates=500)
    >>> [ranking.score.name for ranking in result.rankings]
    ['bayes@N', 'pass@2', 'pass@4', 'pass@8']
    >>> [prefix.n for prefix in result.prefixes["large"]]
    [1, 2, 4, 8, 16]
    """
    check_comparable(runs)
    matrices = [run.matrix() for run in runs]
    prefixes = {run.model: prefix_posteriors(run, spec) for run in runs}
    n_trials = min(matrix.shape[1] for matrix in matrices)
    ranking_scores, notes = _ranking_scores(runs[0], scores, n_trials), []
    if any(matrix.shape[1] > n_trials for matrix in matrices):
        notes.append(f"rankings use the first {n_trials} trials, which all models have")
    rankings: tuple[RankingConvergence, ...] = ()
    if len(runs) > 1 and n_trials > 1:
        # (L, M, n), in the first model's order of questions
        pairs = zip(runs, matrices, strict=True)
        tensor = np.stack([R[aligned_rows(run, runs[0]), :n_trials] for run, R in pairs])
        rankings = tuple(
            _ranking_convergence(score, tensor, runs[0], replicates, spec.seed)
            for score in ranking_scores
        )
        if any(ranking.kendall is None for ranking in rankings):
            notes.append("all models have the same score, so Kendall's tau is not defined")
    elif len(runs) > 1:
        notes.append("there is one trial per question, so rankings have no convergence")
    elif scores:
        rule = f"be of two models or more for --score ({runs[0].task})"
        raise InvalidInputError.of("RUN", "empty", rule, runs[0].model)
    return TaskConvergence(
        task=runs[0].task,
        models=tuple(run.model for run in runs),
        n_questions=runs[0].n_questions,
        n_trials=n_trials,
        spec=spec,
        prefixes=prefixes,
        rankings=rankings,
        notes=tuple(notes),
    )


def trials_to_converge(convergence: Convergence, share: float) -> int | None:
    """Return the smallest n by which this share of orders has converged; None if there is none.

    Examples
    --------
    >>> R = np.zeros((2, 1, 4), dtype=int)
    >>> R[0] = 1
    >>> trials_to_converge(convergence_at_n(R, replicates=10), 0.95)
    1
    """
    converged = np.flatnonzero(convergence.cdf >= share - 1e-12)
    return int(converged[0]) + 1 if converged.size else None


def _ranking_scores(run: TaskRun, scores: Sequence[Score] | None, n_trials: int) -> list[Score]:
    """Return the scores that rank; raise if there are too few trials or too many categories."""
    if not scores:
        by_default = [score_named(f"pass@{k}") for k in _DEFAULT_KS if 2 * k <= n_trials]
        return [score_named("bayes"), *(by_default if _right_or_wrong(run) else [])]
    for score in scores:
        if score.k is None:
            continue
        if not _right_or_wrong(run):
            rule = f"be bayes or avg if trials are not just right or wrong ({run.task})"
            raise InvalidInputError.of("score", "unsupported", rule, score.name)
        if not 1 <= score.k <= n_trials:
            rule = f"have 1 <= k <= N (N={n_trials} for {run.task})"
            raise InvalidInputError.of("score", "range", rule, score.name)
    return list(dict.fromkeys(scores))


def _right_or_wrong(run: TaskRun) -> bool:
    return tuple(run.outcomes.weights.tolist()) == BINARY_WEIGHTS


def _ranking_convergence(
    score: Score,
    tensor: IntArray,
    run: TaskRun,
    replicates: int,
    seed: int,
) -> RankingConvergence:
    weights = None if _right_or_wrong(run) else run.outcomes.weights
    linear = score.metric in LINEAR
    metric: dict[str, Any] = {"weights": weights} if linear else {"k": score.k, "tau": score.tau}
    by_all_trials = prefix_scores(tensor, "bayes", weights=weights)[:, -1]
    settings = metric | {"replicates": replicates, "seed": seed}
    tied = kendall = None
    if linear:
        tied = convergence_at_n(tensor, score.metric, ties="adjacent", **settings)
    if np.ptp(by_all_trials) > 0.0:
        kendall = kendall_curve(tensor, by_all_trials, score.metric, **settings)
    return RankingConvergence(
        score=score,
        convergence=convergence_at_n(tensor, score.metric, **settings),
        tied=tied,
        kendall=kendall,
    )


# -- posteriors after the first n trials --------------------------------------------------------


@dataclass(frozen=True)
class PrefixPosterior(Record):
    """hbayes@n: a model's posterior after the first n trials of every question."""

    n: int
    mu: float
    sigma: float
    interval: Interval


def doublings(n_trials: int) -> tuple[int, ...]:
    """Return 1, 2, 4, … and `n_trials`.

    Examples
    --------
    >>> doublings(10), doublings(8)
    ((1, 2, 4, 8, 10), (1, 2, 4, 8))
    """
    return (*(2**i for i in range((n_trials - 1).bit_length())), n_trials)


def prefix_posteriors(
    run: TaskRun, spec: IntervalSpec, of_all: Posterior | None = None
) -> tuple[PrefixPosterior, ...]:
    """Return hbayes@n for n = 1, 2, 4, … and N; none if the order of the trials is unknown.

    Parameters
    ----------
    run : TaskRun
        The run.
    spec : IntervalSpec
        Settings of the intervals.
    of_all : Posterior, optional
        hbayes@N of all trials, with the settings of `spec`, where it is known already.
    """
    if run.trials is None or not run.n_common:
        return ()
    matrix, posteriors = run.matrix(), []
    for n in doublings(matrix.shape[1]):
        posterior = of_all
        if posterior is None or n < matrix.shape[1]:
            first = Outcomes.from_matrix(matrix[:, :n], weights=run.outcomes.weights)
            outcomes = replace(run.outcomes, counts=first.counts)
            posterior = hbayes_by(outcomes, spec)
        interval = posterior.interval()
        posteriors.append(PrefixPosterior(n, posterior.mu, posterior.sigma, interval))
    return tuple(posteriors)
