"""Leaderboards: models ranked by hbayes@N on a task, or on the mean of several tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from lm_eval_bayes._util.plain import NOT_IN_JSON, Record, json_name
from lm_eval_bayes._util.text import join_words
from lm_eval_bayes.analysis.comparability import check_comparable, identical_runs
from lm_eval_bayes.analysis.settings import settings_record
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats import (
    DEFAULT_INTERVAL,
    MODEL_COLUMNS,
    Interval,
    IntervalSpec,
    Outcomes,
    Posterior,
    Ranking,
    SharedScores,
    TaskMeans,
    TieRule,
    hbayes_by,
    rank,
    shared_scores,
)

#: Numbers of a row about the other models, which a leaderboard of one model does not show.
COMPARISONS = MODEL_COLUMNS[2:]


@dataclass(frozen=True, eq=False)
class LeaderboardRow(Record):
    """A model's row of a leaderboard.

    Attributes
    ----------
    model : str
        The model's name.
    rank : float
        From 1; tied models share a rank.
    mu, sigma : float
        Posterior mean and standard deviation.
    posterior : Posterior
        hbayes@N in the leaderboard's scope.
    interval : Interval
        Its credible interval.
    p_best : float
        Posterior probability of being the best model.
    expected_rank : float
        Posterior mean of the rank.
    rank_low, rank_high : float
        Simultaneous confidence set for the rank: with probability `confidence` the ranks of all
        models lie in theirs.
    n_range : tuple of int
        The fewest and the most trials of a question.
    tokens : int or None
        Completion tokens, if recorded.
    seconds : float or None
        Model time, if recorded.
    cost : float or None
        Cost of all trials in the unit of the log, if recorded.
    counted : str
        Metric and filter, such as "exact_match, filter strict-match"; "" for several tasks.
    protocol : str
        How the questions were asked; "" where it is not recorded, and for several tasks.
    shares : mapping of str to float
        The shares of responses that were cut off and that are empty, where not 0.
    outcomes : Outcomes or None
        The trials; None for several tasks.
    settings : dict or None
        The scores of its settings, see `settings_record`; None for one, and for several tasks.
    """

    model: str
    rank: float
    mu: float
    sigma: float
    posterior: Posterior = field(metadata=NOT_IN_JSON)
    interval: Interval
    p_best: float
    expected_rank: float
    rank_low: float
    rank_high: float
    n_range: tuple[int, int] | None = None
    tokens: int | None = None
    seconds: float | None = None
    cost: float | None = None
    counted: str = ""
    protocol: str = ""
    shares: Mapping[str, float] = field(default_factory=dict)
    outcomes: Outcomes | None = field(default=None, repr=False, metadata=NOT_IN_JSON)
    settings: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {**super().to_dict(), "note": self.posterior.note}


@dataclass(frozen=True, eq=False)
class Leaderboard(Record):
    """A ranking of models on a task, or on the mean of several tasks.

    Attributes
    ----------
    task : str
        The task; for several, for example "mean of 3 tasks".
    tasks : tuple of str
        The tasks.
    n_questions : int
        Questions of all tasks.
    spec : IntervalSpec
        Settings of the intervals.
    ranking : Ranking
        The ranking with its rules, its pairwise z and P(A > B).
    rows : tuple of LeaderboardRow
        One per model, best first, in the order of `ranking.models`.
    identical : tuple of tuple of str
        The models of runs that agree in the outcome of every trial, group by group; see
        `identical_runs`.
    """

    task: str
    tasks: tuple[str, ...]
    n_questions: int = field(metadata=json_name("questions"))
    spec: IntervalSpec = field(metadata=NOT_IN_JSON)
    ranking: Ranking = field(metadata=NOT_IN_JSON)
    rows: tuple[LeaderboardRow, ...] = field(metadata=json_name("places"))
    identical: tuple[tuple[str, ...], ...] = ()

    @property
    def models(self) -> tuple[str, ...]:
        """The models' names, best first."""
        return self.ranking.models

    @property
    def compares(self) -> bool:
        """Whether there are two models or more, and so the `COMPARISONS` of the rows are shown."""
        return len(self.rows) > 1

    @cached_property
    def shared(self) -> SharedScores | None:
        """Scores and P(A > B) under a prior that learns from all models how far they are apart.

        None for a single model.
        """
        if not self.compares:
            return None
        posteriors = {row.model: row.posterior for row in self.rows}
        shared = shared_scores(posteriors, self.spec.level, seed=self.spec.seed)
        return replace(shared, p_greater=self.ranking.p_greater) if self.ranking.paired else shared

    @property
    def counted(self) -> tuple[str, ...]:
        """Distinct metrics and filters of the rows."""
        return tuple(dict.fromkeys(row.counted for row in self.rows if row.counted))

    @property
    def protocols(self) -> tuple[str, ...]:
        """Distinct protocols of the rows, those that are recorded."""
        return tuple(dict.fromkeys(row.protocol for row in self.rows if row.protocol))

    @property
    def notes(self) -> tuple[str, ...]:
        """Distinct notes of the ranking, of the posteriors and on identical runs."""
        copies = [
            f"The runs of {join_words(models)} are identical, trial by trial: they count as "
            f"{len(models)} models here."
            for models in self.identical
        ]
        notes = [self.ranking.note, *(row.posterior.note for row in self.rows), *copies]
        return tuple(dict.fromkeys(note for note in notes if note))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; for one model the comparisons are None."""
        ranking = self.ranking.to_dict()
        del ranking["models"]
        plain = super().to_dict() | {"level": self.spec.level, **ranking, "notes": list(self.notes)}
        plain["shared"] = self.shared and self.shared.to_dict()
        if not self.compares:
            for row in plain["places"]:
                row.update(dict.fromkeys(COMPARISONS))
        return plain


def leaderboard(
    runs: Sequence[TaskRun],
    spec: IntervalSpec = DEFAULT_INTERVAL,
    *,
    ties: TieRule = "simultaneous",
    posteriors: Mapping[str, Posterior] | None = None,
) -> Leaderboard:
    """Rank the models that answered the questions of a task.

    Parameters
    ----------
    runs : sequence of TaskRun
        One per model, all of the same questions; numbers of trials may differ.
    spec : IntervalSpec
        Settings of the intervals of hbayes@N. In scope "population" models are paired by
        question.
    ties : {"simultaneous", "adjacent", "none"}
        Which models share a rank: see `lm_eval_bayes.rank`. The default is not the paper's rule,
        "adjacent": it has no correction for the number of pairs, and both ends of a long
        leaderboard may share a rank.
    posteriors : mapping of str to Posterior, optional
        hbayes@N by model, with the settings of `spec`, where it is known already.

    Returns
    -------
    Leaderboard

    Raises
    ------
    InvalidInputError
        If the models answered different questions (the first ids are named), category weights
        differ, or an argument breaks its rule.

    Examples
    --------
    >>> ids = ["p", "q"]
    >>> good = TaskRun.from_trials("good", "aime", [[1] * 16, [1] * 12 + [0] * 4], ids)
    >>> poor = TaskRun.from_trials("poor", "aime", [[0] * 12 + [1] * 4, [0] * 16], ids)
    >>> board = leaderboard([poor, good])
    >>> [(row.model, row.rank) for row in board.rows]
    [('good', 1.0), ('poor', 2.0)]
    """
    check_comparable(runs)
    if posteriors is None:
        posteriors = {run.model: hbayes_by(run.outcomes, spec) for run in runs}
    first = runs[0]
    return Leaderboard(
        task=first.task,
        tasks=(first.task,),
        n_questions=first.n_questions,
        spec=spec,
        **_ranked(rank(dict(posteriors), ties, seed=spec.seed), posteriors, runs, spec),
        identical=identical_runs(runs),
    )


def _ranked(
    ranking: Ranking,
    posteriors: Mapping[str, Posterior],
    runs: Sequence[TaskRun],
    spec: IntervalSpec,
) -> dict[str, Any]:
    """Return the ranking and its rows.

    `runs` gives N, tokens and time, and is empty for several tasks.
    """
    of_runs: dict[str, dict[str, Any]] = {
        run.model: {
            "n_range": run.outcomes.trials_range,
            "tokens": run.tokens,
            "seconds": run.busy_seconds,
            "cost": run.cost,
            "counted": run.counted,
            "protocol": run.provenance.protocol,
            "shares": run.shares,
            "outcomes": run.outcomes,
            "settings": settings_record(run, spec),
        }
        for run in runs
    }
    rows = []
    for row in ranking.rows():
        own = posteriors[row["model"]]
        row |= {"posterior": own, "interval": own.interval(), **of_runs.get(row["model"], {})}
        rows.append(LeaderboardRow(**row))
    return {"ranking": ranking, "rows": tuple(rows)}


# -- several tasks -------------------------------------------------------------------------------


def overall_leaderboard(
    boards: Sequence[Leaderboard], posteriors: Mapping[str, Posterior] | None = None
) -> Leaderboard:
    """Rank models by the equally weighted mean of their scores on several tasks.

    A model's tasks share a prior on their means, see `lm_eval_bayes.mean_over_tasks`. In scope
    "population" two models are paired by question within every task, as in `rank`: the difference
    of two means is then that of the questions' own means, which no prior pulls together.

    Parameters
    ----------
    boards : sequence of Leaderboard
        At least two, each of one task; of different tasks, the same models and the same rules.
    posteriors : mapping of str to Posterior, optional
        Those of the means by model, where they are known already.

    Returns
    -------
    Leaderboard
    """
    first = boards[0]
    if posteriors is None:
        posteriors = {
            model: mean_of_tasks(boards, model).posterior("equal", first.spec)
            for model in first.models
        }
    rules, of_tasks = first.ranking, [{r.model: r.posterior for r in b.rows} for b in boards]
    ranking = rank(posteriors, rules.ties, rules.confidence, seed=rules.seed, tasks=of_tasks)
    return Leaderboard(
        task=f"mean of {len(boards)} tasks",
        tasks=tuple(board.task for board in boards),
        n_questions=sum(board.n_questions for board in boards),
        spec=first.spec,
        **_ranked(ranking, posteriors, (), first.spec),
    )


def mean_of_tasks(boards: Sequence[Leaderboard], model: str) -> TaskMeans:
    """Return a model's means over the tasks of some leaderboards."""
    rows = {board.task: row for board in boards for row in board.rows if row.model == model}
    outcomes = {task: row.outcomes for task, row in rows.items() if row.outcomes is not None}
    own = {task: row.posterior for task, row in rows.items()}
    return TaskMeans(outcomes, own, seed=boards[0].spec.seed)
