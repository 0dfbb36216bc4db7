"""hbayes@N: the posterior under a prior that is learned across the benchmark's questions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy import special

from lm_eval_bayes._util.text import plural
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, numeric, read_only
from lm_eval_bayes.stats.distributions.base import (
    Distribution,
    Moments,
    TabulatedDistribution,
    cdf_from_density,
    logit_table,
)
from lm_eval_bayes.stats.distributions.mixtures import (
    BetaMixtureDistribution,
    DirichletMixtureDistribution,
    ParticleDistribution,
)
from lm_eval_bayes.stats.distributions.weighted import weighted_quantiles
from lm_eval_bayes.stats.hierarchical.beta_binomial import (
    NO_MEAN_COUNTS,
    HyperGrid,
    coarse_mixture,
    hyper_posterior,
    mean_density,
    mixture_on_grid,
)
from lm_eval_bayes.stats.hierarchical.clusters import clustered_population
from lm_eval_bayes.stats.hierarchical.dirichlet_multinomial import Particles, learn_particles
from lm_eval_bayes.stats.intervals import IntervalMethod, IntervalSpec, Scope
from lm_eval_bayes.stats.outcomes import Outcomes, check_outcomes, distinct_pairs, scaled_weights
from lm_eval_bayes.stats.prior_strength import LearnedStrength
from lm_eval_bayes.stats.results import (
    STRENGTH_MASSES,
    LearnedPrior,
    PerQuestion,
    Posterior,
    joined_notes,
)
from lm_eval_bayes.stats.strength_average import average_over_strength

#: The warning of a benchmark's posterior where no question has two trials.
PRIOR_ALONE = (
    "With one trial per question, chance and difficulty cannot be distinguished: the posterior of "
    "these questions depends on the prior alone. In simulations of 10 questions 95% intervals "
    "contained their score in as few as 88% of runs, of 30 or 100 questions in as few as 92%. "
    'Scope "population" is not affected.'
)

#: The smallest coverage, in percent, of 95% intervals in simulations of few questions with four
#: trials each, by their number: of their score, and of their population's (1,000 runs of each shape
#: in examples/calibration.py).
FEW_QUESTIONS = {1: (69, 88), 2: (87, 78), 3: (87, 82), 5: (92, 86)}

#: The warning of any posterior without trials.
NO_TRIALS = "There are no trials: this posterior is the prior."

#: The warning of scores where no question has two trials.
SINGLE_SCORES = (
    "With one trial per question the variance of a question's scores is not known: each score "
    "counts as a 0/1 trial, the largest variance that its mean allows."
)

#: Where questions that are solved most of the time, few of them, hold most right answers (or, the
#: other way round, most wrong ones): scope "population" then rests on these.
RARE_QUESTIONS = (
    "A few questions carry most of the {answers}: in simulations of 30 questions of such a "
    "population, p ~ {shape}, 95% intervals of its score contained it in 90 to 92% of runs."
)
#: The share of never (always) solved questions from which on the others are few.
_MOST_QUESTIONS = 0.7

#: The degrees of freedom of the prior, at 1, of the dispersion of a rubric's mean score.
_DISPERSION_DF = 5.0

#: The effective sample size below which a posterior carries a note about it.
FEW = 400.0


def hbayes_at_n(
    outcomes: Outcomes,
    scope: Scope = "benchmark",
    level: float = 0.95,
    interval: IntervalMethod = "exact",
    *,
    mean_counts: npt.ArrayLike | None = None,
    seed: int = 0,
) -> Posterior:
    """Return the posterior of the score under a prior learned across the questions.

    Bayes@N gives every question a uniform prior of its own, which shrinks each towards the
    middle and so biases the score of a hard or an easy benchmark. Here the questions share a
    prior, θ_α ~ Dirichlet(s·m), and the shrinkage is estimated from all of them.
    For two categories m ~ Beta(.7, .7), for K distinct weights m ~ Dirichlet(1.4/K, …, 1.4/K), and
    s/(20 + s) ~ Beta(.7, 1). Both are integrated out: for two categories by quadrature, for more
    by importance sampling.

    Parameters
    ----------
    outcomes : Outcomes
        Counts of M >= 1 questions; N_α may differ and may be 0. Prior trials count as
        trials, each with the weight λ; a λ that was learned is integrated out. Or the scores of
        `ScoreOutcomes`, as quasi-counts.
    scope : {"benchmark", "population"}
        What the score is the mean of: "benchmark", these M questions, (1/M) Σ_α w·θ_α;
        "population", the population of questions, w·m. For two categories and one trial a
        question the latter is Beta(.7 + S, .7 + M − S), with S the number of right answers;
        `single_trial_posterior` is that of [Bowyer 2025, eq. 7], Beta(1 + S, 1 + M − S). Where the
        outcomes have clusters it is that of `clustered_posterior`.
    level : float
        Posterior mass of the result's `interval()`, strictly between 0 and 1.
    interval : {"exact", "normal", "beta", "hdi"}
        Its method.
    mean_counts : array, shape (C+1,), optional
        Pseudo-trials a >= 0 of each category in the prior of the common mean, such as those of
        `mean_pseudo_trials`: m ~ Beta(.7 + a_0, .7 + a_1), or Dirichlet(1.4/K + a). They are
        trials of further questions, one each, and say nothing about how much questions differ.
    seed : int
        Seed of the draws, for more than two distinct weights.

    Returns
    -------
    Posterior
        With `learned` set, and a `note` where no question has two trials and the scope
        is "benchmark". `ess` and `seed` are set where μ and σ were drawn. One of scope
        "population" carries that of scope "benchmark" as its `benchmark`.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule, or if `mean_counts` are given for scope "population" of
        outcomes with clusters.

    Examples
    --------
    Twelve questions that the model rarely solves, two right answers in 48 trials, under the
    uniform and under the learned prior:

    >>> from lm_eval_bayes.stats.bayes_at_n import bayes_at_n
    >>> outcomes = Outcomes.from_counts([[4, 0]] * 10 + [[3, 1]] * 2)
    >>> round(bayes_at_n(outcomes).mu, 3), round(hbayes_at_n(outcomes).mu, 3)
    (0.194, 0.055)
    >>> hbayes_at_n(outcomes, scope="population").scope
    'population'

    Forty right answers to a hundred other questions as prior of the common mean:

    >>> round(hbayes_at_n(outcomes, mean_counts=[60, 40]).mu, 3)
    0.09
    """
    check_outcomes("outcomes", outcomes, scores=True)
    spec = IntervalSpec.of(level, scope, interval, seed)
    strength = outcomes.prior_strength
    if isinstance(strength, LearnedStrength):
        return average_over_strength(
            strength,
            lambda value: hbayes_at_n(
                replace(outcomes, prior_strength=value),
                scope,
                level,
                interval,
                mean_counts=mean_counts,
                seed=seed,
            ),
        )
    pseudo_trials = _check_mean_counts(mean_counts, outcomes.n_categories)
    if spec.scope == "population":
        index = outcomes.cluster_index
        if index is not None:
            if pseudo_trials is not None:
                rule = 'be left out for scope "population" of outcomes with clusters'
                raise InvalidInputError.of("mean_counts", "conflict", rule, pseudo_trials.tolist())
            benchmark = hbayes_at_n(outcomes, "benchmark", level, interval, seed=seed)
            return clustered_population(outcomes, index, benchmark)
    at_top = outcomes.top_categories()
    if at_top is None:
        return category_posterior(outcomes, spec, pseudo_trials)
    if pseudo_trials is None:
        return _binary(outcomes, at_top, spec)
    right, wrong = float(pseudo_trials[at_top].sum()), float(pseudo_trials[~at_top].sum())
    return _binary(outcomes, at_top, spec, (right, wrong))


def _check_mean_counts(mean_counts: npt.ArrayLike | None, n_categories: int) -> FloatArray | None:
    """Return the pseudo-trials of each category, (C+1,), or None."""
    if mean_counts is None:
        return None
    array = numeric("mean_counts", mean_counts)
    if array.shape != (n_categories,):
        rule = f"have one entry per category ({n_categories})"
        raise InvalidInputError.of("mean_counts", "shape", rule, f"shape {array.shape}")
    pseudo_trials = array.astype(np.float64)
    if not (np.isfinite(pseudo_trials).all() and pseudo_trials.min() >= 0.0):
        got = array.tolist()
        raise InvalidInputError.of("mean_counts", "range", "be finite and at least 0", got)
    return pseudo_trials


def _binary(
    outcomes: Outcomes,
    at_top: npt.NDArray[np.bool_],
    spec: IntervalSpec,
    mean_counts: tuple[float, float] = NO_MEAN_COUNTS,
) -> Posterior:
    """Return the posterior for two distinct weights, the larger that of the categories `at_top`."""
    x, y = trials_by_weight(outcomes, at_top)
    low, high = outcomes.bounds
    span = high - low
    grid = hyper_posterior(x, y, mean_counts=mean_counts)
    pairs = distinct_pairs(x, y)
    mixture = mixture_on_grid(pairs, grid)
    mean, sd = mixture.question_moments()
    mu, sigma = mixture.score_moments()

    def population() -> TabulatedDistribution:
        mean, sd, table = logit_table(*mean_density(x, y, grid, mean_counts))
        mean = float(np.clip(low + span * mean, low, high))
        return TabulatedDistribution(table.scaled(low, high), mean, span * sd)

    return _posterior(
        outcomes,
        spec,
        PerQuestion(low + span * mean[pairs.where], span * sd[pairs.where]),
        BetaMixtureDistribution(
            x, y, low, high, mixture, partial(coarse_mixture, x, y, mean_counts), mu, sigma
        ),
        population,
        n_trials=outcomes.mean_trials,
        learned=learned_from_grid(grid),
    )


def trials_by_weight(
    outcomes: Outcomes, at_top: npt.NDArray[np.bool_]
) -> tuple[FloatArray, FloatArray]:
    """Return every question's trials in the categories `at_top` and in the others, each (M,).

    Prior trials count by their weight. Categories of equal weight merge: a Dirichlet's sums are
    again Dirichlet.
    """
    trials = outcomes.weighted_counts
    right, wrong = trials[:, at_top].sum(axis=1), trials[:, ~at_top].sum(axis=1)
    return read_only(right, np.float64), read_only(wrong, np.float64)


def distinct_weights(outcomes: Outcomes) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """Return the distinct weights, (K,), and which category has which, (C+1, K)."""
    # in the order of the categories, so that weights turned around have the same particles
    weights = np.array(list(dict.fromkeys(outcomes.weights.tolist())))
    return weights, outcomes.weights[:, None] == weights


def _posterior(
    outcomes: Outcomes,
    spec: IntervalSpec,
    per_question: PerQuestion,
    distribution: Distribution,
    population: Callable[[], Distribution],
    *,
    n_trials: float,
    learned: LearnedPrior,
    ess: float | None = None,
) -> Posterior:
    """Return the posterior of the scope asked for; `ess` is that of the particles, if any."""
    bounds = outcomes.bounds
    mu, sigma = distribution.moments()
    benchmark = Posterior(
        quantity="hbayes@N",
        mu=float(np.clip(mu, *bounds)),
        sigma=sigma,
        per_question=per_question,
        bounds=bounds,
        prior=None,
        distribution=distribution,
        level=spec.level,
        method=spec.method,
        n_trials=n_trials,
        trials_range=outcomes.trials_range,
        learned=learned,
        ess=ess,
        seed=None if ess is None else spec.seed,
        note=_note(outcomes, "benchmark", ess),
        note_on_data=_note_on_data(outcomes, ess),
        question_ids=outcomes.question_ids,
        scored=outcomes.scored,
        dispersion=outcomes.dispersion,
        dispersion_df=outcomes.dispersion_df,
    )
    if spec.scope == "benchmark":
        return benchmark
    distribution = population()
    mu, sigma = distribution.moments()
    return replace(
        benchmark,
        mu=float(np.clip(mu, *bounds)),
        sigma=sigma,
        distribution=distribution,
        scope=spec.scope,
        note=_note(outcomes, spec.scope, ess),
        benchmark=benchmark,
    )


def learned_from_grid(grid: HyperGrid) -> LearnedPrior:
    """Summarize the hyperparameters: the mean of m, the median and central 95% of s."""
    mean = float((grid.weight * special.expit(grid.logit_mean)).sum())
    axis, below = cdf_from_density(grid.log_strength[:, 0], grid.weight.sum(axis=1))
    strength = np.exp(np.interp(STRENGTH_MASSES, below, axis))
    return LearnedPrior.of([1.0 - mean, mean], strength)


def category_posterior(
    outcomes: Outcomes, spec: IntervalSpec, mean_counts: FloatArray | None = None
) -> Posterior:
    """Return the posterior of the score under a learned Dirichlet prior, for any weights.

    Categories of equal weight are merged. Over the K that remain, θ_α ~ Dirichlet(s·m) with
    m ~ Dirichlet(1.4/K, …, 1.4/K) and s/(20 + s) ~ Beta(.7, 1); (m, s) is integrated out by
    importance sampling. For K = 2 this is the prior of two categories, whose posterior
    `hbayes_at_n` computes by quadrature. For K > 2 the sum of some categories, as "full marks or
    not", is a posteriori not quite what it is as two categories: m's prior mean is then the
    number of the merged categories over K instead of ½, and all K categories teach s.

    Scope "benchmark": the posterior of (1/M) Σ_α Σ_k w_k θ_αk, about these M questions. Scope
    "population": that of Σ_k w_k m_k, about the population of questions. There, for K > 2, one
    strength s describes how much questions differ in all categories, and their scores can differ
    more than that, as where questions are either all but solved or all but failed. With V, the
    sample variance of the mean of the questions' average scores (of the M' questions with two
    trials or more, scaled to the information of all), over the variance of the posterior without
    pseudo-trials, the posterior is spread by the square root of
    max(1, (5 + (M' − 1) V)/(5 + M' − 1)) on the logit scale. Prior trials count as trials, each
    with the weight `prior_strength`.

    Parameters
    ----------
    outcomes : Outcomes
        Counts of M >= 1 questions; N_α may differ and may be 0.
    spec : IntervalSpec
        The scope of the score (`per_question` is about the benchmark's questions in both), the
        default level and method of its intervals, and the seed of the particles for (m, s).
    mean_counts : array, shape (C+1,), optional
        Pseudo-trials of the prior of m, see `hbayes_at_n`.

    Returns
    -------
    Posterior
        With `ess`, `seed` and `learned` set. Its `mu`, `sigma` and `per_question` are on the
        scale of the weights; given (m, s) they are computed, so only (m, s) is sampled.

    Examples
    --------
    >>> counts = [[7, 1, 0], [8, 0, 0], [6, 2, 0], [1, 2, 5]]
    >>> outcomes = Outcomes.from_counts(counts)  # weights 0, ½, 1
    >>> posterior = category_posterior(outcomes, IntervalSpec())
    >>> round(posterior.mu, 2), round(posterior.sigma, 2), posterior.ess > 10_000
    (0.23, 0.05, True)
    """
    weights, belongs = distinct_weights(outcomes)
    counts = outcomes.weighted_counts @ belongs
    low, span, unit = scaled_weights(weights)
    # the order of the questions must not matter, not even to the last digit
    order = np.lexsort(counts.T)
    particles = learn_particles(counts[order], spec.seed)
    dispersion = _dispersion(counts[order], unit, particles)
    if mean_counts is not None:
        pseudo_trials = mean_counts @ belongs
        particles = learn_particles(counts[order], spec.seed, pseudo_trials)
    score, mean, sd = _moments(counts[order], unit, particles)
    population_scores = _population_scores(unit, particles, dispersion)
    population_mean = float(particles.weight @ population_scores)
    population_sd = float(
        np.sqrt(particles.weight @ np.square(population_scores - population_mean))
    )
    back = np.argsort(order)
    return _posterior(
        outcomes,
        spec,
        PerQuestion(np.clip(low + span * mean, *outcomes.bounds)[back], span * sd[back]),
        DirichletMixtureDistribution(
            read_only(counts, np.float64),
            read_only(particles.share * particles.strength[:, None], np.float64),
            particles.weight,
            read_only(weights, np.float64),
            float(np.clip(low + span * score.mean, *outcomes.bounds)),
            span * score.sd,
        ),
        lambda: ParticleDistribution(
            read_only(low + span * population_scores, np.float64),
            particles.weight,
            float(np.clip(low + span * population_mean, *outcomes.bounds)),
            span * population_sd,
        ),
        n_trials=outcomes.mean_trials,
        learned=LearnedPrior.of(
            particles.weight @ particles.share,
            weighted_quantiles(particles.strength, particles.weight, STRENGTH_MASSES),
        ),
        ess=particles.ess,
    )


def _population_scores(unit: FloatArray, particles: Particles, dispersion: float) -> FloatArray:
    """Return the population's score at each particle, shape (P,), for weights in [0, 1].

    They are spread by the square root of `dispersion` on the logit scale.
    """
    score = particles.share @ unit
    if dispersion <= 1.0:
        return score
    middle = special.logit(particles.weight @ score)
    spread = np.sqrt(dispersion) * (special.logit(score) - middle)
    return np.asarray(special.expit(middle + spread))


def _dispersion(counts: FloatArray, unit: FloatArray, particles: Particles) -> float:
    """Return the variance of the population's score over that of the particles, at least 1.

    See `category_posterior`.
    """
    weight, s = particles.weight, particles.strength
    trials = counts.sum(axis=1)
    informative = trials >= 2.0
    # of two categories s is learned from the scores themselves
    if unit.size < 3 or informative.sum() < 2:
        return 1.0
    tried = trials > 0.0
    n = trials[tried]
    average = counts[tried] @ unit / n
    score = particles.share @ unit
    variance = particles.share @ unit**2 - score**2
    sizes, size = np.unique(n, return_inverse=True)
    expected = np.array([weight @ (variance * (k + s) / (k * (s + 1.0))) for k in sizes])[size]
    information, repeated = 1.0 / expected, informative[tried]
    own, of_repeated = information[repeated], average[repeated]
    centre = own @ of_repeated / own.sum()
    m = int(own.size)
    sample = m / (m - 1.0) * (own**2 @ np.square(of_repeated - centre)) / own.sum() ** 2
    # of all questions there is more information than of those with two trials
    sample *= own.sum() / information.sum()
    ratio = float(sample / (weight @ np.square(score - weight @ score)))
    return float(max(1.0, (_DISPERSION_DF + (m - 1.0) * ratio) / (_DISPERSION_DF + m - 1.0)))


def _moments(
    counts: FloatArray, unit: FloatArray, particles: Particles
) -> tuple[Moments, FloatArray, FloatArray]:
    """Average the conditional moments given (m, s) over the particles.

    Return those of the benchmark's score, and the questions' means and standard deviations, each of
    shape (M,), for weights in [0, 1].

    Question α has mean (1−κ) a + κ b and variance [(1−κ) A + κ B + κ(1−κ)(a−b)²] / (N+s+1),
    where a and A are the mean and variance of its own trials' scores, b and B those under
    m, and κ = s/(N+s). So the averages are polynomials in a and A, with the same
    coefficients for all questions of one N. Scores count from the population's mean.
    """
    weight, strength = particles.weight, particles.strength
    score = particles.share @ unit
    origin = float(weight @ score)
    b = score - origin
    spread = (particles.share * np.square(unit - score[:, None])).sum(axis=1)
    trials = counts.sum(axis=1)
    own = np.divide(counts, trials[:, None], out=np.zeros_like(counts), where=trials[:, None] > 0)
    average = own @ unit
    a = np.where(trials > 0.0, average - origin, 0.0)
    own_spread = (own * np.square(unit - average[:, None])).sum(axis=1)
    within, between, mean = (np.empty(trials.size) for _ in range(3))
    total = np.zeros_like(b)
    sizes, group = np.unique(trials, return_inverse=True)
    for index, n in enumerate(sizes):
        members = np.flatnonzero(group == index)
        averages = a[members]
        prior_share, own_share = strength / (n + strength), n / (n + strength)
        share = weight / (n + strength + 1.0)
        cross = share * prior_share * own_share
        within[members] = (
            own_spread[members] * (share @ own_share)
            + share @ (prior_share * spread)
            + cross.sum() * averages**2
            - 2.0 * (cross @ b) * averages
            + cross @ b**2
        )
        prior_part = prior_share * b
        prior_share_mean, prior_part_mean = weight @ prior_share, weight @ prior_part
        mean[members] = averages * (weight @ own_share) + prior_part_mean
        prior_share, prior_part = prior_share - prior_share_mean, prior_part - prior_part_mean
        between[members] = (
            averages**2 * (weight @ prior_share**2)
            - 2.0 * averages * (weight @ (prior_share * prior_part))
            + weight @ prior_part**2
        )
        total += prior_part * members.size - prior_share * averages.sum()
    m = trials.size
    variance = within.sum() / m**2 + float(weight @ np.square(total)) / m**2
    return (
        Moments(origin + float(mean.mean()), float(np.sqrt(variance))),
        origin + mean,
        np.sqrt(np.maximum(within, 0.0) + np.maximum(between, 0.0)),
    )


def _note(outcomes: Outcomes, scope: Scope, ess: float | None) -> str | None:
    """Return the warnings about a posterior of one benchmark; where the prior is all, only that."""
    note = posterior_note(outcomes, scope, ess) or few_questions_note(outcomes.n_questions, scope)
    is_binary = outcomes.n_categories == 2 and not outcomes.scored
    if note is None and scope == "population" and is_binary:
        note = _rare_questions_note(outcomes)
    return note


def _rare_questions_note(outcomes: Outcomes) -> str | None:
    """Return `RARE_QUESTIONS` where it holds of questions with two trials or more, else None."""
    wrong, right = outcomes.counts.T
    cases = (
        (right, wrong, "right answers", "Beta(.05,.5)"),
        (wrong, right, "wrong answers", "Beta(.5,.05)"),
    )
    for few, many, answers, shape in cases:
        is_rare = few > many
        if (
            outcomes.trials_range[0] > 1
            and (few == 0).mean() >= _MOST_QUESTIONS
            and few[is_rare].sum() > 0.5 * few.sum()
        ):
            return RARE_QUESTIONS.format(answers=answers, shape=shape)
    return None


def few_questions_note(n_questions: int, scope: Scope) -> str | None:
    """Return the simulated coverage of the intervals of fewer than ten questions, else None."""
    if n_questions >= 2 * max(FEW_QUESTIONS):
        return None
    n_simulated = max(n for n in FEW_QUESTIONS if n <= n_questions)
    coverage = FEW_QUESTIONS[n_simulated][scope == "population"]
    questions = plural(n_questions, "question")
    score = f"the population, from {questions}," if scope == "population" else questions
    return (
        f"The interval of {score} depends on the prior: with "
        f"{n_simulated} in simulations, of four trials each, 95% intervals contained the truth in "
        f"as few as {coverage}% of runs."
    )


def posterior_note(outcomes: Outcomes, scope: Scope, ess: float | None) -> str | None:
    """Return the warnings about a posterior.

    `NO_TRIALS` without trials; in scope "benchmark" `PRIOR_ALONE` where no question has two.
    """
    single = scope == "benchmark" and outcomes.most_trials == 1
    alone = PRIOR_ALONE if single and not outcomes.scored else None
    return joined_notes([alone, _note_on_data(outcomes, ess)])


def _note_on_data(outcomes: Outcomes, ess: float | None) -> str | None:
    """Return the warnings that do not concern the prior."""
    notes = []
    if outcomes.most_trials == 0:
        notes.append(NO_TRIALS)
    if outcomes.scored and outcomes.most_trials == 1:
        notes.append(SINGLE_SCORES)
    if ess is not None and ess < FEW:
        notes.append(
            f"The effective sample size is only {ess:.0f}: compare another seed's numbers."
        )
    return joined_notes(notes)
