"""The posterior of a model's position among anchor models [Xiao 2025]."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy import special

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes._util.validation import (
    check_level,
    check_option,
    check_real,
    check_seed,
    check_size,
)
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.anchor_matrix import AnchorMatrix, check_anchors
from lm_eval_bayes.stats.arrays import FloatArray, blocks, read_only
from lm_eval_bayes.stats.intervals import SCOPES, Scope
from lm_eval_bayes.stats.outcomes import Outcomes, check_outcomes

#: How a model that lies between two anchors relates to them; see `capability_intervals`.
Between: TypeAlias = Literal["shared", "query"]

#: The first step and the ends of the logits of positions, how far a log likelihood below its
#: highest value matters, and the number of floats worked on at a time.
_STEP, _END, _DEPTH, _BLOCK = 0.2, 40.0, 40.0, 1_000_000


@dataclass(frozen=True, eq=False)
class CapabilityPosterior(Record):
    """The posterior over the intervals between anchors.

    Attributes
    ----------
    anchors : tuple of str
        The L anchors, weakest first. Interval i lies above anchor i − 1 and below anchor i;
        interval 0 is below them all, interval L above them all.
    probability : array, shape (L+1,)
        Posterior probability of each interval, sum 1, read-only.
    n_queries, n_trials : int
        How many queries had a trial, and the trials in all.
    epsilon : float
        How far from 0 and 1 the anchors' probabilities were kept.
    between : str
        "shared" or "query".
    scope : str
        "benchmark" or "population".
    note : str or None
        A warning about the numbers: under "query" its measured coverage.

    Examples
    --------
    >>> anchors = AnchorMatrix.from_probabilities([[0.2, 0.1], [0.9, 0.6]], ["small", "large"])
    >>> outcomes = Outcomes.from_matrix([[1], [0]])
    >>> capability_intervals(anchors, outcomes).labels
    ('below small', 'small to large', 'above large')
    """

    anchors: tuple[str, ...]
    probability: FloatArray
    n_queries: int
    n_trials: int
    epsilon: float
    between: Between
    scope: Scope = "benchmark"
    note: str | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """The L + 1 intervals in words."""
        middle = tuple(f"{low} to {high}" for low, high in pairwise(self.anchors))
        return (f"below {self.anchors[0]}", *middle, f"above {self.anchors[-1]}")

    @property
    def peak(self) -> int:
        """The most probable interval."""
        return int(self.probability.argmax())

    def p_above(self, anchor: str) -> float:
        """Return the probability that the model is stronger than an anchor.

        Raises
        ------
        InvalidInputError
            If no anchor has this name.

        Examples
        --------
        >>> anchors = AnchorMatrix.from_probabilities([[0.2, 0.1], [0.9, 0.6]], ["S", "L"])
        >>> posterior = capability_intervals(anchors, Outcomes.from_matrix([[1], [1]]))
        >>> round(posterior.p_above("S"), 3), round(posterior.p_above("L"), 3)
        (0.993, 0.767)
        """
        weaker = self.anchors.index(check_option("anchor", anchor, self.anchors))
        return min(1.0, float(self.probability[weaker + 1 :].sum()))

    def interval(self, level: float = 0.95) -> tuple[int, int]:
        """Return the first and the last of the fewest neighbouring intervals that hold `level`.

        Raises
        ------
        InvalidInputError
            If `level` is not in (0, 1).

        Examples
        --------
        >>> anchors = AnchorMatrix.from_probabilities([[0.2] * 9, [0.5] * 9, [0.8] * 9])
        >>> posterior = capability_intervals(anchors, Outcomes.from_matrix([[1]] * 5 + [[0]] * 4))
        >>> posterior.interval(0.9)
        (1, 2)
        """
        level = check_level(level)
        ends = np.concatenate(([0.0], np.cumsum(self.probability)))
        for length in range(1, ends.size - 1):
            held = ends[length:] - ends[:-length]
            best = int(held.argmax())
            if held[best] >= level:
                return best, best + length - 1
        return 0, ends.size - 2

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, the labels and the peak as plain JSON types."""
        return {**super().to_dict(), "labels": list(self.labels), "peak": self.peak}


def capability_intervals(
    anchors: AnchorMatrix,
    outcomes: Outcomes,
    epsilon: float = 0.01,
    *,
    between: Between = "shared",
    scope: Scope = "benchmark",
    replicates: int = 1000,
    seed: int = 0,
) -> CapabilityPosterior:
    """Return the posterior of a model's position among L anchors [Xiao 2025].

    Π_ij is the probability that anchor i solves query j, kept within [ε, 1 − ε]; an anchor
    that solves every query with probability ε and one with 1 − ε close the row, and the
    L + 1 intervals between neighbours are equally probable beforehand. With c_j of N_j
    trials solved, interval i (between anchors i and i + 1) has the likelihood

    - "shared": ∫₀¹ Π_j Bin(c_j; N_j, (1 − u) Π_ij + u Π_i+1,j) du, one position u between the
      two anchors for all queries. Over 4,000 simulated models among 3 anchors, 60 queries with 4
      trials each, its peak had probability 92% and was right in 92%.
    - "query": Π_j ½ (Bin(c_j; N_j, Π_ij) + Bin(c_j; N_j, Π_i+1,j)), the paper's average of
      the two boundary anchors, query by query. The model may then be like the weaker anchor
      on one query and like the stronger one on the next, as if every query had a different
      model, which is overconfident: in the same simulation its peak had probability 97% and was
      right in 86%. The result's `note` says so.

    With 50 queries, 95% ranges held the simulated model in 87 to 93% under "query" and in 99%
    under "shared" (3 to 8 anchors, 1 to 64 trials per query, 600 to 1,000 models each).

    Parameters
    ----------
    anchors : AnchorMatrix
        The anchors, weakest first.
    outcomes : Outcomes
        The model's 0/1 outcomes on the same queries; N_j may differ and may be 0. With
        question ids on both sides they have to be the same in the same order. Prior trials
        do not enter.
    epsilon : float
        From 1e-12 to ½, the latter left out.
    between : {"shared", "query"}
        See above.
    scope : {"benchmark", "population"}
        Of these queries, or of the population of queries: then the posterior is the average over
        bootstrap samples of the queries that have a trial ("BayesBag" [Huggins 2019]). It is
        wider, and holds where a model is not between two anchors on every query: with
        abilities that vary from query to query by twice the spread of the anchors (5 of them,
        30 queries, 8 trials, 300 models) ranges of 95% held the truth in 98%, of "benchmark"
        in 89%; where the likelihood is right in 99.7 and 99%.
    replicates, seed : int
        Of these samples, 1 to 10⁷ (fewer for many queries).

    Returns
    -------
    CapabilityPosterior

    Raises
    ------
    InvalidInputError
        If the outcomes have more than two distinct weights, other queries than the anchors
        or no trial, or another argument breaks its rule.

    Examples
    --------
    Three anchors, four queries; the model solves all but the hardest:

    >>> table = [[0.6, 0.3, 0.1, 0.0], [0.9, 0.6, 0.3, 0.1], [1.0, 0.9, 0.7, 0.5]]
    >>> anchors = AnchorMatrix.from_probabilities(table, ["small", "medium", "large"])
    >>> posterior = capability_intervals(anchors, Outcomes.from_matrix([[1], [1], [1], [0]]))
    >>> posterior.probability.round(3).tolist()
    [0.009, 0.138, 0.479, 0.373]
    """
    solved, failed = _check(anchors, outcomes)
    # ε is at least 1e-12, so that 1 − ε is not 1
    rule = "be a number in [1e-12, 0.5)"
    epsilon = check_real("epsilon", epsilon, rule, lambda x: 1e-12 <= x < 0.5)
    between = check_option("between", between, BETWEEN)
    scope, seed = check_option("scope", scope, SCOPES), check_seed(seed)
    replicates = check_size("replicates", replicates, 1, anchors.n_queries)
    n_trials = solved + failed
    clipped = np.clip(anchors.probabilities, epsilon, 1.0 - epsilon)
    end = np.full((1, anchors.n_queries), epsilon)
    edges = np.concatenate((end, clipped, 1.0 - end))
    interval_logs = _INTERVAL_LOGS[between]
    samples = np.ones((1, n_trials.size))
    if scope == "population":
        tried, rng = n_trials > 0, np.random.default_rng(seed)
        samples = rng.multinomial(tried.sum(), tried / tried.sum(), replicates).astype(float)
    logs = interval_logs(edges, solved, failed, samples)
    probability = special.softmax(logs, axis=0).mean(axis=1)
    return CapabilityPosterior(
        anchors=anchors.names,
        probability=read_only(probability, np.float64),
        n_queries=int((n_trials > 0).sum()),
        n_trials=int(n_trials.sum()),
        epsilon=epsilon,
        between=between,
        scope=scope,
        note='The likelihood "query" is overconfident.' if between == "query" else None,
    )


def _check(anchors: AnchorMatrix, outcomes: Outcomes) -> tuple[FloatArray, FloatArray]:
    """Return c_j and N_j − c_j, once the outcomes are those of the anchors' queries."""
    check_anchors("anchors", anchors)
    check_outcomes("outcomes", outcomes)
    solved, failed = outcomes.right_and_wrong()
    if outcomes.n_questions != anchors.n_queries:
        rule = f"be about the {anchors.n_queries} queries of the anchors"
        got = f"{outcomes.n_questions} questions"
        raise InvalidInputError.of("outcomes", "mismatch", rule, got)
    ids = (anchors.question_ids, outcomes.question_ids)
    if None not in ids and ids[0] != ids[1]:
        rule = "have the anchors' question ids in their order"
        raise InvalidInputError.of("outcomes", "mismatch", rule, ids[1])
    if outcomes.counts.sum() == 0:
        raise InvalidInputError.of("outcomes", "empty", "have at least one trial", "none")
    return solved.astype(np.float64), failed.astype(np.float64)


def _query_logs(
    edges: FloatArray, solved: FloatArray, failed: FloatArray, subsets: FloatArray
) -> FloatArray:
    """Return the logs of products of averages over the two boundary anchors."""
    logs = solved * np.log(edges) + failed * np.log1p(-edges)
    log_terms = np.logaddexp(logs[:-1], logs[1:]) - np.log(2.0)
    return np.asarray(log_terms @ subsets.T)


def _shared_logs(
    edges: FloatArray, solved: FloatArray, failed: FloatArray, subsets: FloatArray
) -> FloatArray:
    """Return the logs of integrals over one position between the two boundary anchors."""
    intervals = pairwise(edges)
    return np.stack([shared_position_log(*pair, solved, failed, subsets) for pair in intervals])


def shared_position_log(
    weaker: FloatArray,
    stronger: FloatArray,
    solved: FloatArray,
    failed: FloatArray,
    subsets: FloatArray,
) -> FloatArray:
    """Return log ∫₀¹ Π_j p_j(u)^c_j (1 − p_j(u))^(N_j − c_j) du for each subset of the queries.

    p_j(u) = (1 − u) Π_j + u Π'_j. The trapezoidal rule over logits of u, at which n trials have an
    information of at most n/4, so that steps of 1.5/√n are small beside the width of the peak. Its
    place is found with larger steps first, as the log likelihood has one peak.

    Parameters
    ----------
    weaker, stronger : array, shape (M,)
        The two anchors' probabilities Π_j and Π'_j, strictly between 0 and 1.
    solved, failed : array, shape (M,)
        c_j and N_j − c_j.
    subsets : array, shape (B, M)
        How often each holds a query.

    Returns
    -------
    array, shape (B,)

    Examples
    --------
    One query between 0.2 and 0.6, solved in its one trial: as if at the middle, 0.4.

    >>> one = np.ones(1)
    >>> log = shared_position_log(0.2 * one, 0.6 * one, one, 0 * one, np.ones((1, 1)))
    >>> round(float(np.exp(log[0])), 12)
    0.4
    """

    def log_density(logit: FloatArray) -> FloatArray:
        u, values = special.expit(logit), np.empty((subsets.shape[0], logit.size))
        for part in blocks(u.size, weaker.size, _BLOCK):
            p = weaker + u[part, None] * (stronger - weaker)
            values[:, part] = subsets @ (solved * np.log(p) + failed * np.log1p(-p)).T
        return np.asarray(values - np.logaddexp(0.0, logit) - np.logaddexp(0.0, -logit))

    logit = np.arange(-_END, _END + _STEP, _STEP)
    coarse = log_density(logit)
    matters = (coarse > coarse.max(axis=1, keepdims=True) - _DEPTH).any(axis=0).nonzero()[0]
    low, high = logit[max(matters[0] - 1, 0)], logit[min(matters[-1] + 1, logit.size - 1)]
    step = min(_STEP, 1.5 / np.sqrt(max(1.0, (subsets @ (solved + failed)).max())))
    logit, step = np.linspace(low, high, int((high - low) / step) + 2, retstep=True)
    return np.asarray(special.logsumexp(log_density(logit), axis=1) + np.log(step))


_INTERVAL_LOGS: Mapping[
    Between, Callable[[FloatArray, FloatArray, FloatArray, FloatArray], FloatArray]
] = {"shared": _shared_logs, "query": _query_logs}
BETWEEN: tuple[Between, ...] = tuple(_INTERVAL_LOGS)
