from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
from _support.errors import refusals

from lm_eval_bayes.stats.distributions import Distribution
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.pass_family_posteriors import pass_at_k_posterior
from lm_eval_bayes.stats.ranking.rank import rank
from lm_eval_bayes.stats.tie_rules import (
    TIE_RULES,
    tie_groups,
)
from lm_eval_bayes.stats.uniform_prior import bayes_at_n


@dataclass(frozen=True)
class Normal(Distribution):
    """A distribution whose every answer is in a table."""

    mean: float
    sd: float
    seed: int = 0

    def draw(self, n_draws, rng):
        return rng.normal(self.mean, self.sd, n_draws)


COUNTS = Outcomes.from_counts([[3, 5], [6, 2]])
BASE = bayes_at_n(COUNTS)
BASE_AND = {"a": BASE}
OTHER_K = {"a": pass_at_k_posterior(COUNTS, 4), "b": pass_at_k_posterior(COUNTS, 8)}


def posterior(mu, sigma):
    return replace(BASE, mu=mu, sigma=sigma, distribution=Normal(mu, sigma))


def board(mus, sigmas):
    pairs = zip(mus, sigmas, strict=True)
    return {f"m{i}": posterior(mu, sigma) for i, (mu, sigma) in enumerate(pairs)}


def ladder(gaps, sigma=0.01):
    """Means that fall so that neighbours are `gaps` apart in z."""
    return 0.9 - np.concatenate([[0.0], np.cumsum(gaps)]) * sigma * np.sqrt(2.0)


# In Table 1 of [Hariri 2026] neighbours with z below 1.645 share a rank and the next rank is one
# more. The table's own numbers were in no source at hand; this row of eleven models has an order
# and a z pattern of that kind, with ranks worked out by hand from the paper's rule.
Z_PATTERN = [0.3, 2.1, 1.2, 1.5, 4.0, 1.644, 1.646, 0.0, 9.0, 1.0]
HAND_RANKS = [1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 5]


def test_a_row_like_table_1_from_its_order_and_z_pattern():
    mus = ladder(Z_PATTERN)
    shuffled = np.random.default_rng(0).permutation(11)
    ranking = rank({f"m{i}": posterior(mus[i], 0.01) for i in shuffled}, "adjacent")
    neighbours = ranking.z[np.arange(10), np.arange(1, 11)]
    assert neighbours == pytest.approx(Z_PATTERN, abs=1e-9)
    assert [ranking.rank_of(f"m{i}") for i in range(11)] == HAND_RANKS
    assert ranking.threshold == pytest.approx(1.6448536269514722, abs=1e-12)


def test_groups_of_every_rule_by_hand():
    z = np.full((5, 5), 2.0)
    for pair in ((0, 1), (0, 2), (2, 3), (3, 4)):
        z[pair] = z[pair[::-1]] = 1.0
    assert tie_groups(z, 1.645).tolist() == [0, 0, 1, 1, 1]
    assert tie_groups(z, 0.0).tolist() == [0, 1, 2, 3, 4]


def test_certain_scores_tie_only_when_equal():
    for ties in TIE_RULES:
        ranking = rank(board([0.5, 0.7, 0.5], [0.0, 0.0, 0.0]), ties)
        assert ranking.ranks.tolist() == [1, 2, 2]
        assert ranking.models[0] == "m1"
        assert np.isinf(ranking.z[0, 1])
        assert ranking.p_best.tolist() == [1, 0, 0]
        # two equal certain scores share the second and the third place
        assert ranking.rank_distribution[1:].tolist() == [[0, 0.5, 0.5]] * 2
        assert ranking.p_greater[1, 2] == 0.5
    text = json.dumps(ranking.to_dict(), allow_nan=False)
    assert json.loads(text)["z"][0][1] is None


def test_equal_means_tie_whatever_their_sds_and_rounding_does_not_part_them():
    ranking = rank(board([0.3, 0.1 + 0.2, 0.2], [0.0, 0.02, 0.0]), "none")
    assert ranking.ranks.tolist() == [1, 1, 2]
    assert ranking.models[0] == "m0"  # the surer one first


test_bad_arguments = refusals(
    (lambda: rank({}), "posteriors", "empty"),
    (lambda: rank({"a": BASE}, ties="chain"), "ties", "choice"),
    (lambda: rank({"a": BASE}, confidence=0.4), "confidence", "range"),
    (lambda: rank({"a": BASE}, draws=10), "draws", "range"),
    (lambda: rank(BASE_AND | {"b": replace(BASE, sigma=-0.1)}), "posteriors", "range"),
    (lambda: rank(BASE_AND | {"b": replace(BASE, mu=float("nan"))}), "posteriors", "range"),
    (lambda: rank(BASE_AND | {"b": replace(BASE, scope="population")}), "posteriors", "mismatch"),
    (lambda: rank(BASE_AND | {"b": bayes_at_n(COUNTS.take([0]))}), "posteriors", "mismatch"),
    (lambda: rank(OTHER_K), "posteriors", "mismatch"),
    (lambda: rank(BASE_AND).rank_of("x"), "model", "choice"),
)
