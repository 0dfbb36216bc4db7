"""How far models move between an earlier run and a later one, where it was learned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes.errors import InvalidInputError

#: The scales of the Cauchy distribution of the shift from an earlier run, in logits.
SCALES = (0.1, 0.2, 0.4, 0.8)


@dataclass(frozen=True)
class LearnedShift(Record):
    """The shift δ of a score from that of an earlier run: logit score = logit earlier score + δ.

    δ has a Cauchy distribution around 0, of a scale that models share; see `learn_shift`.

    Attributes
    ----------
    weights : tuple of float
        The probabilities of the scales .1, .2, .4 and .8 logits.

    Raises
    ------
    InvalidInputError
        If they are not four probabilities that sum to 1.
    """

    weights: tuple[float, ...] = (0.25, 0.25, 0.25, 0.25)

    def __post_init__(self) -> None:
        weights = np.array(self.weights, dtype=np.float64)
        if weights.shape != (len(SCALES),) or not (
            (weights >= 0.0).all() and abs(weights.sum() - 1.0) < 1e-6
        ):
            rule = f"be {len(SCALES)} probabilities that sum to 1"
            raise InvalidInputError.of("weights", "range", rule, self.weights)

    @property
    def scale(self) -> float:
        """The mean of the scale; half of all shifts are smaller than the scale."""
        return float(np.dot(self.weights, SCALES))
