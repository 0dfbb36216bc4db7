"""Intervals that allow for a prior with more mass at widely spread questions.

Where most questions are never solved (or always), the score at k > 1 depends on the few others and
on the prior of s. Half of that prior's mass lies below 11.8 trials, while the questions of a hard
benchmark can have s < 1: where p ~ Beta(.05,.5), 95% intervals of 30 questions with 4 trials each
held the population's Pass^2 in 86% of 200 runs, and most of the others ended below it. A second
prior, s / (2 + s) ~ Beta(.7, 1), has half of its mass below 1.2 trials. Allowing for it raised that
to 92.5%; these questions' Pass^8 of p ~ Beta(.1,3) at N = 8 from 87 to 96%; the population's Pass^4
of p ~ Beta(.2,2) at N = 4 from 90 to 97%. It makes these questions' intervals 1.0 to 1.1 times as
wide on average, and those of the population 1.0 to 1.25 times; where few questions are solved at
all, once each, more than that, since they may be all alike and may as well be widely spread.

With more than 10 trials per question it does not enter: at N = 16 these benchmarks and populations
hold their level without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lm_eval_bayes.stats.arrays import FloatArray
from lm_eval_bayes.stats.distributions.base import Distribution
from lm_eval_bayes.stats.distributions.curve_mixture import CurveMixture, CurveMixtureDistribution
from lm_eval_bayes.stats.distributions.curve_population import population_of_curve
from lm_eval_bayes.stats.distributions.success_curves import Curve
from lm_eval_bayes.stats.distributions.widened import AllowingForAnother
from lm_eval_bayes.stats.hierarchical.hyperprior import STRENGTH_SCALE, STRENGTH_SHAPE
from lm_eval_bayes.stats.results import Posterior

#: The scale of the second prior of s, in trials.
_SCALE = 2.0
#: It enters from this posterior probability of it on, of prior ½.
_LEAST_PROBABLE = 0.25


def allowing_for_spread(
    posteriors: Sequence[Posterior],
    mixture: CurveMixture,
    curves: Sequence[Curve],
    at_nodes: FloatArray | None = None,
) -> list[Posterior]:
    """Allow in intervals for the second prior of s, at k > 1.

    Parameters
    ----------
    posteriors : sequence of Posterior
        Of either scope; those of a population have one of the benchmark each.
    mixture : CurveMixture
        The posterior of (m, s).
    curves : sequence of Curve, length K
        The scores as functions of p.
    at_nodes : array, shape (K, L, Y), optional
        From `curve_means` on the nodes of `mixture`; None for a population of clusters, of which
        the benchmark's intervals alone allow for the prior.
    """
    second = _under_second_prior(mixture)
    if second is None:
        return list(posteriors)
    of_questions = [
        CurveMixtureDistribution(second, curve, moments)
        for curve, moments in zip(curves, second.moments(curves), strict=True)
    ]
    if posteriors[0].scope == "benchmark":
        return _allowing_for(posteriors, of_questions)
    benchmarks = [posterior.benchmark or posterior for posterior in posteriors]
    populations = [
        replace(posterior, benchmark=benchmark)
        for posterior, benchmark in zip(
            posteriors, _allowing_for(benchmarks, of_questions), strict=True
        )
    ]
    if at_nodes is None:
        return populations
    of_population = [
        population_of_curve(second, curve, at_node)
        for curve, at_node in zip(curves, at_nodes, strict=True)
    ]
    return _allowing_for(populations, of_population)


def _under_second_prior(mixture: CurveMixture) -> CurveMixture | None:
    """Return the posterior of (m, s) under the second prior of s; None where it is improbable."""
    # the ratio of the two prior densities of s, each normalized
    s = np.exp(np.minimum(mixture.log_strength, 600.0))
    ratio = (STRENGTH_SCALE + s) / (_SCALE + s)
    ratio = _SCALE / STRENGTH_SCALE * ratio ** (STRENGTH_SHAPE + 1.0)
    weight = mixture.weight * ratio[:, None]
    odds = float(weight.sum())
    if odds < _LEAST_PROBABLE / (1.0 - _LEAST_PROBABLE):
        return None
    return replace(mixture, weight=weight / odds)


def _allowing_for(
    posteriors: Sequence[Posterior], others: Sequence[Distribution]
) -> list[Posterior]:
    allowing = list(posteriors)
    for i, (posterior, other) in enumerate(zip(posteriors, others, strict=True)):
        if posterior.k != 1:
            distribution = AllowingForAnother(posterior.distribution, other)
            allowing[i] = replace(posterior, distribution=distribution)
    return allowing
