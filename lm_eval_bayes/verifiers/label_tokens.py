"""The place in a tokenized prompt where the label stands, and the tokens that it may be."""

from __future__ import annotations

from typing import Any

from lm_eval_bayes.rubric.verifier import CONTENT_FREE_INPUT, LABELS, PLAIN_SLOT, verifier_prompt
from lm_eval_bayes.verifiers.protocol import VerifierError


class LabelSlot:
    """Turns prompts into tokens that end where the label is to come.

    Parameters
    ----------
    tokenizer : transformers tokenizer
        With a chat template the prompt is a user's message, and the label opens the answer;
        without one the label follows the word "Label:".
    name : str
        The verifier, for errors.

    Attributes
    ----------
    chat : bool
        Whether there is a chat template.
    labels : tuple of int
        The tokens of A, B, C.
    lead : str
        What stands before each label in its token: nothing, or a blank.
    marks : tuple of str
        The tokenizer's control tokens.

    Raises
    ------
    VerifierError
        If the labels are not one distinct token each.
    """

    def __init__(self, tokenizer: Any, name: str) -> None:
        self._tokenizer = tokenizer
        self.chat = bool(getattr(tokenizer, "chat_template", None))
        added = getattr(tokenizer, "added_tokens_decoder", None) or {}
        special = [str(token) for token in added.values() if getattr(token, "special", False)]
        found = dict.fromkeys([*getattr(tokenizer, "all_special_tokens", []), *special])
        self.marks = tuple(token for token in found if isinstance(token, str) and len(token) > 1)
        self.lead, self.labels = self._find_labels(name)

    def text(self, prompt: str) -> str:
        """Return the text that is tokenized."""
        if not self.chat:
            return prompt + PLAIN_SLOT
        # Templates that know no thinking ignore what is said of it.
        text: str = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}],
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=False,
        )
        return text

    def tokens(self, prompt: str) -> list[int]:
        """Return the tokens of a prompt, up to where the label is to come."""
        return self._encode(self.text(prompt))

    def length(self, prompt: str) -> int:
        """Return the number of these tokens."""
        return len(self.tokens(prompt))

    def _encode(self, text: str) -> list[int]:
        # A template writes the beginning of a sequence itself.
        found = self._tokenizer(text, add_special_tokens=not self.chat, verbose=False)
        return list(found["input_ids"])

    def _find_labels(self, name: str) -> tuple[str, tuple[int, ...]]:
        text = self.text(verifier_prompt(CONTENT_FREE_INPUT))
        before = self._encode(text)
        why = ""
        for lead in ("", " ") if self.chat else (" ", ""):
            after = [self._encode(text + lead + label) for label in LABELS]
            if any(ids[: len(before)] != before for ids in after):
                why = why or "a label changes how the text before it is cut into tokens"
                continue
            rests = [ids[len(before) :] for ids in after]
            if any(len(rest) != 1 for rest in rests):
                sizes = ", ".join(f"{y} {len(rest)}" for y, rest in zip(LABELS, rests, strict=True))
                why = why or f"tokens a label: {sizes}"
                continue
            labels = tuple(rest[0] for rest in rests)
            if len(set(labels)) < len(labels):
                why = why or "labels share a token"
                continue
            return lead, labels
        raise VerifierError(
            f"the tokenizer of {name} does not have each of the labels A, B and C as one token of "
            f"its own where the answer begins ({why}), so {name} cannot be a verifier"
        )
