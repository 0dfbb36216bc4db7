"""The scores of settings over the same questions, from counts where cells can be missing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, IntArray, numeric
from lm_eval_bayes.stats.outcomes import Outcomes


class SettingMeans(NamedTuple):
    """The mean score of each setting, and the trials that it is worth, both of shape (S,).

    With the variance W of a trial's score within questions, the variance of a mean by its trials is
    W over that number.
    """

    score: FloatArray
    trials: FloatArray


def check_settings(counts: npt.ArrayLike) -> IntArray:
    """Return counts of shape (S, M, C+1); what a single table must be is left to `Outcomes`."""
    array = numeric("counts", counts)
    if array.ndim != 3 or 0 in array.shape:
        rule = "be 3-D, one table of questions and categories per setting, (S, M, C+1)"
        raise InvalidInputError.of("counts", "shape", rule, f"shape {array.shape}")
    for table in array:
        Outcomes.from_counts(table)
    of_setting = array.sum(axis=(1, 2))
    if not of_setting.all():
        rule = "hold at least one trial of every setting"
        got = f"none of setting {int(of_setting.argmin())}"
        raise InvalidInputError.of("counts", "empty", rule, got)
    return array.astype(np.int64)


def setting_means(counts: IntArray, weights: FloatArray) -> SettingMeans:
    """Return the settings' mean scores over the questions that have trials in some setting.

    Where every setting has trials of all these, a setting's score is the mean of its questions'
    mean scores. Else scores are those of the additive model y_αs = q_α + d_s, fitted by least
    squares with the numbers of trials as weights: a setting that lacks the hard questions is no
    better for it.

    Raises
    ------
    InvalidInputError
        If settings cannot be compared, as no chain of common questions leads from one to another.
    """
    trials = counts.sum(axis=2).astype(np.float64)
    trials = trials[:, trials.any(axis=0)]
    scores = (counts @ weights)[:, counts.any(axis=(0, 2))] / np.maximum(trials, 1.0)
    seen = trials > 0.0
    worth = seen.sum(axis=1) ** 2 / np.where(seen, 1.0 / np.maximum(trials, 1.0), 0.0).sum(axis=1)
    if seen.all():
        return SettingMeans(scores.mean(axis=1), worth)
    of_question = trials.sum(axis=0)
    question = (trials * scores).sum(axis=0) / of_question
    # the normal equations of d, the questions' effects eliminated
    matrix = np.diag(trials.sum(axis=1)) - (trials / of_question) @ trials.T
    if np.linalg.matrix_rank(matrix, tol=1e-9 * trials.sum(), hermitian=True) < len(trials) - 1:
        rule = "have settings with questions in common, to tell settings from questions"
        raise InvalidInputError.of("counts", "unsupported", rule, "settings of other questions")
    effect = np.linalg.pinv(matrix, hermitian=True) @ (trials * (scores - question)).sum(axis=1)
    level = (question - effect @ trials / of_question).mean()
    low, high = float(weights.min()), float(weights.max())
    return SettingMeans(np.clip(level + effect, low, high), worth)
