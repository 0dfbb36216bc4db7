"""What was observed of every question, without a prior's pull: its average and its noise."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.distributions.mixtures import BetaMixtureLaw, DirichletMixtureLaw
from lm_eval_bayes.stats.results import Posterior
from lm_eval_bayes.stats.validation import FloatArray


class Observed(NamedTuple):
    """The averages of M questions and the variance that chance gives each, both (M,)."""

    average: FloatArray
    noise: FloatArray


def observed(posterior: Posterior) -> Observed:
    """Return every question's average score, and its variance over repetitions of the trials.

    The variance is that of one trial's score, expected under the posterior (so it is above 0
    where all trials agree), over the number of trials. A question without trials stands with
    its posterior.

    Parameters
    ----------
    posterior : Posterior
        Of hbayes@N, scope "benchmark".

    Raises
    ------
    InvalidInputError
        If it is another one.

    Examples
    --------
    >>> from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
    >>> from lm_eval_bayes.stats.outcomes import Outcomes
    >>> seen = observed(hbayes_at_n(Outcomes.from_counts([[2, 6], [0, 8], [5, 3]])))
    >>> seen.average.tolist(), bool(seen.noise.min() > 0.0)
    ([0.75, 1.0, 0.375], True)
    """
    law = posterior.law
    if isinstance(law, BetaMixtureLaw):
        counts = np.stack([law.failures, law.successes], axis=1)
        weights = np.array([law.low, law.high])
        span = law.high - law.low
        share = (posterior.per_question.mu - law.low) / span if span else np.zeros(len(counts))
        mean_square = law.low**2 + (law.high**2 - law.low**2) * share
    elif isinstance(law, DirichletMixtureLaw):
        counts, weights = law.counts, law.weights
        mean_square = _expected_categories(law) @ weights**2
    else:
        rule = 'be of hbayes@N and scope "benchmark"'
        raise InvalidInputError.of("posterior", rule, f"{posterior.quantity}, {posterior.scope}")
    mean, sigma = posterior.per_question.mu, posterior.per_question.sigma
    trials = counts.sum(axis=1)
    asked = trials > 0.0
    one_trial = np.maximum(mean_square - mean**2 - sigma**2, 0.0)
    average = np.divide(counts @ weights, trials, out=mean.copy(), where=asked)
    noise = np.divide(one_trial, trials, out=sigma**2, where=asked)
    return Observed(average, noise)


def _expected_categories(law: DirichletMixtureLaw) -> FloatArray:
    """Return E θ_α under the posterior, shape (M, C+1)."""
    trials, where = np.unique(law.counts.sum(axis=1), return_inverse=True)
    share = law.weight / (trials[:, None] + law.alpha.sum(axis=1))
    own, prior = share.sum(axis=1), share @ law.alpha
    return np.asarray(law.counts * own[where, None] + prior[where])
