"""maj@k: the expected score of a plurality vote over the answers of k trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, blocks, read_only
from lm_eval_bayes.stats.results import Estimate
from lm_eval_bayes.stats.validation import check_k, check_sequence


class Tallies(NamedTuple):
    """How often each answer to a question was given, and how often it was graded correct."""

    votes: Counter[Hashable]
    rights: Counter[Hashable]


#: Stands for every right answer in a vote; no text equals it.
_RIGHT = ("right",)
#: A probability that counts as 0, and the sds within which the winner's votes are.
_LOST, _SDS = 1e-150, 9.0


def maj_at_k(
    answers: Sequence[Sequence[Hashable]],
    correct: Sequence[Sequence[bool]],
    k: int,
) -> Estimate:
    """Return the expected credit of a plurality vote over a random k-subset of the trials.

    The answer given most often wins; answers tied for the lead share the win equally. An
    answer's credit is the mean correctness of the responses that gave it. A response
    without an answer (None) abstains, and a subset of abstentions earns 0.

    It is computed exactly, see `_expected_credits`.

    Parameters
    ----------
    answers : M sequences of N_α hashables
        The extracted answer of every response, None where none was found.
    correct : M sequences of N_α bools
        Whether that response was graded correct.
    k : int
        1 <= k <= N, the smallest N_α where they differ.

    Returns
    -------
    Estimate
        In [0, 1]; the mean over questions.

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
    tallies = tabulated_answers(answers, correct)
    totals = np.array([sum(votes.values()) for votes, _ in tallies])
    k = check_k(k, totals)
    scores = np.empty(len(tallies))
    for total in np.unique(totals):
        where = np.flatnonzero(totals == total)
        scores[where] = _expected_credits([tallies[i] for i in where], int(total), k)
    return Estimate("maj@k", float(scores.mean()), read_only(scores, np.float64), k=k)


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
    bad = [mark for mark in marks if mark not in (0, 1)]
    if bad:
        got = f"{bad[0]!r} (question {index})"
        raise InvalidInputError.of("correct", "type", "hold booleans", got)
    try:
        return Tallies(Counter(given), Counter(compress(given, marks)))
    except TypeError:
        got = f"{given!r} (question {index})"
        raise InvalidInputError.of(
            "answers", "type", "hold hashable answers or None", got
        ) from None


def circle_points(k: int, total: float) -> tuple[npt.NDArray[np.complex128], FloatArray]:
    """Return half of the points at which a probability generating function gives its k-th term.

    The term is the sum of the real parts of the values times the factors that are returned. The
    number of which it is the probability is `total` at most, and more than k + 6√k + 10 with
    negligible probability.
    """
    n_points = 2 * (int(min(total, k + 6.0 * np.sqrt(k) + 10.0)) // 2 + 1)
    points = np.exp(1j * np.pi * (np.arange(n_points // 2) * 2.0 + 1.0) / n_points)
    return points, points**-k * (2.0 / n_points)


def _expected_credits(tallies: Sequence[Tallies], total: int, k: int) -> FloatArray:
    """Return the expected credit of a vote of k of the `total` trials of each question.

    Give every response a vote with probability r = k/N: the votes of the answers are then
    independent binomials, and conditioning on k votes in all makes the subset uniform. Where the
    winners have v votes, an answer given n times has the generating function
    T_n = Σ_{u<v} b(u; n) x^u + z b(v; n) x^v. The integral over z from 0 to 1 of Π T_n times
    Σ credit b(v; n) x^v / T_n shares the win among those tied; it is a polynomial, so Gauss and
    Legendre's rule is exact, and its k-th coefficient comes from points x on a circle.
    """
    sides = [
        (i, n, rights[answer] / n)
        for i, (votes, rights) in enumerate(tallies)
        for answer, n in votes.items()
        if answer is not None
    ]
    question, votes_of, credit = np.array(sides).reshape(-1, 3).T
    question, shape = question.astype(np.int64), (len(tallies), -1)
    if k == total:
        lead = np.zeros(len(tallies))
        np.maximum.at(lead, question, votes_of)
        wins = votes_of == lead[question]
        won, tied = (np.bincount(question, wins * x, len(tallies)) for x in (credit, 1.0))
        return np.asarray(won / np.maximum(tied, 1.0))
    sizes, column = np.unique(votes_of, return_inverse=True)
    at, n_cells = question * sizes.size + column, len(tallies) * sizes.size
    unit = np.ones_like(credit)
    times, credits = (
        np.asarray(np.bincount(at, x, n_cells).reshape(shape), dtype=np.float64)
        for x in (unit, credit)
    )
    r = k / total
    x, factor = circle_points(k, total)
    abstained = np.array([float(votes[None]) for votes, _ in tallies])
    expected = np.zeros(len(tallies))
    most = np.zeros(len(tallies))
    np.maximum.at(most, question, r * votes_of)
    least = int(max(most.min() - _SDS * np.sqrt(most.min()), 1.0))
    last_v = int(min(k, sizes.max(initial=0), most.max() + _SDS * np.sqrt(most.max()) + 40.0))
    chance = _binomial(sizes, r, last_v)
    below: npt.NDArray[np.complex128] = np.zeros((sizes.size, x.size), dtype=np.complex128)
    last = np.zeros_like(below)
    for v in range(last_v + 1):
        below, last = below + last, chance[:, v, None] * x**v
        if v < least:
            continue
        nodes, weights = special.roots_legendre(k // v // 2 + 1)
        series = below[:, None] + (0.5 * (nodes[:, None] + 1.0)) * last[:, None]
        lost = np.abs(series) < _LOST
        series = np.where(lost, _LOST, series)
        log_series = np.log(series).reshape(sizes.size, -1)
        share = np.where(lost, 0.0, last[:, None] / series).reshape(sizes.size, -1)
        weight = (0.5 * weights[:, None] * factor).ravel()
        silent = np.tile(np.log(1.0 - r + r * x), nodes.size)
        for part in blocks(len(tallies), weight.size):
            value = np.exp(
                complex_product(times[part], log_series) + abstained[part, None] * silent
            )
            value *= complex_product(credits[part], share)
            expected[part] += (value @ weight).real
    return np.asarray(np.clip(expected / _binomial(np.array([total]), r, k)[0, k], 0.0, 1.0))


def complex_product(a: FloatArray, b: npt.NDArray[np.complex128]) -> npt.NDArray[np.complex128]:
    """Return the matrix product of a real and a complex array."""
    return np.asarray((a @ b.view(np.float64)).view(np.complex128))


def _binomial(n: npt.NDArray[Any], r: float, most: int) -> FloatArray:
    """Return the binomial probabilities of 0..most of n votes, (D, most + 1)."""
    j, n = np.arange(most + 1.0), n[:, None]
    log = special.gammaln(n + 1.0) - special.gammaln(j + 1.0)
    log = log - special.gammaln(np.maximum(n - j, 0.0) + 1.0)
    log += j * np.log(r) + (n - j) * np.log1p(-r)
    return np.asarray(np.where(j <= n, np.exp(np.minimum(log, 0.0)), 0.0))
