"""Distributions answer quantiles, cdf, draws and moments, against scipy and against their draws."""

from __future__ import annotations

import numpy as np
import pytest

from lm_eval_bayes.stats.bayes_at_n import bayes_at_n
from lm_eval_bayes.stats.comparison.difference import difference_posterior, paired_posterior
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
    for ask in (distribution.quantiles, distribution.cdf):
        with pytest.raises(NotImplementedError, match="draws only"):
            ask(np.array([0.5]))
