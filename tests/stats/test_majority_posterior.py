from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from _support.errors import refusals
from _support.weighted_prior import posterior_draws
from scipy import special, stats

import lm_eval_bayes as leb
from lm_eval_bayes import maj_at_k_posterior
from lm_eval_bayes.stats import majority_posterior as module
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import few_questions_note
from lm_eval_bayes.stats.majority_posterior import Questions, WrongPrior
from lm_eval_bayes.stats.pass_family_posteriors import SINGLE_TRIALS

#: Of wrong trials: abstentions, and how often each answer was given.
WRONG = Questions(
    np.zeros(4),
    np.array([0.0, 0.0, 1.0, 3.0]),
    np.array([[0.0, 0, 0], [3, 1, 1], [2, 2, 0], [1, 1, 1]]),
    np.ones(4, dtype=np.int64),
)
NEVER_SILENT = WRONG._replace(abstained=np.zeros(4))


def sequences(silent, sizes, c, d, a, b, length):
    """Yield every sequence of further wrong trials and its probability, one trial at a time."""
    pending = [((), 1.0, [n for n in sizes if n], silent)]
    for _ in range(length):
        longer = []
        for votes, chance, sizes, silent in pending:
            n = sum(sizes)
            abstains = (a + silent) / (a + b + n + silent)
            if abstains:
                longer.append(((*votes, None), chance * abstains, sizes, silent + 1))
            answers = chance * (1 - abstains)
            for j in range(len(sizes) + 1):
                more = list(sizes)
                if j < len(sizes):
                    share = (sizes[j] - d) / (c + n)
                    more[j] += 1
                else:
                    share = (c + d * len(sizes)) / (c + n)
                    more.append(1)
                longer.append(((*votes, j), answers * share, more, silent))
        pending = longer
    return [(votes, chance) for votes, chance, *_ in pending]


def credits_of(votes):
    """Return the credit of r right votes against the first k − r of these, r = 0..k."""
    k, earned = len(votes), [0.0]
    for r in range(1, k + 1):
        tally = Counter(v for v in votes[: k - r] if v is not None)
        lead = max(tally.values(), default=0)
        ties = sum(n == r for n in tally.values())
        earned.append(float(lead < r) if lead != r else 1 / (1 + ties))
    return np.array(earned)


@pytest.mark.parametrize("k", [2, 3, 6])
def test_the_credits_are_those_of_every_sequence_of_votes(k):
    shares = np.array([0.5, 0.2, 0.0])
    # three kinds of answers, single ones, and none
    probability = dict(zip((0, 1, 2, "single", None), (*shares, 0.2, 0.1), strict=True))
    expected = np.zeros(k + 1)
    for votes in product(probability, repeat=k):
        chance = np.prod([probability[vote] for vote in votes])
        unlike = [(i if vote == "single" else vote) for i, vote in enumerate(votes, 10)]
        expected += chance * credits_of(unlike)
    own = module._credits(shares[:, None], np.array([0.2]), np.array([0.1]), k)
    assert own[0] == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize(
    ("prior", "questions"),
    [(WrongPrior(0.3, 0.1, 0.0, 2.0), NEVER_SILENT), (WrongPrior(0.7, 0.2, 0.5, 1.2), WRONG)],
    ids=["answers", "abstentions"],
)
def test_the_draws_of_credits_have_the_moments_of_every_pair_of_votes(prior, questions):
    k = 3
    rng = np.random.default_rng(4)
    own = module.draw_credits(questions, prior, k, rng)
    for index, draws in enumerate(own):
        given = (questions.abstained[index], questions.sizes[index], *prior)
        pairs = [
            (credits_of(v[:k]), credits_of(v[k:]), chance) for v, chance in sequences(*given, 2 * k)
        ]
        mean = sum(chance * first for first, _, chance in pairs)
        square = sum(chance * np.outer(first, second) for first, second, chance in pairs)
        error = 4 / np.sqrt(len(draws))
        assert np.abs(draws.mean(axis=0) - mean).max() < error * draws.std(axis=0).max()
        products = draws[:, :, None] * draws[:, None]
        assert np.abs(products.mean(axis=0) - square).max() < error * products.std(axis=0).max()


def test_the_posterior_of_the_wrong_answers_is_that_of_a_fine_grid():
    # partitions of five trials, about as often as at c = 1.2 and d = .3
    sizes = [(5,), (4, 1), (3, 2), (3, 1, 1), (2, 2, 1), (2, 1, 1, 1), (1, 1, 1, 1, 1)]
    times = np.array([2, 5, 3, 6, 5, 6, 3]) * 3
    log_c, d = (x.ravel() for x in np.meshgrid(np.linspace(-4, 5, 361), np.linspace(0, 0.9, 181)))
    c = np.exp(log_c)
    log_weight = np.log(c) - 2 * np.log1p(c)
    for own, n in zip(sizes, times, strict=True):
        for j in range(1, len(own)):
            log_weight += n * np.log(c + j * d)
        for size in own:
            log_weight += n * (special.gammaln(size - d) - special.gammaln(1 - d))
        log_weight += n * (special.gammaln(c + 1) - special.gammaln(c + 5))
    weight = special.softmax(log_weight)
    # questions without a wrong trial say nothing
    table = np.array([(*own, *[0] * (5 - len(own))) for own in (*sizes, ())], dtype=np.float64)
    own = module.learn_wrong_prior(
        Questions(np.ones(8), np.arange(8.0), table, np.append(times, 9))
    )
    for value, fine in ((np.log(own.concentration), log_c), (own.discount, d)):
        mean = weight @ fine
        assert value == pytest.approx(mean, abs=0.1 * np.sqrt(weight @ (fine - mean) ** 2))
    abstained = np.append(times, 9) @ np.arange(8)
    assert own.abstaining == pytest.approx(2 * abstained / (abstained + 5 * times.sum()))


def test_where_all_wrong_trials_agree_the_vote_is_a_strict_majority(monkeypatch):
    # the posterior of Pr(more than half of k are right) comes from another table, see pass_family
    agree = WrongPrior(1e-12, 0.0, 0.0, 2.0)
    monkeypatch.setattr(module, "learn_wrong_prior", lambda *_: agree)
    right = [1, 1, 4, 7, 7, 0, 6]
    answers = [["r"] * x + ["w"] * (8 - x) for x in right]
    correct = [[a == "r" for a in row] for row in answers]
    outcomes = leb.Outcomes.from_counts([[8 - x, x] for x in right])
    for scope in ("benchmark", "population"):
        own = maj_at_k_posterior(answers, correct, 7, scope)
        expected = leb.g_pass_at_k_posterior(outcomes, 7, Fraction(4, 7), scope=scope)
        # of 800 states in place of 5,600
        assert own.mu == pytest.approx(expected.mu, abs=0.1 * expected.sigma)
        assert own.sigma == pytest.approx(expected.sigma, rel=0.1)
        sd = expected.per_question.sigma
        off = np.abs(own.per_question.mu - expected.per_question.mu) / sd
        np.testing.assert_array_less(off, 0.12)
        assert own.per_question.sigma == pytest.approx(sd, rel=0.1)


ANSWERS = [
    ["7", "7", "7", "8", "8", "9"],
    ["1", "2", "3", "3", "3", "3"],
    ["5", "6", "5", None, "5", "4"],
]
CORRECT = [
    [True] * 3 + [False] * 3,
    [True] + [False] * 5,
    [True, False, True, False, True, False],
]


def test_the_means_are_those_of_the_credits_under_the_learned_priors():
    k, right = 4, np.array([3.0, 1.0, 3.0])
    wrong = Questions(
        right,
        np.array([0.0, 0.0, 1.0]),
        np.array([[2.0, 1.0], [4.0, 1.0], [1.0, 1.0]]),
        np.ones(3, dtype=np.int64),
    )
    prior = module.learn_wrong_prior(wrong)
    credit = np.array(
        [
            sum(
                chance * credits_of(v)
                for v, chance in sequences(wrong.abstained[i], wrong.sizes[i], *prior, k)
            )
            for i in range(3)
        ]
    )
    p = posterior_draws(np.stack([6.0 - right, right], axis=1)).theta[..., 1:]
    earned = (stats.binom.pmf(np.arange(k + 1), k, p) * credit).sum(axis=2)
    posterior = maj_at_k_posterior(ANSWERS, CORRECT, k)
    off = np.abs(posterior.per_question.mu - earned.mean(axis=0)) / earned.std(axis=0)
    np.testing.assert_array_less(off, 0.15)


@pytest.mark.parametrize("scope", ["benchmark", "population"])
def test_a_vote_of_one_is_the_score(scope):
    own = maj_at_k_posterior(ANSWERS, CORRECT, 1, scope)
    score = leb.hbayes_at_n(leb.Outcomes.from_counts([[3, 3], [5, 1], [3, 3]]), scope)
    assert (own.mu, own.sigma, own.interval()) == (score.mu, score.sigma, score.interval())
    assert (own.quantity, own.k) == ("maj@k posterior", 1)


def bank(*rows):
    """Return answers and marks; "r" is right."""
    return [list(row) for row in rows], [[a == "r" for a in row] for row in rows]


def test_notes():
    two = bank("rrrrrrab", "abcdefrr")
    assert maj_at_k_posterior(*[rows * 5 for rows in two], 8).note is None
    assert maj_at_k_posterior(*two, 8, "population").note == few_questions_note(2)
    single = maj_at_k_posterior([["r"], ["w"]], [[True], [False]], 3)
    assert single.note == f"{SINGLE_TRIALS} {few_questions_note(2)}"
    assert 0 < single.sigma < 0.5


def test_right_answers_in_two_spellings_and_a_text_graded_both_ways():
    merged = maj_at_k_posterior([["a", "b"], ["c", "c"]], [[True, True], [True, False]], 2)
    alike = maj_at_k_posterior([["r", "r"], ["r", "w"]], [[True, True], [True, False]], 2)
    assert merged.mu == alike.mu


test_bad_arguments = refusals(
    (lambda: maj_at_k_posterior(ANSWERS, CORRECT, 257), "k", "range"),
    (lambda: maj_at_k_posterior(ANSWERS, CORRECT, 2, "all"), "scope", "choice"),
    (lambda: maj_at_k_posterior(ANSWERS, [[True]], 2), "correct", "shape"),
)
