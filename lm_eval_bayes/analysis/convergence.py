"""How scores and their ranking settle as trials come in, from saved runs of one task."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lm_eval_bayes.analysis.comparability import check_comparable, question_number
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats.convergence.convergence import Convergence, convergence_at_n
from lm_eval_bayes.stats.convergence.kendall import KendallCurve, kendall_curve
from lm_eval_bayes.stats.convergence.prefix_scores import Scheme, prefix_scores
from lm_eval_bayes.stats.convergence.prefix_tables import LINEAR, Metric
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.intervals import METHODS, SCOPES, Interval, IntervalMethod, Scope
from lm_eval_bayes.stats.outcomes import BINARY_WEIGHTS, Outcomes
from lm_eval_bayes.stats.validation import IntArray, check_level, check_option, check_seed

#: The budgets of Pass@k that are looked at where none is asked for.
_USUAL_K = (2, 4, 8)
_NAMED = re.compile(r"(naive-)?(g-|mg-)?pass([@^])(\d{1,9})(?:_(\d*\.?\d+))?")


@dataclass(frozen=True)
class Score:
    """What ranks models.

    Attributes
    ----------
    name : str
        As it is written: "bayes@N", "avg@N", "pass@8", "pass^4", "g-pass@8_0.5", "mg-pass@4".
    metric : str
        What `convergence_at_n` calls it.
    k : int or None
        Trials that it looks at.
    tau : float or None
        Threshold of G-Pass.
    """

    name: str
    metric: Metric
    k: int | None = None
    tau: float | None = None


def score_named(text: str) -> Score:
    """Read the name of a score.

    Raises
    ------
    InvalidInputError
        If it is none.

    Examples
    --------
    >>> score_named("bayes"), score_named("g-pass@8_0.5").tau
    (Score(name='bayes@N', metric='bayes', k=None, tau=None), 0.5)
    >>> score_named("pass^4").metric, score_named("naive-pass@2").metric
    ('pass^k', 'naive pass@k')
    """
    name = text.strip().lower()
    for metric in LINEAR:
        if name in (metric, f"{metric}@n"):
            return Score(f"{metric}@N", metric)
    match = _NAMED.fullmatch(name)
    if match:
        naive, kind, sign, k, tau = match.groups()
        plain = kind is None
        if (tau is not None) == (kind == "g-") and (plain or (sign == "@" and naive is None)):
            metrics: dict[tuple[bool, str | None, str], Metric] = {
                (False, None, "@"): "pass@k",
                (False, None, "^"): "pass^k",
                (True, None, "@"): "naive pass@k",
                (True, None, "^"): "naive pass^k",
                (False, "g-", "@"): "g-pass",
                (False, "mg-", "@"): "mg-pass",
            }
            metric = metrics[naive is not None, kind, sign]
            return Score(name, metric, int(k), None if tau is None else float(tau))
    rule = (
        "be bayes, avg, pass@8, pass^8, g-pass@8_0.5 or mg-pass@8 with any k, "
        "or naive-pass@8 or naive-pass^8"
    )
    raise InvalidInputError.of("score", rule, text)


@dataclass(frozen=True)
class AfterTrials:
    """A model's posterior after the first n trials of every question: hbayes@n."""

    n: int
    mu: float
    sigma: float
    interval: Interval

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        interval = self.interval.to_dict()
        return {"n": self.n, "mu": self.mu, "sigma": self.sigma, "interval": interval}


@dataclass(frozen=True, eq=False)
class RankingSettles:
    """When the ranking by one score stops changing.

    Attributes
    ----------
    score : Score
        What ranks.
    convergence : Convergence
        Only equal scores share a rank.
    tied : Convergence or None
        Neighbours that are not surely apart share one; None for the pass family.
    kendall : KendallCurve or None
        Agreement with the ranking by bayes@N on all trials; None where all models tie there.
    final : mapping of str to float
        Each model's score on all N trials.
    """

    score: Score
    convergence: Convergence
    tied: Convergence | None
    kendall: KendallCurve | None
    final: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "score": self.score.name,
            "final": dict(self.final),
            "convergence": self.convergence.to_dict(),
            "with_ties": None if self.tied is None else self.tied.to_dict(),
            "kendall": None if self.kendall is None else self.kendall.to_dict(),
        }


@dataclass(frozen=True, eq=False)
class TaskConvergence:
    """How the runs of one task settled.

    Attributes
    ----------
    task : str
        The task.
    models : tuple of str
        The models, L of them.
    n_questions, n_trials : int
        M, and N: the trials that every question of every model has.
    level, scope, method
        Of the intervals.
    along : mapping of str to tuple of AfterTrials
        By model, after 1, 2, 4, … and all of its trials.
    rankings : tuple of RankingSettles
        One a score; none for a single model or a single trial.
    notes : tuple of str
        What was left out.
    """

    task: str
    models: tuple[str, ...]
    n_questions: int
    n_trials: int
    level: float
    scope: Scope
    method: IntervalMethod
    along: Mapping[str, tuple[AfterTrials, ...]]
    rankings: tuple[RankingSettles, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "task": self.task,
            "models": list(self.models),
            "questions": self.n_questions,
            "trials": self.n_trials,
            "level": self.level,
            "scope": self.scope,
            "interval": self.method,
            "along": {name: [one.to_dict() for one in row] for name, row in self.along.items()},
            "rankings": [one.to_dict() for one in self.rankings],
            "notes": list(self.notes),
        }


def task_convergence(
    runs: Sequence[TaskRun],
    *,
    scores: Sequence[Score] | None = None,
    replicates: int = 2000,
    scheme: Scheme = "column",
    confidence: float = 0.95,
    level: float = 0.95,
    scope: Scope = "benchmark",
    method: IntervalMethod = "exact",
    seed: int = 0,
    argument: str = "RUN",
) -> TaskConvergence:
    """Say how the scores of models on one task, and their ranking, settle with trials.

    Parameters
    ----------
    runs : sequence of TaskRun
        One a model. Their questions are matched by id.
    scores : sequence of Score, optional
        What ranks; left out, bayes@N and, for right and wrong, Pass@2, 4 and 8 up to N/2.
    replicates, scheme, confidence, seed
        As in `lm_eval_bayes.convergence_at_n`; `confidence` is that of interval ties.
    level, scope, method
        Of the intervals of hbayes@n.
    argument : str
        What errors call the runs.

    Returns
    -------
    TaskConvergence

    Raises
    ------
    InvalidInputError
        If the order of some model's trials is not known, models answered different questions,
        or an argument breaks its rule.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> ids = [f"q{i}" for i in range(20)]
    >>> runs = [
    ...     TaskRun.from_trials(name, "aime", (rng.random((20, 16)) < p).astype(int), ids)
    ...     for name, p in (("small", 0.3), ("large", 0.6))
    ... ]
    >>> found = task_convergence(runs, replicates=500)
    >>> [one.score.name for one in found.rankings]
    ['bayes@N', 'pass@2', 'pass@4', 'pass@8']
    >>> [one.n for one in found.along["large"]]
    [1, 2, 4, 8, 16]
    """
    level, seed = check_level(level), check_seed(seed)
    scope = check_option("scope", scope, SCOPES)
    method = check_option("interval", method, METHODS)
    check_comparable(runs, argument)
    matrices = [run.matrix(argument) for run in runs]
    along = {
        run.model: _along(run, matrix, level, scope, method, seed)
        for run, matrix in zip(runs, matrices, strict=True)
    }
    least = min(matrix.shape[1] for matrix in matrices)
    asked, notes = _scores(runs[0], scores, least), []
    if any(matrix.shape[1] > least for matrix in matrices):
        notes.append(f"rankings rest on the first {least} trials, which all models have")
    rankings: tuple[RankingSettles, ...] = ()
    if len(runs) > 1 and least > 1:
        tensor = _tensor(runs, matrices, least)
        weights = runs[0].outcomes.weights
        known = None if tuple(weights.tolist()) == BINARY_WEIGHTS else weights
        rankings = tuple(
            _settles(one, tensor, runs, known, replicates, scheme, confidence, seed)
            for one in asked
        )
        if any(one.kendall is None for one in rankings):
            notes.append("all models have the same score: there is no order to agree with")
    elif len(runs) > 1:
        notes.append("there is one trial a question, so no ranking along the way")
    elif scores:
        rule = f"be of two models or more for --score ({runs[0].task})"
        raise InvalidInputError.of(argument, rule, runs[0].model)
    return TaskConvergence(
        task=runs[0].task,
        models=tuple(run.model for run in runs),
        n_questions=runs[0].n_questions,
        n_trials=least,
        level=level,
        scope=scope,
        method=method,
        along=along,
        rankings=rankings,
        notes=tuple(notes),
    )


def doublings(most: int) -> tuple[int, ...]:
    """Return 1, 2, 4, … and `most`.

    Examples
    --------
    >>> doublings(10), doublings(8)
    ((1, 2, 4, 8, 10), (1, 2, 4, 8))
    """
    found = [2**i for i in range(most.bit_length()) if 2**i < most]
    return (*found, most)


def reached(convergence: Convergence, share: float) -> int | None:
    """Return the smallest n by which so large a share of orders has converged, if there is one.

    Examples
    --------
    >>> R = np.zeros((2, 1, 4), dtype=int)
    >>> R[0] = 1
    >>> reached(convergence_at_n(R, replicates=10), 0.95)
    1
    """
    there = np.flatnonzero(convergence.cdf >= share - 1e-12)
    return int(there[0]) + 1 if there.size else None


def _scores(run: TaskRun, asked: Sequence[Score] | None, n_trials: int) -> list[Score]:
    """Return what ranks; refuse what there are too few trials or too many categories for."""
    if not asked:
        usual = [score_named(f"pass@{k}") for k in _USUAL_K if 2 * k <= n_trials]
        return [score_named("bayes"), *(usual if _right_or_wrong(run) else [])]
    for one in asked:
        if one.k is None:
            continue
        if not _right_or_wrong(run):
            rule = f"be bayes or avg where trials are more than right or wrong ({run.task})"
            raise InvalidInputError.of("score", rule, one.name)
        if not 1 <= one.k <= n_trials:
            rule = f"have 1 <= k <= N (N={n_trials} for {run.task})"
            raise InvalidInputError.of("score", rule, one.name)
    return list(dict.fromkeys(asked))


def _right_or_wrong(run: TaskRun) -> bool:
    return tuple(run.outcomes.weights.tolist()) == BINARY_WEIGHTS


def _along(
    run: TaskRun, matrix: IntArray, level: float, scope: Scope, method: IntervalMethod, seed: int
) -> tuple[AfterTrials, ...]:
    found = []
    for n in doublings(matrix.shape[1]):
        first = Outcomes.from_matrix(matrix[:, :n], weights=run.outcomes.weights)
        posterior = hbayes_at_n(first, scope, level, method, seed=seed)
        interval = posterior.interval(seed=seed)
        found.append(AfterTrials(n, posterior.mu, posterior.sigma, interval))
    return tuple(found)


def _tensor(runs: Sequence[TaskRun], matrices: Sequence[IntArray], n_trials: int) -> IntArray:
    """Stack the first trials of all models, the questions in the first model's order."""
    stacked = []
    for run, matrix in zip(runs, matrices, strict=True):
        place = question_number(run)
        rows = [place[name] for name in runs[0].question_ids]
        stacked.append(matrix[rows, :n_trials])
    return np.stack(stacked)


def _settles(
    score: Score,
    tensor: IntArray,
    runs: Sequence[TaskRun],
    weights: Any,
    replicates: int,
    scheme: Scheme,
    confidence: float,
    seed: int,
) -> RankingSettles:
    same: dict[str, Any] = {"k": score.k, "tau": score.tau}
    if score.metric in LINEAR:
        same = {"weights": weights}
    drawn: dict[str, Any] = {"replicates": replicates, "scheme": scheme, "seed": seed}
    gold = prefix_scores(tensor, "bayes", weights=weights)[:, -1]
    final = prefix_scores(tensor, score.metric, **same)[:, -1]
    return RankingSettles(
        score=score,
        convergence=convergence_at_n(tensor, score.metric, **same, **drawn),
        tied=convergence_at_n(
            tensor, score.metric, **same, **drawn, ties="adjacent", confidence=confidence
        )
        if score.metric in LINEAR
        else None,
        kendall=kendall_curve(tensor, gold, score.metric, **same, **drawn)
        if np.ptp(gold) > 0.0
        else None,
        final=dict(zip((run.model for run in runs), final.tolist(), strict=True)),
    )
