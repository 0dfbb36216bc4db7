"""The weight of prior trials beside the new ones, with the guidance of [Hariri 2026, Fig. 2]."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.outcomes import Outcomes, check_outcomes
from lm_eval_bayes.stats.validation import as_real


@dataclass(frozen=True)
class PriorAdvice(Record):
    """The weight of prior trials beside the new trials and the learned prior.

    Attributes
    ----------
    prior_trials : float
        λD, the weight of the prior in trials, on the question where it is largest relative to
        N_α.
    n_trials : int
        N_α of that question.
    question : int
        Its number.
    prior_strength : float
        λ.
    learned_strength : float or None
        s, the strength of the prior learned across the questions, in trials (posterior median).
    advised_strength : float
        The largest λ at which the prior outweighs neither the trials nor the learned prior.
    note : str or None
        The warning, with these numbers; None where there is none.
    """

    prior_trials: float
    n_trials: int
    question: int
    prior_strength: float
    learned_strength: float | None
    advised_strength: float
    note: str | None


def check_prior_weight(outcomes: Outcomes, learned_strength: float | None = None) -> str | None:
    """Return a warning if prior trials outweigh the new trials, else None.

    Above λD = N the older version's trials determine the score more than the new one's. This does
    not mean that the prior is wrong: in [Hariri 2026, Fig. 2] (see `prior_study`) any D improves
    the ranking at the smallest N, where sampling error dominates, while D = 8 and 16 are worse
    than no prior from about N = 8 on, and a small D never costs much.

    Nothing is printed and no warning is issued: kernels may call this in a loop.

    Parameters
    ----------
    outcomes : Outcomes
        With its prior trials and their weight λ.
    learned_strength : float, optional
        `hbayes_at_n(...).learned.strength`, above 0.

    Returns
    -------
    str or None
        One sentence or two, with the numbers.

    Raises
    ------
    InvalidInputError
        If `learned_strength` is not a number above 0.

    Examples
    --------
    >>> outcomes = Outcomes.from_matrix([[0, 1]], R0=[[1, 1, 1, 0, 1, 1, 1, 1]])
    >>> print(check_prior_weight(outcomes))
    The prior has the weight of 8 trials per question (D = 8, λ = 1), but there are only N = 2: \
the score depends more on the older trials than on the new ones. Make more trials, or set \
prior_strength to at most 0.25.
    >>> check_prior_weight(Outcomes.from_matrix([[0, 1]], R0=[[1, 1]])) is None
    True
    """
    check_outcomes("outcomes", outcomes)
    return _advise(outcomes, _check_learned(learned_strength)).note


def prior_advice(outcomes: Outcomes, *, seed: int = 0) -> PriorAdvice:
    """Compare the weight of prior trials with the new trials and with the learned prior.

    The learned strength s comes from `hbayes_at_n` on the new trials alone. Prior trials of a
    larger weight than s have more influence on a question than all other questions together.

    Parameters
    ----------
    outcomes : Outcomes
        With its prior trials and their weight λ.
    seed : int
        Seed of `hbayes_at_n`, for more than two categories.

    Returns
    -------
    PriorAdvice

    Raises
    ------
    InvalidInputError
        If `seed` breaks its rule.

    Examples
    --------
    >>> R = [[0, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0], [1, 1, 1, 0]]
    >>> R0 = [[0] * 3, [1] * 3, [0] * 3, [1] * 3]
    >>> advice = prior_advice(Outcomes.from_matrix(R, R0=R0))
    >>> advice.prior_trials, advice.n_trials, round(advice.learned_strength, 1)
    (3.0, 4, 1.1)
    """
    check_outcomes("outcomes", outcomes)
    new = Outcomes(
        outcomes.counts, outcomes.weights, np.zeros_like(outcomes.counts), outcomes.prior_strength
    )
    learned = hbayes_at_n(new, seed=seed).learned
    return _advise(outcomes, None if learned is None else learned.strength)


def _check_learned(learned_strength: object) -> float | None:
    """Return the learned strength as a float."""
    if learned_strength is None:
        return None
    number = as_real(learned_strength)
    if number is None or not 0.0 < number < np.inf:
        rule = "be a finite number above 0"
        raise InvalidInputError.of("learned_strength", rule, learned_strength)
    return number


def _advise(outcomes: Outcomes, learned: float | None) -> PriorAdvice:
    """Compare λD with N_α and with s."""
    depth = outcomes.prior_counts.sum(axis=1)
    n_trials = outcomes.n_trials
    strength = outcomes.prior_strength
    # the question with the largest prior weight per trial of its own; no trial counts as most
    question = int(np.argmax(depth / np.maximum(n_trials, 1e-9)))
    d, n = int(depth[question]), int(n_trials[question])
    deepest = int(depth.max())
    limits = [(n_trials[depth > 0] / depth[depth > 0]).min()] if deepest else []
    if deepest and learned is not None:
        limits.append(learned / deepest)
    advised = min([strength, *(float(limit) for limit in limits)])
    return PriorAdvice(
        prior_trials=strength * d,
        n_trials=n,
        question=question,
        prior_strength=strength,
        learned_strength=learned,
        advised_strength=advised,
        note=_note(strength, d, n, deepest, learned, advised),
    )


def _note(
    strength: float, d: int, n: int, deepest: int, learned: float | None, advised: float
) -> str | None:
    """Write the warning."""
    parts = []
    if strength * d > n:
        parts.append(
            f"The prior has the weight of {strength * d:g} trials per question (D = {d}, "
            f"λ = {strength:g}), but there are only N = {n}: the score depends more on the older "
            "trials than on the new ones."
        )
    if learned is not None and strength * deepest > learned:
        parts.append(
            f"It exceeds the learned prior: {strength * deepest:g} trials against a learned "
            f"strength of {learned:.3g}."
        )
    if not parts:
        return None
    if len(parts) == 1 and strength * d <= n:
        parts[0] = "The prior" + parts[0].removeprefix("It")
    return f"{' '.join(parts)} Make more trials, or set prior_strength to at most {advised:.3g}."
