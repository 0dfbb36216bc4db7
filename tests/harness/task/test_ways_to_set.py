"""N and its fellows reach a task by every way that the harness has."""

from __future__ import annotations

import lm_eval
import pytest
from _support.errors import refused
from _support.toy import toy_config
from lm_eval.tasks import TaskManager

from lm_eval_bayes._util.files import task_configs_dir
from lm_eval_bayes.harness.models.biased_coin.model import BiasedCoinLM
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


def test_bounds_by_metric_are_for_the_tasks_of_a_run_that_have_it():
    bounds = {"metadata": {"bayes_bounds": {"share": [0, 50]}}}
    scored = {"metric": "share", "aggregation": "mean", "higher_is_better": True}
    share = {"metric_list": [scored], "process_results": lambda *_: {"share": 40}, "task": "other"}
    right, shares = (RepeatedSamplingTask(config=toy_config(**c, **bounds)) for c in ({}, share))
    assert (right.settings.bounds, shares.settings.bounds) == (None, (0, 50))
    with refused("bayes_bounds", "choice", "share"):
        lm_eval.simple_evaluate(BiasedCoinLM(p=0.5), tasks=[right])
    assert lm_eval.simple_evaluate(BiasedCoinLM(p=0.5), tasks=[right, shares], bootstrap_iters=0)
