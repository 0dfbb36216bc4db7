"""The interface of judges, and their errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from lm_eval_bayes.errors import LmEvalBayesError

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
