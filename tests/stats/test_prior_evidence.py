"""Earlier runs whose shift is learned, against quadratures that share nothing with the code."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
from _support.errors import refusals
from scipy import special, stats

from lm_eval_bayes import Outcomes, bayes_at_n, compare, hbayes_at_n, learn_shift, mean_over_tasks
from lm_eval_bayes.stats.outcomes import SCALES, LearnedShift
from lm_eval_bayes.stats.related_scores import TwoRuns, learn_scales, score_after_earlier

COUNTS = [[3, 1], [2, 2], [0, 4], [1, 3], [4, 0], [2, 2]] * 3
OLDER = [[5, 3], [4, 4], [1, 7], [3, 5], [7, 1], [2, 6]] * 3
BOTH = Outcomes.from_counts(COUNTS, prior_counts=OLDER)


class Beta:
    """A Beta distribution by scipy, with the two functions that a posterior has."""

    def __init__(self, a, b):
        self.shape = (a, b)
        self.quantiles, self.cdf = stats.beta(a, b).ppf, stats.beta(a, b).cdf


def by_quadrature(own, earlier, prior):
    """Return the logits of scores, and the densities of the score times its evidence, (4, 1201)."""
    axis = np.linspace(-15, 15, 1201)

    def density(beta):
        a, b = beta.shape
        log = a * special.log_expit(axis) + b * special.log_expit(-axis)
        return np.exp(log - special.betaln(a, b)) * (axis[1] - axis[0])

    own, earlier, prior = (density(each) for each in (own, earlier, prior))
    joint = []
    for scale in SCALES:
        cauchy = stats.cauchy(axis[:, None], scale).pdf(axis)
        joint.append(own * (cauchy @ (earlier / (cauchy @ prior))))
    return axis, np.array(joint)


CASES = [
    (Beta(20, 12), Beta(40, 24), Beta(0.9, 0.9)),
    (Beta(20, 12), Beta(12, 20), Beta(0.9, 0.9)),
    (Beta(60, 2), Beta(30, 4), Beta(0.7, 0.7)),
]


@pytest.mark.parametrize("case", CASES)
def test_the_score_is_that_of_quadrature(case):
    model = TwoRuns(*case, (0.0, 1.0))
    axis, joint = by_quadrature(*case)
    evidence = joint.sum(axis=1) / joint.sum()
    shift = learn_scales([model])
    assert shift.weights == pytest.approx(evidence, abs=0.003)
    draws = score_after_earlier(model, shift)
    mass = np.array(shift.weights) @ (joint / joint.sum(axis=1, keepdims=True))
    score, middle = special.expit(axis), mass.cumsum() - 0.5 * mass
    mean = mass @ score
    sd = np.sqrt(mass @ (score - mean) ** 2)
    assert draws.mean() == pytest.approx(mean, abs=0.01 * sd)
    assert draws.std() == pytest.approx(sd, rel=0.01)
    below = np.interp(special.logit(np.quantile(draws, (0.025, 0.5, 0.975))), axis, middle)
    assert below == pytest.approx([0.025, 0.5, 0.975], abs=0.004)


def test_the_scale_is_learned_from_all_models_in_any_order():
    models = [TwoRuns(*case, (0.0, 1.0)) for case in CASES]
    evidence = np.prod([by_quadrature(*case)[1].sum(axis=1) for case in CASES], axis=0)
    weights = learn_scales(models).weights
    assert weights == pytest.approx(evidence / evidence.sum(), abs=0.01)
    assert learn_scales(models[::-1]).weights == pytest.approx(weights, abs=1e-12)
    other = Outcomes.from_counts(COUNTS[::-1], prior_counts=COUNTS)
    shift = learn_shift([BOTH, Outcomes.from_counts(COUNTS), other])
    assert learn_shift([other, BOTH]).weights == pytest.approx(shift.weights, abs=1e-12)


@pytest.mark.parametrize("clusters", [None, list("aabbcc") * 3])
def test_both_scopes_use_the_earlier_run(clusters):
    model = replace(BOTH, prior_strength=learn_shift([BOTH]), clusters=clusters)
    alone = model.without_prior()
    informed, without = (hbayes_at_n(each, "population") for each in (model, alone))
    assert informed.benchmark.mu == hbayes_at_n(model).mu
    assert informed.benchmark.sigma < 0.95 * without.benchmark.sigma
    assert informed.sigma < without.sigma
    # what the earlier run does not tell is the difference of the population from its sample
    sampling = without.sigma**2 - without.benchmark.sigma**2
    expected = np.sqrt(sampling + informed.benchmark.sigma**2)
    assert informed.sigma == pytest.approx(expected, rel=0.05)
    assert informed.per_question.mu.tolist() == without.per_question.mu.tolist()
    assert bayes_at_n(model).mu == bayes_at_n(alone).mu
    assert informed.n_trials == 4.0


def test_the_population_is_as_without_where_the_earlier_run_tells_nothing():
    nothing = replace(BOTH, prior_counts=0 * BOTH.prior_counts, prior_strength=LearnedShift())
    assert (
        hbayes_at_n(nothing, "population").mu
        == hbayes_at_n(nothing.without_prior(), "population").mu
    )


def test_scores_and_their_difference_add_up():
    informed = replace(BOTH, prior_strength=learn_shift([BOTH]))
    rival = Outcomes.from_counts(COUNTS[::-1])
    for scope, tolerance in (("benchmark", 1e-12), ("population", 0.01)):
        result = compare(informed, rival, scope)
        assert result.difference == pytest.approx(result.a.mu - result.b.mu, abs=tolerance)
        assert result.sd <= compare(BOTH.without_prior(), rival, scope).sd


def test_all_right_after_a_half_right_run_is_near_one():
    outcomes = Outcomes.from_counts([[0, 8]] * 30, prior_counts=[[4, 4]] * 30)
    posterior = hbayes_at_n(replace(outcomes, prior_strength=learn_shift([outcomes])))
    assert posterior.mu > 0.995
    assert posterior.interval().low > 0.98


def test_equal_weights_and_rubrics_have_a_score_after_an_earlier_run():
    rubric = Outcomes.from_counts(
        [[2, 1, 1], [0, 1, 3], [3, 1, 0]] * 4, prior_counts=[[2, 1, 3], [1, 1, 4], [4, 1, 1]] * 4
    )
    posterior = hbayes_at_n(replace(rubric, prior_strength=learn_shift([rubric])))
    assert posterior.sigma < hbayes_at_n(rubric.without_prior()).sigma
    level = replace(BOTH, weights=[0.5, 0.5])
    level = replace(level, prior_strength=learn_shift([level]))
    posterior = hbayes_at_n(level)
    assert (posterior.mu, posterior.sigma) == pytest.approx((0.5, 0.0), abs=1e-12)


def test_a_mean_over_tasks_says_that_it_does_not_use_earlier_runs():
    informed = replace(BOTH, prior_strength=LearnedShift())
    mean = mean_over_tasks({"a": informed, "b": Outcomes.from_counts(COUNTS)})
    assert "does not use the earlier runs" in mean.note


def test_a_learned_shift_survives_copies_and_json():
    shift = LearnedShift((0.1, 0.2, 0.3, 0.4))
    for other in (copy.deepcopy(shift), pickle.loads(pickle.dumps(shift))):
        assert other == shift
    assert replace(BOTH, prior_strength=shift).take([2, 0]).prior_strength == shift
    assert json.loads(json.dumps(shift.to_dict())) == {"weights": [0.1, 0.2, 0.3, 0.4]}


test_bad_arguments_are_refused = refusals(
    (lambda: LearnedShift((0.5, 0.5)), "weights", "range"),
    (lambda: LearnedShift((0.5, 0.5, 0.5, -0.5)), "weights", "range"),
    (lambda: learn_shift([]), "models", "empty"),
    (lambda: learn_shift([COUNTS]), "models[0]", "type"),
)


@pytest.mark.slow
def test_intervals_hold_shifted_scores():
    """Coverage in 60 sets a shift (± 2.8), and narrower intervals where nothing has shifted."""
    rng = np.random.default_rng(0)
    ratios, total = {}, 0
    for shift in (-1.0, -0.5, 0.0, 0.5, 1.0):
        held, ratio = [], []
        for _ in range(60):
            n = int(rng.choice([4, 8, 16]))
            logit = special.logit(rng.beta(2, 2, 30))
            p = special.expit(logit + shift)
            x, x0 = rng.binomial(n, p), rng.binomial(8, special.expit(logit))
            outcomes = Outcomes.from_counts(np.c_[n - x, x], prior_counts=np.c_[8 - x0, x0])
            informed = hbayes_at_n(replace(outcomes, prior_strength=learn_shift([outcomes])))
            interval, alone = informed.interval(), hbayes_at_n(outcomes.without_prior()).interval()
            held.append(interval.low <= p.mean() <= interval.high)
            ratio.append(interval.width / alone.width)
        assert np.mean(held) >= 0.85
        total += sum(held)
        ratios[shift] = np.mean(ratio)
    assert total >= 0.92 * 300
    assert ratios[0.0] < 0.96
    assert max(ratios.values()) < 1.05
