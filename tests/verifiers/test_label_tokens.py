"""Where the label stands in a tokenized prompt, and tokenizers that cannot hold one."""

from __future__ import annotations

import re

import pytest
from _support.errors import refused

from lm_eval_bayes.verifiers.judge import VerifierError
from lm_eval_bayes.verifiers.local_judge import LabelTokens


class Words:
    """A tokenizer whose tokens are what a pattern finds; it knows them by their hash."""

    all_special_tokens = ("<bos>", "<pad>")

    def __init__(self, pattern, template=None, closes=False):
        self.pattern, self.chat_template, self.closes = pattern, template, closes
        self.asked = {}

    def __call__(self, text, add_special_tokens, verbose):
        pieces = re.findall(self.pattern, text, re.DOTALL)
        assert "".join(pieces) == text
        ids = [int.from_bytes(piece.encode()[:7], "big") * 100 + len(piece) for piece in pieces]
        if add_special_tokens:
            ids = [1, *ids, 2] if self.closes else [1, *ids]
        return {"input_ids": ids}

    def apply_chat_template(self, messages, tokenize, add_generation_prompt, **more):
        assert not tokenize
        assert add_generation_prompt
        self.asked = more
        (message,) = messages
        return self.chat_template.format(message["content"])


CHARACTERS = "."
#: As in byte-level BPE: a blank belongs to the word after it.
GPT = r" ?[A-Za-z]+| ?[^\sA-Za-z]+|\s+(?!\S)|\s"


def test_a_chat_opens_the_answer_with_the_label():
    tokenizer = Words(CHARACTERS, "<user>{}</user><assistant>")
    slot = LabelTokens(tokenizer, "judge")
    assert (slot.chat, slot.lead) == (True, "")
    assert slot.text("Hello") == "<user>Hello</user><assistant>"
    assert slot.tokens("Hello") == tokenizer(slot.text("Hello"), False, False)["input_ids"]
    assert slot.length("Hello") == len("<user>Hello</user><assistant>")
    assert slot.labels == tuple(tokenizer(label, False, False)["input_ids"][0] for label in "ABC")
    assert tokenizer.asked == {"enable_thinking": False}
    assert slot.control_tokens == ("<bos>", "<pad>")


def test_without_a_chat_the_label_follows_a_colon_in_one_token_with_its_blank():
    tokenizer = Words(GPT)
    slot = LabelTokens(tokenizer, "judge")
    assert (slot.chat, slot.lead) == (False, " ")
    assert slot.text("Hello") == "Hello\n\nLabel:"
    assert slot.tokens("Hello")[0] == 1  # the tokenizer's own beginning
    assert slot.labels == tuple(tokenizer(" " + y, False, False)["input_ids"][0] for y in "ABC")


def test_where_a_blank_is_a_token_the_label_comes_without():
    slot = LabelTokens(Words(CHARACTERS), "judge")
    assert slot.lead == ""
    assert len(set(slot.labels)) == 3


def ends_with_a_label(text):
    return text[-1] in "ABC" and not text.endswith("A, B or C.")


class Odd(Words):
    """Cuts characters, and does something odd where a text ends with a label."""

    def __init__(self, odd):
        super().__init__(CHARACTERS, "<user>{}</user><assistant>")
        self.odd = odd

    def __call__(self, text, add_special_tokens, verbose):
        ids = super().__call__(text, add_special_tokens, verbose)["input_ids"]
        return {"input_ids": self.odd(ids) if ends_with_a_label(text) else ids}


@pytest.mark.parametrize(
    "tokenizer",
    [
        Words(CHARACTERS, closes=True),
        Odd(lambda ids: [*ids, 7]),
        Odd(lambda ids: [*ids[:-1], 0]),
    ],
    ids=["closed", "two", "unknown"],
)
def test_labels_that_are_not_one_distinct_token(tokenizer):
    with refused("verifier", "unsupported", "judge", error=VerifierError):
        LabelTokens(tokenizer, "judge")
