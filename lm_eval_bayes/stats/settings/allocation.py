"""How many settings and trials an interval about settings like these takes.

With the sd τ between settings and the variance W of a trial's score within questions, the mean of
S settings with N trials of each of M questions has the variance τ²/S + W/(M S N) about settings
like these. Trials reduce the second term alone.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from lm_eval_bayes._util.validation import (
    check_count,
    check_level,
    check_non_negative,
    check_positive,
    check_real,
)

#: The fewest settings of a plan.
_FEWEST = 3


def half_width(
    sd: float, trial_variance: float, n_settings: int, trials: float, level: float = 0.95
) -> float:
    """Return the half-width of the normal interval, z sqrt(τ²/S + W/(M S N)).

    Parameters
    ----------
    sd : float
        τ >= 0, in units of the score.
    trial_variance : float
        W/M >= 0: the variance of a setting's mean score with one trial per question.
    n_settings : int
        S >= 1.
    trials : float
        N > 0, trials per question in each setting; infinite for what more trials cannot reach,
        z τ/√S.
    level : float
        Strictly between 0 and 1.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.

    Examples
    --------
    Settings with sd .048 (t = .2 at a score of .4) on 30 questions, W = .15: four settings with 16
    trials, with any number, and 16 settings with one:

    >>> designs = [(4, 16), (4, float("inf")), (16, 1)]
    >>> [round(half_width(0.048, 0.15 / 30, S, N), 3) for S, N in designs]
    [0.05, 0.047, 0.042]
    """
    trials = check_real("trials", trials, "be a number above 0", lambda n: n > 0.0)
    by_trials = check_non_negative("trial_variance", trial_variance) / trials
    variance = (check_non_negative("sd", sd) ** 2 + by_trials) / check_count(
        "n_settings", n_settings, 1
    )
    return float(special.ndtri(0.5 + 0.5 * check_level(level)) * np.sqrt(variance))


def settings_needed(
    half: float, sd: float, trial_variance: float, cost: float, level: float = 0.95
) -> tuple[int, int]:
    """Return the settings, and the trials per question in each, of an interval this narrow.

    S settings cost S (c + N) rounds of one trial per question, and S (c + N) times the variance
    τ²/S + W/(M S N) is least for N = sqrt(c W/(M τ²)) [Cochran 1977, §10.6]. The settings are those
    that this N needs, and at least 3, as the interval of fewer rests on the prior of their sd; the
    trials are the fewest for so many settings.

    Parameters
    ----------
    half : float
        The half-width > 0, as of `half_width`.
    sd, trial_variance : float
        τ > 0 and W/M > 0, as for `half_width`.
    cost : float
        c >= 0, what it costs to open a setting, in rounds of one trial per question: near 0 for
        prompts, some rounds for the start of an engine.
    level : float
        Strictly between 0 and 1.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.

    Examples
    --------
    >>> settings_needed(0.04, 0.048, 0.15 / 30, cost=0), settings_needed(0.04, 0.048, 0.15 / 30, 4)
    ((18, 1), (10, 3))
    """
    trial_variance = check_positive("trial_variance", trial_variance)
    rounds = np.sqrt(check_non_negative("cost", cost) * trial_variance) / check_positive("sd", sd)
    at_least = half_width(sd, trial_variance, 1, max(round(rounds), 1), level)
    n_settings = max(int(np.ceil((at_least / check_positive("half", half)) ** 2)), _FEWEST)
    for_trials = n_settings * (half / half_width(1.0, 0.0, 1, 1, level)) ** 2 - sd**2
    return n_settings, max(int(np.ceil(trial_variance / for_trials * (1.0 - 1e-12))), 1)
