"""Models on one task, best first, with how sure every place is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval_bayes.analysis.comparability import check_comparable
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.intervals import METHODS, SCOPES, Interval, IntervalMethod, Scope
from lm_eval_bayes.stats.ranking.rank import Ranking, check_confidence, rank
from lm_eval_bayes.stats.ranking.tie_rules import NUMBERINGS, TIE_RULES, Numbering, TieRule
from lm_eval_bayes.stats.results import Posterior
from lm_eval_bayes.stats.validation import FloatArray, check_level, check_option, check_seed


@dataclass(frozen=True, eq=False)
class Place:
    """One model's line of a leaderboard.

    Attributes
    ----------
    model : str
        Its name.
    rank : float
        From 1; tied models share one. Halves only with fractional numbering.
    posterior : Posterior
        hbayes@N in the leaderboard's scope.
    interval : Interval
        Its credible interval.
    p_best : float
        Posterior probability of being the best.
    expected_rank, rank_low, rank_high : float
        Posterior mean of the rank, and central ranks that hold at least `confidence`.
    n_range : tuple of int
        The fewest and the most trials of a question.
    tokens : int or None
        Of all completions, where they were counted.
    seconds : float or None
        Of the model's time, where it was measured.
    counted : str
        What was counted, such as "exact_match, filter strict-match"; "" for several tasks.
    """

    model: str
    rank: float
    posterior: Posterior
    interval: Interval
    p_best: float
    expected_rank: float
    rank_low: float
    rank_high: float
    n_range: tuple[int, int] | None = None
    tokens: int | None = None
    seconds: float | None = None
    counted: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "model": self.model,
            "rank": self.rank,
            "mu": self.posterior.mu,
            "sigma": self.posterior.sigma,
            "interval": self.interval.to_dict(),
            "p_best": self.p_best,
            "expected_rank": self.expected_rank,
            "rank_low": self.rank_low,
            "rank_high": self.rank_high,
            "n_range": None if self.n_range is None else list(self.n_range),
            "tokens": self.tokens,
            "seconds": self.seconds,
            "counted": self.counted,
            "note": self.posterior.note,
        }


@dataclass(frozen=True, eq=False)
class Leaderboard:
    """A ranking of models on one task, or on the mean of several.

    Attributes
    ----------
    task : str
        The task; "mean of 3 tasks" for several.
    tasks : tuple of str
        The tasks.
    n_questions : int
        Questions of all of them.
    level : float
        Of the intervals.
    ranking : Ranking
        The ranking with its rules, its pairwise z and P(A > B).
    places : tuple of Place
        The lines, best first, in the order of `ranking.models`.
    """

    task: str
    tasks: tuple[str, ...]
    n_questions: int
    level: float
    ranking: Ranking
    places: tuple[Place, ...]

    @property
    def models(self) -> tuple[str, ...]:
        """The names, best first."""
        return self.ranking.models

    @property
    def scope(self) -> Scope:
        """Whether this is about these questions or about questions like these."""
        return self.ranking.scope

    @property
    def counted(self) -> tuple[str, ...]:
        """What was counted of any model, each thing once."""
        return tuple(dict.fromkeys(one.counted for one in self.places if one.counted))

    @property
    def p_greater(self) -> FloatArray:
        """``[i, j]``: probability that model i scores more than model j, shape (L, L)."""
        return self.ranking.p_greater

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know, each thing once."""
        told = [self.ranking.note, *(one.posterior.note for one in self.places)]
        return tuple(dict.fromkeys(note for note in told if note))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        ranking = self.ranking.to_dict()
        del ranking["models"]
        return {
            "task": self.task,
            "tasks": list(self.tasks),
            "questions": self.n_questions,
            "level": self.level,
            "places": [one.to_dict() for one in self.places],
            **ranking,
            "notes": list(self.notes),
        }


def leaderboard(
    runs: Sequence[TaskRun],
    *,
    scope: Scope = "benchmark",
    level: float = 0.95,
    method: IntervalMethod = "exact",
    ties: TieRule = "leader",
    numbering: Numbering = "dense",
    confidence: float = 0.95,
    seed: int = 0,
    argument: str = "RUN",
) -> Leaderboard:
    """Rank the models that answered the questions of one task.

    Parameters
    ----------
    runs : sequence of TaskRun
        One a model, all of the same questions; the numbers of trials may differ.
    scope : {"benchmark", "population"}
        About these questions, or about questions like these; then questions are paired.
    level, method
        Of the credible intervals of hbayes@N.
    ties, numbering, confidence
        Who shares a rank, and how ranks are counted: see `lm_eval_bayes.rank`. The rule is not
        the paper's, "adjacent", by which the ends of a long leaderboard may share a rank.
    seed : int
        Seed of whatever is drawn.
    argument : str
        What errors call the runs.

    Returns
    -------
    Leaderboard

    Raises
    ------
    InvalidInputError
        If the models answered different questions (the first ids are named), categories are
        scored differently, or an argument breaks its rule.

    Examples
    --------
    >>> ids = ["p", "q"]
    >>> good = TaskRun.from_trials("good", "aime", [[1] * 16, [1] * 12 + [0] * 4], ids)
    >>> poor = TaskRun.from_trials("poor", "aime", [[0] * 12 + [1] * 4, [0] * 16], ids)
    >>> board = leaderboard([poor, good])
    >>> [(one.model, one.rank) for one in board.places]
    [('good', 1.0), ('poor', 2.0)]
    """
    scope = check_option("scope", scope, SCOPES)
    level = check_level(level)
    method = check_option("interval", method, METHODS)
    ties = check_option("ties", ties, TIE_RULES)
    numbering = check_option("numbering", numbering, NUMBERINGS)
    confidence = check_confidence(confidence)
    seed = check_seed(seed)
    check_comparable(runs, argument)
    posteriors = {
        run.model: hbayes_at_n(run.outcomes, scope, level, method, seed=seed) for run in runs
    }
    ranking = rank(posteriors, ties, confidence, numbering=numbering, seed=seed)
    of_model = {run.model: run for run in runs}
    return Leaderboard(
        task=runs[0].task,
        tasks=(runs[0].task,),
        n_questions=runs[0].n_questions,
        level=level,
        ranking=ranking,
        places=places_of(ranking, posteriors, of_model, level, method),
    )


def places_of(
    ranking: Ranking,
    posteriors: dict[str, Posterior],
    runs: dict[str, TaskRun],
    level: float,
    method: IntervalMethod,
) -> tuple[Place, ...]:
    """Return the lines of a leaderboard.

    Parameters
    ----------
    ranking : Ranking
        The ranking.
    posteriors : dict of str to Posterior
        By model.
    runs : dict of str to TaskRun
        By model, for N, tokens and time; empty where there is more than one task.
    level, method
        Of the intervals.
    """
    columns = zip(
        ranking.models,
        ranking.ranks.tolist(),
        ranking.p_best.tolist(),
        ranking.expected_rank.tolist(),
        ranking.rank_low.tolist(),
        ranking.rank_high.tolist(),
        strict=True,
    )
    places = []
    for model, place, p_best, expected, low, high in columns:
        posterior, run = posteriors[model], runs.get(model)
        places.append(
            Place(
                model=model,
                rank=place,
                posterior=posterior,
                interval=posterior.interval(level, method, seed=ranking.seed),
                p_best=p_best,
                expected_rank=expected,
                rank_low=low,
                rank_high=high,
                n_range=None if run is None else run.outcomes.trials_range,
                tokens=None if run is None else run.tokens,
                seconds=None if run is None else run.busy_seconds,
                counted="" if run is None else run.counted,
            )
        )
    return tuple(places)
