"""The tokens of the labels after a prompt."""

from __future__ import annotations

from typing import Any

from lm_eval_bayes.rubric.verifier import CONTENT_FREE_INPUT, LABELS, PLAIN_SLOT, verifier_prompt
from lm_eval_bayes.verifiers.protocol import VerifierError


class LabelTokens:
    """Tokenizes prompts so that the label is the next token.

    Parameters
    ----------
    tokenizer : transformers tokenizer
        With a chat template the prompt is a user's message, and the label begins the answer;
        without one the label follows the word "Label:".
    name : str
        The verifier's name, for errors.

    Attributes
    ----------
    chat : bool
        Whether there is a chat template.
    labels : tuple of int
        The tokens of A, B, C.
    lead : str
        The text before the label in its token: empty, or a space.
    control_tokens : tuple of str
        The tokenizer's control tokens.

    Raises
    ------
    VerifierError
        If the labels are not one distinct token each.
    """

    def __init__(self, tokenizer: Any, name: str) -> None:
        self._tokenizer = tokenizer
        self.chat = bool(getattr(tokenizer, "chat_template", None))
        added_tokens = getattr(tokenizer, "added_tokens_decoder", None) or {}
        special = [
            str(token) for token in added_tokens.values() if getattr(token, "special", False)
        ]
        tokens = dict.fromkeys([*getattr(tokenizer, "all_special_tokens", []), *special])
        self.control_tokens = tuple(
            token for token in tokens if isinstance(token, str) and len(token) > 1
        )
        self.lead, self.labels = self._find_labels(name)

    def text(self, prompt: str) -> str:
        """Return the text that is tokenized."""
        if not self.chat:
            return prompt + PLAIN_SLOT
        # Templates without a thinking mode ignore the argument.
        text: str = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}],
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=False,
        )
        return text

    def tokens(self, prompt: str) -> list[int]:
        """Return the tokens of a prompt, to which the label is the next one."""
        return self._encode(self.text(prompt))

    def length(self, prompt: str) -> int:
        """Return the number of these tokens."""
        return len(self.tokens(prompt))

    def _encode(self, text: str) -> list[int]:
        # A chat template contains the beginning of the sequence.
        encoding = self._tokenizer(text, add_special_tokens=not self.chat, verbose=False)
        return list(encoding["input_ids"])

    def _find_labels(self, name: str) -> tuple[str, tuple[int, ...]]:
        text = self.text(verifier_prompt(CONTENT_FREE_INPUT))
        before = self._encode(text)
        reason = ""
        for lead in ("", " ") if self.chat else (" ", ""):
            after = [self._encode(text + lead + label) for label in LABELS]
            if any(ids[: len(before)] != before for ids in after):
                reason = reason or "a label changes the tokens before it"
                continue
            suffixes = [ids[len(before) :] for ids in after]
            if any(len(suffix) != 1 for suffix in suffixes):
                sizes = ", ".join(
                    f"{y} {len(suffix)}" for y, suffix in zip(LABELS, suffixes, strict=True)
                )
                reason = reason or f"tokens per label: {sizes}"
                continue
            labels = tuple(suffix[0] for suffix in suffixes)
            if len(set(labels)) < len(labels):
                reason = reason or "labels share a token"
                continue
            return lead, labels
        raise VerifierError(
            f"the tokenizer of {name} does not encode each of the labels A, B and C as a token of "
            f"its own at the beginning of the answer ({reason}), so {name} cannot be a verifier"
        )
