"""maj@k: the expected score of a plurality vote over the answers of k trials."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from lm_eval_bayes._util.validation import check_k, check_sequence
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, IntArray, blocks, read_only
from lm_eval_bayes.stats.results import Estimate


class Tallies(NamedTuple):
    """How often each answer to each question was given, and how often it was graded correct.

    `question`, `votes`, `rights` and `silent` (no answer) are of shape (V,); `totals` (M,) are the
    trials of the questions.
    """

    question: IntArray
    votes: IntArray
    rights: IntArray
    silent: npt.NDArray[np.bool_]
    totals: IntArray


#: Stands for every right answer in a vote; no text equals it.
_RIGHT = ("right",)
#: A probability that counts as 0.
_LOST = 1e-150


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
    k = check_k(k, tallies.totals)
    scores = np.empty(tallies.totals.size)
    for total in np.unique(tallies.totals):
        where = np.flatnonzero(tallies.totals == total)
        own = tallies.totals[tallies.question] == total
        question = np.searchsorted(where, tallies.question[own])
        votes, rights, silent = tallies.votes[own], tallies.rights[own], tallies.silent[own]
        sides = Tallies(question, votes, rights, silent, where)
        scores[where] = _expected_credits(sides, int(total), k)
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
) -> Tallies:
    """Return how often each answer was given, and how often it was right.

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
    totals, n_marks = (np.array([len(row) for row in rows]) for rows in (given, marks))
    same = totals.size == n_marks.size
    if not same or (totals != n_marks).any() or totals.min() == 0:
        rule = "have one entry per answer of each question, at least one"
        got = f"{n_marks.tolist()} for {totals.tolist()}"
        raise InvalidInputError.of("correct", "shape", rule, got)
    bad = set(_distinct("correct", marks, "booleans")) - {0, 1}
    if bad:
        raise InvalidInputError.of("correct", "type", "hold booleans", bad.pop())
    distinct = _distinct("answers", given, "hashable answers or None")
    code = {answer: i for i, answer in enumerate(distinct)}
    of_trial = np.fromiter(map(code.__getitem__, chain.from_iterable(given)), np.int64)
    of_trial += len(code) * np.repeat(np.arange(totals.size), totals)
    right = np.fromiter(chain.from_iterable(marks), np.int64)
    marked, n = np.unique(2 * of_trial + right, return_counts=True)
    cells, at = np.unique(marked // 2, return_inverse=True)
    votes, rights = (np.bincount(at, x).astype(np.int64) for x in (n, n * (marked % 2)))
    question, number = np.divmod(cells, len(code))
    return Tallies(question, votes, rights, number == code.get(None), totals)


def _table(name: str, rows: object) -> list[Sequence[Any]]:
    """Return the entries question by question."""
    rule = "be a sequence of sequences, one per question"
    table: list[Sequence[Any]] = [
        row if isinstance(row, (list, tuple)) else check_sequence(name, row, rule)
        for row in check_sequence(name, rows, rule)
    ]
    if not table:
        raise InvalidInputError.of(name, "empty", f"{rule}, not empty", rows)
    return table


def _distinct(name: str, rows: list[Sequence[Any]], what: str) -> dict[Hashable, None]:
    """Return the distinct entries in the order of their first."""
    try:
        return dict.fromkeys(chain.from_iterable(rows))
    except TypeError:
        raise InvalidInputError.of(name, "type", f"hold {what}", rows) from None


def _expected_credits(tallies: Tallies, total: int, k: int) -> FloatArray:
    """Return the expected credit of a vote of k of the `total` trials of each question.

    Give every response a vote with probability r = k/N: the votes of the answers are then
    independent binomials, and conditioning on k votes in all makes the subset uniform. Where the
    winners have v votes, an answer given n times has the generating function
    T_n = Σ_{u<v} b(u; n) x^u + z b(v; n) x^v. The integral over z from 0 to 1 of Π T_n times
    Σ credit b(v; n) x^v / T_n shares the win among those tied; it is a polynomial, so Gauss and
    Legendre's rule is exact, and its k-th coefficient comes from points x on a circle.
    """
    n_questions = tallies.totals.size
    cast, silent = ~tallies.silent, tallies.silent
    question, votes = tallies.question[cast], tallies.votes[cast]
    credit = tallies.rights[cast] / votes
    if k == total:
        lead = np.zeros(n_questions)
        np.maximum.at(lead, question, votes)
        wins = votes == lead[question]
        won, tied = (np.bincount(question, wins * x, n_questions) for x in (credit, 1.0))
        return np.asarray(won / np.maximum(tied, 1.0))
    sizes, column = np.unique(votes, return_inverse=True)
    at, shape = question * sizes.size + column, (n_questions, sizes.size)
    times, credits = (
        np.bincount(at, x, n_questions * sizes.size).astype(np.float64).reshape(shape)
        for x in (np.ones_like(credit), credit)
    )
    abstained = np.bincount(tallies.question[silent], tallies.votes[silent], n_questions)
    r = k / total
    n_points = 2 * (int(min(total, k + 6.0 * np.sqrt(k) + 10.0)) // 2 + 1)
    x = np.exp(1j * np.pi * (np.arange(n_points // 2) * 2.0 + 1.0) / n_points)
    factor = x**-k * (2.0 / n_points)
    expected = np.zeros(n_questions)
    chance = _binomial(sizes, r, int(min(k, sizes.max(initial=0))))
    below: npt.NDArray[np.complex128] = np.zeros((sizes.size, x.size), dtype=np.complex128)
    last = np.asarray(chance[:, :1] * np.ones_like(x))
    for v in range(1, chance.shape[1]):
        below, last = below + last, chance[:, v, None] * x**v
        nodes, weights = special.roots_legendre(k // v // 2 + 1)
        series = below[:, None] + (0.5 * (nodes[:, None] + 1.0)) * last[:, None]
        lost = np.abs(series) < _LOST
        series = np.where(lost, _LOST, series)
        log_series = np.log(series).reshape(sizes.size, -1)
        share = np.where(lost, 0.0, last[:, None] / series).reshape(sizes.size, -1)
        weight = (0.5 * weights[:, None] * factor).ravel()
        unlimited = np.tile(np.log(1.0 - r + r * x), nodes.size)
        for part in blocks(n_questions, weight.size):
            value = np.exp(_product(times[part], log_series) + abstained[part, None] * unlimited)
            value *= _product(credits[part], share)
            expected[part] += (value @ weight).real
    return np.asarray(np.clip(expected / _binomial(np.array([total]), r, k)[0, k], 0.0, 1.0))


def _product(a: FloatArray, b: npt.NDArray[np.complex128]) -> npt.NDArray[np.complex128]:
    """Return the matrix product of a real and a complex array."""
    return np.asarray((a @ b.view(np.float64)).view(np.complex128))


def _binomial(n: npt.NDArray[Any], r: float, most: int) -> FloatArray:
    """Return the binomial probabilities of 0..most of n votes, (D, most + 1)."""
    j, n = np.arange(most + 1.0), n[:, None]
    log = special.gammaln(n + 1.0) - special.gammaln(j + 1.0)
    log = log - special.gammaln(np.maximum(n - j, 0.0) + 1.0)
    log += j * np.log(r) + (n - j) * np.log1p(-r)
    return np.asarray(np.where(j <= n, np.exp(np.minimum(log, 0.0)), 0.0))
