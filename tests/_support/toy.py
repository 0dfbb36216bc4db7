"""A toy task and a scripted model, for tests that run the harness in this process."""

from __future__ import annotations

from collections import defaultdict

import datasets
import lm_eval
from lm_eval.api.model import LM
from lm_eval.api.task import ConfigurableTask
from lm_eval.tasks import TaskManager

QUESTIONS = [
    {"question": "1 + 1 =", "answer": "2"},
    {"question": "2 + 2 =", "answer": "4"},
    {"question": "3 + 3 =", "answer": "6"},
]


def toy_config(**changes):
    """A `generate_until` configuration as a YAML would give it; its intervals are quick ones."""
    metadata = {"version": 1.0, "bayes_interval": "normal", **(changes.pop("metadata", None) or {})}
    config = {
        "task": "toy",
        "custom_dataset": lambda **_: {"test": datasets.Dataset.from_list(QUESTIONS)},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{answer}}",
        "num_fewshot": 0,
        "generation_kwargs": {
            "do_sample": True,
            "temperature": 0.6,
            "top_p": 0.95,
            "until": [],
            "max_gen_toks": 8,
        },
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
        "repeats": 4,
        "metadata": metadata,
    }
    config.update(changes)
    return {k: v for k, v in config.items() if v is not None}


def plain_task(**changes):
    """Return a task of the harness's own class."""
    return ConfigurableTask(config=toy_config(**changes))


class OneTask(TaskManager):
    """Loads one task object."""

    def __init__(self, task):
        super().__init__(include_defaults=False)
        self.task = task

    def load(self, *args, **kwargs):
        return {"tasks": {self.task.config.task: self.task}, "groups": {}, "group_map": {}}


def evaluate(model, task, **kwargs):
    """Run the harness on one task object, without the seconds that its own tasks' index takes."""
    kwargs.setdefault("bootstrap_iters", 0)
    name = task if isinstance(task, str) else task.config.task
    if name != task:
        kwargs.setdefault("task_manager", OneTask(task))
    return lm_eval.simple_evaluate(model=model, tasks=[name], **kwargs)


def all_rows(results, name="toy"):
    """Return every row of a task or group from the block `posterior`, as ``ROW,FILTER``."""
    by_filter = results["posterior"][name]
    return {f"{row},{f}": value for f, rows in by_filter.items() for row, value in rows.items()}


class ScriptedLM(LM):
    """Answers trial i of a prompt with the i-th entry of its script, round and round."""

    def __init__(self, script):
        super().__init__()
        self.script = script
        self.requests = []

    def generate_until(self, requests, disable_tqdm=False):
        seen = defaultdict(int)
        answers = []
        for request in requests:
            self.requests.append(request)
            prompt = request.args[0]
            texts = self.script[prompt]
            answers.append(texts[seen[prompt] % len(texts)])
            seen[prompt] += 1
        return answers

    def loglikelihood(self, requests, disable_tqdm=False):
        raise AssertionError("only generation is asked for")

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        raise AssertionError("only generation is asked for")


#: Right 3 of 4 times, 1 of 4 times, never.
SCRIPT = {
    "1 + 1 =": ["2", "2", "3", "2"],
    "2 + 2 =": ["5", "4", "5", "x"],
    "3 + 3 =": ["7", "7", "8", "9"],
}
