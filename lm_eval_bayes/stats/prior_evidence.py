"""How much trials of an earlier run say about a later one: the weight λ of prior trials, learned.

R0 holds trials of an older version, a greedy run, or a base model. As a power prior each counts as
λ trials. λ is learned from the agreement of R0 and R: the likelihood of λ is the marginal
likelihood of the new trials given the prior ones,

    p(R | R0, λ) = Z(R + λ R0) / Z(λ R0),

where Z integrates the questions' probabilities, and under the learned prior (m, s), out.

With probability ω a prior is related to its model, and λ is then uniform on (0, 1); otherwise λ is
0. The priors of several models that are compared share ω and λ, so that they are treated alike, but
each may be unrelated. Half of the prior mass of ω is at 0 and half uniform. A prior that is
unrelated with a posterior probability of at least .8 is left out, so that it does not decide
between models that are otherwise equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import special

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, read_only
from lm_eval_bayes.stats.bayes_at_n import bayes_at_n
from lm_eval_bayes.stats.hierarchical.beta_binomial import log_evidence
from lm_eval_bayes.stats.hierarchical.dirichlet_multinomial import learn_particles
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import (
    distinct_weights,
    hbayes_at_n,
)
from lm_eval_bayes.stats.intervals import IntervalMethod, Scope
from lm_eval_bayes.stats.outcomes import Outcomes, check_outcomes
from lm_eval_bayes.stats.prior_strength import LearnedStrength
from lm_eval_bayes.stats.results import Posterior
from lm_eval_bayes.stats.validation import check_prior, check_real, check_seed

#: A weight of prior trials, or "auto" to learn it.
Strength: TypeAlias = float | Literal["auto"]
#: What the weights assume.
STRENGTHS = (
    "1 assumes that the other run had the same chances, auto the same up to a weight that it learns"
)
#: What a posterior with prior trials assumes.
SAME_CHANCES = (
    "Assumes that every question had the same chance of success in the earlier run, up to the "
    "weight: where all chances differ alike, as by half a logit, intervals miss the score."
)
#: Posterior probability of λ = 0 from which a prior is left out.
LEFT_OUT = 0.8
#: Nodes and weights on (0, 1): of λ, and of ω.
STRENGTH_NODES, NODE_WEIGHTS = special.roots_sh_legendre(8)
_OMEGA = np.append(0.0, STRENGTH_NODES)
_OMEGA_WEIGHTS = np.append(0.5, 0.5 * NODE_WEIGHTS)


def check_strength(strength: object, name: str = "prior_strength") -> Strength:
    """Return the weight of prior trials: "auto", or λ in [0, 1].

    Raises
    ------
    InvalidInputError
        If it is neither.
    """
    if isinstance(strength, str) and strength == "auto":
        return "auto"
    return check_real(name, strength, 'be "auto" or a number from 0 to 1', lambda x: 0 <= x <= 1)


def learn_prior_strength(
    models: Sequence[Outcomes], prior: str | float = "learned", *, seed: int = 0
) -> tuple[LearnedStrength, ...]:
    """Learn the weight λ of the prior trials of one model, or of several that are compared.

    Parameters
    ----------
    models : sequence of Outcomes
        With prior trials; their `prior_strength` is not used. A model without prior trials gets
        λ = 0 and has no influence on the others.
    prior : "learned", "uniform", "jeffreys" or float
        The prior of the questions' probabilities before any trial: that of `hbayes_at_n`, or a
        pseudo-count of `bayes_at_n`.
    seed : int
        Seed of the particles of a learned prior for more than two distinct weights.

    Returns
    -------
    tuple of LearnedStrength
        One per model. `dataclasses.replace(outcomes, prior_strength=strength)` makes `bayes_at_n`
        and `hbayes_at_n` integrate λ out.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.

    Examples
    --------
    An older version that solves about the same questions, and one that solves the others:

    >>> counts = [[2, 6]] * 15 + [[7, 1]] * 15
    >>> same = Outcomes.from_counts(counts, prior_counts=[[1, 3]] * 15 + [[4, 0]] * 15)
    >>> other = Outcomes.from_counts(counts, prior_counts=[[4, 0]] * 15 + [[0, 4]] * 15)
    >>> [round(float(*learn_prior_strength([model])), 2) for model in (same, other)]
    [0.86, 0.0]
    """
    if isinstance(models, Outcomes) or not len(models):
        rule = "be a sequence of at least one Outcomes"
        raise InvalidInputError.of("models", "empty", rule, type(models).__name__)
    for i, outcomes in enumerate(models):
        check_outcomes(f"models[{i}]", outcomes)
    seed = check_seed(seed)
    log_z: Callable[[Outcomes], float]
    if prior == "learned":
        log_z = partial(learned_log_evidence, seed=seed)
    else:
        log_z = partial(_independent_log_evidence, pseudo=check_prior(prior))
    informed = [i for i, outcomes in enumerate(models) if outcomes.prior_counts.any()]
    strengths = [LearnedStrength([0.0], [1.0], 1.0)] * len(models)
    if informed:
        ratios = np.stack([_log_bayes_factors(models[i], log_z) for i in informed])
        for i, probabilities in zip(informed, _posterior_of_strength(ratios), strict=True):
            strengths[i] = strength_unless_unrelated(STRENGTH_NODES, probabilities)
    return tuple(strengths)


def strength_unless_unrelated(nodes: FloatArray, probabilities: FloatArray) -> LearnedStrength:
    """Return the posterior of λ, or λ = 0 where that is likely enough to leave a prior out.

    Parameters
    ----------
    nodes : array, shape (J,)
        Values of λ > 0.
    probabilities : array, shape (1 + J,)
        The posterior probabilities of λ = 0 and of every node.
    """
    p_unrelated, *_ = probabilities.tolist()
    if p_unrelated >= LEFT_OUT:
        return LearnedStrength([0.0], [1.0], p_unrelated)
    return LearnedStrength([0.0, *nodes.tolist()], probabilities.tolist(), p_unrelated)


def _log_bayes_factors(outcomes: Outcomes, log_z: Callable[[Outcomes], float]) -> FloatArray:
    """Return log p(R | R0, λ) − log p(R) at every node of λ."""
    nothing = np.zeros_like(outcomes.counts)
    without = replace(outcomes, prior_strength=0.0)
    baseline = log_z(without) - log_z(replace(without, counts=nothing))
    ratios = []
    for strength in STRENGTH_NODES.tolist():
        both = replace(outcomes, prior_strength=strength)
        ratios.append(log_z(both) - log_z(replace(both, counts=nothing)) - baseline)
    return np.array(ratios)


def _posterior_of_strength(ratios: FloatArray) -> FloatArray:
    """Return the posterior probabilities of λ = 0 and of every node, (L, 1 + nodes).

    Parameters
    ----------
    ratios : array, shape (L, nodes)
        The log Bayes factor of every node against λ = 0, for L models.
    """
    with np.errstate(divide="ignore"):  # ω = 0
        related = np.log(_OMEGA)[:, None] + ratios[:, None, :]
        unrelated = np.log1p(-_OMEGA)[None, :, None]
    either = np.logaddexp(related, unrelated)
    joint = either.sum(axis=0) + np.log(np.outer(_OMEGA_WEIGHTS, NODE_WEIGHTS))
    joint = np.exp(joint - special.logsumexp(joint))
    of_nodes = (joint * np.exp(related - either)).sum(axis=1)
    p_unrelated = (joint * np.exp(unrelated - either)).sum(axis=(1, 2))
    return np.column_stack([p_unrelated, of_nodes])


def learned_log_evidence(
    outcomes: Outcomes, seed: int, mean_counts: FloatArray | None = None
) -> float:
    """Return the log marginal likelihood of trials and weighted prior trials, up to a constant.

    Parameters
    ----------
    outcomes : Outcomes
        The trials.
    seed : int
        Seed of the particles, for more than two distinct weights.
    mean_counts : array, shape (C+1,), optional
        Pseudo-trials of the prior of the common mean, see `hbayes_at_n`.
    """
    pseudo = np.zeros(outcomes.n_categories) if mean_counts is None else mean_counts
    at_top = outcomes.top_categories()
    if at_top is not None:
        of_mean = float(pseudo[at_top].sum()), float(pseudo[~at_top].sum())
        return log_evidence(*trials_by_weight(outcomes, at_top), of_mean)
    _, belongs = distinct_weights(outcomes)
    counts = outcomes.weighted_counts @ belongs
    return learn_particles(counts[np.lexsort(counts.T)], seed, pseudo @ belongs).log_evidence


def _independent_log_evidence(outcomes: Outcomes, pseudo: float) -> float:
    """Return the same with a Dirichlet prior of fixed pseudo-counts for every question."""
    nu = outcomes.weighted_counts + pseudo
    return float(special.gammaln(nu).sum() - special.gammaln(nu.sum(axis=1)).sum())


@dataclass(frozen=True, eq=False)
class PriorEvidence(Record):
    """A posterior with prior trials, and without.

    Attributes
    ----------
    posterior, without : Posterior
        With the prior trials, and without.
    strength : float
        λ: as given, or a `LearnedStrength`, whose float is the posterior mean.
    p_unrelated : float or None
        Posterior probability that λ = 0; None where λ was given.
    left_out : bool
        Whether the prior trials have no weight.
    prior_trials : float
        Prior trials per question, on average, each counted once.
    """

    posterior: Posterior
    without: Posterior
    strength: float
    p_unrelated: float | None
    left_out: bool
    prior_trials: float


def prior_evidence(
    outcomes: Outcomes,
    prior_strength: Strength | LearnedStrength | None = None,
    prior: str | float = "learned",
    scope: Scope = "benchmark",
    level: float = 0.95,
    interval: IntervalMethod = "exact",
    *,
    seed: int = 0,
) -> PriorEvidence:
    """Return the posterior of the score with prior trials, and without.

    Parameters
    ----------
    outcomes : Outcomes
        With prior trials.
    prior_strength : "auto", float or None
        λ in [0, 1]; "auto": learned, and integrated out; None: that of the outcomes, which is 1
        [Hariri 2026] unless they were given another.
    prior : "learned", "uniform", "jeffreys" or float
        "learned": `hbayes_at_n`; else the prior of `bayes_at_n`.
    scope, level, interval
        As for `hbayes_at_n`. `bayes_at_n` has scope "benchmark" only.
    seed : int
        Seed of the draws, for more than two distinct weights.

    Returns
    -------
    PriorEvidence

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.

    Notes
    -----
    Every λ > 0 assumes that the questions had the same chances in the earlier run. λ is learned
    from the agreement of single questions, which shows a shift of all of them too little.

    Examples
    --------
    >>> counts, older = [[3, 1]] * 10 + [[1, 3]] * 10, [[6, 2]] * 10 + [[2, 6]] * 10
    >>> evidence = prior_evidence(Outcomes.from_counts(counts, prior_counts=older), "auto")
    >>> round(evidence.strength, 2), round(evidence.p_unrelated, 4)
    (0.85, 0.0025)
    >>> round(evidence.without.sigma, 3), round(evidence.posterior.sigma, 3)
    (0.054, 0.032)
    """
    check_outcomes("outcomes", outcomes)
    if prior_strength is None:
        strength: float = outcomes.prior_strength
    elif isinstance(prior_strength, LearnedStrength):
        strength = prior_strength
    elif check_strength(prior_strength) == "auto":
        (strength,) = learn_prior_strength([outcomes], prior, seed=seed)
    else:
        strength = float(prior_strength)
    if prior != "learned" and scope != "benchmark":
        rule = 'be "benchmark" where the prior is not learned'
        raise InvalidInputError.of("scope", "unsupported", rule, scope)

    def posterior_of(outcomes: Outcomes) -> Posterior:
        if prior == "learned":
            return hbayes_at_n(outcomes, scope, level, interval, seed=seed)
        return replace(bayes_at_n(outcomes, prior), level=level, method=interval)

    return PriorEvidence(
        posterior=posterior_of(replace(outcomes, prior_strength=strength)),
        without=posterior_of(outcomes.without_prior()),
        strength=strength,
        p_unrelated=strength.p_unrelated if isinstance(strength, LearnedStrength) else None,
        left_out=float(strength) == 0.0,
        prior_trials=float(outcomes.prior_counts.sum(axis=1).mean()),
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
