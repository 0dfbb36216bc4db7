"""The posterior of a score over settings, and what the settings of a model tell of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

from lm_eval_bayes._util.plain import NOT_IN_JSON, Record
from lm_eval_bayes._util.validation import check_level, check_sequence
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, check_weights, protect
from lm_eval_bayes.stats.distributions.base import Distribution, TabulatedDistribution
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.intervals import SCOPES, Ends, Scope, equal_tails
from lm_eval_bayes.stats.outcomes import Outcomes, scaled_weights
from lm_eval_bayes.stats.results import Posterior
from lm_eval_bayes.stats.settings.allocation import half_width
from lm_eval_bayes.stats.settings.design import check_settings, setting_means
from lm_eval_bayes.stats.settings.model import (
    T,
    GivenT,
    SettingsLikelihood,
    log_prior,
)

#: The sds between settings, as shares of the range of the score, of the sensitivity row.
ASSUMED_SDS = (0.01, 0.02, 0.05)
#: The posterior median of t above which settings are treatments rather than noise.
TREATMENT = 0.5


@dataclass(frozen=True)
class Summary(Record):
    """The posterior mean and median of a quantity, and its equal-tailed credible interval."""

    mean: float
    median: float
    low: float
    high: float

    @classmethod
    def of(cls, distribution: Distribution, mean: float, ends: Ends) -> Summary:
        """Take the mean and the ends as they are."""
        median = float(distribution.quantiles(np.array(0.5)))
        return cls(float(mean), median, *ends)

    @classmethod
    def of_table(cls, table: TabulatedDistribution, level: float) -> Summary:
        """Summarize a tabulated distribution."""
        return cls.of(table, table.mean, equal_tails(table.quantiles, level))


@dataclass(frozen=True, eq=False)
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
        The settings outside the predictive interval of the others, of three settings or more. The
        intervals together hold all settings with the probability `level` at least.
    from_others : array, shape (S,)
        The score of each setting less the mean of the others'.
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
    from_others: FloatArray

    def __post_init__(self) -> None:
        protect(self)

    @property
    def is_treatment(self) -> bool:
        """Whether some setting looks like another method rather than the same one again."""
        return self.logit_sd.median > TREATMENT or bool(self.outside)


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
    these : dict of Summary
        By scope, the score in these settings: hbayes@N of all trials together.
    like : dict of Summary or None
        By scope, the score in settings like these; None where it is not known, from one setting.
    spread : Spread or None
        How settings differ; None for one setting.
    sensitivity : tuple of (float, float)
        Sds between settings, and the half-width of the interval about settings like these, scope
        "benchmark", if that were the sd.
    note : str or None
        A warning about the numbers.
    pooled : Posterior
        hbayes@N of all trials together, of scope "population".
    distributions : dict of TabulatedDistribution
        By scope, the distribution of the score in settings like these.
    likelihood : SettingsLikelihood
        That of (t, m).
    log_of_others : array, shape (T,)
        The log likelihood of t of the other models of a board.
    """

    labels: tuple[str, ...]
    level: float
    scores: FloatArray
    trial_sds: FloatArray
    trial_variance: float
    these: Mapping[str, Summary]
    sensitivity: tuple[tuple[float, float], ...]
    pooled: Posterior = field(repr=False, metadata=NOT_IN_JSON)
    likelihood: SettingsLikelihood = field(repr=False, metadata=NOT_IN_JSON)
    log_of_others: FloatArray = field(repr=False, metadata=NOT_IN_JSON)
    like: Mapping[str, Summary] | None = None
    spread: Spread | None = None
    note: str | None = None
    distributions: Mapping[Scope, TabulatedDistribution] = field(
        default_factory=dict, repr=False, metadata=NOT_IN_JSON
    )

    def __post_init__(self) -> None:
        protect(self)

    @property
    def n_settings(self) -> int:
        """S, the number of settings."""
        return len(self.labels)

    @property
    def bounds(self) -> Ends:
        """The smallest and the largest possible score."""
        return self.pooled.bounds

    def given_t(self, without: int | None = None) -> GivenT:
        """Return the posterior of t and the moments of the score given t, on [0, 1]."""
        return self.likelihood.given_t(log_prior() + self.log_of_others, without)

    def with_board(self, log_of_others: FloatArray) -> SettingsPosterior:
        """Return the posterior in which the other models of a board tell of t, too."""
        posterior = replace(self, log_of_others=log_of_others)
        is_known = self.n_settings > 1 or bool(np.ptp(log_of_others) > 0.0)
        return _with_like(posterior) if is_known else posterior


def score_over_settings(
    counts: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
    *,
    labels: Sequence[str] | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> SettingsPosterior:
    """Return the posterior of a score in {these settings, settings like these}.

    In both scopes: the score of these questions, and that of the population that they are a sample
    of. The model is that of :mod:`lm_eval_bayes.stats.settings.model`. In these settings the score
    is hbayes@N of all trials together, so that a setting counts by its trials. In settings like
    these t is integrated out. The variance that the population adds to the score of these questions
    is that between the two scopes of hbayes@N. The interaction of questions and settings is part of
    t, as all settings have the same questions.

    Parameters
    ----------
    counts : array of int, shape (S, M, C+1)
        How often each category occurred, by setting and question. A question can lack trials in
        some settings; see `setting_means` for what that means.
    weights : array, shape (C+1,), optional
        The score of each category, not all equal; left out, k/C.
    labels : sequence of str, length S, optional
        The distinct names of the settings; left out, "1" to "S".
    level : float
        Posterior mass of all intervals, strictly between 0 and 1.
    seed : int
        Seed of hbayes@N; what comes after it has no random numbers.

    Returns
    -------
    SettingsPosterior
        With a `note` for two settings, where the interval rests on the prior of t.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.

    Examples
    --------
    Four runs with 30, 35, 26 and 33 right answers on 20 questions, three trials each:

    >>> right = [[2] * 10 + [1] * 10, [3] * 5 + [2] * 5 + [1] * 10]
    >>> right += [[2] * 6 + [1] * 14, [3] * 3 + [2] * 7 + [1] * 10]
    >>> counts = [[[3 - c, c] for c in run] for run in right]
    >>> posterior = score_over_settings(counts)
    >>> for settings in (posterior.these, posterior.like):
    ...     score = settings["benchmark"]
    ...     print(round(score.mean, 2), round(score.low, 2), round(score.high, 2))
    0.52 0.46 0.59
    0.52 0.44 0.61
    >>> round(posterior.spread.sd_seen, 3), round(posterior.spread.p_of_trials, 1)
    (0.055, 0.6)
    """
    tables = check_settings(counts)
    n_settings = len(tables)
    level = check_level(level)
    checked = None if weights is None else check_weights(weights)
    pooled = hbayes_at_n(Outcomes.from_counts(tables.sum(axis=0), checked), "population", seed=seed)
    benchmark = pooled.benchmark
    if benchmark is None:
        raise TypeError("hbayes@N of scope population has a benchmark")
    given = np.linspace(0.0, 1.0, tables.shape[2]) if checked is None else checked
    low, span, _ = scaled_weights(given)
    if span == 0.0:
        raise InvalidInputError.of("weights", "range", "not all be equal", given.tolist())
    means = setting_means(tables, given)
    mean, sd = (benchmark.mu - low) / span, benchmark.sigma / span
    worth = means.trials / means.trials.sum()
    total = max(mean * (1.0 - mean) / sd**2 - 1.0, 1.0)
    trial_sds = span * sd / np.sqrt(worth)
    share = _around((means.score - low) / span, worth, mean)
    trial_variance = benchmark.sigma**2 * means.trials.sum() / tables.shape[1]
    per_setting = means.trials.mean() / tables.shape[1]
    posterior = SettingsPosterior(
        labels=_check_labels(labels, n_settings),
        level=level,
        scores=means.score,
        trial_sds=trial_sds,
        trial_variance=trial_variance,
        these={scope: _in_these(pooled, scope, level) for scope in SCOPES},
        sensitivity=tuple(
            (span * s, half_width(span * s, trial_variance, n_settings, per_setting, level))
            for s in ASSUMED_SDS
        ),
        pooled=pooled,
        likelihood=SettingsLikelihood.of(share, total * worth),
        log_of_others=np.zeros(T.size),
        note=_NOTES.get(n_settings),
    )
    if n_settings == 1:
        return posterior
    posterior = _with_like(posterior)
    return replace(posterior, spread=_spread(posterior))


#: Notes by the number of settings.
_NOTES = {
    1: "One setting does not tell how much settings differ.",
    2: "With two settings the interval rests on the prior of their sd: half-t4 of scale 0.2 logits.",
}


def share_t(posteriors: Sequence[SettingsPosterior]) -> list[SettingsPosterior]:
    """Return the posteriors of a board's models that have one t in common.

    The likelihood of t is the product of the models'. A model with one setting then has the
    interval about settings like these that the others' settings allow.
    """
    each = np.stack([posterior.likelihood.log_of_t() for posterior in posteriors])
    single = np.array([posterior.n_settings == 1 for posterior in posteriors])
    each[single] = 0.0
    return [p.with_board(each.sum(axis=0) - own) for p, own in zip(posteriors, each, strict=True)]


def _around(share: FloatArray, worth: FloatArray, mean: float) -> FloatArray:
    """Return the settings' shares of right or of wrong, by one factor, such that `mean` is theirs.

    The factor is at most 1, so that none leaves [0, 1].
    """
    seen = float(share @ worth)
    if mean < seen:
        return share * (mean / seen)
    return np.asarray(1.0 - (1.0 - share) * ((1.0 - mean) / (1.0 - seen)) if seen < 1.0 else share)


def _check_labels(labels: object, n_settings: int) -> tuple[str, ...]:
    """Return S distinct names."""
    if labels is None:
        return tuple(str(s + 1) for s in range(n_settings))
    rule = f"be {n_settings} distinct texts, one per setting"
    names = tuple(check_sequence("labels", labels, rule))
    is_distinct = all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
    if len(names) != n_settings or not is_distinct:
        raise InvalidInputError.of("labels", "duplicate", rule, list(names))
    return names


def _in_these(pooled: Posterior, scope: Scope, level: float) -> Summary:
    """Summarize hbayes@N of one scope."""
    posterior = pooled if scope == "population" else pooled.benchmark
    if posterior is None:
        raise TypeError("hbayes@N of scope population has a benchmark")
    interval = posterior.interval(level)
    return Summary.of(posterior.distribution, posterior.mu, (interval.low, interval.high))


def _with_like(posterior: SettingsPosterior) -> SettingsPosterior:
    """Return the posterior with the score in settings like these."""
    (low, high), pooled, given = posterior.bounds, posterior.pooled, posterior.given_t()
    span, benchmark = high - low, posterior.pooled.benchmark or posterior.pooled
    added = max(pooled.sigma**2 - benchmark.sigma**2, 0.0) / span**2
    distributions: dict[Scope, TabulatedDistribution] = {
        "benchmark": given.mixture().tabulated(low, span),
        "population": given.mixture(added, (pooled.mu - benchmark.mu) / span).tabulated(low, span),
    }
    like = {
        scope: Summary.of_table(table, posterior.level) for scope, table in distributions.items()
    }
    return replace(posterior, like=like, distributions=distributions)


def _spread(posterior: SettingsPosterior) -> Spread:
    """Return how much two or more settings differ."""
    (low, high), given, level = posterior.bounds, posterior.given_t(), posterior.level
    span, scores = high - low, posterior.scores
    sd = np.maximum.accumulate(np.sqrt(given.between))
    precision = posterior.trial_sds**-2.0
    centre = scores @ precision / precision.sum()
    chi_square = float(((scores - centre) ** 2) @ precision)
    mean_variance = float((posterior.trial_sds**2).mean())
    new_setting = given.mixture(given.between).tabulated(low, span)
    freedom = posterior.n_settings - 1
    return Spread(
        logit_sd=_over_nodes(T, given.mass, level),
        sd=_over_nodes(span * sd, given.mass, level),
        sd_seen=float(scores.std(ddof=1)),
        sd_of_trials=float(np.sqrt(mean_variance)),
        p_of_trials=float(special.chdtrc(freedom, chi_square)),
        new_setting=Summary.of_table(new_setting, level),
        apart=_distance(given.mass, 2.0 * (span * sd) ** 2, level),
        runs_apart=_distance(given.mass, 2.0 * ((span * sd) ** 2 + mean_variance), level),
        outside=_outside(posterior) if freedom > 1 else (),
        from_others=(scores - scores.mean()) * posterior.n_settings / freedom,
    )


def _over_nodes(values: FloatArray, mass: FloatArray, level: float) -> Summary:
    """Summarize a rising function of t at its nodes, which the masses lie around."""
    below = np.cumsum(mass) - 0.5 * mass
    below = (below - below[0]) / (below[-1] - below[0])
    return Summary.of_table(TabulatedDistribution(below, values, float(mass @ values), 0.0), level)


def _distance(mass: FloatArray, variance: FloatArray, level: float) -> float:
    """Return the distance that |x| stays within, for x normal with these variances given t."""
    sd = np.sqrt(np.maximum(variance, 1e-300))
    largest = 6.0 * float(sd[mass > 1e-9].max())

    def excess(distance: float) -> float:
        return float(mass @ special.erf(distance / (sd * np.sqrt(2.0)))) - level

    return float(optimize.brentq(excess, 0.0, largest)) if excess(largest) > 0.0 else largest


def _outside(posterior: SettingsPosterior) -> tuple[int, ...]:
    """Return the settings outside the predictive interval of the others, by Bonferroni's bound."""
    likelihood, outside = posterior.likelihood, []
    for s, share in enumerate(likelihood.share):
        given = posterior.given_t(without=s)
        by_trials = given.mean * (1.0 - given.mean) / likelihood.trials[s]
        below = float(given.mixture(given.between + by_trials).cdf(np.array([share]))[0])
        if 2.0 * min(below, 1.0 - below) < (1.0 - posterior.level) / posterior.n_settings:
            outside.append(s)
    return tuple(outside)
