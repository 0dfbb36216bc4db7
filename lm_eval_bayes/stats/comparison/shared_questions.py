"""Models that answered the same questions: their pairing, and differences in scope "population".

`align_questions` pairs the outcomes of two models by ids, or by places.

A sample of hard questions lowers every model's score at once. The difference of two models in
scope "population" is therefore estimated from the questions' differences, as in `compare`;
`SharedQuestions` does so for any number of posteriors, each of which carries its posterior of
scope "benchmark".
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from lm_eval_bayes._util.validation import check_option
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, IntArray, blocks, cluster_index
from lm_eval_bayes.stats.comparison.difference import (
    PairedBootstrap,
    PairedSpread,
    bootstrap_weight,
    cluster_values,
    difference_posterior,
    posterior_of_difference,
    spreads_of_pairs,
)
from lm_eval_bayes.stats.outcomes import Outcomes, check_outcomes
from lm_eval_bayes.stats.results import PerQuestion, Posterior, joined_notes

Align: TypeAlias = Literal["strict", "intersection"]
ALIGNMENTS: tuple[Align, ...] = ("strict", "intersection")
#: Ids that an error message names for each side.
_SHOWN = 3


@dataclass(frozen=True, eq=False)
class Aligned:
    """Two models on the same questions in the same order.

    Attributes
    ----------
    a, b : Outcomes
        Row for row the same questions.
    left_out_a, left_out_b : int
        Questions of each model that the other lacks and that were dropped.
    """

    a: Outcomes
    b: Outcomes
    left_out_a: int
    left_out_b: int


def align_questions(a: Outcomes, b: Outcomes, how: Align = "strict") -> Aligned:
    """Pair the questions of two models, in the order of `a`.

    With ids on both sides the ids are the pairing, whatever their order; without ids on
    either, the positions are, and there have to be equally many.

    Parameters
    ----------
    a, b : Outcomes
        With the same weights.
    how : {"strict", "intersection"}
        "strict": a question that only one side has is an error. "intersection": it is left
        out and counted.

    Returns
    -------
    Aligned

    Raises
    ------
    InvalidInputError
        If the weights differ, only one side has ids, M differs without ids, an id is on
        one side only ("strict"), or no id is on both ("intersection").

    Examples
    --------
    >>> a = Outcomes.from_matrix([[0], [1], [1]], question_ids=["p", "q", "r"])
    >>> b = Outcomes.from_matrix([[1], [0]], question_ids=["r", "p"])
    >>> pair = align_questions(a, b, "intersection")
    >>> pair.a.question_ids, pair.b.question_ids, pair.left_out_a, pair.left_out_b
    (('p', 'r'), ('p', 'r'), 1, 0)
    """
    how = check_option("align", how, ALIGNMENTS)
    check_same_weights(a, b)
    if a.question_ids is None and b.question_ids is None:
        if a.n_questions != b.n_questions:
            rule = f"have as many questions as `a` (M={a.n_questions}) where no ids pair them"
            raise InvalidInputError.of("b", "shape", rule, f"{b.n_questions} questions")
        return Aligned(a, b, 0, 0)
    if a.question_ids is None or b.question_ids is None:
        without, other = ("a", "b") if a.question_ids is None else ("b", "a")
        rule = f"carry question_ids, as `{other}` does, so that questions can be paired"
        raise InvalidInputError.of(without, "missing", rule, "none")
    row_of_id = {name: row for row, name in enumerate(b.question_ids)}
    rows_a = [row for row, name in enumerate(a.question_ids) if name in row_of_id]
    rows_b = [row_of_id[a.question_ids[row]] for row in rows_a]
    left_out_a, left_out_b = a.n_questions - len(rows_a), b.n_questions - len(rows_b)
    if not rows_a or (how == "strict" and (left_out_a or left_out_b)):
        rule = "have at least one question in common with `a`"
        if how == "strict":
            rule = 'have the questions of `a`; align="intersection" compares the common ones'
        got = _difference(a.question_ids, b.question_ids)
        raise InvalidInputError.of("b", "mismatch", rule, got)
    return Aligned(a.take(rows_a), b.take(rows_b), left_out_a, left_out_b)


def common_clusters(
    of_models: Sequence[tuple[Hashable, ...] | None], argument: str = "clusters"
) -> tuple[Hashable, ...] | None:
    """Return the clusters of M questions that several models answered; None if none has any.

    Parameters
    ----------
    of_models : sequence of tuple or None
        The clusters of the same questions in the same order, for every model that has some.
    argument : str
        Their name in an error.

    Raises
    ------
    InvalidInputError
        If two models have different clusters for a question.

    Examples
    --------
    >>> common_clusters([None, ("x", "x", "y")])
    ('x', 'x', 'y')
    """
    given = [labels for labels in of_models if labels is not None]
    for labels in given[1:]:
        for question, (own, first) in enumerate(zip(labels, given[0], strict=True)):
            if own != first:
                rule = f"put a question into the same cluster for all models ({first!r})"
                got = f"{own!r} for question {question}"
                raise InvalidInputError.of(argument, "mismatch", rule, got)
    return given[0] if given else None


def check_same_weights(a: Outcomes, b: Outcomes) -> None:
    """Refuse two models whose trials are scored differently.

    Raises
    ------
    InvalidInputError
        If an argument is no `Outcomes`, or their weights differ.
    """
    for name, value in (("a", a), ("b", b)):
        check_outcomes(name, value, scores=True)
    if a.scored != b.scored:
        kinds = ["scores" if side.scored else "categories" for side in (a, b)]
        raise InvalidInputError.of("b", "mismatch", f"have {kinds[0]}, as `a` has", kinds[1])
    if not np.array_equal(a.weights, b.weights):
        rule = f"have the weights of `a`, {a.weights.tolist()}"
        raise InvalidInputError.of("b", "mismatch", rule, f"weights {b.weights.tolist()}")


def _difference(a: tuple[Hashable, ...], b: tuple[Hashable, ...]) -> str:
    """Name the first ids that only one side has."""
    parts = []
    for side, own, other in (("a", a, set(b)), ("b", b, set(a))):
        if only := [name for name in own if name not in other]:
            shown = ", ".join(repr(name) for name in only[:_SHOWN])
            more = f" and {len(only) - _SHOWN} more" if len(only) > _SHOWN else ""
            parts.append(f"only in {side}: {shown}{more}")
    return "; ".join(parts)


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

        Raises
        ------
        InvalidInputError
            If two or more posteriors of a population rest on one question.

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
        sizes = {p.per_question.mu.size for p in benchmarks}
        if len(posteriors) > 1 and sizes == {1} and posteriors[0].scope == "population":
            rule = 'rest on at least two questions for scope "population"'
            raise InvalidInputError.of("posteriors", "empty", rule, "one question")
        if len(benchmarks) < len(posteriors) or len(sizes) != 1 or sizes == {1}:
            return None
        (n_questions,) = sizes
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

    @cached_property
    def difference(self) -> FloatArray:
        """``[i, j]``: the mean of model i less model j, (L, L)."""
        score = self.question_means[0].mean(axis=1)
        return np.asarray(score[:, None] - score)

    @cached_property
    def spread(self) -> PairedSpread:
        """The sd of the paired difference of every two models and its components, (L, L)."""
        clustered = self.cluster_index is not None
        return spreads_of_pairs(*self.question_means, clustered=clustered)

    @cached_property
    def question_means(self) -> tuple[FloatArray, FloatArray]:
        """What was observed of every question in the first model's order, both (L, M).

        With clusters it is their values, both (L, T); see `cluster_values`.
        """
        average, noise = np.stack(
            [
                np.stack(own.question_means)[:, columns]
                for own, columns in zip(self.posteriors, self.columns, strict=True)
                if own.question_means is not None
            ],
            axis=1,
        )
        return cluster_values(average, noise, self.cluster_index)

    def first_difference(self) -> Posterior:
        """Return the posterior of the first model's score less the second's, paired by question.

        The differences d_α of the questions' mean scores, weighted by Dirichlet(c, …, c).
        They vary between questions and between trials, and both contribute to the uncertainty of
        a mean over questions, as in a paired t [Bowyer 2025, §3.4]. c = 1 is the Bayesian bootstrap
        as published [Rubin 1981], whose variance is (M − 1)/(M + 1) times s²/M, too small where
        questions are few; see `bootstrap_weight`. The part of that variance due to trials, v̄/M, is
        drawn as a normal ε and the rest from the bootstrap, so that one question that differs by
        one trial does not make the sign certain; the variance is at least v̄/M.

        With clusters the bootstrap's weights are those of the T clusters: the weighted mean over
        questions, to first order, see `cluster_values`.
        """
        a, b = self.posteriors[:2]
        average = self.question_means[0]
        spread = PairedSpread(*(part[0, 1] for part in self.spread))
        distribution = PairedBootstrap(average[0] - average[1], spread, a.distribution.seed)
        moments = distribution.mean, distribution.sd
        return posterior_of_difference(a, b, moments, distribution, "population")

    def draw(self, draws: int, seed: int) -> FloatArray:
        """Draw all models' scores over the population of questions, sharing the questions' weights.

        As in `first_difference`, for each model's averages in place of their differences. With
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
        scores = np.empty((len(streams), draws))
        for row, rng in enumerate(streams):
            own = np.sqrt(noise[row].mean() / n_questions)
            scores[row] = mean[row] + own * rng.standard_normal(draws)
        for part in blocks(draws, 2 * n_questions):
            size = part.stop - part.start
            share = shared.standard_gamma(bootstrap_weight(n_questions), (size, n_questions))
            share /= share.sum(axis=1, keepdims=True)
            scores[:, part] += self.spread.kappa.max() * ((average - mean) @ share.T)
        return scores


def pair_posterior(a: Posterior, b: Posterior) -> Posterior:
    """Return the posterior of A − B for two posteriors of one scope, that of `compare`.

    In scope "benchmark" they are independent. In scope "population" the questions are paired; where
    they cannot be, the posteriors are taken as independent, and the note says so.

    Examples
    --------
    >>> from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
    >>> from lm_eval_bayes.stats.outcomes import Outcomes
    >>> counts = ([[4, 60], [30, 34], [60, 4]], [[8, 56], [33, 31], [63, 1]])
    >>> a, b = (hbayes_at_n(Outcomes.from_counts(each), "population") for each in counts)
    >>> paired = pair_posterior(a, b)
    >>> bool(paired.sigma < 0.3 * np.hypot(a.sigma, b.sigma)), paired.note
    (True, None)
    """
    if a.scope == "benchmark":
        return difference_posterior(a, b)
    shared = SharedQuestions.of([a, b])
    if shared is not None:
        return shared.first_difference()
    none = PerQuestion(np.zeros(0), np.zeros(0))
    independent = difference_posterior(*(replace(each, per_question=none) for each in (a, b)))
    return replace(independent, scope="population", note=UNPAIRED)
