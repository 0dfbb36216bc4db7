"""Cases go to a judge in batches, and come back with verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Generic, TypeVar

from lm_eval_bayes.rubric.verifier import (
    CONTENT_FREE_INPUT,
    MIN_ANSWER_CHARACTERS,
    Calibration,
    PromptTooLongError,
    Verdict,
    VerifierInput,
    fitted_prompt,
)
from lm_eval_bayes.stats.validation import check_integer
from lm_eval_bayes.verifiers.protocol import Judge, Scores, Unjudged, VerifierError

_Key = TypeVar("_Key")

#: So many batches are sorted by length at a time, so that little of a batch is padding.
_SORTED_TOGETHER = 16


@dataclass(frozen=True)
class Judged(Generic[_Key]):
    """What came of one case.

    Attributes
    ----------
    key : object
        Whatever the caller calls the case.
    scores : tuple of float, or None
        Scores of A, B, C before calibration.
    verdict : Verdict or None
        Their calibrated probabilities.
    error : str or None
        Why there are none.
    """

    key: _Key
    scores: Scores | None = None
    verdict: Verdict | None = None
    error: str | None = None


def baseline_scores(judge: Judge) -> Scores:
    """Return the scores of the labels where there is nothing to judge.

    Raises
    ------
    VerifierError
        If there are none.
    """
    (found,) = judge.scores(
        [fitted_prompt(CONTENT_FREE_INPUT, judge.length, judge.limit, judge.unit)]
    )
    if isinstance(found, Unjudged):
        raise VerifierError(f"the prompt without content cannot be scored: {found.reason}")
    return found


def label_mass(scores: Sequence[float]) -> float:
    """Return the probability that the next token is a label at all.

    Examples
    --------
    >>> round(label_mass([-1.0, -2.0, -3.0]), 3)
    0.553
    """
    return math.fsum(math.exp(score) for score in scores)


def check_room(judge: Judge, cases: Iterable[VerifierInput]) -> None:
    """Refuse questions that leave no room for an answer, before a model is loaded.

    Raises
    ------
    PromptTooLongError
        Naming the question and the lengths.
    """
    seen: set[tuple[str, str]] = set()
    for case in cases:
        if (case.question, case.gold) not in seen:
            seen.add((case.question, case.gold))
            least = replace(case, answer=case.answer.strip()[-MIN_ANSWER_CHARACTERS:])
            fitted_prompt(least, judge.length, judge.limit, judge.unit, judge.marks)


def judged(
    judge: Judge,
    cases: Iterable[tuple[_Key, VerifierInput]],
    calibration: Calibration,
    batch_size: int,
) -> Iterator[list[Judged[_Key]]]:
    """Judge cases batch by batch, each batch as soon as it is done.

    The order is by length within some batches, so that prompts of about the same length meet.

    Parameters
    ----------
    judge : Judge
        Who judges.
    cases : iterable of (key, VerifierInput)
        Read as they are needed.
    calibration : Calibration
        Of this judge.
    batch_size : int
        Prompts in a batch.

    Yields
    ------
    list of Judged
        One batch; a case that could not be judged says why.

    Raises
    ------
    VerifierError
        If no case can be judged any more.
    """
    size = check_integer("batch_size", batch_size, 1)
    todo = iter(cases)
    while window := list(islice(todo, size * _SORTED_TOGETHER)):
        prompts: list[tuple[int, _Key, str]] = []
        unfit: list[Judged[_Key]] = []
        for key, case in window:
            try:
                prompt = fitted_prompt(case, judge.length, judge.limit, judge.unit, judge.marks)
            except PromptTooLongError as error:
                unfit.append(Judged(key, error=str(error)))
            else:
                prompts.append((len(prompt), key, prompt))
        if unfit:
            yield unfit
        # The longest first: what does not find room in memory is known at once.
        prompts.sort(key=lambda entry: -entry[0])
        for start in range(0, len(prompts), size):
            batch = prompts[start : start + size]
            found = judge.scores([prompt for _, _, prompt in batch])
            keys = [key for _, key, _ in batch]
            yield [verdict_on(*both, calibration) for both in zip(keys, found, strict=True)]


def verdict_on(key: _Key, found: Scores | Unjudged, calibration: Calibration) -> Judged[_Key]:
    """Return what came of a case, from its scores or the lack of them."""
    if isinstance(found, Unjudged):
        return Judged(key, error=found.reason)
    return Judged(key, scores=found, verdict=calibration.verdict(found))
