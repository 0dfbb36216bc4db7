"""The interface of judges, and judging inputs in batches of similar length."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol, TypeAlias, TypeVar

from lm_eval_bayes.errors import LmEvalBayesError
from lm_eval_bayes.rubric.verifier_prompt import (
    CONTENT_FREE_INPUT,
    MIN_ANSWER_CHARACTERS,
    PromptTooLongError,
    VerifierInput,
    fitted_prompt,
)

_Key = TypeVar("_Key")

#: Number of batches that are sorted by length together, to reduce padding.
_SORTED_BATCHES = 16

#: Next-token scores of the labels A, B and C.
Scores: TypeAlias = tuple[float, float, float]


class VerifierError(LmEvalBayesError, RuntimeError):
    """A verifier cannot be used as configured."""


@dataclass(frozen=True)
class Unjudged:
    """A prompt without scores.

    Attributes
    ----------
    reason : str
        The reason, in one line.
    """

    reason: str


class Judge(Protocol):
    """A language model that scores labels.

    It is created without its weights, so that errors in its name, tokenizer or settings are
    raised at once; the first scores load the weights.
    """

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """What its scores depend on, as plain JSON types."""

    @property
    def limit(self) -> int | None:
        """The maximal length of a prompt; None if it is unknown."""

    @property
    def unit(self) -> str:
        """The unit of lengths: "tokens" or "characters"."""

    @property
    def control_tokens(self) -> tuple[str, ...]:
        """Control tokens of its tokenizer, which a text to be judged must not contain."""

    def length(self, prompt: str) -> int:
        """Return the length of a prompt, including the tokens of a chat template.

        Where counting is expensive, the length of a prompt below the limit may be an upper bound.
        """

    def scores(self, prompts: Sequence[str]) -> list[Scores | Unjudged]:
        """Return for every prompt the scores of the labels as its next token.

        Raises
        ------
        VerifierError
            If no prompt can be scored.
        """

    def close(self) -> None:
        """Release the model."""


def baseline_scores(judge: Judge) -> Scores:
    """Return the scores of the labels for a prompt without content.

    Raises
    ------
    VerifierError
        If it cannot be scored.
    """
    (scores,) = judge.scores([_prompt(judge, CONTENT_FREE_INPUT)])
    if isinstance(scores, Unjudged):
        sentence = f"the prompt without content cannot be scored: {scores.reason}"
        raise VerifierError(sentence, "failed", "verifier")
    return scores


def _prompt(judge: Judge, verifier_input: VerifierInput) -> str:
    """Return the prompt of an input, shortened to the judge's limit."""
    return fitted_prompt(
        verifier_input, judge.length, judge.limit, judge.unit, judge.control_tokens
    )


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
            _prompt(judge, shortest)


def judge_batches(
    judge: Judge, inputs: Iterable[tuple[_Key, VerifierInput]], batch_size: int
) -> Iterator[list[tuple[_Key, Scores | Unjudged]]]:
    """Judge inputs in batches and yield each batch as soon as it is done.

    Some batches at a time are sorted by length.

    Parameters
    ----------
    judge : Judge
        The judge.
    inputs : iterable of (key, VerifierInput)
        Read lazily.
    batch_size : int
        Prompts in a batch.

    Yields
    ------
    list of (key, Scores or Unjudged)
        One batch.

    Raises
    ------
    VerifierError
        If the judge cannot continue.
    """
    remaining = iter(inputs)
    while window := list(islice(remaining, batch_size * _SORTED_BATCHES)):
        prompts: list[tuple[_Key, str]] = []
        too_long: list[tuple[_Key, Scores | Unjudged]] = []
        for key, verifier_input in window:
            try:
                prompts.append((key, _prompt(judge, verifier_input)))
            except PromptTooLongError as error:
                too_long.append((key, Unjudged(str(error))))
        if too_long:
            yield too_long
        # The longest first, so that a lack of memory is noticed at once.
        prompts.sort(key=lambda entry: -len(entry[1]))
        for start in range(0, len(prompts), batch_size):
            keys, texts = zip(*prompts[start : start + batch_size], strict=True)
            yield list(zip(keys, judge.scores(texts), strict=True))
