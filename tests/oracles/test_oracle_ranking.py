"""Ranks beside scorio's, and their probabilities beside quadrature."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np
import pytest
from scipy import integrate, stats

from lm_eval_bayes.stats.distributions import Distribution
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.ranking.rank import rank
from lm_eval_bayes.stats.tie_rules import best_first, separations, tie_groups
from lm_eval_bayes.stats.uniform_prior import bayes_at_n


def test_ranks_with_ties_are_scorios():
    utils = pytest.importorskip("scorio.utils", reason="scorio is not installed")
    rng = np.random.default_rng(8)
    for _ in range(300):
        size = int(rng.integers(1, 20))
        mu, sigma = rng.random(size).round(2), rng.uniform(0.001, 0.1, size)
        confidence = float(rng.choice([0.8, 0.95, 0.975]))
        theirs = utils.rank_scores(mu, sigmas_in_id_order=sigma, confidence=confidence)
        # scorio leaves equal means in the order of their ids, we put the surer one first:
        # without equal means the chains are the same
        if np.unique(mu).size < size:
            mu = mu + rng.permutation(size) * 1e-4
            theirs = utils.rank_scores(mu, sigmas_in_id_order=sigma, confidence=confidence)
        order, levelled = best_first(mu, sigma, 1e-12)
        z = separations(levelled, sigma[order])
        groups = tie_groups(z, float(stats.norm.ppf(confidence)))
        ours = np.empty(size, dtype=int)
        ours[order] = groups + 1
        assert ours.tolist() == theirs["dense_ci"].tolist()


@pytest.mark.slow
def test_ranks_from_outcomes_are_scorios():
    theirs = pytest.importorskip("scorio.rank", reason="scorio is not installed")
    rng = np.random.default_rng(9)
    for _ in range(40):
        R = rng.binomial(1, rng.random((6, 12, 1)), (6, 12, 5))
        posteriors = {str(i): bayes_at_n(Outcomes.from_matrix(r)) for i, r in enumerate(R)}
        ranking = rank(posteriors, "none", draws=1000)
        expected, scores = theirs.bayes(R, return_scores=True)
        ours = [ranking.rank_of(str(i)) for i in range(6)]
        assert ours == stats.rankdata(expected, "dense").tolist()
        assert sorted(ranking.mu) == pytest.approx(sorted(scores), abs=1e-10)


def test_z_is_scorios():
    sinf = pytest.importorskip("scorio.sinf", reason="scorio is not installed")
    mu, sigma = np.array([0.7, 0.62, 0.55]), np.array([0.03, 0.02, 0.05])
    z = separations(mu, sigma)
    for i, j in permutations(range(3), 2):
        rho, theirs = sinf.ranking_confidence(mu[i], sigma[i], mu[j], sigma[j])
        assert z[i, j] == pytest.approx(theirs, abs=1e-10)
        assert stats.norm.cdf(z[i, j]) == pytest.approx(rho, abs=1e-10)


def test_where_ours_differs_equal_certain_scores_have_no_infinite_z():
    # scorio calls z infinite for two equal points with sd 0, though it then says rho = .5
    sinf = pytest.importorskip("scorio.sinf", reason="scorio is not installed")
    assert sinf.ranking_confidence(0.5, 0.0, 0.5, 0.0) == (0.5, float("inf"))
    assert separations(np.array([0.5, 0.5]), np.zeros(2))[0, 1] == 0.0


COUNTS = [(3, 9), (5, 7), (4, 6), (1, 2)]  # wrong and right, one question


def test_rank_probabilities_of_four_betas_by_quadrature():
    posteriors = {str(i): bayes_at_n(Outcomes.from_counts([c])) for i, c in enumerate(COUNTS)}
    betas = {str(i): stats.beta(right + 1, wrong + 1) for i, (wrong, right) in enumerate(COUNTS)}
    ranking = rank(posteriors, draws=50_000)
    x, weight = np.polynomial.legendre.leggauss(400)
    x, weight = 0.5 * (x + 1), 0.5 * weight
    for i, model in enumerate(ranking.models):
        own = betas[model].pdf(x) * weight
        others = [m for m in ranking.models if m != model]
        # the number of better ones at x is Poisson-binomial
        better = np.ones((1, x.size))
        for other in others:
            above = betas[other].sf(x)
            longer = np.zeros((better.shape[0] + 1, x.size))
            longer[:-1] += better * (1 - above)
            longer[1:] += better * above
            better = longer
        expected = better @ own
        assert ranking.rank_distribution[i] == pytest.approx(expected, abs=5 * ranking.mc_error)
        assert ranking.expected_rank[i] == pytest.approx(
            expected @ np.arange(1, 5), abs=20 * ranking.mc_error
        )
        for j, other in enumerate(ranking.models):
            if i != j:
                greater = own @ betas[other].cdf(x)
                assert ranking.p_greater[i, j] == pytest.approx(greater, abs=5 * ranking.mc_error)
    assert ranking.mc_error < 0.0023


@dataclass(frozen=True)
class Normal(Distribution):
    mean: float
    sd: float

    def draw(self, n_draws, rng):
        return rng.normal(self.mean, self.sd, n_draws)


def test_drawn_distributions_by_the_normal_formulas():
    base = bayes_at_n(Outcomes.from_counts([[1, 1]]))
    moments = {"a": (0.60, 0.03), "b": (0.57, 0.05), "c": (0.50, 0.02)}
    ranking = rank(
        {
            m: replace(base, mu=mu, sigma=sd, distribution=Normal(mu, sd))
            for m, (mu, sd) in moments.items()
        },
        draws=100_000,
    )
    for i, j in permutations(range(3), 2):
        (mu, sd), (mu_other, sd_other) = (moments[ranking.models[k]] for k in (i, j))
        expected = stats.norm.cdf((mu - mu_other) / np.hypot(sd, sd_other))
        assert ranking.p_greater[i, j] == pytest.approx(expected, abs=5 * ranking.mc_error)
    best, _ = integrate.quad(
        lambda x: (
            stats.norm(*moments["a"]).pdf(x)
            * stats.norm(*moments["b"]).cdf(x)
            * stats.norm(*moments["c"]).cdf(x)
        ),
        0.3,
        0.9,
    )
    assert ranking.p_best[ranking.models.index("a")] == pytest.approx(best, abs=0.006)


def test_mc_error_is_what_repetition_scatters():
    rng = np.random.default_rng(2)
    posteriors = {
        str(i): bayes_at_n(Outcomes.from_counts(np.stack([8 - c, c], axis=1)))
        for i, c in enumerate(rng.binomial(8, 0.5, (3, 10)))
    }
    runs = [rank(posteriors, seed=seed, draws=1000) for seed in range(40)]
    scatter = np.std([run.rank_distribution for run in runs], axis=0, ddof=1).max()
    assert scatter == pytest.approx(np.mean([run.mc_error for run in runs]), rel=0.25)


def test_nineteen_real_models(shared):
    with open(shared / "data" / "outcomes" / "matharena_aime_2025_II.csv", newline="") as file:
        rows = list(csv.reader(file))
    names, answers = rows[0][1:], np.array([row[1:] for row in rows[1:]], dtype=np.int64)
    outcomes = {
        name: Outcomes.from_matrix(answers[:, i].reshape(15, 4)) for i, name in enumerate(names)
    }
    utils = pytest.importorskip("scorio.utils", reason="scorio is not installed")
    paper = {name: bayes_at_n(each) for name, each in outcomes.items()}
    ranking = rank(paper, "adjacent", draws=2000)
    theirs = utils.rank_scores(
        [paper[m].mu for m in ranking.models],
        sigmas_in_id_order=[paper[m].sigma for m in ranking.models],
    )
    assert ranking.ranks.tolist() == theirs["dense_ci"].tolist()
    # all but chained together: the last of the first group is certainly worse than the first
    group = np.flatnonzero(ranking.ranks == 1)
    assert group.size >= 5
    assert ranking.p_greater[0, group[-1]] > 0.95
    simultaneous = rank({name: hbayes_at_n(each) for name, each in outcomes.items()}, draws=1000)
    assert simultaneous.models[0] == "o3-mini (high)"
    assert np.unique(simultaneous.ranks).size > np.unique(ranking.ranks).size
