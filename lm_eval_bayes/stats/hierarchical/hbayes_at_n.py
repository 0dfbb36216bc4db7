"""hbayes@N: the posterior of a score under a prior that is learned across the questions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from lm_eval_bayes.stats.arrays import FloatArray, IntArray, cluster_index, read_only
from lm_eval_bayes.stats.hierarchical.clusters import clustered_population
from lm_eval_bayes.stats.intervals import IntervalMethod, IntervalSpec, Scope
from lm_eval_bayes.stats.mixture import Mixture, learn_mixture
from lm_eval_bayes.stats.outcomes import LearnedShift, Outcomes, check_outcomes, scaled_weights
from lm_eval_bayes.stats.related_scores import TwoRuns, score_after_earlier
from lm_eval_bayes.stats.results import (
    LearnedPrior,
    PerQuestion,
    Posterior,
)
from lm_eval_bayes.stats.states import (
    DrawnScore,
    QuestionStates,
    StateDistribution,
    score_moments,
    state_moments,
)

#: The warning of a benchmark's posterior where no question has two trials.
PRIOR_ALONE = (
    "With one trial per question the interval of these questions depends on the prior, that of the "
    "population does not."
)
#: The warning of any posterior without trials.
NO_TRIALS = "There are no trials: this posterior is the prior."
#: The warning of scores where no question has two trials.
SINGLE_SCORES = (
    "With one trial per question each score counts as a 0/1 trial, the largest variance that its "
    "mean allows."
)
#: Fewer questions than these have a warning.
FEW_QUESTIONS = 10


def hbayes_at_n(
    outcomes: Outcomes,
    scope: Scope = "benchmark",
    level: float = 0.95,
    interval: IntervalMethod = "exact",
    *,
    seed: int = 0,
) -> Posterior:
    """Return the posterior of the score under a prior learned across the questions.

    Bayes@N gives every question a uniform prior of its own, which shrinks each towards the
    middle and so biases the score of a hard or an easy benchmark. Here the questions share a
    prior of two kinds, whose means, strengths and weights are learned from all of them; see
    :mod:`lm_eval_bayes.stats.mixture`.

    Parameters
    ----------
    outcomes : Outcomes
        Counts of M >= 1 questions; N_α may differ and may be 0. Prior trials count as
        trials, each with the weight λ. With a `LearnedShift` they say where the score lies, up to
        the shift, and `per_question` is that of the trials alone. Or the scores of
        `ScoreOutcomes`, as quasi-counts.
    scope : {"benchmark", "population"}
        What the score is the mean of: "benchmark", these M questions, (1/M) Σ_α w·θ_α;
        "population", the population of questions, Σ_k w_k (w·m_k). For two categories and one
        trial a question the latter is close to Beta(.7 + S, .7 + M − S), with S the number of
        right answers; `single_trial_posterior` is that of [Bowyer 2025, eq. 7],
        Beta(1 + S, 1 + M − S). Where the outcomes have clusters it is that of
        `clustered_posterior`.
    level : float
        Posterior mass of the result's `interval()`, strictly between 0 and 1.
    interval : {"exact", "normal", "beta"}
        Its method.
    seed : int
        Seed of the states and draws that represent the posterior.

    Returns
    -------
    Posterior
        With `learned`, `ess` and `seed` set, and a `note` where no question has two trials and
        the scope is "benchmark". One of scope "population" carries that of scope "benchmark" as
        its `benchmark`.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.

    Examples
    --------
    Twelve questions that the model rarely solves, two right answers in 48 trials, under the
    uniform and under the learned prior:

    >>> from lm_eval_bayes.stats.uniform_prior import bayes_at_n
    >>> outcomes = Outcomes.from_counts([[4, 0]] * 10 + [[3, 1]] * 2)
    >>> round(bayes_at_n(outcomes).mu, 2), round(hbayes_at_n(outcomes).mu, 2)
    (0.19, 0.06)
    >>> hbayes_at_n(outcomes, scope="population").scope
    'population'
    """
    check_outcomes("outcomes", outcomes, scores=True)
    spec = IntervalSpec.of(level, scope, interval, seed)
    index = outcomes.cluster_index if spec.scope == "population" else None
    benchmark, population = _both_scopes(outcomes, spec)
    if index is not None:
        population = clustered_population(outcomes, index, benchmark)
    posterior = benchmark if spec.scope == "benchmark" else population
    shift = outcomes.prior_strength
    if not isinstance(shift, LearnedShift) or not outcomes.prior_counts.any():
        return posterior
    draws = score_after_earlier(two_runs(outcomes, spec.seed), shift)
    return _after_earlier_run(posterior, draws, spec.seed)


def hbayes_by(outcomes: Outcomes, spec: IntervalSpec) -> Posterior:
    """Return hbayes@N of this scope, level, method and seed, in these settings.

    Raises
    ------
    InvalidInputError
        If `spec` asks for settings like these.
    """
    spec.require_these()
    return hbayes_at_n(outcomes, spec.scope, spec.level, spec.method, seed=spec.seed)


def two_runs(outcomes: Outcomes, seed: int) -> TwoRuns:
    """Return the score of these questions by the trials, by the prior trials, and by none."""
    alone = replace(outcomes.without_prior(), clusters=None)
    own, earlier, without = (
        hbayes_at_n(replace(alone, counts=counts), seed=seed).distribution
        for counts in (alone.counts, outcomes.prior_counts, np.zeros_like(alone.counts))
    )
    return TwoRuns(own, earlier, without, outcomes.bounds)


def _after_earlier_run(posterior: Posterior, draws: FloatArray, seed: int) -> Posterior:
    """Return the posterior given draws of the score of these questions, in ascending order.

    What separates the score of a population from that of these questions, in sds, is as without
    the earlier run, which has the same questions.
    """
    rng = np.random.default_rng([seed, 3])
    own = posterior.benchmark or posterior
    benchmark = _by_draws(own, rng.permutation(draws), seed)
    if posterior.benchmark is None:
        return benchmark
    shared = min(1.0, own.sigma / posterior.sigma)
    rank = np.clip(own.distribution.cdf(draws), 1e-9, 1.0 - 1e-9)
    normal = rng.permutation(special.ndtri((np.arange(draws.size) + 0.5) / draws.size))
    z = shared * special.ndtri(rank) + np.sqrt(1.0 - shared**2) * normal
    population = posterior.distribution.quantiles(special.ndtr(rng.permutation(z)))
    return replace(_by_draws(posterior, population, seed), benchmark=benchmark)


def _by_draws(posterior: Posterior, draws: FloatArray, seed: int) -> Posterior:
    """Return the posterior with draws of its score in place of its distribution."""
    distribution = DrawnScore.of(draws, posterior.distribution, posterior.bounds, seed)
    return replace(
        posterior, mu=distribution.mean, sigma=distribution.sd, distribution=distribution, seed=seed
    )


def _both_scopes(outcomes: Outcomes, spec: IntervalSpec) -> tuple[Posterior, Posterior]:
    """Return the posteriors of these questions and of their population."""
    weights, belongs = distinct_weights(outcomes)
    counts = outcomes.weighted_counts @ belongs
    mixture = learn_mixture(counts, seed=spec.seed)
    low, span, unit = scaled_weights(weights)
    moments = state_moments(mixture, score_moments(unit))
    scores = QuestionStates(
        low + span * moments.mean[0, 0],
        span**2 * moments.variance[0, 0],
        mixture.chain,
        outcomes.bounds,
        spec.seed,
        mixture,
        read_only(weights, np.float64),
    )
    per_question = PerQuestion(
        (low + span * moments.question_mean[0])[mixture.where],
        span * moments.question_sd[0, mixture.where],
    )
    benchmark = posterior_by_states(
        "hbayes@N",
        scores,
        per_question,
        outcomes,
        learned_prior(mixture),
        level=spec.level,
        method=spec.method,
        note=scope_note(outcomes, "benchmark"),
        note_on_data=data_note(outcomes),
        scored=outcomes.scored,
        dispersion=outcomes.dispersion,
        dispersion_df=outcomes.dispersion_df,
    )
    means = low + span * moments.population[0, 0]
    note = scope_note(outcomes, "population")
    return benchmark, of_population(benchmark, means, mixture.chain, note=note)


def of_population(
    benchmark: Posterior, means: FloatArray, chain: IntArray, **further: Any
) -> Posterior:
    """Return the posterior of the population's score, which is known in every state, (P,)."""
    distribution = StateDistribution(
        means, np.broadcast_to(0.0, means.shape), chain, benchmark.bounds, benchmark.seed or 0
    )
    return replace(
        benchmark,
        mu=distribution.mean,
        sigma=distribution.sd,
        distribution=distribution,
        scope="population",
        ess=distribution.ess,
        benchmark=benchmark,
        **further,
    )


def distinct_weights(outcomes: Outcomes) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """Return the distinct weights, ascending, (K,), and which category has which, (C+1, K)."""
    weights = np.unique(outcomes.weights)
    return weights, outcomes.weights[:, None] == weights


def learned_prior(mixture: Mixture) -> LearnedPrior:
    """Summarize the kinds of questions of one task: their mean shares and equivalent strength."""
    shares = np.einsum("kp,kcp->c", mixture.weight[:, 0], mixture.share) / mixture.n_states
    return LearnedPrior(shares, float(np.median(mixture.equivalent_strength()[0])))


def scope_note(outcomes: Outcomes, scope: Scope) -> str | None:
    """Return the warnings about a posterior of one benchmark; where the prior is all, only that."""
    single = scope == "benchmark" and outcomes.most_trials == 1 and not outcomes.scored
    return (
        (PRIOR_ALONE if single else None)
        or data_note(outcomes)
        or few_questions_note(outcomes.n_questions)
    )


def few_questions_note(n_questions: int) -> str | None:
    """Return the warning of an interval from few questions, else None."""
    few = f"With fewer than {FEW_QUESTIONS} questions the interval depends on the prior."
    return few if n_questions < FEW_QUESTIONS else None


def data_note(outcomes: Outcomes) -> str | None:
    """Return the warning that does not concern the prior, if any."""
    if outcomes.most_trials == 0:
        return NO_TRIALS
    return SINGLE_SCORES if outcomes.scored and outcomes.most_trials == 1 else None


def posterior_by_states(
    quantity: str,
    scores: StateDistribution,
    per_question: PerQuestion,
    outcomes: Outcomes,
    learned: LearnedPrior,
    **further: Any,
) -> Posterior:
    """Return the posterior of a mean over these questions under the learned prior."""
    return Posterior(
        quantity=quantity,
        mu=scores.mean,
        sigma=scores.sd,
        per_question=per_question,
        bounds=scores.bounds,
        prior=None,
        distribution=scores,
        n_trials=outcomes.mean_trials,
        trials_range=outcomes.trials_range,
        learned=learned,
        ess=scores.ess,
        seed=scores.seed,
        question_ids=outcomes.question_ids,
        **further,
    )


def clustered_posterior(
    outcomes: Outcomes, clusters: Sequence[Hashable] | None = None
) -> Posterior:
    """Return the posterior of the mean score of a population of clusters of questions.

    θ is the mean over the population of clusters, whatever their sizes: sizes are taken to be
    unrelated to scores. Cluster t has the mean p_t ~ Beta(dθ, d(1 − θ)), and a question α in it
    the success probability q_α ~ Beta(s p_t, s(1 − p_t)); its trials are independent given q_α.
    With the q_α integrated out,

        p(θ, d, s | data) ∝ p(θ) p(d) p(s) Π_t ∫ Beta(p; dθ, d(1 − θ)) Π_{α in t} p(x_α | p, s) dp,

    where p(x_α | p, s) is beta-binomial. All integrals are computed by quadrature. With one trial
    per question s cancels; without clusters of several questions it is left out, and the trials
    of a cluster are independent given p_t.

    The prior is θ ~ Beta(.7, .7), d/(3 + d) ~ Beta(1, .7), s/(20 + s) ~ Beta(.7, 1), chosen by
    simulated coverage (`examples/clusters.py`). [Bowyer 2025, §3.2] has the same model with other
    priors, θ ~ U(0, 1) and d ~ Gamma(1, 1), and without s.

    Parameters
    ----------
    outcomes : Outcomes
        Counts; the score of more than two categories counts as that share of a success. Prior
        trials do not enter.
    clusters : sequence, length M, optional
        The cluster of each question, e.g. its topic. Left out, those of the outcomes; without
        these, each question is a cluster of its trials.

    Returns
    -------
    Posterior
        Of scope "population"; `clusters` holds the posteriors of d and s, and `benchmark` the
        posterior of these questions.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.

    Examples
    --------
    Five passages with four questions each; as twenty independent answers they would give
    Beta(13, 9), an interval of [0.38, 0.78]:

    >>> counts = [[0, 4], [4, 0], [0, 4], [1, 3], [3, 1]]
    >>> posterior = clustered_posterior(Outcomes.from_counts(counts))
    >>> interval = posterior.interval()
    >>> round(posterior.mu, 3), round(interval.low, 3), round(interval.high, 3)
    (0.591, 0.286, 0.858)
    """
    check_outcomes("outcomes", outcomes)
    labels = outcomes.clusters if clusters is None else clusters
    labels = range(outcomes.n_questions) if labels is None else labels
    index = cluster_index(labels, outcomes.n_questions, "question")
    outcomes = replace(outcomes.without_prior(), clusters=tuple(labels))
    benchmark = hbayes_at_n(outcomes)
    return replace(clustered_population(outcomes, index, benchmark), quantity="clustered mean")
