"""The prior of the hyperparameters (m, s) that the questions of a benchmark share.

For two categories p_α ~ Beta(s m, s (1 − m)), with

    m ~ Beta(.7, .7),    s / (20 + s) ~ Beta(.7, 1),

that is p(s) ∝ s^−.3 (20 + s)^−1.7: half of the prior mass of s lies below 11.8 trials, and s has
no finite mean. A prior on s with more mass near 0, such as 1 / (1 + s) uniform, takes a benchmark
whose trials are nearly all right for one with a few unsolvable questions, so that its intervals
are too narrow there. For K categories the shares have the prior m ~ Dirichlet(1.4/K, …, 1.4/K),
whose parameters have the same sum for any K: a category that is never observed costs 1.4/K
pseudo-trials. A uniform prior takes K of them in all, which moves the score of a rubric of five or
seven categories by a standard deviation where one category has 90% of the trials.
`examples/calibration.py` measures how often the intervals hold the truth.
"""

from __future__ import annotations

import numpy as np

from lm_eval_bayes.stats.arrays import FloatArray

#: Both parameters of the Beta prior of the mean m.
MEAN_SHAPE = 0.7
#: The scale of the prior of s, in trials.
STRENGTH_SCALE = 20.0
#: The first parameter of the Beta prior of s / (`STRENGTH_SCALE` + s); the second is 1.
STRENGTH_SHAPE = 0.7
#: The log of the integral over l = log s of exp(`log_prior_of_log_strength`), 1/(a c).
LOG_PRIOR_MASS = -float(np.log(STRENGTH_SHAPE * STRENGTH_SCALE))


def mean_concentration(n_categories: int) -> float:
    """Return the parameter of each category in the Dirichlet prior of m.

    Examples
    --------
    >>> mean_concentration(2), round(mean_concentration(5), 12)
    (0.7, 0.28)
    """
    return 2.0 * MEAN_SHAPE / n_categories


def log_prior_of_log_strength(log_strength: FloatArray) -> FloatArray:
    """Return the log density of l = log s, up to a constant.

    p(l) ∝ s^a (c + s)^−(a + 1) with a = `STRENGTH_SHAPE` and c = `STRENGTH_SCALE`.

    Parameters
    ----------
    log_strength : array, any shape
        l, any finite number.

    Returns
    -------
    array, the same shape
    """
    above = np.logaddexp(np.log(STRENGTH_SCALE), log_strength)
    return np.asarray(STRENGTH_SHAPE * log_strength - (STRENGTH_SHAPE + 1.0) * above)
