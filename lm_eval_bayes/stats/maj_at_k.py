"""maj@k: the expected score of a plurality vote over the answers of k trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, blocks, read_only
from lm_eval_bayes.stats.results import Estimate
from lm_eval_bayes.stats.validation import check_k, check_seed, check_sequence, check_size


class Tallies(NamedTuple):
    """How often each answer to a question was given, and how often it was graded correct."""

    votes: Counter[Hashable]
    rights: Counter[Hashable]


#: Stands for every right answer in a vote; no text equals it.
_RIGHT = ("right",)
#: The (votes, credit) of each answer to a question.
Sides: TypeAlias = tuple[tuple[int, float], ...]
#: These, and the number of abstentions.
Ballot: TypeAlias = tuple[Sides, int]

#: Cost above which a question's vote is drawn instead of computed (about one second).
_EXACT_COST = 100_000_000


def maj_at_k(
    answers: Sequence[Sequence[Hashable]],
    correct: Sequence[Sequence[bool]],
    k: int,
    *,
    seed: int = 0,
    draws: int = 20_000,
) -> Estimate:
    """Return the expected credit of a plurality vote over a random k-subset of the trials.

    The answer given most often wins; answers tied for the lead share the win equally. An
    answer's credit is the mean correctness of the responses that gave it. A response
    without an answer (None) abstains, and a subset of abstentions earns 0.

    Computed exactly, by summing over the winner's number of votes and adding the other
    answers one by one (multivariate hypergeometric); questions with too many trials for
    that (beyond about N = 600 at k = N/2) are drawn, with the error reported.

    Parameters
    ----------
    answers : M sequences of N_α hashables
        The extracted answer of every response, None where none was found.
    correct : M sequences of N_α bools
        Whether that response was graded correct.
    k : int
        1 <= k <= N, the smallest N_α where they differ.
    seed : int
        Seed of the draws, where there are any.
    draws : int
        Their number per question, 100 to 10⁷.

    Returns
    -------
    Estimate
        In [0, 1]; the mean over questions; `mc_error` and `seed` are set where it was drawn.

    Raises
    ------
    InvalidInputError
        If the two arguments do not match, an answer is not hashable, an entry of `correct`
        is no boolean, or k is out of range.

    Examples
    --------
    Two of three say "7", rightly. A pair is {7, 7} once in three and a tie otherwise:

    >>> round(maj_at_k([["7", "7", "9"]], [[True, True, False]], 2).value, 12)
    0.666666666667
    """
    votes = [_ballot(tallies) for tallies in tabulated_answers(answers, correct)]
    k = check_k(k, np.array([abstained + sum(n for n, _ in sides) for sides, abstained in votes]))
    seed = check_seed(seed)
    draws = check_size("draws", draws, 100)
    streams = np.random.SeedSequence(seed).spawn(len(votes))
    scores, errors = np.zeros(len(votes)), np.zeros(len(votes))
    costly = [_cost(*ballot, k) > _EXACT_COST for ballot in votes]
    for index, ballot in enumerate(votes):
        if costly[index]:
            rng = np.random.default_rng(streams[index])
            scores[index], errors[index] = _drawn(*ballot, k, draws, rng)
        else:
            scores[index] = _exact(*ballot, k)
    drawn = any(costly)
    return Estimate(
        quantity="maj@k",
        value=float(min(scores.mean(), 1.0)),
        per_question=read_only(scores, np.float64),
        k=k,
        mc_error=float(np.sqrt((errors**2).sum()) / len(votes)) if drawn else None,
        seed=seed if drawn else None,
    )


def vote_candidates(
    answers: Iterable[Iterable[Hashable]], correct: Iterable[Iterable[object]]
) -> tuple[tuple[tuple[Hashable, ...], ...], tuple[tuple[bool, ...], ...]]:
    """Return `answers` and `correct` with one candidate for all right answers.

    Parameters
    ----------
    answers : M iterables of N_α hashables
        The extracted answer of every response, None where none was found.
    correct : M iterables of N_α objects
        Each true where that response is right.

    Examples
    --------
    >>> vote_candidates([["1/2", "0.5", "2"]], [[1, 1, 0]])
    (((('right',), ('right',), '2'),), ((True, True, False),))
    """
    is_right = tuple(tuple(map(bool, marks)) for marks in correct)
    candidates = tuple(
        tuple(_RIGHT if right else answer for answer, right in zip(given, marks, strict=True))
        for given, marks in zip(answers, is_right, strict=True)
    )
    return candidates, is_right


def tabulated_answers(
    answers: Sequence[Sequence[Hashable]], correct: Sequence[Sequence[bool]]
) -> list[Tallies]:
    """Return, per question, how often each answer was given, and how often it was right.

    Parameters
    ----------
    answers, correct : sequences
        As in `maj_at_k`.

    Raises
    ------
    InvalidInputError
        If the two do not match, an answer is not hashable, or an entry of `correct` is no boolean.
    """
    given, marks = _table("answers", answers), _table("correct", correct)
    if len(given) != len(marks):
        got = f"{len(marks)} for {len(given)}"
        raise InvalidInputError.of("correct", "shape", "have as many questions as `answers`", got)
    return [_tallied(index, *rows) for index, rows in enumerate(zip(given, marks, strict=True))]


def _table(name: str, rows: object) -> list[list[Any]]:
    """Return the entries question by question."""
    rule = "be a sequence of sequences, one per question"
    table = [check_sequence(name, row, rule) for row in check_sequence(name, rows, rule)]
    if not table:
        raise InvalidInputError.of(name, "empty", f"{rule}, not empty", rows)
    return table


def _tallied(index: int, given: Sequence[Hashable], marks: Sequence[bool]) -> Tallies:
    """Tally one question."""
    if len(given) != len(marks) or len(given) == 0:
        rule = "have one entry per answer of the question, at least one"
        got = f"{len(marks)} for {len(given)} (question {index})"
        raise InvalidInputError.of("correct", "shape", rule, got)
    votes: Counter[Hashable] = Counter()
    rights: Counter[Hashable] = Counter()
    for answer, mark in zip(given, marks, strict=True):
        if not isinstance(mark, (bool, np.bool_, int, np.integer)) or mark not in (0, 1):
            raise InvalidInputError.of(
                "correct", "type", "hold booleans", f"{mark!r} (question {index})"
            )
        try:
            votes[answer] += 1
        except TypeError:
            got = f"{answer!r} (question {index})"
            raise InvalidInputError.of(
                "answers", "type", "hold hashable answers or None", got
            ) from None
        rights[answer] += int(mark)
    return Tallies(votes, rights)


def _ballot(tallies: Tallies) -> Ballot:
    """Return the (votes, credit) of each answer and the number of abstentions."""
    sides = [(n, tallies.rights[a] / n) for a, n in tallies.votes.items() if a is not None]
    return tuple(sorted(sides)), tallies.votes[None]


def _cost(sides: Sides, abstained: int, k: int) -> int:
    """Return about how many multiplications :func:`_exact` takes."""
    sizes = np.array([n for n, _ in sides], dtype=np.int64)
    return sum(
        int((sizes >= v).sum()) * v * (k + 1) * (k // v + 1)
        for v in range(1, min(k, int(sizes.max(initial=0))) + 1)
    )


@lru_cache(maxsize=4096)
def _exact(sides: Sides, abstained: int, k: int) -> float:
    """Return the expected credit of a plurality vote, exactly.

    Give every response a vote with probability r = k/N: the votes per answer are then
    independent binomials, and conditioning on k votes in all makes the subset uniform
    whatever r is; this r makes k votes likely, so no number gets extreme. For each winning
    number v, `ways[x, t]` is the probability that the answers seen so far have x votes, t of
    them exactly v and none more, and `won[x, t]` the same times the credits of those t. An
    answer given by fewer than v responses cannot reach v, so all of them and the
    abstentions enter at the end as one binomial.
    """
    total = abstained + sum(n for n, _ in sides)
    if k == total:
        lead = max((n for n, _ in sides), default=0)
        winners = [credit for n, credit in sides if n == lead]
        return sum(winners) / len(winners) if winners else 0.0
    r = k / total
    expected = 0.0
    for v in range(1, min(k, max((n for n, _ in sides), default=0)) + 1):
        ways = np.zeros((k + 1, k // v + 1))
        credit_ways = np.zeros_like(ways)
        ways[0, 0] = 1.0
        rest = abstained
        for n, credit in sides:
            if n < v:
                rest += n
                continue
            chance = _votes(n, r)
            new_ways, new_won = np.zeros_like(ways), np.zeros_like(credit_ways)
            for u in range(v):
                new_ways[u:] += chance[u] * ways[: k + 1 - u]
                new_won[u:] += chance[u] * credit_ways[: k + 1 - u]
            new_ways[v:, 1:] += chance[v] * ways[: k + 1 - v, :-1]
            new_won[v:, 1:] += chance[v] * (credit_ways + credit * ways)[: k + 1 - v, :-1]
            ways, credit_ways = new_ways, new_won
        shared = credit_ways[:, 1:] @ (1.0 / np.arange(1, k // v + 1))
        beside = _votes(rest, r)[: k + 1]
        expected += float(shared[k + 1 - beside.size :] @ beside[::-1])
    return min(expected / float(_votes(total, r)[k]), 1.0)


@lru_cache(maxsize=4096)
def _votes(n: int, r: float) -> FloatArray:
    """Return the binomial probability of 0..n votes, shape (n + 1,)."""
    from scipy.special import gammaln  # takes long to import

    j = np.arange(n + 1)
    ways = gammaln(n + 1) - gammaln(j + 1) - gammaln(n - j + 1)
    return np.asarray(np.exp(ways + j * np.log(r) + (n - j) * np.log1p(-r)))


def _drawn(
    sides: Sides, abstained: int, k: int, draws: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Return the mean credit of seeded random subsets and its standard error."""
    sizes = np.array([n for n, _ in sides] + [abstained], dtype=np.int64)
    credits: FloatArray = np.array([credit for _, credit in sides])
    earned = np.empty(draws)
    for part in blocks(draws, sizes.size, 4_000_000):
        n_draws = part.stop - part.start
        votes = rng.multivariate_hypergeometric(sizes, k, n_draws, method="marginals")[:, :-1]
        lead = votes.max(axis=1, keepdims=True)
        ahead = (votes == lead) & (lead > 0)
        earned[part] = ahead @ credits / np.maximum(ahead.sum(axis=1), 1)
    return float(earned.mean()), float(earned.std(ddof=1) / np.sqrt(draws))
