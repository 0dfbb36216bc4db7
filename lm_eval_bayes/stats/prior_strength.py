"""The weight λ of prior trials where it was learned: a number that carries its posterior."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class LearnedStrength(float):
    """λ, the weight of a prior trial, learned from the agreement of prior and data.

    As a number it is the posterior mean of λ. `bayes_at_n` and `hbayes_at_n` average their
    posteriors over `values`; other functions take the mean.

    Parameters
    ----------
    values : sequence of float
        Values of λ in [0, 1], ascending.
    weights : sequence of float
        Their posterior probabilities, sum 1.
    p_unrelated : float
        Posterior probability that λ = 0. Where it is at least .8 the prior is left out, and 0 is
        the only value.

    Examples
    --------
    >>> strength = LearnedStrength([0.0, 0.5], [0.2, 0.8], 0.2)
    >>> float(strength), strength.values
    (0.4, (0.0, 0.5))
    """

    values: tuple[float, ...]
    weights: tuple[float, ...]
    p_unrelated: float

    def __new__(
        cls, values: Sequence[float], weights: Sequence[float], p_unrelated: float
    ) -> LearnedStrength:
        """Build the number from its posterior."""
        mean = sum(value * weight for value, weight in zip(values, weights, strict=True))
        self = super().__new__(cls, mean)
        self.values, self.weights = tuple(map(float, values)), tuple(map(float, weights))
        self.p_unrelated = float(p_unrelated)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling and copying."""
        return LearnedStrength, (self.values, self.weights, self.p_unrelated)
