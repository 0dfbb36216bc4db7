"""Tasks of the harness itself, sampled by their names over questions of the same fields.

The numbers are computed here from what the scripted model answers, not from the graded samples.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import lm_eval
import lm_eval.tasks
import pytest
import yaml
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager

from lm_eval_bayes.harness.plugin import registration

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

HARNESS = Path(lm_eval.tasks.__file__).parent

#: How many of four trials of a question are right.
RIGHT = (3, 1, 0)
N = 4


class HalfRightLM(LM):
    """Answers the first trials of each question right, and the others wrong."""

    def __init__(self, right, wrong):
        super().__init__()
        self.right, self.wrong = right, wrong
        self.seen: Counter[str] = Counter()
        self.questions: dict[str, int] = {}

    def generate_until(self, requests, disable_tqdm=False):
        responses = []
        for request in requests:
            prompt = request.args[0]
            question = self.questions.setdefault(prompt, len(self.questions))
            is_right = self.seen[prompt] < RIGHT[question]
            self.seen[prompt] += 1
            responses.append(self.right(request.doc) if is_right else self.wrong)
        return responses

    def loglikelihood(self, requests, disable_tqdm=False):
        raise AssertionError("only generation is asked for")

    loglikelihood_rolling = loglikelihood


def math(number: int) -> dict[str, Any]:
    return {
        "problem": f"What is {number} + 0?",
        "solution": f"It is $\\boxed{{{number}}}$.",
        "answer": str(number),
        "level": "Level 1",
        "type": "Algebra",
    }


#: Task -> file, question of a number, right response, wrong one, filter.
CASES = {
    "gsm8k_cot": (
        "gsm8k/gsm8k-cot.yaml",
        lambda i: {"question": f"What is {i}?", "answer": f"So #### {i}"},
        lambda doc: f"The answer is {doc['answer'].split()[-1]}.",
        "The answer is 999.",
        "strict-match",
    ),
    "minerva_math_algebra": (
        "minerva_math/minerva_math_algebra.yaml",
        math,
        lambda doc: f"Final Answer: The final answer is ${doc['answer']}$. I hope it is correct.",
        "Final Answer: The final answer is $999$. I hope it is correct.",
        "none",
    ),
}


#: The second metric of tasks that have two.
SECOND = {"minerva_math_algebra": "math_verify"}


@pytest.mark.parametrize("name", CASES)
def test_a_task_of_the_harness_is_sampled_with_the_right_numbers(name, tmp_path):

    registration.register_all()

    file, question, right, wrong, pipeline = CASES[name]
    docs = [question(10 + i) for i in range(len(RIGHT))]
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(map(json.dumps, docs)), encoding="utf-8")
    local = {
        "include": str(HARNESS / file),
        "task": name,
        "dataset_path": "json",
        "dataset_name": None,
        "dataset_kwargs": {"data_files": {part: str(data) for part in ("test", "train")}},
        "num_fewshot": 0,
    }
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(local), encoding="utf-8")
    results = lm_eval.simple_evaluate(
        model=HalfRightLM(right, wrong),
        tasks=[f"{name}_bayes"],
        task_manager=TaskManager(
            include_defaults=False,
            include_path=str(tmp_path),
            metadata={"bayes_n": N, "bayes_metric": "all"},
        ),
        bootstrap_iters=0,
    )
    row = results["results"][f"{name}_bayes"]
    assert row[f"avg@{N},{pipeline}"] == pytest.approx(sum(RIGHT) / (N * len(RIGHT)))
    assert row[f"bayes@{N},{pipeline}"] == pytest.approx(
        sum((c + 1) / (N + 2) for c in RIGHT) / len(RIGHT)
    )
    assert row[f"pass@{N},{pipeline}"] == pytest.approx(2 / 3)
    if name in SECOND:
        second = row[f"avg@{N}({SECOND[name]}),{pipeline}"]
        assert second == pytest.approx(sum(RIGHT) / (N * len(RIGHT)))
    samples = [s for s in results["samples"][f"{name}_bayes"] if s["filter"] == pipeline]
    assert sorted(sum(sample["outcomes"]) for sample in samples) == sorted(RIGHT)
