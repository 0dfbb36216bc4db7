"""The posterior of a score over settings, and what the settings of a model tell of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import special

from lm_eval_bayes._util.plain import NOT_IN_JSON, Record
from lm_eval_bayes._util.validation import check_level, check_sequence
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, numeric, protect
from lm_eval_bayes.stats.distributions import (
    Distribution,
    TabulatedDistribution,
    weighted_quantiles,
)
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.intervals import Scope, equal_tails
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.results import Posterior
from lm_eval_bayes.stats.settings.allocation import half_width
from lm_eval_bayes.stats.settings.design import setting_means
from lm_eval_bayes.stats.settings.model import GivenT, T, given_t, log_likelihoods, normal_quantile

#: The sds between settings, as shares of the range of scores, of the sensitivity row; and the
#: posterior median of t above which settings are treatments rather than noise. Trials explain how
#: much settings differ where they make them differ so much with the last probability or more.
ASSUMED_SDS, TREATMENT, _EXPLAINED = (0.01, 0.02, 0.05), 0.5, 0.05


@dataclass(frozen=True)
class Summary(Record):
    """The posterior mean and median of a quantity, and its equal-tailed credible interval."""

    mean: float
    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Spread(Record):
    """How much settings differ, and what a further setting will give.

    Attributes
    ----------
    logit_sd : Summary
        t, the sd between settings in logits.
    sd : Summary
        t m (1 − m), the same in units of the score.
    sd_seen : float
        The sd of the settings' mean scores.
    sd_of_trials : float
        What it would be by trials alone, in root mean square.
    p_of_trials : float
        The probability that trials alone make the settings' means differ so much or more: that of
        χ² = Σ (y_s − m)²/σ_s² with S − 1 degrees of freedom.
    new_setting : Summary
        The score that a further setting has on these questions.
    apart : float
        Two settings lie apart at most, with the posterior probability `level`.
    runs_apart : float
        So do the mean scores of two settings, of as many trials as the present ones.
    outside : tuple of int
        The settings outside the predictive interval of the others, of three settings or more. All
        settings are in these intervals with the probability `level` or more.
    """

    logit_sd: Summary
    sd: Summary
    sd_seen: float
    sd_of_trials: float
    p_of_trials: float
    new_setting: Summary
    apart: float
    runs_apart: float
    outside: tuple[int, ...]

    @property
    def is_treatment(self) -> bool:
        """Whether some setting looks like another method rather than the same one again."""
        return self.logit_sd.median > TREATMENT or bool(self.outside)

    @property
    def is_explained(self) -> bool:
        """Whether the settings differ by no more than trials explain, at the level .05."""
        return self.p_of_trials >= _EXPLAINED


@dataclass(frozen=True, eq=False)
class SettingsPosterior(Record):
    """The posterior of a model's score over settings, see `score_over_settings`.

    Attributes
    ----------
    labels : tuple of str
        The names of the S settings.
    level : float
        The posterior mass of all intervals.
    scores : array, shape (S,)
        The settings' mean scores.
    trial_sds : array, shape (S,)
        Their sds by trials alone.
    trial_variance : float
        W/M, the variance of a setting's mean score with one trial per question.
    benchmark, population : Posterior
        hbayes@N of all trials together, by scope.
    share, trials : array, shape (S,)
        y_s, moved such that their mean, weighted by n_s, is that of hbayes@N; and n_s.
    given : GivenT
        The posterior of t, and the moments given t.
    is_known : bool
        Whether t is known by more than its prior: by two settings, or by those of a board.
    """

    labels: tuple[str, ...]
    level: float
    scores: FloatArray
    trial_sds: FloatArray
    trial_variance: float
    benchmark: Posterior = field(repr=False, metadata=NOT_IN_JSON)
    population: Posterior = field(repr=False, metadata=NOT_IN_JSON)
    share: FloatArray = field(repr=False, metadata=NOT_IN_JSON)
    trials: FloatArray = field(repr=False, metadata=NOT_IN_JSON)
    given: GivenT = field(repr=False, metadata=NOT_IN_JSON)
    is_known: bool = field(repr=False, metadata=NOT_IN_JSON)

    def __post_init__(self) -> None:
        protect(self)

    @property
    def span(self) -> float:
        """The range of scores."""
        return self.benchmark.bounds[1] - self.benchmark.bounds[0]

    @cached_property
    def these(self) -> dict[Scope, Summary]:
        """By scope, the score in these settings: hbayes@N of all trials together."""
        both = (self.benchmark, self.population)
        return {score.scope: _summary(score.distribution, self.level) for score in both}

    @cached_property
    def distributions(self) -> dict[Scope, TabulatedDistribution]:
        """By scope, the distribution of the score in settings like these; none if not known."""
        if not self.is_known:
            return {}
        bounds, shift = self.benchmark.bounds, (self.population.mu - self.benchmark.mu) / self.span
        added = max(self.population.sigma**2 - self.benchmark.sigma**2, 0.0) / self.span**2
        population = self.given.plus(added, shift).distribution(bounds)
        return {"benchmark": self.given.distribution(bounds), "population": population}

    @cached_property
    def like(self) -> dict[Scope, Summary]:
        """By scope, the score in settings like these; empty where it is not known."""
        return {scope: _summary(score, self.level) for scope, score in self.distributions.items()}

    @property
    def sensitivity(self) -> tuple[tuple[float, float], ...]:
        """Sds between settings, and the half-width about settings like these with each.

        Of scope "benchmark", if that were the sd.
        """
        by_trials, n_settings = float((self.trial_sds**2).mean()), len(self.labels)
        sds = [self.span * share for share in ASSUMED_SDS]
        return tuple((sd, half_width(sd, by_trials, n_settings, 1, self.level)) for sd in sds)

    @cached_property
    def spread(self) -> Spread | None:
        """How much the settings differ; None for one setting."""
        return _spread(self, len(self.labels) - 1) if len(self.labels) > 1 else None


def score_over_settings(
    counts: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
    *,
    labels: Sequence[str] | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> SettingsPosterior:
    """Return the posterior of a score in these settings and in settings like these.

    Both for these questions and for the population that they are a sample of. The model is that of
    :mod:`lm_eval_bayes.stats.settings.model`. In these settings the score is hbayes@N of all trials
    together, so that a setting counts by its trials. In settings like these t is integrated out.
    The variance that the population adds to the score of these questions is that between the two
    scopes of hbayes@N. The interaction of questions and settings is part of t, as all settings have
    the same questions.

    Parameters
    ----------
    counts : array of int, shape (S, M, C+1)
        How often each category occurred, by setting and question. Questions can lack trials in some
        settings, see `setting_means`.
    weights : array, shape (C+1,), optional
        The score of each category, not all equal; left out, k/C.
    labels : sequence of str, length S, optional
        The distinct names of the settings; left out, "1" to "S". Two models are paired by them.
    level : float
        Posterior mass of all intervals, strictly between 0 and 1.
    seed : int
        Seed of hbayes@N; what comes after it has no random numbers.

    Returns
    -------
    SettingsPosterior
        With two settings the interval about settings like these rests on the prior of t.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.

    Examples
    --------
    Four runs with 30, 35, 26 and 33 right answers on 20 questions, three trials each:

    >>> right = [[2] * 10 + [1] * 10, [3] * 5 + [2] * 5 + [1] * 10]
    >>> right += [[2] * 6 + [1] * 14, [3] * 3 + [2] * 7 + [1] * 10]
    >>> posterior = score_over_settings([[[3 - c, c] for c in run] for run in right])
    >>> for settings in (posterior.these, posterior.like):
    ...     score = settings["benchmark"]
    ...     print(round(score.mean, 2), round(score.low, 2), round(score.high, 2))
    0.52 0.46 0.58
    0.52 0.44 0.59
    >>> round(posterior.spread.sd_seen, 3), round(posterior.spread.p_of_trials, 1)
    (0.065, 0.3)
    """
    array = numeric("counts", counts)
    if array.ndim != 3 or 0 in array.shape:
        rule = "be 3-D, questions and categories of every setting, (S, M, C+1)"
        raise InvalidInputError.of("counts", "shape", rule, f"shape {array.shape}")
    n_settings, n_questions, n_categories = array.shape
    rule = f"be {n_settings} distinct texts, one per setting"
    given_labels = range(1, n_settings + 1) if labels is None else labels
    names = tuple(map(str, check_sequence("labels", given_labels, rule)))
    if len(names) != n_settings or len(set(names)) < n_settings:
        raise InvalidInputError.of("labels", "shape", rule, list(names))
    every = Outcomes.from_counts(array.reshape(-1, n_categories), weights)
    tables, (low, high) = every.counts.reshape(array.shape), every.bounds
    of_setting = tables.sum(axis=(1, 2)).tolist()
    if 0 in of_setting:
        raise InvalidInputError.of("counts", "empty", "hold trials of every setting", of_setting)
    if low == high:
        raise InvalidInputError.of("weights", "range", "not all be equal", every.weights.tolist())
    scores, worth = setting_means(tables, every.weights)
    outcomes = Outcomes.from_counts(tables.sum(axis=0), every.weights)
    population = hbayes_at_n(outcomes, "population", seed=seed)
    benchmark = population.benchmark or population
    mean, variance = (benchmark.mu - low) / (high - low), (benchmark.sigma / (high - low)) ** 2
    trials = max(mean * (1.0 - mean) / variance - 1.0, 1.0) * worth / worth.sum()
    share = _around((scores - low) / (high - low), trials / trials.sum(), mean)
    return SettingsPosterior(
        labels=names,
        level=check_level(level),
        scores=scores,
        trial_sds=benchmark.sigma * np.sqrt(worth.sum() / worth),
        trial_variance=benchmark.sigma**2 * float(worth.sum()) / n_questions,
        benchmark=benchmark,
        population=population,
        share=share,
        trials=trials,
        given=given_t(*log_likelihoods(share, trials)),
        is_known=n_settings > 1,
    )


def share_t(posteriors: Sequence[SettingsPosterior]) -> list[SettingsPosterior]:
    """Return the posteriors of a board's models that have one t in common.

    The likelihood of t is the product of the models'. A model with one setting then has the
    interval about settings like these that the others' settings allow.
    """
    total = np.sum([model.given.log_likelihood for model in posteriors], axis=0)
    is_known, shared = any(model.is_known for model in posteriors), []
    for model in posteriors:
        given = model.given._replace(log_of_others=total - model.given.log_likelihood)
        shared.append(replace(model, given=given, is_known=is_known))
    return shared


def _around(share: FloatArray, weight: FloatArray, mean: float) -> FloatArray:
    """Return the shares of right or of wrong times a factor, such that the weighted mean is `mean`.

    The factor is at most 1, so that none leaves [0, 1].
    """
    seen = float(share @ weight)
    if mean < seen:
        return np.asarray(share * (mean / seen))
    return np.asarray(1.0 - (1.0 - share) * ((1.0 - mean) / (1.0 - seen)))


def _spread(posterior: SettingsPosterior, freedom: int) -> Spread:
    """Return how much two settings or more differ."""
    scores, level, given = posterior.scores, posterior.level, posterior.given
    sd = posterior.span * np.maximum.accumulate(np.sqrt(given.between))
    variances, mass, bounds = posterior.trial_sds**2, given.mass, posterior.benchmark.bounds
    chi_square = ((scores - np.average(scores, weights=1.0 / variances)) ** 2 / variances).sum()
    of_runs = np.sqrt(2.0 * (sd**2 + variances.mean()))
    return Spread(
        logit_sd=_at_nodes(T, mass, level),
        sd=_at_nodes(sd, mass, level),
        sd_seen=float(scores.std(ddof=1)),
        sd_of_trials=float(np.sqrt(variances.mean())),
        p_of_trials=float(special.chdtrc(freedom, chi_square)),
        new_setting=_summary(given.plus(given.between).distribution(bounds), level),
        apart=min(normal_quantile(mass, 0.0 * T, 2.0**0.5 * sd, 0.5 + 0.5 * level), posterior.span),
        runs_apart=min(normal_quantile(mass, 0.0 * T, of_runs, 0.5 + 0.5 * level), posterior.span),
        outside=_outside(posterior) if freedom > 1 else (),
    )


def _summary(distribution: Distribution, level: float) -> Summary:
    """Summarize a distribution."""
    median = float(distribution.quantiles(np.array(0.5)))
    return Summary(distribution.mean, median, *equal_tails(distribution.quantiles, level))


def _at_nodes(values: FloatArray, mass: FloatArray, level: float) -> Summary:
    """Summarize a rising function of t by its values at the nodes."""
    masses = np.array([0.5, 0.5 - 0.5 * level, 0.5 + 0.5 * level])
    return Summary(float(mass @ values), *weighted_quantiles(values, mass, masses).tolist())


def _outside(posterior: SettingsPosterior) -> tuple[int, ...]:
    """Return the settings outside the predictive interval of the others, by Bonferroni's bound.

    The furthest is left out before the next is judged, so that none hides another.
    """
    outside, rest = list[int](), list(range(posterior.share.size))
    axis, tables = log_likelihoods(posterior.share, posterior.trials)
    # the mean of few trials is discrete: half a trial to both sides
    in_all = posterior.trial_variance * posterior.benchmark.per_question.mu.size
    half_trial = 0.5 * posterior.trial_sds[:, None] ** 2 / in_all * np.array([-1.0, 1.0])
    ends = np.clip(posterior.share[:, None] + half_trial, 0.0, 1.0)
    while len(rest) > 2:
        tails = {}
        for s in rest:
            given = given_t(axis, tables[[other for other in rest if other != s]])
            by_trials = given.mean * (1.0 - given.mean) / posterior.trials[s]
            not_above, below = given.plus(given.between + by_trials).cdf(ends[s])
            tails[s] = 2.0 * min(below, 1.0 - not_above)
        furthest = min(rest, key=tails.__getitem__)
        if tails[furthest] >= (1.0 - posterior.level) / posterior.share.size:
            break
        outside.append(furthest)
        rest.remove(furthest)
    return tuple(sorted(outside))
