"""The mean scores of settings over the same questions, where some may lack trials."""

from __future__ import annotations

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, IntArray


def setting_means(counts: IntArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the mean score of each setting, and the trials that it is worth, both (S,).

    A score is the mean over the questions that have trials in some setting. Where all settings have
    trials of all these it is the mean of the questions' mean scores. Else scores are those of the
    additive model y_αs = q_α + d_s, fitted by least squares with the numbers of trials as weights:
    a setting that lacks the hard questions is no better for it. The second array is the k with
    which W/k is the variance of a mean by its trials, W being that of one trial within questions.

    Parameters
    ----------
    counts : array of int, shape (S, M, C+1)
        With at least one trial of every setting.
    weights : array, shape (C+1,)
        The score of each category.

    Raises
    ------
    InvalidInputError
        If settings cannot be compared, as no chain of common questions leads from one to another.
    """
    tried = counts.any(axis=(0, 2))
    trials = counts[:, tried].sum(axis=2).astype(np.float64)
    seen = trials > 0.0
    scores = counts[:, tried] @ weights / np.where(seen, trials, 1.0)
    worth = seen.sum(axis=1) ** 2 / (seen / np.where(seen, trials, 1.0)).sum(axis=1)
    if seen.all():
        return scores.mean(axis=1), worth
    of_question = trials.sum(axis=0)
    question = (trials * scores).sum(axis=0) / of_question
    # the normal equations of d, with q eliminated
    matrix = np.diag(trials.sum(axis=1)) - (trials / of_question) @ trials.T
    if np.linalg.matrix_rank(matrix, tol=1e-9 * trials.sum(), hermitian=True) < len(trials) - 1:
        rule = "link all settings by common questions"
        raise InvalidInputError.of("counts", "unsupported", rule, "settings that share none")
    effect = np.linalg.pinv(matrix, hermitian=True) @ (trials * (scores - question)).sum(axis=1)
    scores = effect + (question - effect @ trials / of_question).mean()
    return np.clip(scores, weights.min(), weights.max()), worth
