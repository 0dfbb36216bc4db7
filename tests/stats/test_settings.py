"""Scores over settings: the model by quadrature in two dimensions, limits, planted boards."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import special, stats

from lm_eval_bayes import InvalidInputError
from lm_eval_bayes.stats import Outcomes, hbayes_at_n
from lm_eval_bayes.stats.ranking.simultaneous import compare_simultaneously
from lm_eval_bayes.stats.settings.allocation import half_width, settings_needed
from lm_eval_bayes.stats.settings.comparison import difference_over_settings, errors_over_settings
from lm_eval_bayes.stats.settings.design import setting_means
from lm_eval_bayes.stats.settings.model import T
from lm_eval_bayes.stats.settings.posterior import score_over_settings, share_t

BINARY = np.array([0.0, 1.0])


def tables(right, n):
    """Return counts (S, M, 2) of right answers (S, M) among n trials each."""
    right = np.asarray(right)
    return np.stack([n - right, right], axis=-1)


def simulated(seed, t, n_settings, n, m, shape=(2, 3), shift=0.0):
    """Return counts of settings that differ by effects of sd t, and the logits of the questions."""
    rng = np.random.default_rng(seed)
    logit = special.logit(rng.beta(*shape, m)) + shift
    p = special.expit(logit + t * rng.standard_normal((n_settings, 1)))
    return tables(rng.binomial(n, p), n), logit


#: Settings, trials, questions, shape of the questions, t.
CASES = {
    "two settings": (2, 4, 30, (2, 3), 0.2),
    "three, far apart": (3, 16, 30, (2, 3), 0.8),
    "four": (4, 4, 30, (2, 3), 0.2),
    "eight, high": (8, 4, 30, (19, 1), 0.4),
    "few trials, high": (2, 1, 15, (19, 1), 0.0),
    "sixteen": (16, 1, 100, (2, 3), 0.1),
}


def case(name):
    n_settings, n, m, shape, t = CASES[name]
    return score_over_settings(simulated(3, t, n_settings, n, m, shape)[0])


# -- the model, by quadrature in two dimensions ----------------------------------------------------


class BruteForce:
    """The posterior of (t, m) on grids of t and of logit m, by the density itself.

    m has the prior 1/(m (1 − m)): what hbayes@N knows beside the trials is in the effective ones.
    """

    def __init__(self, share, trials):
        self.t = (np.arange(400) + 0.5)[:, None] / 200
        centre = special.logit(share @ trials / trials.sum())
        logit = centre + 3 * np.linspace(-1, 1, 1_201) ** 3 + 5 * np.linspace(-1, 1, 1_201)
        m = self.m = special.expit(logit)
        k = self.k = np.maximum(1 / (self.t**2 * m * special.expit(-logit)) - 1, 1e-3)
        log = stats.t.logpdf(self.t / 0.2, 4) + np.log(np.gradient(logit)) + np.zeros_like(k)
        a, b = k * m, k * special.expit(-logit)
        for y, n in zip(share, trials, strict=True):
            log += special.betaln(a + n * y, b + n * (1 - y)) - special.betaln(a, b)
        self.a, self.b = a, b
        self.mass = np.exp(log - log.max())
        self.mass /= self.mass.sum()

    def m_quantiles(self, masses):
        mass = self.mass.sum(axis=0)
        return np.interp(masses, np.cumsum(mass) - mass / 2, self.m)

    def t_quantiles(self, masses):
        return np.interp(masses, np.cumsum(self.mass.sum(axis=1)), self.t[:, 0] + 1 / 400)

    def draw(self, size, rng):
        """Draw m, t and the scores of two further settings."""
        flat = rng.choice(self.mass.size, size, p=self.mass.ravel())
        a, b = self.a.ravel()[flat], self.b.ravel()[flat]
        return self.m[flat % self.m.size], self.t[flat // self.m.size, 0], rng.beta(a, b, (2, size))


@pytest.mark.parametrize("name", CASES)
def test_the_posterior_is_that_of_the_model(name):
    posterior = case(name)
    like, brute = posterior.like["benchmark"], BruteForce(posterior.share, posterior.trials)
    median, low, high = brute.m_quantiles([0.5, 0.025, 0.975])
    width = high - low
    assert (like.low, like.median, like.high) == pytest.approx(
        (low, median, high), abs=0.02 * width
    )
    t = posterior.spread.logit_sd
    expected = brute.t_quantiles([0.5, 0.025, 0.975])
    assert (t.median, t.low, t.high) == pytest.approx(expected, rel=0.02, abs=0.004)
    assert t.mean == pytest.approx(float((brute.t * brute.mass).sum()), rel=0.01)


@pytest.mark.parametrize("name", CASES)
def test_further_settings_are_those_of_the_model(name):
    posterior = case(name)
    brute = BruteForce(posterior.share, posterior.trials)
    m, t, (new, other) = brute.draw(200_000, np.random.default_rng(0))
    low, high = np.quantile(new, [0.025, 0.975])
    spread = posterior.spread
    # the tails of a mixture of Beta distributions with the moments given t
    tolerance = 0.03 * (high - low)
    assert (spread.new_setting.low, spread.new_setting.high) == pytest.approx(
        (low, high), abs=tolerance
    )
    assert spread.apart == pytest.approx(np.quantile(np.abs(new - other), 0.95), rel=0.06)
    assert spread.sd.mean == pytest.approx(np.mean(t * m * (1 - m)), rel=0.02)


@pytest.mark.parametrize("name", CASES)
def test_the_trials_are_those_of_hbayes(name):
    n_settings, n, m, shape, t = CASES[name]
    counts, _ = simulated(3, t, n_settings, n, m, shape)
    posterior = score_over_settings(counts)
    pooled = hbayes_at_n(Outcomes.from_counts(counts.sum(axis=0)))
    share, trials = posterior.share, posterior.trials
    assert share @ trials / trials.sum() == pytest.approx(pooled.mu, abs=1e-12)
    assert pooled.mu * (1 - pooled.mu) / (trials.sum() + 1) == pytest.approx(pooled.sigma**2)
    scores = counts[..., 1].mean(axis=1) / n
    assert posterior.scores == pytest.approx(scores)
    factor = np.ptp(share) / np.ptp(scores) if np.ptp(scores) else 1
    assert 0.8 < factor <= 1
    interval = pooled.interval()
    these = posterior.these["benchmark"]
    assert (these.mean, these.low, these.high) == (pooled.mu, interval.low, interval.high)
    population = hbayes_at_n(Outcomes.from_counts(counts.sum(axis=0)), "population")
    assert posterior.these["population"].high == population.interval().high
    # W/M: the variance of one trial per question, by the posterior and by the questions' shares
    assert posterior.trial_sds**2 * n == pytest.approx(posterior.trial_variance)


def test_the_variance_of_trials_is_that_within_questions():
    p = np.linspace(0.02, 0.98, 100)
    counts = tables(np.random.default_rng(0).binomial(40, p, (4, 100)), 40)
    posterior = score_over_settings(counts)
    assert posterior.trial_variance == pytest.approx((p * (1 - p)).mean() / 100, rel=0.06)
    assert posterior.spread.sd_of_trials == pytest.approx(
        np.sqrt((p * (1 - p)).mean() / 4_000), rel=0.03
    )


#: Right answers of four runs, four trials of each of 30 questions.
DAYS = (
    "242033031202121220132144002030",
    "032143332223130320011032001121",
    "211033110132020221111134002022",
    "242132122142020332111133011231",
)


def test_four_runs_as_a_prototype_with_moments_has_them():
    """The prototype takes the variance within questions by moments, hbayes@N by its posterior."""
    posterior = score_over_settings(tables([[*map(int, day)] for day in DAYS], 4))
    prototype = {
        ("these", "benchmark"): (0.406, 0.367, 0.446),
        ("like", "benchmark"): (0.407, 0.354, 0.462),
        ("these", "population"): (0.409, 0.324, 0.495),
        ("like", "population"): (0.409, 0.319, 0.506),
    }
    for (settings, scope), expected in prototype.items():
        score = getattr(posterior, settings)[scope]
        found = (score.mean, score.low, score.high)
        assert found == pytest.approx(expected, abs=0.0025 if scope == "benchmark" else 0.006)
    spread = posterior.spread
    assert (spread.sd_of_trials, spread.sd.high) == pytest.approx((0.04, 0.085), abs=0.005)
    assert (spread.apart, spread.runs_apart) == pytest.approx((0.112, 0.16), abs=0.007)
    new = spread.new_setting
    assert (new.low, new.high) == pytest.approx((0.317, 0.508), abs=0.006)
    single = score_over_settings(tables([[*map(int, DAYS[0])]], 4))
    reach = [half for _, half in single.sensitivity]
    assert reach == pytest.approx([0.08, 0.09, 0.12], abs=0.006)


def test_the_population_adds_its_variance():
    posterior = case("four")
    benchmark, population = (posterior.distributions[s] for s in ("benchmark", "population"))
    trials_alone, pooled = posterior.benchmark, posterior.population
    added = pooled.sigma**2 - trials_alone.sigma**2
    assert population.sd**2 == pytest.approx(benchmark.sd**2 + added)
    assert population.mean - benchmark.mean == pytest.approx(pooled.mu - trials_alone.mu)
    # the table has these moments
    for table in (benchmark, population):
        drawn = table.quantiles((np.arange(100_000) + 0.5) / 100_000)
        assert (drawn.mean(), drawn.std()) == pytest.approx((table.mean, table.sd), rel=0.01)


# -- limits and invariance -------------------------------------------------------------------------


def test_equal_settings_have_the_interval_of_trials_alone():
    counts = np.repeat(tables(np.random.default_rng(1).binomial(4, 0.4, (1, 60)), 4), 64, axis=0)
    posterior = score_over_settings(counts)
    these, like = posterior.these["benchmark"], posterior.like["benchmark"]
    assert like.low == pytest.approx(these.low, abs=0.05 * (these.high - these.low))
    assert like.high == pytest.approx(these.high, abs=0.05 * (these.high - these.low))
    assert posterior.spread.logit_sd.high < 0.05
    assert posterior.spread.p_of_trials == pytest.approx(1)


def test_many_settings_have_the_t_interval():
    counts, _ = simulated(4, 0.4, 60, 8, 100)
    posterior = score_over_settings(counts)
    scores = counts[..., 1].mean(axis=1) / 8
    t_interval = stats.t.interval(0.95, 59, scores.mean(), stats.sem(scores))
    like = posterior.like["benchmark"]
    assert (like.low, like.high) == pytest.approx(t_interval, abs=0.03 * np.ptp(t_interval))
    assert posterior.spread.sd.mean == pytest.approx(
        np.sqrt(scores.var(ddof=1) - posterior.trial_sds[0] ** 2), rel=0.05
    )


def test_the_order_of_settings_and_questions_does_not_matter():
    counts, _ = simulated(5, 0.2, 4, 4, 25)
    order, questions = [2, 0, 3, 1], np.random.default_rng(0).permutation(25)
    first = score_over_settings(counts, labels=[*"abcd"])
    second = score_over_settings(counts[order][:, questions], labels=[*"cadb"])
    for scope in ("benchmark", "population"):
        assert first.these[scope] == second.these[scope]
        for end in ("mean", "low", "high"):
            assert getattr(first.like[scope], end) == pytest.approx(
                getattr(second.like[scope], end), abs=1e-9
            )
    assert first.spread.apart == pytest.approx(second.spread.apart)
    assert first.scores[order] == pytest.approx(second.scores)


def test_weights_of_another_range():
    counts, _ = simulated(6, 0.2, 4, 4, 30)
    plain, scaled = score_over_settings(counts), score_over_settings(counts, [-1.0, 3.0])
    for of_plain, of_scaled in (
        (plain.like["benchmark"], scaled.like["benchmark"]),
        (plain.like["population"], scaled.like["population"]),
        (plain.spread.new_setting, scaled.spread.new_setting),
    ):
        assert of_scaled.low == pytest.approx(4 * of_plain.low - 1, abs=1e-9)
        assert of_scaled.high == pytest.approx(4 * of_plain.high - 1, abs=1e-9)
    assert scaled.spread.logit_sd == plain.spread.logit_sd
    for name in ("apart", "runs_apart", "sd_seen", "sd_of_trials"):
        assert getattr(scaled.spread, name) == pytest.approx(4 * getattr(plain.spread, name))
    assert scaled.spread.p_of_trials == pytest.approx(plain.spread.p_of_trials)
    turned = score_over_settings(counts[..., ::-1], [1.0, 0.0])
    assert turned.like["benchmark"].high == pytest.approx(plain.like["benchmark"].high, abs=1e-9)


def test_many_right_answers_leave_the_population_uncertain():
    posterior = score_over_settings(tables(np.full((4, 15), 10_000), 10_000))
    these, like = posterior.these["population"], posterior.like["population"]
    assert posterior.like["benchmark"].low > 0.999
    # Beta(.7 + S, .7) of S right answers of 15 questions
    assert these.low == pytest.approx(stats.beta.ppf(0.025, 15.7, 0.7), abs=0.15)
    assert like.low == pytest.approx(these.low, abs=0.02)


def test_settings_as_far_apart_as_can_be():
    posterior = score_over_settings(tables([[4] * 20, [0] * 20], 4))
    assert posterior.spread.is_treatment
    assert posterior.spread.apart == posterior.spread.runs_apart == 1
    assert posterior.like["benchmark"].low < 0.25
    assert posterior.like["benchmark"].high > 0.75


def test_rubrics():
    rng = np.random.default_rng(7)
    theta = rng.dirichlet([1, 1, 2], 40)
    counts = rng.multinomial(8, theta, (5, 40))
    posterior = score_over_settings(counts, [0.0, 0.5, 1.0])
    weights = np.array([0, 0.5, 1])
    assert posterior.scores == pytest.approx((counts @ weights / 8).mean(axis=1))
    within = (theta @ weights**2 - (theta @ weights) ** 2).mean() / 40
    assert posterior.trial_variance == pytest.approx(within, rel=0.1)
    like = posterior.like["benchmark"]
    assert like.low < (theta @ weights).mean() < like.high


# -- missing cells ---------------------------------------------------------------------------------


def test_an_additive_score_does_not_depend_on_which_questions_a_setting_has():
    difficulty = np.array([0.2, 0.3, 0.5, 0.6, 0.7, 0.8])
    effect = np.array([-0.1, 0.0, 0.1])
    trials = np.full((3, 6), 1_000)
    trials[0, :3] = trials[2, 4:] = 0
    trials[1, 0] = 200
    right = np.rint(trials * (difficulty + effect[:, None])).astype(int)
    counts = np.stack([trials - right, right], axis=-1)
    score, worth = setting_means(counts, BINARY)
    assert score == pytest.approx(difficulty.mean() + effect, abs=1e-9)
    # the variance of a mean of three questions with 1,000 trials is W/3,000
    assert worth == pytest.approx([3_000, 36 / (5 / 1_000 + 1 / 200), 4_000])


def test_missing_cells_by_least_squares():
    rng = np.random.default_rng(8)
    n = rng.integers(0, 4, (4, 12))
    n[0] = np.maximum(n[0], 1)
    right = rng.binomial(n, 0.6)
    score, _ = setting_means(np.stack([n - right, right], axis=-1), BINARY)
    rows, targets = [], []
    for s, q in itertools.product(range(4), range(12)):
        if n[s, q]:
            row = np.zeros(16)
            row[s], row[4 + q] = 1, 1
            rows.append(row * np.sqrt(n[s, q]))
            targets.append(right[s, q] / np.sqrt(n[s, q]))
    fitted = np.linalg.lstsq(np.array(rows), np.array(targets), rcond=None)[0]
    assert score == pytest.approx(fitted[:4] + fitted[4:].mean(), abs=1e-9)


def test_missing_cells_widen_the_interval():
    counts, _ = simulated(9, 0.1, 4, 4, 30)
    missing = counts.copy()
    for s in range(4):
        missing[s, s::4] = 0
    whole, part = (score_over_settings(c).like["benchmark"] for c in (counts, missing))
    assert 1 < (part.high - part.low) / (whole.high - whole.low) < 1.5


def test_a_question_that_nobody_tried_changes_no_score():
    counts, _ = simulated(9, 0.1, 3, 4, 30)
    counts[:, 4] = 0
    kept = np.delete(counts, 4, axis=1)
    assert score_over_settings(counts).scores == pytest.approx(score_over_settings(kept).scores)


# -- one setting, treatments -----------------------------------------------------------------------


def test_of_one_setting_nothing_is_known_of_others():
    counts, _ = simulated(10, 0.0, 1, 4, 30)
    posterior = score_over_settings(counts)
    assert (posterior.like, posterior.distributions, posterior.spread) == ({}, {}, None)
    sd = posterior.benchmark.sigma
    for assumed, reach in posterior.sensitivity:
        assert reach == pytest.approx(stats.norm.ppf(0.975) * np.hypot(sd, assumed))
    assert [assumed for assumed, _ in posterior.sensitivity] == [0.01, 0.02, 0.05]


def test_a_treatment_is_named():
    counts, _ = simulated(11, 0.1, 8, 8, 40)
    assert not score_over_settings(counts).spread.is_treatment
    other, _ = simulated(11, 0.1, 8, 8, 40, shift=1.5)
    counts[5] = other[5]
    spread = score_over_settings(counts).spread
    assert spread.outside == (5,)
    assert spread.is_treatment
    # one that is further away does not hide it
    counts[2] = simulated(11, 0.1, 8, 8, 40, shift=3.0)[0][2]
    assert score_over_settings(counts).spread.outside == (2, 5)
    # settings that all differ: none is outside, but t is large
    wide = np.random.default_rng(0).binomial(
        16, special.expit(np.linspace(-2, 2, 6))[:, None], (6, 40)
    )
    spread = score_over_settings(tables(wide, 16)).spread
    assert spread.logit_sd.median > 0.5
    assert spread.is_treatment


@pytest.mark.parametrize("flip", [False, True])
def test_a_setting_without_errors_is_no_treatment(flip):
    # 60 trials of a model that errs in 1 of 20 often have no error
    right = np.full((8, 15), 4)
    right[:7, :3] = np.random.default_rng(0).binomial(4, 0.7, (7, 3))
    right[3, 4] = 3
    posterior = score_over_settings(tables(4 - right if flip else right, 4))
    assert posterior.scores[7] == (0 if flip else 1)
    assert posterior.spread.outside == ()


def test_the_probability_of_trials_alone_is_uniform():
    rng = np.random.default_rng(12)
    p_values = []
    for _ in range(40):
        p = rng.beta(2, 3, 15)
        p_values.append(
            score_over_settings(tables(rng.binomial(4, p, (4, 15)), 4)).spread.p_of_trials
        )
    assert stats.kstest(p_values, "uniform").pvalue > 0.01


# -- boards and differences ------------------------------------------------------------------------


def test_a_board_has_the_product_of_the_likelihoods_of_t():
    models = [score_over_settings(simulated(s, 0.2, 3, 16, 30)[0]) for s in (20, 21, 22)]
    t = (np.arange(400) + 0.5) / 200
    prior = stats.t.pdf(t / 0.2, 4)
    single = [BruteForce(m.share, m.trials).mass.sum(axis=1) for m in models]
    common = np.prod([mass / prior for mass in single], axis=0) * prior
    expected = common @ t / common.sum()
    for model in share_t(models):
        assert model.given.mass @ T == pytest.approx(expected, rel=0.01)
    again = share_t(share_t(models))
    assert again[0].like == share_t(models)[0].like


def test_a_planted_board():
    logits = special.logit(np.random.default_rng(0).beta(2, 3, 30))
    rng = np.random.default_rng(1)
    models = []
    for ability in (2.0, 0.0, 0.0, 0.0):
        p = special.expit(logits + ability + 0.2 * rng.standard_normal((4, 1)))
        models.append(score_over_settings(tables(rng.binomial(16, p), 16)))
    result = compare_simultaneously([errors_over_settings(models)], 4, 0.95, seed=0)
    assert result.separated.astype(int).tolist() == [[0, 1, 1, 1]] + [[0] * 4] * 3


def test_a_model_with_one_setting_takes_t_from_the_board():
    several = [score_over_settings(simulated(s, 0.2, 8, 16, 30)[0]) for s in (30, 31)]
    single = score_over_settings(simulated(32, 0.2, 1, 16, 30)[0])
    *_, shared = share_t([*several, single])
    sd = np.hypot(single.benchmark.sigma, np.mean([m.spread.sd.mean for m in several]))
    like = shared.like["benchmark"]
    assert (like.high - like.low) / (2 * 1.96) == pytest.approx(sd, rel=0.2)
    assert share_t([single])[0].like == {}


def quadrature_of_difference(d, variance, spread, scale):
    """Return mean and interval of δ by brute force: d_s ~ N(δ, variance + (t·spread)²)."""
    t = (np.arange(1_000) + 0.5)[:, None] / 500
    delta = np.linspace(-1, 1, 4_001)
    log = stats.t.logpdf(t / scale, 4)
    for x, v in zip(d, variance, strict=True):
        log = log + stats.norm.logpdf(x, delta, np.sqrt(v + (t * spread) ** 2))
    mass = np.exp(log - log.max()).sum(axis=0)
    below = np.cumsum(mass) / mass.sum()
    return (
        delta @ mass / mass.sum(),
        *np.interp([0.025, 0.975], below, delta),
        mass[delta > 0].sum() / mass.sum(),
    )


@pytest.mark.parametrize("n_settings", [2, 4])
def test_a_paired_difference_by_quadrature(n_settings):
    labels = list("abcd")[:n_settings]
    one, two = (
        score_over_settings(simulated(s, 0.2, n_settings, 16, 30)[0], labels=labels)
        for s in (40, 41)
    )
    result = difference_over_settings(one, two)
    assert result.paired == tuple(labels)
    d = one.share - two.share
    variance = one.trial_sds**2 + two.trial_sds**2
    spread = np.mean([m.benchmark.mu * (1 - m.benchmark.mu) for m in (one, two)])
    expected = quadrature_of_difference(d, variance, spread, 0.2 * np.sqrt(2))
    assert (result.mean, result.low, result.high) == pytest.approx(expected[:3], abs=0.003)
    assert result.p_above == pytest.approx(expected[3], abs=0.003)
    back = difference_over_settings(two, one)
    assert (back.low, back.high) == pytest.approx((-result.high, -result.low))
    wider = difference_over_settings(one, two, question_variance=0.04**2)
    assert wider.high - wider.low > result.high - result.low


def test_pairs_share_the_effects_of_their_settings():
    rng = np.random.default_rng(50)
    logits, effects = special.logit(rng.beta(2, 3, 60)), np.array([[-0.6], [-0.2], [0.2], [0.6]])
    right = [rng.binomial(30, special.expit(logits + effects + shift)) for shift in (0.0, 0.2)]
    one, two = (score_over_settings(tables(each, 30), labels=list("abcd")) for each in right)
    moved = score_over_settings(tables(right[1], 30), labels=list("efgh"))
    paired, unpaired = difference_over_settings(one, two), difference_over_settings(one, moved)
    assert unpaired.paired == ()
    assert (paired.high - paired.low) < 0.5 * (unpaired.high - unpaired.low)
    assert paired.high < 0
    mean = right[0].mean() / 30 - right[1].mean() / 30
    assert (paired.mean, unpaired.mean) == pytest.approx((mean, mean), abs=0.01)


# -- plans and bad input ---------------------------------------------------------------------------


def test_the_width_of_a_plan():
    sd, variance = 0.03, 0.006
    assert half_width(sd, variance, 4, np.inf) == pytest.approx(1.959964 * sd / 2)
    by_simulation = np.random.default_rng(0).normal(
        0, [[sd], [np.sqrt(variance / 8)]], (20_000, 2, 4)
    )
    expected = 1.959964 * by_simulation.sum(axis=1).mean(axis=1).std()
    assert half_width(sd, variance, 4, 8) == pytest.approx(expected, rel=0.02)


def test_the_settings_of_a_plan_are_three_or_more_and_the_trials_few():
    # without trials' variance to speak of: (1.96 τ/h)² settings
    assert settings_needed(0.02, 0.05, 1e-9, cost=4) == (int(np.ceil((1.959964 * 2.5) ** 2)), 1)
    # with next to no sd: three settings, and the trials that three need
    n, trials = settings_needed(0.02, 1e-6, 0.006, cost=4)
    assert (n, trials) == (3, int(np.ceil(0.006 / 3 * (1.959964 / 0.02) ** 2)))
    assert half_width(1e-6, 0.006, n, trials) <= 0.02 < half_width(1e-6, 0.006, n, trials - 1)
    for bad in (
        {"half": 0.0},
        {"sd": 0.0},
        {"trial_variance": 0.0},
        {"cost": -1.0},
        {"level": 1.0},
    ):
        arguments = {"half": 0.1, "sd": 0.1, "trial_variance": 0.1, "cost": 0.0} | bad
        with pytest.raises(InvalidInputError) as caught:
            settings_needed(**arguments)
        assert (caught.value.argument, caught.value.value) == tuple(*bad.items())


GOOD = simulated(0, 0.1, 2, 2, 5)[0]
DISJOINT = GOOD.copy()
DISJOINT[0, :2] = DISJOINT[1, 2:] = 0
EMPTY = GOOD.copy()
EMPTY[1] = 0


@pytest.mark.parametrize(
    ("counts", "options", "argument", "rule"),
    [
        (GOOD[0], {}, "counts", "shape"),
        (GOOD[:0], {}, "counts", "shape"),
        (-GOOD, {}, "counts", "range"),
        (GOOD + 0.5, {}, "counts", "range"),
        (EMPTY, {}, "counts", "empty"),
        (DISJOINT, {}, "counts", "unsupported"),
        (GOOD, {"weights": [0, 1, 2]}, "counts", "shape"),
        (GOOD, {"weights": [1, 1]}, "weights", "range"),
        (GOOD, {"labels": ["a"]}, "labels", "shape"),
        (GOOD, {"labels": ["a", "a"]}, "labels", "shape"),
        (GOOD, {"labels": "ab"}, "labels", "type"),
        (GOOD, {"level": 1.0}, "level", "range"),
        (GOOD, {"seed": -1}, "seed", "range"),
    ],
)
def test_bad_input(counts, options, argument, rule):
    with pytest.raises(InvalidInputError) as caught:
        score_over_settings(counts, **options)
    assert (caught.value.argument, caught.value.rule) == (argument, rule)


def test_bad_differences():
    one = score_over_settings(GOOD[:1])
    with pytest.raises(InvalidInputError) as caught:
        difference_over_settings(one, one)
    assert (caught.value.argument, caught.value.rule) == ("posteriors", "unsupported")
    with pytest.raises(InvalidInputError) as caught:
        difference_over_settings(score_over_settings(GOOD), score_over_settings(GOOD, level=0.9))
    assert (caught.value.argument, caught.value.rule) == ("b", "mismatch")
    for name, bad in (("sd", -1.0), ("trial_variance", np.nan), ("n_settings", 0), ("trials", 0)):
        arguments = {"sd": 0.1, "trial_variance": 0.1, "n_settings": 2, "trials": 2, name: bad}
        with pytest.raises(InvalidInputError) as caught:
            half_width(**arguments)
        assert (caught.value.argument, caught.value.rule) == (name, "range")
