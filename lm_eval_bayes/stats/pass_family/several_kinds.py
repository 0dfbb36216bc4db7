"""The Pass@k family averaged over benchmarks with questions of one kind and of two.

The learned prior is one Beta distribution. Where the counts of right answers make two kinds of
questions more probable (`hierarchical.two_kinds`), the posterior of a score is the average of those
under either model, each with its posterior probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lm_eval_bayes.stats.arrays import FloatArray
from lm_eval_bayes.stats.distributions.curve_kinds import CurveKinds, CurveKindsDistribution
from lm_eval_bayes.stats.distributions.curve_moments import CurveMoments
from lm_eval_bayes.stats.distributions.curve_population import distribution_over_nodes
from lm_eval_bayes.stats.distributions.equal_kinds import EqualKindsScore
from lm_eval_bayes.stats.distributions.success_curves import Curve
from lm_eval_bayes.stats.distributions.widened import AllowingForAnother
from lm_eval_bayes.stats.hierarchical.beta_binomial import HyperGrid
from lm_eval_bayes.stats.hierarchical.two_kinds import TwoKinds, equal_kinds, two_kinds
from lm_eval_bayes.stats.outcomes import Pairs
from lm_eval_bayes.stats.results import PerQuestion, Posterior
from lm_eval_bayes.stats.strength_average import average_posteriors

#: Two kinds of questions enter from this posterior probability on, of prior 1/2.
LEAST_PROBABLE = 0.6
#: The fewest questions, and the most different counts of trials, of which two kinds are considered.
_FEWEST_QUESTIONS, _MOST_DISTINCT = 8, 400
#: The smallest effective sample size of the posterior of two kinds that is trusted.
_LEAST_ESS = 200.0
#: Points from which the moments of these questions' scores are computed.
_POINTS = 1500
#: Intervals allow for questions that are all alike within their kind from this probability of that
#: on, of prior ½.
_LEAST_EQUAL = 0.25
#: The warning where two kinds are probable and their posterior is not known well enough.
UNKNOWN_KINDS = (
    "Two kinds of questions are more probable than one, but their posterior could not be computed "
    "(effective sample size {ess:.0f}): the answer is that of one kind, and the interval can miss."
)


def probable_kinds(pairs: Pairs, grid: HyperGrid) -> TwoKinds | None:
    """Return the posterior of two kinds of questions where they are probable enough.

    Parameters
    ----------
    pairs : Pairs
        Successes and failures of the distinct questions.
    grid : HyperGrid
        The posterior of one kind.

    Returns
    -------
    TwoKinds or None
        None where the posterior probability is below .6, and where it is not computed: of fewer
        than 8 questions, of more than 400 different counts, and of single trials.
    """
    if (
        pairs.times.sum() < _FEWEST_QUESTIONS
        or pairs.times.size > _MOST_DISTINCT
        or (pairs.first + pairs.second).max() <= 1.0
    ):
        return None
    kinds = two_kinds(pairs, grid)
    return None if kinds is None or kinds.probability < LEAST_PROBABLE else kinds


def is_known(kinds: TwoKinds) -> bool:
    """Return whether the posterior of two kinds has a sufficient effective sample size."""
    return kinds.ess >= _LEAST_ESS


def averaged_over_kinds(
    posteriors: Sequence[Posterior], curves: Sequence[Curve], pairs: Pairs, kinds: TwoKinds
) -> list[Posterior]:
    """Average posteriors under one kind of questions with those under two.

    Parameters
    ----------
    posteriors : sequence of Posterior
        Under one kind, of the same scope.
    curves : sequence of Curve
        The scores as functions of p.
    pairs : Pairs
        Successes and failures of the distinct questions.
    kinds : TwoKinds
        From `probable_kinds`.

    Returns
    -------
    list of Posterior
        Those of k = 1, and the scores of a population of clusters, are left as they are.
    """
    further = [i for i, posterior in enumerate(posteriors) if posterior.k != 1]
    if not further:
        return list(posteriors)
    weight = np.array([1.0 - kinds.probability, kinds.probability])
    further_curves = [curves[i] for i in further]
    full = CurveKinds(
        x=pairs.first,
        y=pairs.second,
        times=pairs.times.astype(np.float64),
        logit_mean=kinds.logit_mean,
        log_strength=kinds.log_strength,
        share=kinds.share,
        first_kind=kinds.first_kind,
        weight=kinds.weight,
    )
    alike = equal_kinds(pairs, kinds)
    equal = None
    if alike.probability >= _LEAST_EQUAL:
        equal = EqualKindsScore(
            full.times, alike.logit_p, alike.share, alike.first_kind, alike.weight
        )
    of_questions = full.thinned(_POINTS)
    moments = of_questions.moments(further_curves)
    of_population: Sequence[FloatArray | None] = [None] * len(further)
    if posteriors[0].scope == "population":
        of_population = list(full.population_means(further_curves))
    averages = list(posteriors)
    for i, of_curve, curve, at_point in zip(
        further, moments, further_curves, of_population, strict=True
    ):
        own = posteriors[i]
        two = _of_questions(own.benchmark or own, of_questions, curve, of_curve, pairs)
        if at_point is not None and own.benchmark is not None:
            if own.clusters is not None:
                benchmark = average_posteriors([own.benchmark, two], weight)
                averages[i] = replace(own, benchmark=_widened(benchmark, curve, equal))
                continue
            two = _of_population(own, two, full, curve, at_point)
        averages[i] = _widened(average_posteriors([own, two], weight), curve, equal)
    return averages


def _widened(posterior: Posterior, curve: Curve, equal: EqualKindsScore | None) -> Posterior:
    """Allow in intervals for questions that are all alike within their kind."""
    if equal is None:
        return posterior
    of_population = posterior.scope == "population"
    other = equal.of_population(curve) if of_population else equal.of_questions(curve)
    benchmark = posterior.benchmark
    return replace(
        posterior,
        distribution=AllowingForAnother(posterior.distribution, other),
        benchmark=None if benchmark is None else _widened(benchmark, curve, equal),
    )


def _of_questions(
    one_kind: Posterior, kinds: CurveKinds, curve: Curve, moments: CurveMoments, pairs: Pairs
) -> Posterior:
    """Return the posterior of these questions under two kinds."""
    mean = np.clip(moments.question_mean, 0.0, curve.top)
    return replace(
        one_kind,
        mu=float(np.clip(moments.mu, 0.0, curve.top)),
        sigma=moments.sigma,
        per_question=PerQuestion(mean[pairs.where], moments.question_sd[pairs.where]),
        distribution=CurveKindsDistribution(kinds, curve, moments),
    )


def _of_population(
    one_kind: Posterior, benchmark: Posterior, kinds: CurveKinds, curve: Curve, at_point: FloatArray
) -> Posterior:
    """Return the posterior of the population under two kinds."""
    distribution = distribution_over_nodes(at_point, kinds.weight, curve.top, (1,))
    return replace(
        one_kind,
        mu=float(np.clip(distribution.mean, 0.0, curve.top)),
        sigma=distribution.sd,
        per_question=benchmark.per_question,
        distribution=distribution,
        benchmark=benchmark,
    )
