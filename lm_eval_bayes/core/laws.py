"""Laws: the true posterior distribution of a benchmark's score, from which intervals come.

The score is s̄ = (1/M) Σ_α s_α with independent questions. Where each s_α is a rising
function of one Beta variable (two distinct weights, and the whole pass family) the law is
computed; where it is a weighted Dirichlet vector it is drawn from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lm_eval_bayes.core.checks import FloatArray
from lm_eval_bayes.core.curves import Curve


@dataclass(frozen=True, eq=False)
class BetaLaw:
    """s_α = low + (high − low)·curve(p_α) with p_α ~ Beta(a_α, b_α), low <= high.

    Parameters
    ----------
    a, b : array, shape (M,)
        Beta parameters of the M questions.
    curve : Curve
        What p_α scores.
    low, high : float
        The scores that curve values 0 and 1 stand for.
    """

    a: FloatArray
    b: FloatArray
    curve: Curve
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class DirichletLaw:
    """s_α = Σ_k w_k θ_αk with θ_α ~ Dirichlet(ν_α).

    Parameters
    ----------
    nu : array, shape (M, C+1)
        Dirichlet parameters above 0.
    weights : array, shape (C+1,)
        The score of each category.
    """

    nu: FloatArray
    weights: FloatArray

    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the benchmark's score `n_draws` times, shape (n_draws,)."""
        low = self.weights.min()
        span = self.weights.max() - low
        scaled = (self.weights - low) / span
        means = np.empty(n_draws)
        block = max(1, 2_000_000 // self.nu.size)
        for start in range(0, n_draws, block):
            stop = min(n_draws, start + block)
            gammas = rng.standard_gamma(self.nu, size=(stop - start, *self.nu.shape))
            totals = gammas.sum(axis=2)
            # With parameters near 0 every gamma of a question can underflow.
            scores = np.divide(gammas @ scaled, totals, out=np.zeros_like(totals), where=totals > 0)
            means[start:stop] = scores.mean(axis=1)
        return np.asarray(low + span * means)


Law = BetaLaw | DirichletLaw
