from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.bayes_at_n import bayes_at_n
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.sequential.decision import (
    DecisionReached,
    alpha_spent,
    boundaries,
    crossing_probability,
)
from lm_eval_bayes.stats.sequential.stopping_rules import AnyOf, BudgetSpent, WidthReached


def binary(successes, trials):
    successes = np.asarray(successes)
    return bayes_at_n(Outcomes.from_counts(np.stack([trials - successes, successes], axis=1)))


HARD, EASY = binary([1, 2, 0, 3, 1, 2], 8), binary([7, 6, 8, 5, 7, 6], 8)
TWO = {"hard": HARD, "easy": EASY}
SAME = {"one": HARD, "two": HARD}


def even(analyses):
    return tuple((np.arange(1, analyses + 1) / analyses).tolist())


# Two-sided 5%: Jennison & Turnbull (2000), tables 2.1 and 2.3.
@pytest.mark.parametrize(
    ("analyses", "pocock", "obrien_fleming"),
    [(2, 2.178, 1.977), (3, 2.289, 2.004), (5, 2.413, 2.040), (10, 2.555, 2.087)],
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


def test_crossings_by_the_multivariate_normal():
    shares, limits = (0.1, 0.45, 1.0), (2.5, 2.1, 1.8)
    correlation = [[np.sqrt(min(s, t) / max(s, t)) for t in shares] for s in shares]
    box = stats.multivariate_normal(np.zeros(3), correlation).cdf(
        limits, lower_limit=[-c for c in limits]
    )
    assert crossing_probability(shares, limits) == pytest.approx(1.0 - box, abs=2e-5)


def test_crossings_by_simulated_walks():
    rng = np.random.default_rng(0)
    walks = rng.standard_normal((20_000, 64)).cumsum(axis=1) / np.sqrt(np.arange(1, 65))
    for c in (1.645, 1.96, 3.0):
        simulated = (np.abs(walks) >= c).any(axis=1).mean()
        assert crossing_probability(even(64), (c,) * 64) == pytest.approx(simulated, abs=0.012)


@pytest.mark.parametrize("spending", ["obrien-fleming", "pocock"])
@pytest.mark.parametrize("shares", [(1.0,), even(64), (0.01, 0.5, 0.501, 1.0), (0.3, 0.6)])
def test_boundaries_spend_what_they_may(spending, shares):
    limits = boundaries(shares, 0.1, spending)
    due = alpha_spent(shares[-1], 0.1, spending)
    assert crossing_probability(shares, limits) == pytest.approx(due, abs=1e-8)


def test_nothing_can_be_decided_at_a_very_early_look():
    assert boundaries(even(64), 0.05, "obrien-fleming")[0] == np.inf
    assert crossing_probability((0.5, 1.0), (np.inf, 1.959964)) == pytest.approx(0.05, abs=1e-6)


def test_a_decision_is_z_over_its_threshold():
    verdict = DecisionReached(0.95).evaluate(8, TWO)
    z = (EASY.mu - HARD.mu) / np.hypot(EASY.sigma, HARD.sigma)
    assert verdict.stop
    assert verdict.winner == "easy"
    assert verdict.value == pytest.approx(z)
    assert verdict.threshold == pytest.approx(stats.norm.ppf(0.95))
    assert verdict.note == (
        "equal models get a winner in 0.1 of the runs with one analysis, and in 0.315 of those "
        "with 8 analyses"
    )
    walks = np.random.default_rng(0).standard_normal((100_000, 8)).cumsum(axis=1)
    crossed = (np.abs(walks / np.sqrt(np.arange(1, 9))) >= 1.6449).any(axis=1)
    assert crossed.mean() == pytest.approx(0.315, abs=0.006)
    assert json.loads(json.dumps(verdict.to_dict()))["winner"] == "easy"


def test_no_decision_between_equals():
    verdict = DecisionReached(0.5).evaluate(8, SAME)
    assert (verdict.stop, verdict.winner, verdict.value) == (False, None, 0.0)
    certain = {name: replace(HARD, sigma=0.0, mu=mu) for name, mu in (("a", 0.2), ("b", 0.3))}
    assert DecisionReached().evaluate(8, certain).winner == "b"


def test_a_planned_rule_decides_at_planned_analyses():
    rule = DecisionReached(0.95, correction="pocock", analyses=range(4, 20, 4))
    assert rule.analyses == (4, 8, 12, 16)
    early = {"hard": binary([1, 2, 0, 3, 1, 2], 7), "easy": binary([6, 6, 7, 5, 6, 6], 7)}
    assert rule.evaluate(7, early).reason == "7 trials are not one of the planned analyses"
    verdict = rule.evaluate(8, TWO)
    assert verdict.stop
    assert verdict.note == (
        "equal models get a winner in at most 0.05 of such runs, over all 4 planned analyses"
    )
    naive = DecisionReached(0.95, analyses=(4, 8))
    assert naive.threshold(5) is None
    assert "2 analyses" in naive.evaluate(8, TWO).note


def test_rates_of_rules():
    naive = DecisionReached(0.95)
    assert naive.false_decision_rate([64]) == pytest.approx(0.1, abs=1e-6)
    rates = [naive.false_decision_rate(range(1, n + 1)) for n in (1, 4, 16, 64)]
    assert rates == sorted(rates)
    for correction in ("obrien-fleming", "pocock"):
        rule = DecisionReached(0.95, correction, range(1, 65))
        assert rule.false_decision_rate(range(1, 65)) == pytest.approx(0.05, abs=1e-6)
        # looking less often than planned errs less often
        assert rule.false_decision_rate((16, 32, 64)) < 0.05


def test_a_long_naive_run_is_given_as_at_least():
    late = {"hard": binary([100] * 6, 1000), "easy": binary([900] * 6, 1000)}
    assert "at least 0." in DecisionReached(0.95).evaluate(1000, late).note


def test_widths():
    widest = max(HARD.interval().width, EASY.interval().width)
    rule = WidthReached(widest)
    verdict = rule.evaluate(8, TWO)
    assert verdict.stop
    assert verdict.value == widest
    narrower = WidthReached(0.99 * widest).evaluate(8, TWO)
    assert not narrower.stop
    assert "more than" in narrower.reason
    early = WidthReached(0.9, min_trials=10).evaluate(8, TWO)
    assert not early.stop
    assert early.reason.endswith("but there are fewer than 10 trials")
    normal = WidthReached(0.5, level=0.9, method="normal").evaluate(8, {"hard": HARD})
    assert normal.value == pytest.approx(2 * 1.644854 * HARD.sigma, rel=1e-6)


def test_budgets_and_any_of():
    both = AnyOf((DecisionReached(0.95), WidthReached(0.01), BudgetSpent(64)))
    assert both.evaluate(8, TWO).rule == "decision reached"
    going_on = both.evaluate(8, SAME)
    assert not going_on.stop
    assert going_on.reason.count(";") == 2
    assert "8 of 64 trials per question have been used" in going_on.reason
    later = binary([8, 16, 0, 24, 8, 16], 64)
    spent_all = both.evaluate(64, {"one": later, "two": later})
    assert (spent_all.stop, spent_all.rule) == (True, "budget spent")
    assert AnyOf(iter([BudgetSpent(8)])).evaluate(8, TWO).stop


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WidthReached(0), "`width` must be a finite number above 0; got 0"),
        (lambda: WidthReached(0.1, level=2), "`level` must be a number strictly between"),
        (lambda: WidthReached(0.1, method="x"), "`method` must be one of"),
        (lambda: WidthReached(0.1, min_trials=0), "`min_trials` must be an integer of at least 1"),
        (lambda: WidthReached(0.1, seed=-1), "`seed` must be an integer of at least 0"),
        (lambda: BudgetSpent(0), "`trials` must be an integer of at least 1; got 0"),
        (lambda: AnyOf(()), "`rules` must be at least one stopping rule"),
        (lambda: AnyOf((1,)), "`rules` must be at least one stopping rule"),
        (lambda: AnyOf(3), "`rules` must be at least one stopping rule; got 3"),
        (lambda: DecisionReached(0.3), "`confidence` must be a number in"),
        (lambda: DecisionReached(0.9, "bonferroni"), '`correction` must be one of "none", "obrien'),
        (lambda: DecisionReached(0.9, "pocock"), "`analyses` must name the planned analyses"),
        (
            lambda: DecisionReached(0.9, analyses=()),
            "`analyses` must be numbers of trials, at least 1",
        ),
        (lambda: DecisionReached(0.9, analyses=(4, 4)), "`analyses` must be numbers of trials"),
        (lambda: DecisionReached(0.9, analyses="12"), "`analyses` must be numbers of trials"),
        (
            lambda: DecisionReached(0.9, analyses=(0, 1)),
            "`analyses` must be an integer of at least 1",
        ),
        (lambda: DecisionReached().evaluate(0, TWO), "`trials` must be an integer of at least 1"),
        (
            lambda: DecisionReached().evaluate(1, {"a": HARD}),
            "`posteriors` must be those of two models",
        ),
        (lambda: BudgetSpent(3).evaluate(0, TWO), "`trials` must be an integer of at least 1"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()


def test_a_correction_speaks_of_fixed_questions():
    population = {name: replace(p, scope="population") for name, p in TWO.items()}
    assert DecisionReached().evaluate(8, population).stop
    rule = DecisionReached(0.95, "pocock", (8, 16))
    with pytest.raises(InvalidInputError, match='be of scope "benchmark"'):
        rule.evaluate(8, population)
