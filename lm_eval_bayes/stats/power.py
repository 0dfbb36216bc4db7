"""The smallest difference of two models that N trials on M questions can show, and the reverse.

With the variances W within and B between questions of `variance_components`, and C the covariance
of two models' p_α over questions, the difference of two scores has variance 2V/M with

    about these questions             V = W/N,
    about the population, paired      V = B − C + W/N    (C = r B for a correlation r),
    about the population, unpaired    V = B + W/N        (each model on its own M questions).

The smallest difference that a two-sided z test of level α shows with power 1 − β is
(z_{1−α/2} + z_{1−β}) sqrt(2V/M) [Miller 2024, §5].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from scipy import special

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes._util.validation import (
    check_fraction,
    check_level,
    check_option,
    check_positive,
    check_real,
)
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.variance import VarianceComponents

#: What a difference is about, and how models are sampled.
Design: TypeAlias = Literal["benchmark", "paired", "unpaired"]
DESIGNS: tuple[Design, ...] = ("benchmark", "paired", "unpaired")
#: The correlation of two models' p_α over questions where no board of models estimates it.
ASSUMED_CORRELATION = 0.5
#: Of the field's usual tests.
LEVEL, POWER = 0.95, 0.8
#: Larger numbers are not given.
_MOST = 10**9


def detectable_difference(
    components: VarianceComponents,
    trials: float,
    design: Design = "benchmark",
    *,
    correlation: float = ASSUMED_CORRELATION,
    covariance: float | None = None,
    level: float = LEVEL,
    power: float = POWER,
) -> float | None:
    """Return the smallest difference of two such models that N trials per question show.

    Parameters
    ----------
    components : VarianceComponents
        Of a model; the other one is taken to have the same. Posterior means of W and B are used.
    trials : float
        N > 0, the trials per question of each model.
    design : {"benchmark", "paired", "unpaired"}
        Both models on these questions, about these questions; on the same questions, about their
        population; each on M questions of its own, about their population.
    correlation : float
        Of two models' p_α over questions, from -1 to 1; for "paired".
    covariance : float, optional
        C, from `covariance_of_questions`, for "paired" with single trials, where W and B are not
        known: there V = T − C. It is not used where they are.
    level : float
        1 − α, in (0, 1): .95 is a two-sided test at 5%.
    power : float
        1 − β, in (0, 1).

    Returns
    -------
    float or None
        On the scale of the score; it may be larger than any difference that is possible. None
        where it needs W, which is not known as no question has two trials.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.

    Examples
    --------
    Of 100 questions with p from 0 to 1, W is about 1/6 and B about 1/12; (1.96 + .84) √(2W/800):

    >>> from lm_eval_bayes.stats.outcomes import Outcomes
    >>> from lm_eval_bayes.stats.variance import variance_components
    >>> counts = [[8 - c, c] for c in range(9)] * 11
    >>> components = variance_components(Outcomes.from_counts(counts))
    >>> round(detectable_difference(components, 8), 3)
    0.058
    >>> round(detectable_difference(components, 8, "paired"), 3)
    0.1
    >>> round(detectable_difference(components, 8, "unpaired"), 3)
    0.129
    """
    trials = check_positive("trials", trials)
    factor = _factor(level, power)
    variance = _variance(components, trials, design, correlation, covariance)
    if variance is None:
        return None
    return float(np.sqrt(factor * variance / components.n_questions))


@dataclass(frozen=True)
class NeededSize(Record):
    """What it takes to show a difference of two models.

    Attributes
    ----------
    difference : float
        The difference, on the scale of the score.
    design : {"benchmark", "paired", "unpaired"}
        See `detectable_difference`.
    trials : int or None
        Trials per question of each model, on the M questions. None where no number is enough, as
        the questions are too few, or where W is not known.
    questions : int or None
        Questions, with the present N trials per question; in design "benchmark" they are taken to
        be like these. None where W is not known.
    enough_questions : bool
        Whether M questions are enough, with enough trials.
    """

    difference: float
    design: Design
    trials: int | None
    questions: int | None
    enough_questions: bool


def size_for_difference(
    components: VarianceComponents,
    difference: float,
    design: Design = "benchmark",
    *,
    correlation: float = ASSUMED_CORRELATION,
    covariance: float | None = None,
    level: float = LEVEL,
    power: float = POWER,
) -> NeededSize:
    """Return how many trials, or how many questions, show a difference of two such models.

    Parameters
    ----------
    components, design, correlation, covariance, level, power
        As in `detectable_difference`.
    difference : float
        Above 0.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.

    Examples
    --------
    >>> from lm_eval_bayes.stats.outcomes import Outcomes
    >>> from lm_eval_bayes.stats.variance import variance_components
    >>> counts = [[8 - c, c] for c in range(9)] * 11
    >>> components = variance_components(Outcomes.from_counts(counts))
    >>> size_for_difference(components, 0.02).trials
    67
    >>> paired = size_for_difference(components, 0.02, "paired")
    >>> paired.trials, round(paired.questions, -2), paired.enough_questions
    (None, 2500, False)
    """
    difference = check_positive("difference", difference)
    factor = _factor(level, power)
    # the part that more trials do not reduce
    limit = _variance(components, np.inf, design, correlation)
    at_n = _variance(components, components.trials, design, correlation, covariance)
    # the largest V that shows the difference on these questions
    allowed = difference**2 * components.n_questions / factor
    trials: int | None = None
    enough = True
    if limit is not None and components.within is not None:
        enough = limit < allowed
        if enough:
            trials = _whole(components.within.mu / (allowed - limit))
    questions = None if at_n is None else _whole(factor * at_n / difference**2)
    return NeededSize(difference, design, trials, questions, enough)


def _factor(level: float, power: float) -> float:
    """Return 2 (z_{1−α/2} + z_{1−β})²."""
    level, power = check_level(level), check_fraction("power", power)
    z = float(special.ndtri(0.5 + 0.5 * level) + special.ndtri(power))
    if z <= 0.0:
        rule = "be large enough, with `level`, that a difference above 0 has it"
        raise InvalidInputError.of("power", "range", rule, power)
    return 2.0 * z * z


def _variance(
    components: VarianceComponents,
    trials: float,
    design: Design,
    correlation: float,
    covariance: float | None = None,
) -> float | None:
    """Return V for N trials, which may be infinite; None where it is not known."""
    if not isinstance(components, VarianceComponents):
        rule = "be VarianceComponents, as from variance_components"
        raise InvalidInputError.of("components", "type", rule, components)
    design = check_option("design", design, DESIGNS)
    rule = "be a number from -1 to 1"
    correlation = check_real("correlation", correlation, rule, lambda r: -1.0 <= r <= 1.0)
    if components.within is None or components.between is None:
        shared = {"unpaired": 0.0, "paired": covariance, "benchmark": None}[design]
        if shared is None or trials != 1.0:
            return None
        return max(0.0, components.total.mu - shared)
    unshared = {"benchmark": 0.0, "paired": 1.0 - correlation, "unpaired": 1.0}[design]
    return unshared * components.between.mu + components.within.mu / trials


def _whole(number: float) -> int | None:
    """Return the number rounded up, at least 1; None where it is beyond all use."""
    return max(1, int(np.ceil(number - 1e-9))) if number < _MOST else None
