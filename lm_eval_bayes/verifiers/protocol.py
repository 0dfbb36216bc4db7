"""What every judge can do, and how one refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from lm_eval_bayes.errors import LmEvalBayesError

#: Next-token scores of the labels A, B and C.
Scores: TypeAlias = tuple[float, float, float]


class VerifierError(LmEvalBayesError, RuntimeError):
    """A verifier cannot be used as it was asked."""


@dataclass(frozen=True)
class Unjudged:
    """A prompt to which a verifier gave no scores.

    Attributes
    ----------
    reason : str
        Why, in one line.
    """

    reason: str


class Judge(Protocol):
    """A language model that scores labels.

    It is made without its weights being read, so that everything which can be wrong with a
    verifier's name, its tokenizer or its settings is known at once; the first scores load them.
    """

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """What its scores depend on, as plain JSON types; the same again for the same verifier."""

    @property
    def limit(self) -> int | None:
        """The longest prompt it reads; None where nobody knows."""

    @property
    def unit(self) -> str:
        """What lengths are counted in: "tokens" or "characters"."""

    @property
    def marks(self) -> tuple[str, ...]:
        """Control tokens of its tokenizer, which must not stand in a text that it judges."""

    def length(self, prompt: str) -> int:
        """Return the length of a prompt as it is read, what a chat adds included.

        Where counting is dear, a prompt that is surely within the limit may get a bound.
        """

    def scores(self, prompts: Sequence[str]) -> list[Scores | Unjudged]:
        """Return for every prompt the scores of the labels as its next token.

        Raises
        ------
        VerifierError
            If no prompt can be scored.
        """

    def close(self) -> None:
        """Let go of the model."""
