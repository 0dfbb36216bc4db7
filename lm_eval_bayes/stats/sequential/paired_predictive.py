"""What further trials of the same questions would say of two models on all questions like them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lm_eval_bayes.stats.comparison.difference import paired_spread
from lm_eval_bayes.stats.comparison.shared_questions import SharedQuestions
from lm_eval_bayes.stats.sequential.predictive_draws import FutureTrials
from lm_eval_bayes.stats.validation import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class PairedSeparationGoal:
    """Two models' z in scope "population" at least `target`, their questions being paired.

    The futures are those of the questions at hand, as in scope "benchmark": a truth for each
    question, and trials from it. What they say of questions like these is then the z of
    `compare`, whose sd has a part that no trials reduce: how much the questions' differences
    differ.

    Parameters
    ----------
    futures : pair of FutureTrials
        The futures of the two models' benchmark posteriors.
    columns : pair of array of int, shape (M,)
        Where each keeps the first one's questions.
    target, current : float
        The z to be reached, and the z now.
    """

    futures: tuple[FutureTrials, FutureTrials]
    columns: tuple[IntArray, IntArray]
    target: float
    current: float

    @classmethod
    def of(
        cls,
        shared: SharedQuestions,
        target: float,
        current: float,
        draws: int,
        rng: np.random.Generator,
    ) -> PairedSeparationGoal:
        """Draw the futures of two models on the same questions."""
        first, second = (FutureTrials.of(each, draws, rng) for each in shared.posteriors)
        columns = shared.columns[0], shared.columns[1]
        return cls((first, second), columns, target, current)

    @property
    def done(self) -> bool:
        """Whether the models are so far apart already."""
        return self.current >= self.target

    def reached(self, extra: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        """Say in which futures the models are so far apart."""
        (first, noise), (second, other_noise) = (
            (average[:, columns], noise[:, columns])
            for (average, noise), columns in zip(
                (future.question_averages(extra, rng) for future in self.futures),
                self.columns,
                strict=True,
            )
        )
        return self._apart(first - second, noise + other_noise)

    def at_last(self) -> float:
        """Return the share of futures in which endless trials would bring them so far apart."""
        first, second = (
            (future.truth @ future.unit)[:, columns]
            for future, columns in zip(self.futures, self.columns, strict=True)
        )
        return float(self._apart(first - second, np.zeros_like(first)).mean())

    def _apart(self, difference: FloatArray, noise: FloatArray) -> npt.NDArray[np.bool_]:
        """Hold z against the target."""
        sd = paired_spread(difference, noise).sd
        return np.asarray(np.abs(difference.mean(axis=1)) > self.target * sd)
