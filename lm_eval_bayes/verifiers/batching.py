"""Batching: inputs are judged in batches of similar length."""

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

#: Number of batches that are sorted by length together, to reduce padding.
_SORTED_BATCHES = 16


@dataclass(frozen=True)
class Judgement(Generic[_Key]):
    """The result for one input.

    Attributes
    ----------
    key : object
        The caller's key of the input.
    scores : tuple of float, or None
        Scores of A, B, C before calibration.
    verdict : Verdict or None
        Their calibrated probabilities.
    error : str or None
        Why there is no verdict.
    """

    key: _Key
    scores: Scores | None = None
    verdict: Verdict | None = None
    error: str | None = None


def baseline_scores(judge: Judge) -> Scores:
    """Return the scores of the labels for a prompt without content.

    Raises
    ------
    VerifierError
        If it cannot be scored.
    """
    (scores,) = judge.scores(
        [fitted_prompt(CONTENT_FREE_INPUT, judge.length, judge.limit, judge.unit)]
    )
    if isinstance(scores, Unjudged):
        raise VerifierError(f"the prompt without content cannot be scored: {scores.reason}")
    return scores


def label_mass(scores: Sequence[float]) -> float:
    """Return the probability that the next token is one of the labels.

    Examples
    --------
    >>> round(label_mass([-1.0, -2.0, -3.0]), 3)
    0.553
    """
    return math.fsum(math.exp(score) for score in scores)


def check_room(judge: Judge, inputs: Iterable[VerifierInput]) -> None:
    """Check that every question leaves room for an answer, before a model is loaded.

    Raises
    ------
    PromptTooLongError
        With the question and the lengths.
    """
    seen: set[tuple[str, str]] = set()
    for verifier_input in inputs:
        if (verifier_input.question, verifier_input.gold) not in seen:
            seen.add((verifier_input.question, verifier_input.gold))
            shortest = replace(
                verifier_input, answer=verifier_input.answer.strip()[-MIN_ANSWER_CHARACTERS:]
            )
            fitted_prompt(shortest, judge.length, judge.limit, judge.unit, judge.control_tokens)


def judge_batches(
    judge: Judge,
    inputs: Iterable[tuple[_Key, VerifierInput]],
    calibration: Calibration,
    batch_size: int,
) -> Iterator[list[Judgement[_Key]]]:
    """Judge inputs in batches and yield each batch as soon as it is done.

    Some batches at a time are sorted by length.

    Parameters
    ----------
    judge : Judge
        The judge.
    inputs : iterable of (key, VerifierInput)
        Read lazily.
    calibration : Calibration
        The judge's calibration.
    batch_size : int
        Prompts in a batch.

    Yields
    ------
    list of Judgement
        One batch; an input without a verdict has an error.

    Raises
    ------
    VerifierError
        If the judge cannot continue.
    """
    size = check_integer("batch_size", batch_size, 1)
    remaining = iter(inputs)
    while window := list(islice(remaining, size * _SORTED_BATCHES)):
        prompts: list[tuple[int, _Key, str]] = []
        too_long: list[Judgement[_Key]] = []
        for key, verifier_input in window:
            try:
                prompt = fitted_prompt(
                    verifier_input, judge.length, judge.limit, judge.unit, judge.control_tokens
                )
            except PromptTooLongError as error:
                too_long.append(Judgement(key, error=str(error)))
            else:
                prompts.append((len(prompt), key, prompt))
        if too_long:
            yield too_long
        # The longest first, so that a lack of memory is noticed at once.
        prompts.sort(key=lambda entry: -entry[0])
        for start in range(0, len(prompts), size):
            batch = prompts[start : start + size]
            scores = judge.scores([prompt for _, _, prompt in batch])
            keys = [key for _, key, _ in batch]
            yield [judgement(*pair, calibration) for pair in zip(keys, scores, strict=True)]


def judgement(key: _Key, scores: Scores | Unjudged, calibration: Calibration) -> Judgement[_Key]:
    """Return the result for one input."""
    if isinstance(scores, Unjudged):
        return Judgement(key, error=scores.reason)
    return Judgement(key, scores=scores, verdict=calibration.verdict(scores))
