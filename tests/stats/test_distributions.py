"""Distributions answer quantiles, cdf, draws and moments, which agree."""

from __future__ import annotations

import numpy as np
import pytest

from lm_eval_bayes.stats.comparison.difference import difference_posterior
from lm_eval_bayes.stats.comparison.shared_questions import SharedQuestions
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import clustered_posterior, hbayes_at_n
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.pass_family_posteriors import pass_at_k_posterior
from lm_eval_bayes.stats.uniform_prior import bayes_at_n

BINARY = Outcomes.from_counts([[5, 3], [1, 7], [4, 4], [6, 2]])
OTHER = Outcomes.from_counts([[2, 6], [3, 5], [0, 8], [4, 4]])
RUBRIC = Outcomes.from_counts([[3, 1, 2], [0, 2, 4], [5, 0, 1]], weights=[0, 0.25, 1])
POSTERIORS = {
    "bayes": bayes_at_n(BINARY),
    "clusters": clustered_posterior(BINARY),
    "pass": pass_at_k_posterior(BINARY, 3, "uniform"),
    "pass, learned": pass_at_k_posterior(BINARY, 3),
    "pass, population": pass_at_k_posterior(BINARY, 3, scope="population"),
    "hbayes": hbayes_at_n(BINARY),
    "population": hbayes_at_n(BINARY, "population"),
    "difference": difference_posterior(bayes_at_n(BINARY), bayes_at_n(OTHER)),
    "paired": SharedQuestions.of([hbayes_at_n(BINARY), hbayes_at_n(OTHER)]).first_difference(),
    "rubric, bayes": bayes_at_n(RUBRIC),
    "rubric, hbayes": hbayes_at_n(RUBRIC),
    "rubric, population": hbayes_at_n(RUBRIC, "population"),
    "rubric, difference": difference_posterior(bayes_at_n(RUBRIC), hbayes_at_n(RUBRIC)),
}
COMPUTED = ("pass", "clusters")


@pytest.mark.parametrize("name", POSTERIORS)
def test_quantiles_cdf_draws_and_moments_agree(name):
    posterior = POSTERIORS[name]
    distribution = posterior.distribution
    assert distribution.computed == (name in COMPUTED)
    mean, sd = distribution.mean, distribution.sd
    assert (mean, sd) == pytest.approx((posterior.mu, posterior.sigma), rel=1e-12)
    masses = np.linspace(0.001, 0.999, 997)
    scores = distribution.quantiles(masses)
    assert (np.diff(scores) >= 0.0).all()
    # drawn ones differ by a draw
    error = 1e-9 if name in COMPUTED else 1.5 / distribution.n_draws
    assert distribution.cdf(scores) == pytest.approx(masses, abs=error)
    middle = distribution.quantiles((np.arange(20_000) + 0.5) / 20_000)
    further = distribution.draw(100_000, np.random.default_rng(0))
    # of at least 4,000 draws, the mean within 4.5 of its standard errors
    for values in (middle, further):
        assert values.mean() == pytest.approx(mean, abs=0.07 * sd)
        assert values.std() == pytest.approx(sd, rel=0.05)
    inside = distribution.cdf(np.quantile(further, [0.05, 0.5, 0.95]))
    assert inside == pytest.approx([0.05, 0.5, 0.95], abs=0.02)
