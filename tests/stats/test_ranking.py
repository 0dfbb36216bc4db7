from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.bayes_at_n import bayes_at_n
from lm_eval_bayes.stats.distributions.base import Distribution, Moments
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.pass_family.posteriors import pass_at_k_posterior
from lm_eval_bayes.stats.ranking.rank import rank
from lm_eval_bayes.stats.tie_rules import (
    NEIGHBOUR_RULES,
    TIE_RULES,
    Z_RULES,
    best_first,
    separations,
    tie_groups,
)


@dataclass(frozen=True)
class Normal(Distribution):
    """A distribution whose every answer is in a table."""

    mu: float
    sigma: float

    def moments(self):
        return Moments(self.mu, self.sigma)

    def draw(self, n_draws, rng):
        return rng.normal(self.mu, self.sigma, n_draws)


BASE = bayes_at_n(Outcomes.from_counts([[3, 5], [6, 2]]))


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


def test_a_higher_confidence_ties_more():
    mus = ladder([1.8, 1.8])
    models = board(mus, [0.01] * 3)
    assert rank(models, "adjacent", confidence=0.95).ranks.tolist() == [1, 2, 3]
    assert rank(models, "adjacent", confidence=0.975).ranks.tolist() == [1, 1, 1]
    assert rank(models, "adjacent", confidence=0.5).ranks.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("ties", "expected"),
    [
        ("adjacent", [1, 1, 1, 1, 2]),
        ("leader", [1, 1, 2, 2, 3]),
        ("pairwise", [1, 1, 2, 2, 3]),
        ("none", [1, 2, 3, 4, 5]),
    ],
)
def test_the_chain_and_what_the_other_rules_make_of_it(ties, expected):
    mus = ladder([1.0, 1.0, 1.0, 5.0])
    assert rank(board(mus, [0.01] * 5), ties).ranks.tolist() == expected


def test_pairwise_is_stricter_than_leader():
    # the unsure leader ties with both others, which do not tie with each other
    three = board([0.60, 0.55, 0.45], [0.2, 0.001, 0.001])
    assert rank(three, "leader").ranks.tolist() == [1, 1, 1]
    assert rank(three, "pairwise").ranks.tolist() == [1, 1, 2]
    assert rank(three, "adjacent").ranks.tolist() == [1, 1, 2]


def naive_groups(z, ties, threshold):
    """The rules as sentences, one model at a time."""
    groups = [[0]]
    for i in range(1, len(z)):
        compared = {
            "adjacent": [groups[-1][-1]],
            "leader": [groups[-1][0]],
            "pairwise": groups[-1],
            "none": [],
        }[ties]
        together = all(z[j][i] < threshold for j in compared)
        if ties == "none":
            together = z[groups[-1][-1]][i] == 0.0
        if together:
            groups[-1].append(i)
        else:
            groups.append([i])
    return [g for g, members in enumerate(groups) for _ in members]


def test_the_rules_against_their_sentences():
    rng = np.random.default_rng(3)
    for _ in range(200):
        size = int(rng.integers(1, 12))
        mu, sigma = rng.random(size).round(1), rng.random(size) * 0.2
        order, levelled = best_first(mu, sigma, 1e-12)
        z = separations(levelled, sigma[order])
        for ties in Z_RULES:
            assert tie_groups(z, ties, 1.645).tolist() == naive_groups(z, ties, 1.645)


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


def test_one_model_is_a_ranking():
    ranking = rank({"only": BASE})
    assert ranking.models == ("only",)
    assert ranking.p_best.tolist() == ranking.expected_rank.tolist() == [1.0]
    assert (ranking.rank_low.tolist(), ranking.rank_high.tolist()) == ([1.0], [1.0])


def test_the_result_is_read_only_reproducible_and_plain():
    models = board([0.5, 0.52, 0.4], [0.05] * 3)
    first, again, other = rank(models, seed=4), rank(models, seed=4), rank(models, seed=5)
    assert first.rank_distribution.tolist() == again.rank_distribution.tolist()
    assert first.rank_distribution.tolist() != other.rank_distribution.tolist()
    assert (first.seed, first.draws) == (4, 20_000)
    with pytest.raises(ValueError, match="read-only"):
        first.ranks[0] = 3.0
    record = json.loads(json.dumps(first.to_dict()))
    assert record["models"][0]["model"] == "m1"
    assert record["models"][0]["rank"] == 1.0
    assert record["ties"] == "simultaneous"
    assert len(record["p_greater"]) == 3
    with pytest.raises(InvalidInputError, match=r"`model` must be one of m1, m0, m2; got 'x'"):
        first.rank_of("x")


def test_intervals_that_overlap_tie():
    # half widths of .0196; the third overlaps the second but not the first
    models = board([0.60, 0.57, 0.55, 0.40], [0.01] * 4)
    assert rank(models, "intervals").ranks.tolist() == [1, 1, 2, 3]
    assert rank(models, "intervals", 0.9999).ranks.tolist() == [1, 1, 1, 2]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1])
def test_a_sd_that_is_none_names_the_model(value):
    models = {"good": BASE, "bad one": replace(BASE, sigma=value)}
    with pytest.raises(InvalidInputError, match=r'sd of at least 0 for every model \("bad one"\)'):
        rank(models)


def test_a_mean_that_is_none_names_the_model():
    with pytest.raises(InvalidInputError, match=r'finite mean for every model \("b"\); got nan'):
        rank({"a": BASE, "b": replace(BASE, mu=float("nan"))})


OTHERS = {
    "quantity": (hbayes_at_n(Outcomes.from_counts([[3, 5], [6, 2]])), "quantity"),
    "scope": (replace(BASE, scope="population"), "scope"),
    "bounds": (bayes_at_n(Outcomes.from_counts([[3, 5], [6, 2]], weights=[0, 2])), "bounds"),
    "questions": (bayes_at_n(Outcomes.from_counts([[3, 5]])), "number of questions"),
}


@pytest.mark.parametrize("which", OTHERS)
def test_what_cannot_stand_on_one_leaderboard(which):
    stranger, word = OTHERS[which]
    with pytest.raises(InvalidInputError, match=rf'same {word} \("a" has .* for "b"'):
        rank({"a": BASE, "b": stranger})


def test_pass_posteriors_of_another_k_are_refused():
    outcomes = Outcomes.from_counts([[3, 5], [6, 2]])
    four, eight = pass_at_k_posterior(outcomes, 4), pass_at_k_posterior(outcomes, 8)
    assert rank({"a": four, "b": four}).ranks.tolist() == [1, 1]
    with pytest.raises(InvalidInputError, match="same k"):
        rank({"a": four, "b": eight})


@pytest.mark.parametrize(
    ("posteriors", "arguments", "message"),
    [
        ({}, {}, "`posteriors` must be a mapping from at least one"),
        ([BASE], {}, "`posteriors` must be a mapping from at least one"),
        ({1: BASE}, {}, "`posteriors` must be a mapping from at least one"),
        ({"a": 0.5}, {}, "`posteriors` must be a mapping from at least one"),
        ({"a": BASE}, {"ties": "chain"}, '`ties` must be one of "simultaneous", "adjacent"'),
        ({"a": BASE}, {"confidence": 0.4}, r"`confidence` must be a number in \[0.5, 1\); got 0.4"),
        ({"a": BASE}, {"confidence": 1}, "`confidence` must be"),
        ({"a": BASE}, {"seed": -1}, "`seed` must be an integer of at least 0"),
        ({"a": BASE}, {"draws": 10}, "`draws` must be an integer of at least 1000"),
    ],
)
def test_bad_arguments(posteriors, arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        rank(posteriors, **arguments)


@pytest.mark.benchmarks
@pytest.mark.parametrize("estimator", [bayes_at_n, hbayes_at_n])
def test_twenty_models_of_120_questions_and_80_trials(benchmark, estimator):
    rng = np.random.default_rng(0)
    counts = rng.binomial(80, rng.beta(0.5, 0.5, 120)[None, :] * rng.uniform(0.8, 1, (20, 1)))
    outcomes = [Outcomes.from_counts(np.stack([80 - c, c], axis=1)) for c in counts]
    posteriors = {f"m{i}": estimator(each) for i, each in enumerate(outcomes)}
    if estimator is bayes_at_n:  # its estimate costs next to nothing and is timed along
        ranking = benchmark(
            lambda: rank({f"m{i}": bayes_at_n(each) for i, each in enumerate(outcomes)})
        )
    else:  # without the tables that a first call leaves behind

        def fresh():
            return (
                {
                    m: replace(p, distribution=replace(p.distribution))
                    for m, p in posteriors.items()
                },
            ), {}

        ranking = benchmark.pedantic(rank, setup=fresh, rounds=5)
    assert len(ranking.models) == 20
    assert benchmark.stats.stats.min < 0.3


@pytest.mark.benchmarks
@pytest.mark.parametrize("who", ["ours", "scorio, ranks only"])
def test_beside_scorio(benchmark, who):
    scorio = pytest.importorskip("scorio.utils", reason="scorio is not installed")
    benchmark.group = "twenty models"
    rng = np.random.default_rng(1)
    mus, sigmas = rng.random(20), rng.uniform(0.01, 0.05, 20)
    if who == "ours":
        ranking = benchmark(rank, board(mus, sigmas))
        assert len(ranking.models) == 20
    else:
        ranks = benchmark(scorio.rank_scores, mus, sigmas_in_id_order=sigmas)
        assert len(ranks["dense_ci"]) == 20


def test_an_unknown_tie_rule_acts_as_no_other():
    z = np.array([[0.0, 1.0], [1.0, 0.0]])
    with pytest.raises(KeyError, match="chain"):
        tie_groups(z, "chain", 1.645)


def test_convergence_takes_the_tie_rules_that_compare_neighbours_only():
    assert dict(NEIGHBOUR_RULES) == {"adjacent": True, "none": False}
