from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from _support.errors import refusals
from _support.outcomes import binary_outcomes
from scipy import integrate, stats

from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.score_outcomes import ScoreOutcomes
from lm_eval_bayes.stats.sequential.decision import (
    MIXTURE_TRIALS,
    DecisionReached,
    alpha_spent,
    boundaries,
    crossing_probability,
    mixture_boundary,
)
from lm_eval_bayes.stats.sequential.predictive_draws import PredictiveScore
from lm_eval_bayes.stats.sequential.stopping_rules import WidthReached
from lm_eval_bayes.stats.sequential.trials_needed import trials_needed
from lm_eval_bayes.stats.uniform_prior import bayes_at_n


def binary(successes, trials):
    return bayes_at_n(binary_outcomes(successes, trials))


HARD, EASY = binary([1, 2, 0, 3, 1, 2], 8), binary([7, 6, 8, 5, 7, 6], 8)
TWO = {"hard": HARD, "easy": EASY}
SAME = {"one": HARD, "two": HARD}


def even(analyses):
    return tuple((np.arange(1, analyses + 1) / analyses).tolist())


# Two-sided 5%: Jennison & Turnbull (2000), tables 2.1 and 2.3.
@pytest.mark.parametrize(
    ("analyses", "pocock", "obrien_fleming"),
    [(2, 2.178, 1.977), (10, 2.555, 2.087)],
)
def test_the_classical_constants_spend_five_percent(analyses, pocock, obrien_fleming):
    shares = even(analyses)
    assert crossing_probability(shares, (pocock,) * analyses) == pytest.approx(0.05, abs=2e-4)
    limits = tuple(obrien_fleming / np.sqrt(shares))
    assert crossing_probability(shares, limits) == pytest.approx(0.05, abs=2e-4)


def test_boundaries_of_the_clinical_literature():
    # Reboussin, DeMets, Kim & Lan (2000), five even looks, two-sided 5%
    expected = [4.8769, 3.3569, 2.6803, 2.2898, 2.0310]
    assert boundaries(even(5), 0.05, "obrien-fleming") == pytest.approx(expected, abs=2e-4)
    expected = [2.4380, 2.4268, 2.4101, 2.3966, 2.3859]
    assert boundaries(even(5), 0.05, "pocock") == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize("spending", ["obrien-fleming", "pocock"])
@pytest.mark.parametrize("shares", [even(64), (0.01, 0.5, 0.501, 0.6)])
def test_boundaries_spend_what_they_may(spending, shares):
    limits = boundaries(shares, 0.1, spending)
    due = alpha_spent(shares[-1], 0.1, spending)
    assert crossing_probability(shares, limits) == pytest.approx(due, abs=1e-8)


def test_a_decision_is_z_over_its_threshold():
    verdict = DecisionReached(0.95).evaluate(8, TWO)
    z = (EASY.mu - HARD.mu) / np.hypot(EASY.sigma, HARD.sigma)
    assert verdict.stop
    assert verdict.winner == "easy"
    assert verdict.value == pytest.approx(z)
    assert verdict.threshold == pytest.approx(1.98, abs=0.06)
    assert "0.176" in verdict.note
    assert verdict.to_dict()["winner"] == "easy"
    assert DecisionReached().evaluate(8, POPULATION).stop


def test_no_decision_between_equals():
    verdict = DecisionReached(0.5).evaluate(8, SAME)
    assert (verdict.stop, verdict.winner, verdict.value) == (False, None, 0.0)


def test_a_planned_rule_decides_at_planned_analyses():
    rule = DecisionReached(0.95, correction="pocock", analyses=range(4, 20, 4))
    assert rule.analyses == (4, 8, 12, 16)
    early = {"hard": binary([1, 2, 0, 3, 1, 2], 7), "easy": binary([6, 6, 7, 5, 6, 6], 7)}
    assert not rule.evaluate(7, early).stop
    verdict = rule.evaluate(8, TWO)
    assert verdict.stop
    assert "0.05" in verdict.note
    naive = DecisionReached(0.95, analyses=(4, 8))
    assert naive.threshold(5) is None


def test_rates_of_rules():
    naive = DecisionReached(0.95)
    assert naive.false_decision_rate([64]) == pytest.approx(0.05, abs=1e-6)
    for correction in ("obrien-fleming", "pocock"):
        rule = DecisionReached(0.95, correction, range(1, 65))
        assert rule.false_decision_rate(range(1, 65)) == pytest.approx(0.05, abs=1e-6)
        # looking less often than planned errs less often
        assert rule.false_decision_rate((16, 32, 64)) < 0.05


def test_widths():
    widest = max(HARD.interval().width, EASY.interval().width)
    verdict = WidthReached(widest).evaluate(8, TWO)
    assert (verdict.stop, verdict.value) == (True, widest)
    assert not WidthReached(0.99 * widest).evaluate(8, TWO).stop
    assert not WidthReached(0.9, min_trials=10).evaluate(8, TWO).stop
    normal = WidthReached(0.5, level=0.9, method="normal").evaluate(8, {"hard": HARD})
    assert normal.value == pytest.approx(2 * 1.644854 * HARD.sigma, rel=1e-6)


POPULATION = {name: replace(posterior, scope="population") for name, posterior in TWO.items()}
PLANNED = DecisionReached(0.95, "pocock", (8, 16))
ANYTIME = DecisionReached(0.95, correction="anytime")


test_bad_arguments = refusals(
    (lambda: WidthReached(0), "width", "range"),
    (lambda: DecisionReached(0.3), "confidence", "range"),
    (lambda: DecisionReached(0.9, "bonferroni"), "correction", "choice"),
    (lambda: DecisionReached(0.9, "pocock"), "analyses", "missing"),
    (lambda: DecisionReached().evaluate(0, TWO), "trials", "range"),
    (lambda: DecisionReached().evaluate(1, {"a": HARD}), "posteriors", "range"),
    (lambda: DecisionReached(0.9, analyses=(4, 4)), "analyses", "range"),
    (lambda: PLANNED.evaluate(8, POPULATION), "posteriors", "unsupported"),
)


@pytest.mark.parametrize(("n", "error"), [(2, 0.05), (1000, 0.2)])
def test_on_the_mixture_boundary_the_martingale_is_one_over_the_error(n, error):
    walk = np.sqrt(n) * mixture_boundary(n, error)
    density = stats.norm(0.0, 1.0 / np.sqrt(MIXTURE_TRIALS)).pdf
    middle = walk / (n + MIXTURE_TRIALS)
    martingale, _ = integrate.quad(
        lambda x: np.exp(x * walk - 0.5 * x * x * n) * density(x), middle - 4, middle + 4
    )
    assert martingale == pytest.approx(1.0 / error, rel=1e-6)


def test_crossings_of_the_anytime_rule_by_simulated_walks():
    rng = np.random.default_rng(4)
    rule = DecisionReached(0.9, correction="anytime")
    walks = np.abs(rng.standard_normal((5_000, 300)).cumsum(axis=1)) / np.sqrt(np.arange(1, 301))
    limits = [rule.threshold(n) or np.inf for n in range(1, 301)]
    simulated = (walks >= limits).any(axis=1).mean()
    theory = rule.false_decision_rate(range(1, 301))
    assert simulated == pytest.approx(theory, abs=4 * np.sqrt(theory / 5_000))
    assert simulated < 0.1


def test_the_anytime_rule_needs_no_plan():
    assert (ANYTIME.analyses, ANYTIME.min_trials, ANYTIME.threshold(1)) == (None, 2, None)
    assert ANYTIME.threshold(77) == mixture_boundary(77, 1 - 0.95)
    verdict = ANYTIME.evaluate(8, TWO)
    assert (verdict.stop, verdict.winner) == (True, "easy")
    assert "however many analyses" in verdict.note
    planned = DecisionReached(0.95, correction="anytime", analyses=(8, 16))
    assert (planned.threshold(8), planned.threshold(9)) == (ANYTIME.threshold(8), None)


@pytest.mark.parametrize("rule", [ANYTIME, DecisionReached(0.95, "pocock", (4, 8, 80))])
def test_a_uniform_prior_and_different_numbers_of_trials_are_warned_of(rule):
    models = {"few": binary([8] * 5, 8), "many": binary([80] * 5, 80)}
    models = {name: replace(p, trials_range=None) for name, p in models.items()}
    assert "bayes@N" in rule.evaluate(8, models).note
    assert rule.evaluate(8, SAME).note is None


@pytest.mark.parametrize("scope", ["benchmark", "population"])
def test_scores_of_0_and_1_need_the_trials_of_right_and_wrong(scope):
    matrix = np.random.default_rng(3).integers(0, 2, (12, 5))
    of_scores = hbayes_at_n(ScoreOutcomes.from_scores(matrix), scope)
    of_trials = hbayes_at_n(Outcomes.from_matrix(matrix), scope)
    width = 0.9 * of_trials.interval().width
    a, b = (trials_needed(posterior, width=width) for posterior in (of_scores, of_trials))
    assert a.current == pytest.approx(b.current, rel=1e-4)
    assert a.additional == pytest.approx(b.additional, rel=0.1, abs=1)
    single = hbayes_at_n(ScoreOutcomes.from_scores(matrix[:, :1]), scope)
    assert "No question has two trials" in trials_needed(single, width=width).note


def test_predictive_draws_of_scores_have_their_dispersion():
    rng = np.random.default_rng(7)
    p = rng.uniform(0.2, 0.8, (6, 1))
    scores = ScoreOutcomes.from_scores(rng.beta(8 * p, 8 * (1 - p), (6, 50)))
    posterior = hbayes_at_n(scores)
    predictive = PredictiveScore.of(posterior)
    of_mean = scores.dispersion * (p * (1 - p)).mean() / 6
    assert predictive.chance.mean() == pytest.approx(of_mean, rel=0.1)
    assert predictive.worth == pytest.approx(50, rel=0.1)
    # much later the sd is that of so many trials
    _, sd = predictive.moments(950)
    assert np.sqrt(np.mean(sd**2)) == pytest.approx(np.sqrt(of_mean / 1000), rel=0.1)
