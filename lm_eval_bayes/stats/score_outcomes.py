"""Scores between two bounds, such as F1, ROUGE or a judge's grade, as outcomes of trials."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, IntArray, read_only
from lm_eval_bayes.stats.outcomes import Outcomes

#: Degrees of freedom, at a dispersion of 1, that the estimate of the dispersion starts from.
PRIOR_DF = 0.5

#: Scores are rounded to one part in this number of the distance of the bounds.
_RESOLUTION = 1_000_000


@dataclass(frozen=True, eq=False)
class ScoreOutcomes(Outcomes):
    """Scores of all trials, for the posterior of their mean.

    Build it with :meth:`from_scores`. A quasi-likelihood takes a score at the fraction x of the
    way from the lower to the upper bound for x successes and 1 − x failures, each of weight 1/φ,
    where φ is the dispersion of the scores [Wedderburn 1974]. So there are two categories with the
    bounds as weights; `counts` are 0, and the successes and failures stand in `prior_counts`, in
    units of `prior_strength`. For scores that are either bound the posteriors are those of
    `Outcomes`.

    What is about right and wrong answers or about categories refuses scores: Bayes@N with a
    uniform prior, Pass@k and its family, anchors, prior evidence, clusters.

    Parameters
    ----------
    scores : tuple of M arrays of float
        The scores of every question's trials; a question may have none.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule, or clusters are given.

    Notes
    -----
    The dispersion is estimated and then taken as known, and one number holds for all questions.
    ``examples/scores.py`` has the coverage of 95% intervals on Beta-, two-point- and zero-inflated
    scores.

    Examples
    --------
    >>> from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
    >>> f1 = ScoreOutcomes.from_scores([[0.9, 0.8, 0.85], [0.2, 0.3, 0.1], [0.6, 0.5, 0.7]])
    >>> posterior = hbayes_at_n(f1)
    >>> round(posterior.mu, 2), round(posterior.sigma, 3), round(f1.dispersion, 2)
    (0.55, 0.049, 0.12)
    """

    scored: ClassVar[bool] = True

    scores: tuple[FloatArray, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clusters is not None:
            rule = "be left out for scores"
            raise InvalidInputError.of("clusters", "conflict", rule, self.clusters[0])
        object.__setattr__(self, "scores", tuple(read_only(row, np.float64) for row in self.scores))

    @classmethod
    def from_scores(
        cls,
        scores: Sequence[Sequence[float] | FloatArray],
        bounds: tuple[float, float] = (0.0, 1.0),
        question_ids: Sequence[Hashable] | None = None,
    ) -> ScoreOutcomes:
        """Check and sum up the scores of every question.

        Parameters
        ----------
        scores : M sequences of N_α numbers
            The score of every trial.
        bounds : tuple of float
            The lowest and the highest possible score.
        question_ids : sequence, optional
            One distinct name per question.

        Raises
        ------
        InvalidInputError
            If there is no question, or a score is not within the bounds.
        """
        low, high = bounds
        if not np.isfinite([low, high]).all() or not low < high:
            raise InvalidInputError.of(
                "bounds", "range", "be two finite numbers, low < high", bounds
            )
        if not len(scores):
            raise InvalidInputError.of("scores", "empty", "hold at least one question", scores)
        try:
            given = [np.asarray(row, dtype=np.float64) for row in scores]
        except (TypeError, ValueError) as error:
            rule = f"be numbers from {low:g} to {high:g}"
            raise InvalidInputError.of("scores", "type", rule, str(error)) from None
        for row in given:
            outside = ~((row >= low) & (row <= high))
            if row.ndim != 1 or outside.any():
                rule = f"be numbers from {low:g} to {high:g}"
                got = row.tolist() if row.ndim != 1 else float(row[outside.argmax()])
                raise InvalidInputError.of("scores", "range", rule, got)
        fractions = [(row - low) / (high - low) for row in given]
        trials = np.array([_RESOLUTION * row.size for row in fractions], dtype=np.int64)
        total = [np.rint(row.sum() * _RESOLUTION) for row in fractions]
        right = np.minimum(np.array(total, dtype=np.int64), trials)
        return cls(
            counts=np.zeros((trials.size, 2), dtype=np.int64),
            weights=np.array([low, high], dtype=np.float64),
            prior_counts=np.stack([trials - right, right], axis=1),
            prior_strength=1.0 / (_dispersion(fractions) * _RESOLUTION),
            question_ids=question_ids,  # type: ignore[arg-type]
            scores=tuple(given),
        )

    @property
    def n_trials(self) -> IntArray:
        """N_α, shape (M,): the number of scores of each question."""
        return np.array([row.size for row in self.scores], dtype=np.int64)

    @property
    def most_trials(self) -> int:
        """The most scores of a question."""
        return int(self.n_trials.max())

    @property
    def mean_trials(self) -> float:
        """Mean number of scores per question."""
        return float(self.n_trials.mean())

    @property
    def dispersion(self) -> float:
        """φ, the variance of scores around their question's mean p, in units of p(1 − p).

        It is 1 for scores that are either bound, and less for all others. Pooled over questions,
        from unbiased estimates of both variances, with half a degree of freedom at φ = 1 so that
        few or equal scores do not give 0. It is 1 where no question has two trials.
        """
        return 1.0 / (self.prior_weight * _RESOLUTION)

    @property
    def dispersion_df(self) -> float:
        """The degrees of freedom ν of φ, whose estimate has about the variance 2 φ²/ν.

        Without kurtosis they are Σ_α (N_α − 1); the excess kurtosis κ of scores around their
        question's mean, pooled over questions, changes them: the variance of the variance of
        N normal scores, 2/(N − 1) in units of its square, becomes 2/(N − 1) + κ/N.
        """
        rows = [row for row in self.scores if row.size > 1]
        if not rows:
            return PRIOR_DF
        n = np.array([row.size for row in rows], dtype=np.float64)
        squares = np.concatenate(
            [np.square(row - row.mean()) * (row.size / (row.size - 1)) for row in rows]
        )
        free = float((n - 1.0).sum())
        if not squares.any():
            return PRIOR_DF + free
        kurtosis = np.square(squares).mean() / squares.mean() ** 2 - 3.0
        variance = float((np.square(n - 1.0) * (2.0 / (n - 1.0) + kurtosis / n)).sum())
        return PRIOR_DF + 2.0 * free**2 / max(variance, 1e-9)

    def mean_score(self, row: int) -> float:
        """Return the mean of a question's scores; NaN without trials."""
        return float(self.means[row])

    @cached_property
    def means(self) -> FloatArray:
        """The mean score of every question, shape (M,); NaN for one without trials."""
        return np.array([row.mean() if row.size else np.nan for row in self.scores])

    @property
    def standard_error(self) -> float:
        """The standard error of the mean of `means` for these questions.

        sqrt(v Σ_α 1/N_α)/M with v the variance of scores around their question's mean, pooled over
        questions; NaN where none has two trials.
        """
        n, variance = self.n_trials, _variance_within(self.scores)
        return float(np.sqrt(variance * (1.0 / n).sum())) / n.size

    def take(self, rows: Sequence[int] | IntArray) -> ScoreOutcomes:
        """Return some of the questions, in the order asked for; φ is estimated from them."""
        if list(rows) == list(range(self.n_questions)):
            return self
        ids = self.question_ids
        return ScoreOutcomes.from_scores(
            [self.scores[row] for row in rows],
            self.bounds,
            None if ids is None else [ids[row] for row in rows],
        )


def _dispersion(fractions: Sequence[FloatArray]) -> float:
    """Return the dispersion of scores in [0, 1], see `ScoreOutcomes.dispersion`."""
    rows = [row for row in fractions if row.size]
    n, p = np.array([(row.size, row.mean()) for row in rows]).reshape(-1, 2).T
    free, within = (n - 1.0).sum(), _variance_within(rows)
    largest = float((p * (1.0 - p) + within / n).mean()) if free else 0.0
    if largest <= 0.0:
        return 1.0
    return float(min(1.0, (free * within / largest + PRIOR_DF) / (free + PRIOR_DF)))


def _variance_within(rows: Sequence[FloatArray]) -> float:
    """Return the variance around a question's mean, pooled; NaN where none has two scores."""
    free = sum(max(row.size - 1, 0) for row in rows)
    squares = sum(float(np.square(row - row.mean()).sum()) for row in rows if row.size)
    return squares / free if free else float("nan")
