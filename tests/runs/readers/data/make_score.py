"""Write the folders `score` and `score_seeds` beside this file: logs of the harness's SCORE tasks.

The tasks are the harness's own (lm_eval 0.4.13), on questions of a few words in place of their data
sets, which a model answers by chance. Run this in an environment with lm_eval.
"""

import json
import os
import random
import sys
import tempfile
from pathlib import Path

import lm_eval.tasks.score
from lm_eval.__main__ import cli_evaluate
from lm_eval.models.dummy import DummyLM

SCORE = Path(lm_eval.tasks.score.__path__[0])
TASKS = {
    "prompts_agieval": "agi_eval/prompt_robustness_agieval_aqua_rat",
    "seeds_agieval": "agi_eval/non_greedy_robustness_agieval_aqua_rat",
    "options_mmlu_pro": "mmlu_pro/score_option_order_robustness_mmlu_pro",
    "prompts_math": "math/prompt_robustness_math_algebra",
    "seeds_math": "math/non_greedy_robustness_math_algebra",
}
rng = random.Random(7)


def document(task, n):
    """The n-th document of a data set, in its columns."""
    question, options = f"What is {n}+{n}?", [str(2 * n + i) for i in range(10 if n else 3)]
    if task.endswith("agieval"):
        choices = [f"({letter}){option}" for letter, option in zip("ABC", options, strict=False)]
        return {"query": f"Q: {question} Answer Choices: ...", "choices": choices, "gold": [n % 3]}
    if task.endswith("math"):
        return {"problem": question, "solution": f"It is $\\boxed{{{2 * n}}}$.", "type": "sums"}
    named = {"question_id": 70 + n, "question": question, "category": "math"}
    return named | {"options": options, "answer": "A", "answer_index": 0}


def drawn(self, requests, **more):
    numbers = rng.choices([0, 0, 1, 2], k=len(requests))
    answers = [(2 * n, "ABC"[n]) for n in numbers]
    return [f"It is $\\boxed{{{n}}}$. The best answer is {letter}" for n, letter in answers]


DummyLM.generate_until = drawn
os.chdir(Path(__file__).parent)
with tempfile.TemporaryDirectory() as work:
    for task, config in TASKS.items():
        data, rows = Path(work, f"{task}.jsonl"), [document(task, n) for n in range(3)]
        data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        task_config = {"include": f"{SCORE / config}.yaml", "task": task, "dataset_path": "json"}
        task_config |= {"dataset_kwargs": {"data_files": {"test": str(data)}}, "tag": None}
        task_config |= dict.fromkeys(("dataset_name", "validation_split"))
        Path(work, f"{task}.yaml").write_text(json.dumps(task_config), encoding="utf-8")
    runs = {"score": "prompts_agieval,options_mmlu_pro,prompts_math"}
    runs |= dict.fromkeys(("score_seeds/seed_1", "score_seeds/seed_2"), "seeds_agieval,seeds_math")
    for folder, tasks in runs.items():
        sys.argv = ["lm_eval", "--model", "dummy", "--model_args", "pretrained=org/name"]
        sys.argv += ["--tasks", tasks, "--include_path", work, "--log_samples"]
        sys.argv += ["--output_path", folder]
        cli_evaluate()
        for file in Path(folder).rglob("results_*"):
            text = file.read_text(encoding="utf-8").replace(str(SCORE), "lm_eval/tasks/score")
            file.write_text(text.replace(work, "data"), encoding="utf-8")
