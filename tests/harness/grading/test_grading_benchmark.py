r"""How long a whole run's grading takes: 120 questions, 20 responses of 30,000 characters each."""

from __future__ import annotations

import json
import random

import pytest
from _support.paths import SHARED

from lm_eval_bayes.harness.grading import grade as grading
from lm_eval_bayes.harness.grading.grade import grade
from lm_eval_bayes.harness.grading.worker_pool import POOL

SETS = {"aime_2024": "aime", "aime_2025": "aime", "hmmt_feb_2025": "math", "brumo_2025": "math"}
PHRASES = [
    "Let $x = {}$ and consider $\\frac{{{}}}{{y^2}}$, so that ",
    "we get\n\\[ a_{{{}}} = \\sqrt{{{}}} + \\{{1, 2\\}} \\]\n",
    "wait, that is {} and not {}. ",
    "Hmm, perhaps \\boxed{{{}}}? No, {} fails.\n",
]


def responses() -> list[tuple[str, object, str, bool]]:
    """(text, gold, kind, whether it is right), all texts distinct, from seed 0."""
    rng = random.Random(0)
    out: list[tuple[str, object, str, bool]] = []
    for name, kind in SETS.items():
        path = SHARED / "data" / "contests" / f"{name}.jsonl"
        if not path.exists():
            pytest.skip(f"the contest data is not there: {path.name}")
        for line in path.read_text(encoding="utf-8").splitlines():
            gold = json.loads(line)["answer"]
            for trial in range(20):
                text = ""
                while len(text) < 29_900:
                    text += rng.choice(PHRASES).format(rng.randrange(10**6), rng.randrange(1000))
                text = text[:29_900] + "\n</think>\n" * (trial % 2) + "\n"
                wrong = (
                    str(rng.randrange(1000, 10**6))
                    if kind == "aime" or rng.random() < 0.5
                    else rng.choice([r"\frac{{{}}}{{7}}", r"{}\sqrt{{13}}", r"{}+2\pi"]).format(
                        rng.randrange(1000, 10**6)
                    )
                )
                right = trial < 12
                shown = str(gold) if right else wrong
                if right and trial % 4 == 3 and kind == "math":
                    shown = ", ".join(f"{part} + 0" for part in shown.split(","))
                # the multi-answer golds cannot come from a list of unmarked formulas
                unboxed = trial % 6 == 5 and "," not in shown
                end = f"The final answer is ${shown}$." if unboxed else rf"\boxed{{{shown}}}"
                out.append((text + end, gold, kind, right))
    return out


@pytest.mark.benchmarks
def test_2400_responses_of_30000_characters(benchmark):
    cases = responses()
    assert len({text for text, *_ in cases}) == len(cases) == 2400
    assert min(len(text) for text, *_ in cases) > 29_900

    def cold():
        grading._cache.clear()
        POOL.close()

    def run():
        return [grade(text, gold, kind=kind) for text, gold, kind, _ in cases]

    grades = benchmark.pedantic(run, setup=cold, rounds=2)
    assert [g.correct for g in grades] == [right for *_, right in cases]
    assert all(g.error is None for g in grades)
    assert benchmark.stats.stats.max < 20
