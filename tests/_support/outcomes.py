"""Outcomes of right and wrong trials."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lm_eval_bayes import Outcomes


def binary_outcomes(right: npt.ArrayLike, n: int, **settings) -> Outcomes:
    """Return the outcomes of questions with n trials each, from their numbers of right ones."""
    right = np.asarray(right)
    return Outcomes.from_counts(np.stack([n - right, right], axis=-1), **settings)
