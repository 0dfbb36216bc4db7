"""hbayes@N: the posterior under a prior that is learned across the benchmark's questions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import special

from lm_eval_bayes.stats.distinct_pairs import distinct_pairs
from lm_eval_bayes.stats.distributions.beta_mixture import BetaMixture
from lm_eval_bayes.stats.distributions.cdf_table import Table
from lm_eval_bayes.stats.distributions.mixtures import BetaMixtureLaw, TabulatedLaw
from lm_eval_bayes.stats.hierarchical.beta_binomial import HyperGrid, hyper_posterior, mean_density
from lm_eval_bayes.stats.hierarchical.category_posterior import category_posterior
from lm_eval_bayes.stats.hierarchical.notes import note_on_trials
from lm_eval_bayes.stats.intervals import METHODS
from lm_eval_bayes.stats.outcomes import Outcomes, check_outcomes
from lm_eval_bayes.stats.results import (
    SCOPES,
    IntervalMethod,
    LearnedPrior,
    PerQuestion,
    Posterior,
    Scope,
)
from lm_eval_bayes.stats.validation import (
    FloatArray,
    check_level,
    check_option,
    check_seed,
    read_only,
)


def hbayes_at_n(
    outcomes: Outcomes,
    scope: Scope = "benchmark",
    level: float = 0.95,
    interval: IntervalMethod = "exact",
    *,
    seed: int = 0,
) -> Posterior:
    """Return the posterior of the score under a prior learned across the questions.

    Bayes@N gives every question a uniform prior of its own, which pulls each towards the
    middle and so moves the score of a hard or an easy benchmark. Here the questions share
    a prior, θ_α ~ Dirichlet(s·m), and what they have in common decides how far each is pulled.
    m is uniform, 1/(1 + s) is uniform, and both are integrated out: for two categories by
    quadrature, for more by importance sampling.

    Parameters
    ----------
    outcomes : Outcomes
        Counts of M >= 1 questions; N_α may differ and may be 0. Prior trials count as
        trials, each worth λ.
    scope : {"benchmark", "population"}
        What the score is the mean of: "benchmark", these M questions, (1/M) Σ_α w·θ_α;
        "population", all questions like these, w·m. For two categories and one trial a
        question the latter is Beta(1 + S, 1 + M − S) [Bowyer 2025, eq. 7].
    level : float
        Posterior mass of the result's `interval()`, strictly between 0 and 1.
    interval : {"exact", "normal", "beta", "hdi"}
        Its method.
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
        If `scope`, `level`, `interval` or `seed` breaks its rule.

    Examples
    --------
    Twelve questions that the model hardly ever solves, two right answers in 48 trials. The
    uniform prior makes 19 percent of it; the learned one believes the questions:

    >>> from lm_eval_bayes.stats.bayes_at_n import bayes_at_n
    >>> outcomes = Outcomes.from_counts([[4, 0]] * 10 + [[3, 1]] * 2)
    >>> round(bayes_at_n(outcomes).mu, 3), round(hbayes_at_n(outcomes).mu, 3)
    (0.194, 0.058)
    >>> hbayes_at_n(outcomes, scope="population").scope
    'population'
    """
    check_outcomes("outcomes", outcomes)
    scope = check_option("scope", scope, SCOPES)
    level = check_level(level)
    method = check_option("interval", interval, METHODS)
    seed = check_seed(seed)
    weights = outcomes.weights
    low, high = float(weights.min()), float(weights.max())
    at_top = weights == high
    if not np.all(at_top | (weights == low)):
        return category_posterior(outcomes, scope, level, method, seed)
    if low == high:
        # every trial scores the same: any split will do, its span is nought
        at_top = np.arange(weights.size) > 0
    # categories of equal weight merge: a Dirichlet's sums are again Dirichlet
    trials = outcomes.counts + outcomes.prior_strength * outcomes.prior_counts
    x, y = trials[:, at_top].sum(axis=1), trials[:, ~at_top].sum(axis=1)
    return _binary(outcomes, x, y, scope, (low, high), level, method)


def _binary(
    outcomes: Outcomes,
    x: FloatArray,
    y: FloatArray,
    scope: Scope,
    bounds: tuple[float, float],
    level: float,
    method: IntervalMethod,
) -> Posterior:
    """Return the posterior for two distinct weights, from successes x and failures y."""
    low, high = bounds
    span = high - low
    grid = hyper_posterior(x, y)
    pairs = distinct_pairs(x, y)
    mixture = BetaMixture.on_grid(pairs.first, pairs.second, pairs.times.astype(np.float64), grid)
    mean, sd = mixture.question_moments()
    per_question = PerQuestion(
        read_only(low + span * mean[pairs.where], np.float64),
        read_only(span * sd[pairs.where], np.float64),
    )
    mu, sigma = mixture.score_moments()
    benchmark = Posterior(
        quantity="hbayes@N",
        mu=float(np.clip(low + span * mu, low, high)),
        sigma=span * sigma,
        per_question=per_question,
        bounds=bounds,
        prior=None,
        law=BetaMixtureLaw(
            successes=read_only(x, np.float64),
            failures=read_only(y, np.float64),
            low=low,
            high=high,
            mixture=mixture,
            mu=mu,
            sigma=sigma,
        ),
        level=level,
        method=method,
        n_trials=float((x + y).mean()),
        trials_range=outcomes.trials_range,
        learned=_learned(grid),
        note=note_on_trials(outcomes, "benchmark"),
        question_ids=outcomes.question_ids,
    )
    if scope == "benchmark":
        return benchmark
    axis, density = mean_density(x, y, grid)
    mu, sigma, table = _mean_table(axis, density)
    return replace(
        benchmark,
        mu=float(np.clip(low + span * mu, low, high)),
        sigma=span * sigma,
        law=TabulatedLaw(table.scaled(low, high)),
        scope=scope,
        note=note_on_trials(outcomes, scope),
        benchmark=benchmark,
    )


def _mean_table(axis: FloatArray, density: FloatArray) -> tuple[float, float, Table]:
    """Return mean, sd and distribution function of m from the density of its logit."""
    from scipy.interpolate import CubicSpline  # takes long to import

    m = special.expit(axis)
    weight = density * (axis[1] - axis[0])
    mu = float(weight @ m)
    sigma = float(np.sqrt(weight @ (m - mu) ** 2))
    finer = np.linspace(axis[0], axis[-1], max(16 * axis.size, 16_000))
    below = CubicSpline(axis, density).antiderivative()(finer)
    below = np.maximum.accumulate(np.clip(below / below[-1], 0.0, 1.0))
    return mu, sigma, Table(below, np.asarray(special.expit(finer)))


def _learned(grid: HyperGrid) -> LearnedPrior:
    """Summarize the hyperparameters: the mean of m, the median and central 95% of s."""
    mean = float((grid.weight * special.expit(grid.logit_mean)).sum())
    # each row's mass lies evenly over its cell in log s
    mass = grid.weight.sum(axis=1)
    step = grid.steps[1, 0, 0]
    edges = np.append(grid.log_strength[:, 0] - 0.5 * step, grid.log_strength[-1, 0] + 0.5 * step)
    below = np.concatenate([[0.0], np.cumsum(mass)])
    low, middle, high = np.exp(np.interp([0.025, 0.5, 0.975], below, edges))
    return LearnedPrior(
        mean=read_only([1.0 - mean, mean], np.float64),
        strength=float(middle),
        strength_low=float(low),
        strength_high=float(high),
    )
