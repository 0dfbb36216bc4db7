"""N and its fellows reach a task by every way that the harness has."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace

import lm_eval
import pytest
from _support.errors import refused
from _support.toy import ScriptedLM, evaluate, plain_task, toy_config
from lm_eval.tasks import TaskManager

from lm_eval_bayes._util.files import task_configs_dir
from lm_eval_bayes.harness.models.biased_coin.model import BiasedCoinLM
from lm_eval_bayes.harness.plugin import wrappers
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def demo_only():
    """The harness without its own thousands of tasks, which take seconds to index."""
    return lambda **kwargs: TaskManager(
        include_defaults=False, include_path=str(task_configs_dir()), **kwargs
    )


def test_metadata_of_simple_evaluate_and_model_arguments_meet(monkeypatch, demo_only, caplog):
    seen = []
    monkeypatch.setattr(
        "lm_eval.evaluator.TaskManager",
        lambda **kwargs: seen.append(kwargs) or demo_only(**kwargs),
    )
    results = lm_eval.simple_evaluate(
        model="biased_coin",
        model_args={"p": 0.5},
        metadata={"bayes_n": 5, "max_length": 1000},
        tasks=["demo_arithmetic_bayes"],
        limit=2,
        gen_kwargs="max_gen_toks=4000",
        bootstrap_iters=0,
    )
    assert seen[0]["metadata"]["p"] == 0.5
    assert "bayes@5,none" in results["results"]["demo_arithmetic_bayes"]
    config = results["configs"]["demo_arithmetic_bayes"]
    assert config["generation_kwargs"]["max_gen_toks"] < 1000
    assert "lowered from 4000" in caplog.text


class ChattingLM(ScriptedLM):
    tokenizer_name = "toy"

    def apply_chat_template(self, chat_history, add_generation_prompt=True):
        return f"<user>{chat_history[0]['content']}"

    def chat_template(self, chat_template=False):
        return "<user>{content}"


@pytest.mark.parametrize(
    ("template", "options", "task", "n_warnings"),
    [
        ("<user>", {}, RepeatedSamplingTask, 1),
        ("<user>", {"apply_chat_template": True}, RepeatedSamplingTask, 0),
        (None, {}, RepeatedSamplingTask, 0),
        ("<user>", {}, lambda config: plain_task(), 0),
    ],
)
def test_a_chat_template_that_is_not_applied_is_warned_of(
    template, options, task, n_warnings, caplog
):
    model = ChattingLM(defaultdict(lambda: ["2", "4", "6", "x"]))
    model.tokenizer = SimpleNamespace(chat_template=template)
    evaluate(model, task(config=toy_config()), **options)
    assert caplog.text.count("--apply_chat_template") == n_warnings


def test_each_task_of_a_run_may_have_its_own_n(demo_only):
    def run(bayes_n):
        return lm_eval.simple_evaluate(
            model=BiasedCoinLM(p=0.5),
            tasks=["demo_arithmetic_bayes", "demo_arithmetic_rubric"],
            task_manager=demo_only(metadata={"bayes_n": bayes_n}),
            limit=1,
            bootstrap_iters=0,
        )["results"]

    results = run({"demo_arithmetic_bayes": 2})
    assert "bayes@2,none" in results["demo_arithmetic_bayes"]
    assert "bayes@8,none" in results["demo_arithmetic_rubric"]
    with refused("bayes_n", "choice", "demo_arithmetic"):
        run({"demo_arithmetic_bayes": 2, "demo_arithmetic": 4})
    with refused("bayes_n", "range", 2.5):
        run({"demo_arithmetic_bayes": 2.5})


def test_the_tasks_of_a_group_have_one_n():
    group = SimpleNamespace(
        name="contests",
        aggregate_metric_list=[],
        get_all_tasks=lambda: [SimpleNamespace(settings=SimpleNamespace(n=n)) for n in (2, 4)],
    )
    with refused("bayes_n", "mismatch"):
        wrappers.name_group_rows([group])
