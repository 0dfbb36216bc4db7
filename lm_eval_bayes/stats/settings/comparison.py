"""Two models, and boards of models, over settings like these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy import special

from lm_eval_bayes._util.validation import check_non_negative
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray
from lm_eval_bayes.stats.ranking.simultaneous import DrawnErrors, PairErrors
from lm_eval_bayes.stats.settings.model import SCALE, T, log_prior, normal_quantile
from lm_eval_bayes.stats.settings.posterior import SettingsPosterior, Summary, share_t

#: The masses of the nodes of t, the means and the variances given t.
OverT: TypeAlias = tuple[FloatArray, FloatArray, FloatArray]


@dataclass(frozen=True)
class SettingsDifference(Summary):
    """The posterior of the score of A less that of B in settings like these.

    Attributes
    ----------
    mean, median, low, high : float
        In units of the score.
    p_above : float
        The probability that it is above 0.
    paired : tuple of str
        The settings by which the models are paired; empty where they are not.
    """

    p_above: float
    paired: tuple[str, ...]


def difference_over_settings(
    a: SettingsPosterior, b: SettingsPosterior, *, question_variance: float = 0.0
) -> SettingsDifference:
    """Return the posterior of the difference of two models in settings like these.

    With the same settings, two or more, the models are paired by these: d_s = y_As − y_Bs is normal
    around the difference, with the variance of its trials plus (t h)², h the mean of the models'
    m (1 − m). As the effects of a setting on the models may be independent, the prior of t has the
    scale .2 √2. Else the models share one t, and given t their scores are independent, so that all
    settings count. Given t the difference is normal.

    Parameters
    ----------
    a, b : SettingsPosterior
        Of the same weights and level, on the same questions. Settings of one name are the same.
    question_variance : float
        What the population of questions adds to the variance of the difference; 0 is about these
        questions.

    Raises
    ------
    InvalidInputError
        If the models' weights or levels differ, or both have one setting.
    """
    if (a.benchmark.bounds, a.level) != (b.benchmark.bounds, b.level):
        rule = "have the range of scores and the level of `a`"
        raise InvalidInputError.of("b", "mismatch", rule, (*b.benchmark.bounds, b.level))
    paired = a.labels if {*a.labels} == {*b.labels} and len(a.labels) > 1 else ()
    if paired:
        mass, mean, variance = _paired(a, b)
    else:
        mass, means, variances = _board([a, b])
        mean, variance = means[0] - means[1], variances.sum(axis=0)
    sd = np.sqrt(variance + check_non_negative("question_variance", question_variance))
    probabilities = 0.5 + 0.5 * a.level * np.array([0.0, -1.0, 1.0])
    median, low, high = (normal_quantile(mass, mean, sd, p) for p in probabilities)
    centre, p_above = float(mass @ mean), float(mass @ special.ndtr(mean / sd))
    return SettingsDifference(centre, median, low, high, p_above, paired)


def _paired(a: SettingsPosterior, b: SettingsPosterior) -> OverT:
    """Return the masses of t, and the mean and the variance of the difference given t, (T,)."""
    rows = [b.labels.index(label) for label in a.labels]
    difference = a.span * (a.share - b.share[rows])
    by_trials = a.trial_sds**2 + b.trial_sds[rows] ** 2
    m = np.array([model.share @ model.trials / model.trials.sum() for model in (a, b)])
    variance = (a.span * T[:, None] * (m * (1.0 - m)).mean()) ** 2 + by_trials
    precision = (1.0 / variance).sum(axis=1)
    mean = (difference / variance).sum(axis=1) / precision
    square = (difference - mean[:, None]) ** 2 / variance
    log_likelihood = -0.5 * ((np.log(variance) + square).sum(axis=1) + np.log(precision))
    mass = special.softmax(log_likelihood + log_prior(np.sqrt(2.0) * SCALE))
    return mass, mean, 1.0 / precision


def _board(posteriors: Sequence[SettingsPosterior]) -> OverT:
    """Return the masses of the common t, (T,), and the scores' moments given t, (L, T)."""
    shared = share_t(posteriors)
    if not shared[0].is_known:
        rule = "have a model with two settings or more"
        raise InvalidInputError.of("posteriors", "unsupported", rule, "one setting of each model")
    means = np.stack([model.span * model.given.mean for model in shared])
    variances = np.stack([model.span**2 * model.given.variance for model in shared])
    return shared[0].given.mass, means, variances


def errors_over_settings(posteriors: Sequence[SettingsPosterior]) -> PairErrors:
    """Return the differences of all pairs of a board's models, and draws of their errors.

    They are what `compare_simultaneously` takes. The models share one t, and given t their scores
    are independent and normal.

    Parameters
    ----------
    posteriors : sequence of SettingsPosterior
        One per model, of the same weights, on the same questions.

    Raises
    ------
    InvalidInputError
        If all models have one setting.
    """
    mass, means, variances = _board(posteriors)
    first, second = np.triu_indices(len(posteriors), 1)
    mean = means @ mass
    variance = (variances + (means - mean[:, None]) ** 2) @ mass
    of_pairs = variance[first] + variance[second]

    def draw(draws: int, rng: np.random.Generator) -> DrawnErrors:
        sd = np.sqrt(variances[:, rng.choice(T.size, draws, p=mass)])
        error = (sd * rng.standard_normal(sd.shape)).astype(np.float32)
        return DrawnErrors(error[first] - error[second], of_pairs[:, None])

    return PairErrors(mean[first] - mean[second], of_pairs, draw)
