"""Intervals that allow for a prior with more mass at widely spread questions.

Where most questions are never solved (or always), the score of their population at k > 1 depends on
the few others and on the prior of s. Half of that prior's mass lies below 11.8 trials, while the
questions of a hard benchmark can have s < 1: where p ~ Beta(.05,.5), 95% intervals of 30 questions
with 4 trials each held the population's Pass^2 in 86% of 200 runs, and most of the others ended
below it. A second prior, s / (2 + s) ~ Beta(.7, 1), has half of its mass below 1.2 trials. Allowing
for it raised that to 89% (Pass^4 88 to 92%; on further seeds, N = 8, 94 to 98%). It makes intervals
of such populations 1.0 to 1.6 times as wide on average, and over 19 shapes 1.02 times at N = 4 and
1.04 times at N = 8. With more than 10 trials per question it does not enter: at N = 16 these
populations hold their level without it.

It does not enter where the questions may all be alike, as `equal_probability` has it: it would make
the intervals of .02 for all up to 3.6 times as wide, which hold already. Of 29 such runs where in
fact p ~ Beta(.2,2), 18 held the population's Pass^4. Nor does it enter for these questions' own
score, which depends on the prior less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lm_eval_bayes.stats.distributions.curve_mixture import CurveMixture
from lm_eval_bayes.stats.distributions.curve_population import PopulationOfCurve
from lm_eval_bayes.stats.distributions.success_curves import Curve
from lm_eval_bayes.stats.distributions.widened import AllowingForAnother
from lm_eval_bayes.stats.hierarchical.hyperprior import STRENGTH_SCALE, STRENGTH_SHAPE
from lm_eval_bayes.stats.results import Posterior
from lm_eval_bayes.stats.validation import FloatArray

#: The scale of the second prior of s, in trials.
_SCALE = 2.0
#: It enters from this posterior probability of it on, of prior ½.
_LEAST_PROBABLE = 0.25


def allowing_for_spread(
    posteriors: Sequence[Posterior],
    mixture: CurveMixture,
    at_nodes: FloatArray,
    curves: Sequence[Curve],
) -> list[Posterior]:
    """Allow in a population's intervals for the second prior of s, at k > 1.

    Parameters
    ----------
    posteriors : sequence of Posterior
        Of scope "population".
    mixture : CurveMixture
        The posterior of (m, s).
    at_nodes : array, shape (K, L, Y)
        From `curve_means` on the nodes of `mixture`.
    curves : sequence of Curve, length K
        The scores as functions of p.
    """
    # the ratio of the two prior densities of s, each normalized
    s = np.exp(np.minimum(mixture.log_strength, 600.0))
    ratio = (STRENGTH_SCALE + s) / (_SCALE + s)
    ratio = _SCALE / STRENGTH_SCALE * ratio ** (STRENGTH_SHAPE + 1.0)
    weight = mixture.weight * ratio[:, None]
    odds = float(weight.sum())
    if odds < _LEAST_PROBABLE / (1.0 - _LEAST_PROBABLE):
        return list(posteriors)
    second = replace(mixture, weight=weight / odds)
    widened = list(posteriors)
    for i, (posterior, at_node, curve) in enumerate(zip(posteriors, at_nodes, curves, strict=True)):
        if posterior.k != 1:
            other = PopulationOfCurve.of(second, curve, at_node)
            distribution = AllowingForAnother(
                posterior.distribution, other, posterior.mu, posterior.sigma
            )
            widened[i] = replace(posterior, distribution=distribution)
    return widened
