"""Models that answered the same questions, compared in scope "population".

A sample of hard questions lowers every model's score at once. The difference of two models in
scope "population" is therefore estimated from the questions' differences, as in
:func:`lm_eval_bayes.stats.comparison.difference.paired_posterior`; this module does so for any
number of posteriors, each of which carries its posterior of scope "benchmark".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from lm_eval_bayes.stats.aligned_questions import common_clusters
from lm_eval_bayes.stats.arrays import FloatArray, IntArray, blocks, cluster_index
from lm_eval_bayes.stats.comparison.difference import (
    PairedBootstrap,
    PairedSpread,
    bootstrap_weight,
    cluster_values,
    difference_posterior,
    paired_spread,
    question_means,
    separation_in_sd,
)
from lm_eval_bayes.stats.distributions.base import Distribution
from lm_eval_bayes.stats.results import Posterior, joined_notes
from lm_eval_bayes.stats.tie_rules import distance_in_sd

#: The warning where the questions of populations could not be paired.
UNPAIRED = (
    "The models are treated as if each had answered different questions, because their posteriors "
    "do not show that the questions are the same."
)


@dataclass(frozen=True, eq=False)
class SharedQuestions:
    """The posteriors of scope "benchmark" of L models that answered the same M questions.

    Parameters
    ----------
    posteriors : tuple of Posterior
        One per model.
    columns : tuple of array of int, shape (M,)
        Where each model keeps the first model's questions, in the first one's order.
    cluster_index : array of int, shape (M,), or None
        The number of each question's cluster, in the first model's order.
    """

    posteriors: tuple[Posterior, ...]
    columns: tuple[IntArray, ...]
    cluster_index: IntArray | None = None

    @classmethod
    def of(cls, posteriors: Sequence[Posterior]) -> SharedQuestions | None:
        """Pair the questions of posteriors of one scope, None where that fails.

        As in `compare`: by their ids, whatever their order, where all have some; by position
        where none has. There have to be at least two, and the same ones everywhere.

        Examples
        --------
        >>> from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
        >>> from lm_eval_bayes.stats.outcomes import Outcomes
        >>> a, b = (
        ...     hbayes_at_n(Outcomes.from_counts([[1, 3], [0, 4]], question_ids=ids), "population")
        ...     for ids in (["p", "q"], ["q", "p"])
        ... )
        >>> [columns.tolist() for columns in SharedQuestions.of([a, b]).columns]
        [[0, 1], [1, 0]]
        """
        by_model = (p if p.scope == "benchmark" else p.benchmark for p in posteriors)
        benchmarks = tuple(p for p in by_model if p is not None and p.question_means is not None)
        n_questions = min((p.per_question.mu.size for p in benchmarks), default=0)
        if len(benchmarks) < len(posteriors) or n_questions < 2:
            return None
        if any(p.per_question.mu.size > n_questions for p in benchmarks):
            return None
        ids = [p.question_ids for p in benchmarks if p.question_ids is not None]
        columns = (np.arange(n_questions),) * len(benchmarks)
        if ids:
            if len(ids) < len(benchmarks) or any(set(names) != set(ids[0]) for names in ids):
                return None
            places = ({name: column for column, name in enumerate(names)} for names in ids)
            columns = tuple(np.array([at[name] for name in ids[0]]) for at in places)
        labels = common_clusters(
            [
                None if p.clusters is None else tuple(p.clusters.labels[i] for i in column.tolist())
                for p, column in zip(posteriors, columns, strict=True)
            ],
            "posteriors",
        )
        index = None if labels is None else cluster_index(labels, n_questions, "question")
        return cls(benchmarks, columns, index)

    @property
    def n_clusters(self) -> int | None:
        """The number of clusters, None without."""
        return None if self.cluster_index is None else int(self.cluster_index.max()) + 1

    @property
    def n_units(self) -> int:
        """The number of weights of the bootstrap: of questions, or of clusters."""
        return self.n_clusters or self.columns[0].size

    @property
    def note(self) -> str | None:
        """A warning about the models; those about their priors do not concern differences."""
        return joined_notes(posterior.note_on_data for posterior in self.posteriors)

    def differences(self) -> tuple[FloatArray, FloatArray]:
        """Return mean and sd of the paired difference of every two models, each (L, L).

        ``[i, j]`` is about model i minus model j, as `paired_posterior` has it.
        """
        average, noise = self.question_means
        rows = range(len(average))
        sd = np.stack([self._spread(average[i] - average, noise[i] + noise).sd for i in rows])
        score = average.mean(axis=1)
        return score[:, None] - score, sd

    def separation_after_endless_trials(self) -> FloatArray:
        """Return |mean| / sd of every paired difference if chance were averaged out, (L, L).

        More trials of the same questions leave the variance between questions. Where that is not
        distinguished from chance, the result is infinite.

        Examples
        --------
        >>> from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
        >>> from lm_eval_bayes.stats.outcomes import Outcomes
        >>> right = ([5, 7, 3, 6, 1], [3, 5, 3, 2, 2])
        >>> counts = [[[8 - x, x] for x in each] for each in right]
        >>> a, b = (hbayes_at_n(Outcomes.from_counts(each)) for each in counts)
        >>> shared = SharedQuestions.of([a, b])
        >>> round(float(shared.separation_after_endless_trials()[0, 1]), 2)
        3.38
        """
        average, noise = self.question_means
        score = average.mean(axis=1)
        spreads = [self._spread(average[i] - average, noise[i] + noise) for i in range(score.size)]
        between = np.stack([spread.sd**2 - spread.chance**2 for spread in spreads])
        return distance_in_sd(
            np.abs(score[:, None] - score), np.sqrt(np.where(between > 1e-12, between, 0.0))
        )

    @cached_property
    def question_means(self) -> tuple[FloatArray, FloatArray]:
        """What was observed of every question in the first model's order, both (L, M).

        With clusters it is their values, both (L, T); see `cluster_values`.
        """
        pairs = list(zip(map(question_means, self.posteriors), self.columns, strict=True))
        average = np.stack([means.average[columns] for means, columns in pairs])
        noise = np.stack([means.noise[columns] for means, columns in pairs])
        return cluster_values(average, noise, self.cluster_index)

    def _spread(self, difference: FloatArray, noise: FloatArray) -> PairedSpread:
        return paired_spread(difference, noise, clustered=self.cluster_index is not None)

    def first_difference(self) -> Distribution:
        """Return the distribution of the first model's score less the second's, paired."""
        average, noise = self.question_means
        difference = average[0] - average[1]
        spread = self._spread(difference, noise[0] + noise[1])
        return PairedBootstrap(difference, spread, self.posteriors[0].distribution.seed)

    def separations(self, mu: FloatArray) -> FloatArray:
        """Return z = |mean| / sd of the paired difference of every two models, (L, L).

        Parameters
        ----------
        mu : array, shape (L,)
            The scores by which the models are ordered. Where these are equal, or the
            questions' differences favour the other one, z is 0.
        """
        difference, sd = self.differences()
        same_side = difference * np.sign(mu[:, None] - mu)
        return distance_in_sd(np.maximum(same_side, 0.0), sd)

    def draw(self, draws: int, seed: int) -> FloatArray:
        """Draw all models' scores over the population of questions, sharing the questions' weights.

        As in `paired_posterior`, for each model's averages in place of their differences. With
        more than two models the bootstrap's part is that of the pair with the largest.

        Parameters
        ----------
        draws : int
            How many joint draws.
        seed : int
            The seed of all streams: one per model, and one for the weights.

        Returns
        -------
        array, shape (L, draws)
        """
        *streams, shared = map(
            np.random.default_rng, np.random.SeedSequence(seed).spawn(len(self.posteriors) + 1)
        )
        average, noise = self.question_means
        mean = average.mean(axis=1, keepdims=True)
        n_questions = average.shape[1]
        kappa = max(
            float(self._spread(average[row] - average, noise[row] + noise).kappa.max())
            for row in range(len(streams))
        )
        scores = np.empty((len(streams), draws))
        for row, rng in enumerate(streams):
            own = np.sqrt(noise[row].mean() / n_questions)
            scores[row] = mean[row] + own * rng.standard_normal(draws)
        for part in blocks(draws, 2 * n_questions):
            size = part.stop - part.start
            share = shared.standard_gamma(bootstrap_weight(n_questions), (size, n_questions))
            share /= share.sum(axis=1, keepdims=True)
            scores[:, part] += kappa * ((average - mean) @ share.T)
        return scores


def pair_difference(a: Posterior, b: Posterior) -> Distribution | None:
    """Return the distribution of A − B for two posteriors of one scope, that of `compare`.

    None in scope "population" where the questions cannot be paired.
    """
    if a.scope == "benchmark":
        return difference_posterior(a, b).distribution
    shared = SharedQuestions.of([a, b])
    return None if shared is None else shared.first_difference()


class Separation(NamedTuple):
    """How far two models are apart.

    `difference` is the mean of A − B and `sd` its standard deviation. `shared` holds the
    paired questions in scope "population", and `note` says what has to be known.
    """

    difference: float
    sd: float
    shared: SharedQuestions | None
    note: str | None

    @property
    def z(self) -> float:
        """|difference| / sd."""
        return separation_in_sd(self.difference, self.sd)


def separation(a: Posterior, b: Posterior) -> Separation:
    """Return how far two posteriors of one scope are apart, as `compare` would say.

    In scope "benchmark" they are independent, μ − μ' with sd sqrt(σ² + σ'²). In scope
    "population" the questions are paired; where they cannot be, the posteriors are taken as
    independent, and the note says so.

    Examples
    --------
    >>> from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
    >>> from lm_eval_bayes.stats.outcomes import Outcomes
    >>> counts = ([[4, 60], [30, 34], [60, 4]], [[8, 56], [33, 31], [63, 1]])
    >>> a, b = (hbayes_at_n(Outcomes.from_counts(each), "population") for each in counts)
    >>> paired = separation(a, b)
    >>> bool(paired.sd < 0.3 * np.hypot(a.sigma, b.sigma)), paired.note
    (True, None)
    """
    if a.scope == "population":
        shared = SharedQuestions.of([a, b])
        if shared is not None:
            difference, sd = shared.differences()
            return Separation(float(difference[0, 1]), float(sd[0, 1]), shared, shared.note)
    note = UNPAIRED if a.scope == "population" else None
    return Separation(a.mu - b.mu, float(np.hypot(a.sigma, b.sigma)), None, note)
