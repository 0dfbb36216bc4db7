"""The YAMLs: what the harness makes of them, and whole runs on the real questions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jinja2
import pytest
from _support.paths import REPOSITORY
from lm_eval.evaluator import simple_evaluate
from lm_eval.tasks import TaskManager
from lm_eval.tasks._index import Kind, TaskIndex
from lm_eval.tasks._yaml_loader import load_yaml

from lm_eval_bayes.harness.grading import grade as grading
from lm_eval_bayes.harness.models.biased_coin.model import BiasedCoinLM
from lm_eval_bayes.harness.rubrics.rubric_task import RubricTask
from lm_eval_bayes.harness.task import result_rows as rows
from lm_eval_bayes.harness.task.protocol import prompt_of
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask

ROOT = REPOSITORY
CONFIGS = ROOT / "task_configs"

CONTESTS = {
    "aime24_bayes": grading.process_results_aime,
    "aime25_bayes": grading.process_results_aime,
    "hmmt_feb25_bayes": grading.process_results_math,
    "brumo25_bayes": grading.process_results_math,
}
LATER = {
    "aime26_bayes": grading.process_results_aime,
    **dict.fromkeys(
        (
            *("hmmt_feb26_bayes", "hmmt_nov25_bayes", "smt25_bayes", "cmimc25_bayes"),
            *("apex25_bayes", "apex_shortlist_bayes"),
        ),
        grading.process_results_math,
    ),
}
GROUPS = {
    "contest_math_bayes": list(CONTESTS),
    "contest_math_2025": [
        *("aime25_bayes", "hmmt_feb25_bayes", "brumo25_bayes"),
        *("hmmt_nov25_bayes", "smt25_bayes", "cmimc25_bayes"),
    ],
    "contest_math_2026": ["aime26_bayes", "hmmt_feb26_bayes"],
}
TASKS = [*CONTESTS, *LATER, "demo_arithmetic_bayes"]
#: `instruction` in configs/competitions of MathArena at e9276603, where it is another one.
_INTEGER = "The answer is an integer between 0 and 999 inclusive."
MATHARENA = {
    "aime24_bayes": "Please reason step by step, and put your final answer within \\boxed{}.\n"
    + _INTEGER,
    "aime25_bayes": "Put your final answer within \\boxed{}.\n" + _INTEGER,
    "aime26_bayes": "Put your final answer within \\boxed{}.\n" + _INTEGER,
    "cmimc25_bayes": "Put your final answer within \\boxed{}. Thus, format your final answer as "
    "follows:\n\n### Final answer\n\nThe final answer is \\boxed{your final answer}.",
}
SENTENCE = r"Please reason step by step, and put your final answer within \boxed{}."


def rendered(template, doc):
    return jinja2.Template(template).render(**doc)


def config(task: str) -> dict[str, Any]:
    (path,) = CONFIGS.rglob(f"{task}.yaml")
    return load_yaml(path)


RUBRICS = [task.replace("_bayes", "_rubric") for task in TASKS]


def test_the_index_finds_every_task_twice_and_a_group_and_a_tag_and_no_base() -> None:
    index = TaskIndex.build([CONFIGS])
    assert {name: entry.kind for name, entry in index.items()} == {
        **dict.fromkeys([*TASKS, *RUBRICS], Kind.PY_TASK),
        **dict.fromkeys(GROUPS, Kind.GROUP),
        "bayes": Kind.TAG,
    }
    assert len(list(CONFIGS.rglob("*.yaml"))) == len(index) - 1


@pytest.mark.parametrize("task", RUBRICS)
def test_a_rubric_task_is_its_task_with_another_class(task: str) -> None:
    plain, rubric = config(task.replace("_rubric", "_bayes")), config(task)
    assert rubric.pop("class") is RubricTask
    plain.pop("class")
    assert {**rubric, "task": plain["task"]} == plain


@pytest.mark.parametrize("task", TASKS)
def test_every_task_samples_repeatedly_and_keeps_every_response(task: str) -> None:
    cfg = config(task)
    metric = {"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}
    expected = {
        "task": task,
        "class": RepeatedSamplingTask,
        "output_type": "generate_until",
        "num_fewshot": 0,
        "filter_list": [{"name": "none", "filter": [{"function": "keep_all"}]}],
        "metric_list": [metric],
    }
    assert {key: cfg[key] for key in expected} == expected
    assert {"version", "source", "licence"} <= set(cfg["metadata"])


@pytest.mark.parametrize("task", [*CONTESTS, *LATER])
def test_contests_are_asked_as_in_the_paper(task: str) -> None:
    cfg = config(task)
    assert cfg["repeats"] == 16
    assert cfg["test_split"] == "train"
    assert cfg["process_results"] is {**CONTESTS, **LATER}[task]
    assert cfg["generation_kwargs"] == {
        "do_sample": True,
        "temperature": 0.6,
        "top_p": 0.95,
        "max_gen_toks": 32768,
        "until": [],
    }
    doc = {"problem": "Let $S=\\{1\\}$ and $x_{{1}}$.\n", "answer": 70}
    prompt = rendered(cfg["doc_to_text"], doc)
    assert prompt == "Let $S=\\{1\\}$ and $x_{{1}}$.\n\n" + SENTENCE
    assert rendered(cfg["doc_to_target"], doc) == "70"
    assert cfg["metadata"]["bayes_protocol"] == "hariri-2026"
    assert prompt_of(task, cfg["doc_to_text"], cfg["metadata"]) == cfg["doc_to_text"]
    as_matharena = {**cfg["metadata"], "bayes_protocol": "matharena"}
    prompt = rendered(prompt_of(task, cfg["doc_to_text"], as_matharena), doc)
    instruction = MATHARENA.get(task, "Put your final answer within \\boxed{}.")
    assert prompt == f"{instruction}\n\n{doc['problem']}"


@pytest.mark.parametrize("task", [*CONTESTS, *LATER])
def test_revisions_and_licences_stand_in_the_readme_too(task: str) -> None:
    cfg = config(task)
    rev, licence = cfg["dataset_kwargs"]["revision"], cfg["metadata"]["licence"]
    assert re.fullmatch(r"[0-9a-f]{40}", rev)
    table = (CONFIGS / "contest_math" / "README.md").read_text(encoding="utf-8")
    (row,) = [line for line in table.splitlines() if line.startswith(f"| `{task}`")]
    assert row.endswith(f"| `{cfg['dataset_path']}` | `{rev}` | {licence} |")
    assert cfg["metadata"]["source"].endswith(cfg["dataset_path"])


@pytest.mark.parametrize("task", [*CONTESTS, "aime26_bayes"])
def test_revisions_are_those_of_the_shared_data(task: str, shared: Path) -> None:
    cfg = config(task)
    hub = (shared / "data" / "README.md").read_text(encoding="utf-8")
    assert f"| `{cfg['dataset_path']}` | `{cfg['dataset_kwargs']['revision']}` | `train`" in hub


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_averages_rows_of_any_n(group: str) -> None:
    cfg = config(group)
    assert cfg["task"] == GROUPS[group]
    metrics = [entry["metric"] for entry in cfg["aggregate_metric_list"]]
    assert metrics == [rows.HBAYES_AT_N, rows.BAYES_AT_N, rows.AVG_AT_N]
    assert all(entry["weight_by_size"] is False for entry in cfg["aggregate_metric_list"])


def demo_run(lm: BiasedCoinLM, **kwargs: Any) -> dict[str, Any]:
    manager = TaskManager(
        include_path=str(CONFIGS), include_defaults=False, metadata=kwargs.pop("metadata", {})
    )
    return simple_evaluate(  # type: ignore[no-any-return]
        model=lm,
        tasks=["demo_arithmetic_bayes"],
        task_manager=manager,
        bootstrap_iters=0,
        **kwargs,
    )


def test_a_demo_run_reports_the_posterior_and_records_the_truth() -> None:
    results = demo_run(
        BiasedCoinLM(beta="1:1", seed=5), metadata={"bayes_interval": "normal", "bayes_k": 1}
    )
    truth = results["config"]["biased_coin"]
    assert truth["questions"] == {"demo_arithmetic_bayes": 40}
    result = results["results"]["demo_arithmetic_bayes"]
    # Beta(1, 1) is the prior of bayes@N: 4 sd hold all but one in 10,000 runs
    error = result["bayes@8,none"] - truth["true_score"]["demo_arithmetic_bayes"]
    assert 0 < result["bayes@8_stderr,none"] < 0.05
    assert abs(error) < 4 * result["bayes@8_stderr,none"]

    for sample in results["samples"]["demo_arithmetic_bayes"]:
        gold = rf"\boxed{{{sample['doc']['answer']}}}"
        assert sample["outcomes"] == [int(gold in text) for text in sample["resps"][0]]
    right = sum(sum(s["outcomes"]) for s in results["samples"]["demo_arithmetic_bayes"])
    assert result["avg@8,none"] == pytest.approx(right / 320, abs=1e-12)
