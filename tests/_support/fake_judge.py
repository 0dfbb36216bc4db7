"""A judge that needs no model: it reads the standard answer in the candidate's text."""

from __future__ import annotations

import math
import re

from lm_eval_bayes.verifiers.judge import Unjudged

#: With nothing to judge this judge leans towards A.
BASELINE = tuple(map(math.log, (0.5, 0.25, 0.25)))


def part(prompt, name):
    return re.search(rf"<{name}>\n(.*?)\n</{name}>", prompt, re.DOTALL)[1]


def opinion(prompt):
    """The probabilities of A, B, C; they depend on all three texts."""
    question, gold, answer = (
        part(prompt, name) for name in ("question", "standard_answer", "candidate_answer")
    )
    if (question, gold, answer) == ("N/A",) * 3:
        return (0.5, 0.25, 0.25)
    if "fail" in answer:
        return None
    if not re.search(r"\d", answer):
        return (0.1, 0.1, 0.8)
    tilt = (sum(map(ord, question + answer)) % 7) / 100
    return (0.9 - tilt, 0.06, 0.04 + tilt) if gold in answer else (0.08, 0.9 - tilt, 0.02 + tilt)


class FakeJudge:
    """Notes what it is asked."""

    unit = "words"
    control_tokens = ("<pad>",)

    def __init__(self, limit=None, name="fake", die_after=None):
        self.limit = limit
        self.fingerprint = {"kind": "fake", "name": name, "max_length": limit}
        self.batches, self.closed, self.die_after = [], 0, die_after

    @property
    def prompts(self):
        return [prompt for batch in self.batches for prompt in batch]

    def length(self, prompt):
        return len(prompt.split())

    def scores(self, prompts):
        if self.die_after is not None and len(self.batches) >= self.die_after:
            raise KeyboardInterrupt
        self.batches.append(list(prompts))
        result = []
        for prompt in prompts:
            assert self.limit is None or self.length(prompt) <= self.limit
            response = opinion(prompt)
            result.append(
                Unjudged("no scores") if response is None else tuple(map(math.log, response))
            )
        return result

    def close(self):
        self.closed += 1


def expected(probabilities, baseline=(0.5, 0.25, 0.25)):
    """The calibrated verdict, by its definition as ratios."""
    ratios = [p / b for p, b in zip(probabilities, baseline, strict=True)]
    return [ratio / sum(ratios) for ratio in ratios]
