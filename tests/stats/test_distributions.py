"""Distributions answer quantiles, cdf, draws and moments, against scipy and against their draws."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.bayes_at_n import bayes_at_n
from lm_eval_bayes.stats.comparison.difference import difference_posterior, paired_posterior
from lm_eval_bayes.stats.distributions.base import SampleDistribution
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.pass_family.posteriors import pass_at_k_posterior

BINARY = Outcomes.from_counts([[5, 3], [1, 7], [4, 4], [6, 2]])
OTHER = Outcomes.from_counts([[2, 6], [3, 5], [0, 8], [4, 4]])
RUBRIC = Outcomes.from_counts([[3, 1, 2], [0, 2, 4], [5, 0, 1]], weights=[0, 0.25, 1])
COMPUTED = {
    "bayes": bayes_at_n(BINARY),
    "pass": pass_at_k_posterior(BINARY, 3, "uniform"),
    "pass, learned": pass_at_k_posterior(BINARY, 3),
    "pass, population": pass_at_k_posterior(BINARY, 3, scope="population"),
    "hbayes": hbayes_at_n(BINARY),
    "population": hbayes_at_n(BINARY, "population"),
    "difference": difference_posterior(bayes_at_n(BINARY), bayes_at_n(OTHER)),
}
DRAWN = {
    "bayes": bayes_at_n(RUBRIC),
    "hbayes": hbayes_at_n(RUBRIC),
    "population": hbayes_at_n(RUBRIC, "population"),
    "difference": difference_posterior(bayes_at_n(RUBRIC), hbayes_at_n(RUBRIC)),
    "paired": paired_posterior(hbayes_at_n(BINARY), hbayes_at_n(OTHER)),
}


def test_one_question_is_the_beta_distribution():
    distribution = bayes_at_n(Outcomes.from_counts([[5, 12]], weights=[-1, 3])).distribution
    beta = stats.beta(13, 6, loc=-1, scale=4)
    masses = np.array([0.01, 0.3, 0.99])
    assert distribution.quantiles(masses) == pytest.approx(beta.ppf(masses), abs=1e-12)
    scores = np.array([-2.0, -1.0, 0.4, 1.9, 3.0, 4.0])
    assert distribution.cdf(scores) == pytest.approx(beta.cdf(scores), abs=1e-12)
    assert distribution.moments() == pytest.approx((beta.mean(), beta.std()), rel=1e-12)


@pytest.mark.parametrize("name", COMPUTED)
def test_computed_quantiles_cdf_and_moments_agree(name):
    posterior = COMPUTED[name]
    distribution = posterior.distribution
    assert distribution.computed
    masses = np.linspace(0.001, 0.999, 997)
    scores = distribution.quantiles(masses)
    assert distribution.cdf(scores) == pytest.approx(masses, abs=1e-9)
    mean, sd = distribution.moments()
    assert (mean, sd) == pytest.approx((posterior.mu, posterior.sigma), rel=1e-12)
    middle = (np.arange(20_000) + 0.5) / 20_000
    scores = distribution.quantiles(middle)
    assert scores.mean() == pytest.approx(mean, abs=1e-3 * sd)
    assert scores.std() == pytest.approx(sd, rel=3e-3)


@pytest.mark.parametrize("name", DRAWN)
def test_drawn_distributions_have_their_moments_and_no_quantiles(name):
    distribution = DRAWN[name].distribution
    assert not distribution.computed
    draws = distribution.draw(100_000, np.random.default_rng(0))
    mean, sd = distribution.moments()
    assert draws.mean() == pytest.approx(mean, abs=5 * sd / 100_000**0.5)
    assert draws.std() == pytest.approx(sd, rel=0.02)
    with pytest.raises(NotImplementedError, match="draws only"):
        distribution.quantiles(np.array([0.5]))
    with pytest.raises(NotImplementedError, match="draws only"):
        distribution.cdf(np.array([0.5]))


def test_a_certain_score_is_a_point():
    distribution = bayes_at_n(
        Outcomes.from_counts([[1, 2], [2, 1]], weights=[0.5, 0.5])
    ).distribution
    assert distribution.quantiles(np.array([0.1, 0.9])).tolist() == [0.5, 0.5]
    assert distribution.cdf(np.array([0.4, 0.5, 0.6])).tolist() == [0.0, 1.0, 1.0]
    assert distribution.moments() == (0.5, 0.0)


def test_only_questions_of_a_benchmark_can_be_drawn_and_summarized():
    rng = np.random.default_rng(0)
    for population in (
        COMPUTED["population"],
        COMPUTED["pass, population"],
        DRAWN["population"],
        DRAWN["paired"],
    ):
        with pytest.raises(InvalidInputError, match="`scope` must be"):
            population.distribution.draw_questions(3, rng)
    per_question = COMPUTED["bayes"].per_question
    bayes, passes = COMPUTED["bayes"].distribution, COMPUTED["pass"].distribution
    assert bayes.question_means(per_question.mu, per_question.sigma) is None
    assert passes.category_posterior(3, rng) is None
    counts, prior, strength, weights = bayes.category_posterior(3, rng)
    assert counts.tolist() == (BINARY.counts + 1.0).tolist()
    assert (prior.shape, prior.any(), strength, weights.tolist()) == ((3, 2), False, None, [0, 1])
    sample = SampleDistribution(np.array([1.0, 2.0, 4.5]))
    assert sample.moments() == pytest.approx((2.5, np.std([1.0, 2.0, 4.5])))
