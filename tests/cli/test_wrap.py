"""`lm-eval-bayes wrap`: the YAML that samples a task repeatedly."""

from __future__ import annotations

import pytest
import yaml
from _support.command_line import called, command_error
from lm_eval.tasks import TaskManager

from lm_eval_bayes.harness.plugin import sampled_tasks
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask

GREEDY = """task: greedy
custom_dataset: !function lm_eval_bayes.tasks.demo_questions
test_split: test
output_type: generate_until
doc_to_text: "{{problem}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["Q:"], max_gen_toks: 99}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "greedy.yaml").write_text(GREEDY, encoding="utf-8")
    kind = GREEDY.replace("task: greedy", "task: choice").replace("generate_until", "loglikelihood")
    (tmp_path / "choice.yaml").write_text(kind, encoding="utf-8")
    return tmp_path


def test_the_printed_task_is_the_task_sampled(folder):
    sampled_tasks.install()
    code, printed, error = called("wrap", folder / "greedy.yaml")
    assert (code, error) == (0, "")
    (folder / "more").mkdir()
    (folder / "more" / "sampled.yaml").write_text(printed, encoding="utf-8")
    manager = TaskManager(include_defaults=False, include_path=str(folder / "more"))
    task = manager.load(["greedy_bayes"])["tasks"]["greedy_bayes"]
    assert isinstance(task, RepeatedSamplingTask)
    assert task.settings.n == 16
    assert task.config.generation_kwargs["temperature"] == 0.6
    assert task.config.generation_kwargs["until"] == ["Q:"]


def test_a_task_of_the_harness_is_included_by_its_name():
    code, printed, error = called("wrap", "gsm8k_cot")
    assert (code, error) == (0, "")
    written = yaml.safe_load(printed.replace("!function ", ""))
    assert written == {
        "include": "gsm8k_cot",
        "task": "gsm8k_cot_bayes",
        "class": "lm_eval_bayes.tasks.RepeatedSamplingTask",
        "repeats": 16,
        "generation_kwargs": {
            **{"do_sample": True, "temperature": 0.6, "top_p": 0.95},
            "until": ["Q:", "</s>", "<|im_end|>"],
        },
    }


@pytest.mark.parametrize(
    ("task", "named"),
    [
        ("no_such_task", "TASK"),
        ("demo_arithmetic_bayes", "already"),
        ("squadv2", "Python class"),
        ("mmlu_abstract_algebra", "multiple_choice"),
        ("choice.yaml", "loglikelihood"),
    ],
)
def test_what_cannot_be_sampled_is_refused(folder, monkeypatch, task, named):
    monkeypatch.chdir(folder)
    assert named in str(command_error("wrap", task))
