"""An earlier run as prior evidence: its trials by a fixed weight, or a shift that is learned.

As a power prior every trial of the earlier run counts as λ trials: it assumes that every question
had the same chance of success. Or the earlier run says where the score lies and nothing more,

    logit score = logit earlier score + δ,   δ ~ Cauchy(scale),

with a scale from .1, .2, .4 and .8 that is learned from all models that have an earlier run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from lm_eval_bayes._util.validation import check_real, check_seed
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import two_runs
from lm_eval_bayes.stats.outcomes import LearnedShift, Outcomes, check_outcomes
from lm_eval_bayes.stats.related_scores import learn_scales

#: A weight of prior trials, or "auto" for a shift that is learned.
Strength: TypeAlias = float | Literal["auto"]
#: What they are and assume.
STRENGTHS = (
    "auto learns how far scores shift between the runs; a number from 0 to 1 is the weight of a "
    "prior trial, 1 the paper's, and assumes the same chances of success"
)
#: What a posterior with prior trials of a fixed weight assumes.
SAME_CHANCES = (
    "Assumes that every question had the same chance of success in the earlier run: where it had "
    "not, intervals miss the score."
)


def check_strength(strength: object) -> Strength:
    """Return the weight of prior trials, λ in [0, 1], or "auto".

    Raises
    ------
    InvalidInputError
        If it is neither.
    """
    if isinstance(strength, str) and strength == "auto":
        return "auto"
    rule = 'be "auto" or a number from 0 to 1'
    return check_real("prior_strength", strength, rule, lambda x: 0 <= x <= 1)


def learn_shift(models: Sequence[Outcomes], *, seed: int = 0) -> LearnedShift:
    """Learn how far scores shift between an earlier run and a later one.

    Parameters
    ----------
    models : sequence of Outcomes
        With the trials of the earlier runs as prior trials; their `prior_strength` is not used.
        Models without any have no influence, and the order does not matter.
    seed : int
        As for `hbayes_at_n`.

    Returns
    -------
    LearnedShift
        ``dataclasses.replace(outcomes, prior_strength=shift)`` makes `hbayes_at_n` use it.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.

    Examples
    --------
    Eight models that score as before, and eight that are one logit better or worse:

    >>> counts = [[[8 - k, k]] * 30 for k in range(1, 8)]
    >>> same = [Outcomes.from_counts(rows, prior_counts=rows) for rows in counts]
    >>> others = [Outcomes.from_counts(new, prior_counts=old)
    ...           for new, old in zip(counts, counts[2:] + counts[:2])]
    >>> learn_shift(same).scale < 0.2 < 0.6 < learn_shift(others).scale
    True
    """
    if isinstance(models, Outcomes) or not len(models):
        rule = "be a sequence of at least one Outcomes"
        raise InvalidInputError.of("models", "empty", rule, type(models).__name__)
    for i, outcomes in enumerate(models):
        check_outcomes(f"models[{i}]", outcomes)
    seed = check_seed(seed)
    return learn_scales([two_runs(each, seed) for each in models if each.prior_counts.any()])
