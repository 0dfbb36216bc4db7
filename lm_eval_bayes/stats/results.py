"""Results: posteriors and estimates as frozen records, with their JSON."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from lm_eval_bayes._util.plain import NOT_IN_JSON, Record
from lm_eval_bayes._util.validation import check_level
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, protect
from lm_eval_bayes.stats.distributions import Distribution, QuestionMeans
from lm_eval_bayes.stats.intervals import (
    Interval,
    IntervalMethod,
    IntervalSpec,
    Scope,
    normal_ends,
    score_interval,
)


@dataclass(frozen=True, eq=False)
class PerQuestion(Record):
    """Posterior mean and sd of every question's score, each read-only of shape (M,)."""

    mu: FloatArray
    sigma: FloatArray

    def __post_init__(self) -> None:
        protect(self)


@dataclass(frozen=True, eq=False)
class LearnedPrior(Record):
    """The posterior of a prior's hyperparameters, θ_α ~ Dirichlet(s·m).

    Attributes
    ----------
    mean : array, shape (K,)
        Posterior mean of m, the share of each category in the population of questions.
        Categories of equal weight are merged and stand where the first of them does; of two
        distinct weights the smaller comes first.
    strength : float
        Posterior median of s, the strength of the learned prior in trials.
    """

    mean: FloatArray
    strength: float

    def __post_init__(self) -> None:
        protect(self)


@dataclass(frozen=True, eq=False)
class LearnedClusters(Record):
    """The clusters of a population of questions, and the posterior of how alike they are.

    A cluster's mean is p_t ~ Beta(d θ, d (1 − θ)), and that of a question in it is
    q_α ~ Beta(s p_t, s (1 − p_t)).

    Attributes
    ----------
    labels : tuple, length M
        The cluster of every question.
    n_clusters : int
        T, the number of clusters.
    strength : float
        Posterior median of d; 1/(1 + d) is the correlation of two questions of one cluster with one
        trial each.
    within : float or None
        That of s; None where no question has two trials, or no cluster two questions.
    """

    labels: tuple[Hashable, ...] = field(repr=False, metadata=NOT_IN_JSON)
    n_clusters: int
    strength: float
    within: float | None = None


@dataclass(frozen=True, eq=False)
class Posterior(Record):
    """The posterior of a benchmark's score, the mean of its questions' scores.

    Attributes
    ----------
    quantity : str
        What is estimated, e.g. "bayes@N" or "pass@k posterior".
    mu, sigma : float
        Posterior mean and standard deviation of the benchmark's score.
    per_question : PerQuestion
        The same for each question of the benchmark, in either scope.
    bounds : tuple of float
        The smallest and the largest score that are possible.
    prior : float or None
        The pseudo-count that the prior added to each category; None where it was learned.
    scope : str
        "benchmark": about these questions; "population": about the population of questions.
    k : int or None
        The k of the quantity, where it has one.
    tau : float or None
        Threshold of G-Pass.
    distribution : Distribution
        The posterior distribution of the score; :meth:`interval` takes its quantiles.
    level : float
        The default level of :meth:`interval`.
    method : str
        Its default method.
    n_trials : float or None
        Mean trials per question, prior ones by their weight; None where it is not based on
        trials of questions.
    trials_range : tuple of int or None
        The fewest and the most trials of a question, prior ones left out; None where it is not
        based on trials of questions.
    learned : LearnedPrior or None
        The posterior of the questions' common prior, where it was learned.
    ess : float or None
        Effective sample size of the draws behind `mu` and `sigma`; None where computed.
    seed : int or None
        The seed of those draws.
    note : str or None
        A warning about the numbers.
    note_on_data : str or None
        The part of it that does not concern the prior, and so concerns differences of paired
        questions too; of hbayes@N.
    benchmark : Posterior or None
        In scope "population" the posterior of scope "benchmark" from the same trials, by which
        models that answered the same questions are paired; None where there is none.
    question_ids : tuple or None
        The names of the questions, where they are known.
    clusters : LearnedClusters or None
        In scope "population" the clusters of the questions, where they have some.
    scored : bool
        Whether trials have scores between two bounds.
    dispersion : float
        Of scores their dispersion φ, see `ScoreOutcomes`: n trials have the weight n/φ. Else 1.
    dispersion_df : float
        The degrees of freedom of φ, see `ScoreOutcomes`; inf where it is known.
    """

    quantity: str
    mu: float
    sigma: float
    per_question: PerQuestion
    bounds: tuple[float, float]
    prior: float | None
    distribution: Distribution = field(repr=False, metadata=NOT_IN_JSON)
    scope: Scope = "benchmark"
    k: int | None = None
    tau: float | None = None
    level: float = field(default=0.95, metadata=NOT_IN_JSON)
    method: IntervalMethod = field(default="exact", metadata=NOT_IN_JSON)
    n_trials: float | None = None
    learned: LearnedPrior | None = None
    ess: float | None = None
    seed: int | None = None
    note: str | None = None
    note_on_data: str | None = field(default=None, repr=False, metadata=NOT_IN_JSON)
    benchmark: Posterior | None = field(default=None, repr=False, metadata=NOT_IN_JSON)
    question_ids: tuple[Hashable, ...] | None = field(
        default=None, repr=False, metadata=NOT_IN_JSON
    )
    trials_range: tuple[int, int] | None = field(default=None, repr=False)
    clusters: LearnedClusters | None = None
    scored: bool = field(default=False, repr=False, metadata=NOT_IN_JSON)
    dispersion: float = field(default=1.0, repr=False, metadata=NOT_IN_JSON)
    dispersion_df: float = field(default=np.inf, repr=False, metadata=NOT_IN_JSON)

    @cached_property
    def question_means(self) -> QuestionMeans | None:
        """What was observed of every question, see `Distribution.question_means`."""
        return self.distribution.question_means(self.per_question.mu, self.per_question.sigma)

    def interval(
        self,
        level: float | None = None,
        method: IntervalMethod | None = None,
    ) -> Interval:
        """Return an interval that holds `level` of the posterior mass.

        Parameters
        ----------
        level : float, optional
            Posterior mass, strictly between 0 and 1; left out, the posterior's own (0.95).
        method : {"normal", "beta", "exact"}, optional
            Left out, the posterior's own ("exact"). "normal": μ ± zσ [Hariri 2026, §2.5], clipped
            to the possible scores. "beta": equal tails of the Beta distribution on the possible
            scores with the posterior's mean and variance. "exact": equal tails of the true
            posterior. That of Bayes@N of 20 questions or more is the "beta" one; others are
            represented by draws.

        Returns
        -------
        Interval
            With `mc_error` and `seed` set where the endpoints were drawn.

        Raises
        ------
        InvalidInputError
            If `level` is outside (0, 1) or the method is unknown.

        Examples
        --------
        The paper's interval [Hariri 2026, §2.5] for weights 0, 0, ¼, 1:

        >>> from lm_eval_bayes.stats.outcomes import Outcomes
        >>> from lm_eval_bayes.stats.uniform_prior import bayes_at_n
        >>> R = [[3, 2, 3, 1, 3], [2, 3, 0, 3, 1]]
        >>> posterior = bayes_at_n(Outcomes.from_matrix(R, weights=[0, 0, 0.25, 1]))
        >>> interval = posterior.interval(0.95, "normal")
        >>> round(interval.low, 6), round(interval.high, 6)
        (0.247392, 0.641497)
        """
        level = self.level if level is None else level
        method = self.method if method is None else method
        return self.interval_by(IntervalSpec(level, self.scope, method))

    def interval_by(self, spec: IntervalSpec) -> Interval:
        """Return the credible interval of this level and method, in the posterior's own scope.

        Raises
        ------
        InvalidInputError
            If `spec` asks for settings like these, which a posterior of all trials does not know.
        """
        spec.require_these()
        spec = replace(spec, scope=self.scope)
        return score_interval(self.distribution, (self.mu, self.sigma), self.bounds, spec)

    def to_dict(self, interval: Interval | None = None) -> dict[str, Any]:
        """Return plain JSON types, without the distribution.

        Parameters
        ----------
        interval : Interval, optional
            The credible interval to go with it; left out, :meth:`interval` with the posterior's
            own level and method, and seed 0 where it is drawn.

        Examples
        --------
        >>> from lm_eval_bayes.stats.outcomes import Outcomes
        >>> from lm_eval_bayes.stats.uniform_prior import bayes_at_n
        >>> plain = bayes_at_n(Outcomes.from_matrix([[1, 1, 1, 1]])).to_dict()
        >>> {end: round(plain["interval"][end], 3) for end in ("low", "high", "level")}
        {'low': 0.478, 'high': 0.995, 'level': 0.95}
        """
        interval = self.interval() if interval is None else interval
        return {
            **super().to_dict(),
            "interval": interval.to_dict(),
            "n_questions": int(self.per_question.mu.size),
        }


@dataclass(frozen=True, eq=False)
class Estimate(Record):
    """A point estimate from the given trials.

    Attributes
    ----------
    quantity : str
        What is estimated, e.g. "avg@N" or "pass@k".
    value : float
        The benchmark's estimate, the mean of `per_question`.
    per_question : array, shape (M,)
        Each question's estimate, read-only.
    k : int or None
        The k of the quantity, where it has one.
    tau : float or None
        Threshold of G-Pass.
    sigma : float or None
        Standard deviation of `value`, where the estimate has one (avg@N).
    bounds : tuple of float
        The range that :meth:`interval` is clipped to: of avg@N, the smallest and largest weight.
    """

    quantity: str
    value: float
    per_question: FloatArray
    k: int | None = None
    tau: float | None = None
    sigma: float | None = None
    bounds: tuple[float, float] = field(default=(0.0, 1.0), metadata=NOT_IN_JSON)

    def interval(self, level: float = 0.95) -> Interval:
        """Return avg@N ± z σ_avg, clipped to the possible scores.

        The normal interval around the mean of the trials, with the sd σ_avg [Hariri 2026, eq. 20]:
        that of the posterior under the uniform prior, times T/N. It is no credible interval, and
        it covers too often with few trials.

        Parameters
        ----------
        level : float
            Nominal coverage, strictly between 0 and 1.

        Returns
        -------
        Interval
            Of scope "benchmark".

        Raises
        ------
        InvalidInputError
            If the level or the method breaks its rule, or the estimate has no `sigma`: for the
            Pass@k family take the interval of its posterior.

        Examples
        --------
        >>> from lm_eval_bayes.stats.uniform_prior import avg_at_n
        >>> from lm_eval_bayes.stats.outcomes import Outcomes
        >>> interval = avg_at_n(Outcomes.from_matrix([[0, 1, 1, 1], [1, 1, 0, 1]])).interval(0.9)
        >>> round(interval.low, 3), interval.high
        (0.439, 1.0)
        """
        if self.sigma is None:
            rule = "be known for an interval (avg@N); take that of the quantity's posterior"
            raise InvalidInputError.of("sigma", "unsupported", rule, self.sigma)
        level = check_level(level)
        low, high = normal_ends(self.value, self.sigma, self.bounds, level)
        return Interval(low, high, level=level, method="normal", scope="benchmark")


def joined_notes(notes: Iterable[str | None]) -> str | None:
    """Return the distinct notes in one text; None where there is none."""
    return " ".join(dict.fromkeys(note for note in notes if note)) or None


def check_posterior(name: str, posterior: object) -> Posterior:
    """Return a posterior; `name` is that of the argument."""
    if not isinstance(posterior, Posterior):
        rule = "be a Posterior, as from bayes_at_n or hbayes_at_n"
        raise InvalidInputError.of(name, "type", rule, type(posterior).__name__)
    return posterior


def check_leaderboard(posteriors: object) -> list[str]:
    """Return the models' names, once all posteriors are comparable.

    Raises
    ------
    InvalidInputError
        If there is none, one has no finite mean and sd, or two are about different things.
    """
    rule = "be a mapping from at least one model's name to its posterior"
    if not isinstance(posteriors, Mapping) or not posteriors:
        raise InvalidInputError.of("posteriors", "empty", rule, posteriors)
    for name, posterior in posteriors.items():
        if not isinstance(name, str) or not isinstance(posterior, Posterior):
            raise InvalidInputError.of("posteriors", "empty", rule, {name: posterior})
        for what, number, least in (
            ("mean", posterior.mu, -np.inf),
            ("sd of at least 0", posterior.sigma, 0.0),
        ):
            if not (np.isfinite(number) and number >= least):
                rule = f'have a finite {what} for every model ("{name}")'
                raise InvalidInputError.of("posteriors", "range", rule, number)
    names = list(posteriors)
    expected = _subject(posteriors[names[0]])
    for name in names[1:]:
        for what, value in _subject(posteriors[name]).items():
            if value != expected[what]:
                rule = f'have the same {what} ("{names[0]}" has {expected[what]})'
                raise InvalidInputError.of("posteriors", "mismatch", rule, f'{value} for "{name}"')
    return names


def _subject(posterior: Posterior) -> dict[str, object]:
    """Return what a posterior is about, which all on one leaderboard must share."""
    names = ("quantity", "scope", "bounds", "k", "tau")
    subject: dict[str, object] = {name: getattr(posterior, name) for name in names}
    if posterior.scope == "benchmark":
        subject["number of questions"] = int(posterior.per_question.mu.size)
    return subject
