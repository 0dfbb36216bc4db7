"""`NAME_bayes` of tasks, groups and tags that know nothing of this package."""

from __future__ import annotations

import json
import logging

import lm_eval
import pytest
import yaml
from _support.errors import refused
from _support.toy import QUESTIONS, SCRIPT, ScriptedLM
from lm_eval.tasks import TaskManager

from lm_eval_bayes.errors import DatasetUnavailableError, TaskConfigError
from lm_eval_bayes.harness.plugin import registration
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask
from lm_eval_bayes.stats.hierarchical.mean_over_tasks import mean_over_tasks
from lm_eval_bayes.stats.outcomes import Outcomes

pytestmark = pytest.mark.filterwarnings("default")

TOY = {
    "task": "toy",
    "tag": "toys",
    "dataset_path": "json",
    "test_split": "train",
    "output_type": "generate_until",
    "doc_to_text": "{{question}}",
    "doc_to_target": "{{answer}}",
    "generation_kwargs": {"do_sample": False, "until": ["\n"], "max_gen_toks": 8},
    "filter_list": [
        {"name": "strict", "filter": [{"function": "regex", "regex_pattern": r"^(\d)$"},
                                      {"function": "take_first"}]},
        {"name": "last", "filter": [{"function": "regex", "regex_pattern": r"(\S)$"},
                                    {"function": "take_first"}]},
    ],
    "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    "metadata": {"version": 2.0, "bayes_interval": "normal"},
}  # fmt: skip


@pytest.fixture(autouse=True)
def _installed():

    registration.register_all()


@pytest.fixture
def manager(tmp_path):
    """Return a manager of some YAMLs, in which `toy` is greedy and has two filters."""
    data = tmp_path / "questions.jsonl"
    data.write_text("\n".join(map(json.dumps, QUESTIONS)), encoding="utf-8")
    toy = {**TOY, "dataset_kwargs": {"data_files": str(data)}}

    def make(*others, **metadata):
        for number, config in enumerate((toy, *others)):
            file = tmp_path / "tasks" / f"{number}.yaml"
            file.parent.mkdir(exist_ok=True)
            file.write_text(yaml.safe_dump(config), encoding="utf-8")
        return TaskManager(
            include_defaults=False, include_path=str(tmp_path / "tasks"), metadata=metadata
        )

    make.toy = toy
    return make


def run(manager, *tasks, script=SCRIPT):
    model = ScriptedLM(script)
    results = lm_eval.simple_evaluate(
        model=model, tasks=list(tasks), task_manager=manager, bootstrap_iters=0
    )
    return results, model


def test_a_task_is_sampled_by_its_name(manager, caplog):
    results, model = run(manager(bayes_n=4), "toy_bayes")
    assert list(results["results"]) == ["toy_bayes"]
    row = results["results"]["toy_bayes"]
    # recomputed from the responses: 3 of 4, 1 of 4 and none are right
    right = [sum(text == gold for text in SCRIPT[q]) for q, gold in
             ((q["question"], q["answer"]) for q in QUESTIONS)]  # fmt: skip
    for pipeline in ("strict", "last"):
        assert row[f"avg@4,{pipeline}"] == sum(right) / 12
        assert row[f"bayes@4,{pipeline}"] == pytest.approx(sum((c + 1) / 6 for c in right) / 3)
    settings = model.requests[0].args[1]
    assert (settings["temperature"], settings["top_p"], settings["do_sample"]) == (0.6, 0.95, True)
    assert settings["until"] == ["\n"]
    assert "toy_bayes: greedy, so temperature is 0.6 and top_p 0.95" in caplog.text
    config = results["configs"]["toy_bayes"]
    assert config["metadata"]["sampled_from"].endswith("0.yaml")
    assert config["metadata"]["version"] == 2.0


def test_sampling_settings_of_the_task_or_the_user_stay(manager, caplog):
    hot = {"do_sample": True, "temperature": 1.1, "until": []}
    tasks = manager({**manager.toy, "task": "hot", "generation_kwargs": hot, "repeats": 3})
    results, model = run(tasks, "hot_bayes")
    assert model.requests[0].args[1]["temperature"] == 1.1
    assert "avg@3,strict" in results["results"]["hot_bayes"]
    assert "greedy" not in caplog.text
    assert results["configs"]["hot_bayes"]["repeats"] == 3


def test_the_command_line_finds_a_sampled_task(manager):
    tasks = manager()
    assert tasks.match_tasks(["toy_bayes"]) == ["toy_bayes"]
    assert tasks.match_tasks(["toy*", "no_such_bayes"]) == ["toy", "toys"]
    assert "toy_bayes" not in manager().all_tasks


def test_a_task_of_that_name_wins(manager):
    tasks = manager({**manager.toy, "task": "toy_bayes", "repeats": 1})
    task = tasks.load(["toy_bayes"])["tasks"]["toy_bayes"]
    assert not isinstance(task, RepeatedSamplingTask)


def test_other_kinds_of_tasks_are_refused_in_a_sentence(manager):
    tasks = manager({**manager.toy, "task": "other", "output_type": "loglikelihood"})
    with refused("output_type", "unsupported", "loglikelihood", error=TaskConfigError) as caught:
        tasks.match_tasks(["other_bayes"])
    assert "\n" not in str(caught.value)


def test_a_group_of_sampled_tasks_has_the_mean_over_them(manager, caplog):
    second = {**manager.toy, "task": "second"}
    group = {
        "group": "both",
        "task": ["toy", {"task": "second", "num_fewshot": 0}],
        "aggregate_metric_list": [{"metric": "exact_match", "weight_by_size": False}],
    }
    results, _ = run(manager(second, group, bayes_n=4), "both_bayes")
    assert "--gen_kwargs changes that: toy, second" in caplog.text
    assert set(results["groups"]) == {"both_bayes"}
    row = results["groups"]["both_bayes"]
    outcomes = {
        name: Outcomes.from_matrix([s["outcomes"] for s in samples if s["filter"] == "strict"])
        for name, samples in results["samples"].items()
    }
    assert set(outcomes) == {"toy_bayes", "second_bayes"}
    posterior = mean_over_tasks(outcomes)
    assert row["hbayes@4,strict"] == pytest.approx(posterior.mu, abs=1e-12)
    assert row["avg@4,last"] == pytest.approx(4 / 12)


def test_a_task_inside_the_yaml_of_a_group_is_sampled(manager):
    inner = {k: v for k, v in manager.toy.items() if k not in ("task", "tag")}
    nested = {"group": "part", "task": [{**inner, "task": "deep"}]}
    group = {"group": "both", "task": ["toy", {**inner, "task": "inner"}, nested]}
    results, _ = run(manager(group), "both_bayes")
    names = ["toy_bayes", "both::inner_bayes", "both::part::deep_bayes"]
    assert sorted(results["samples"]) == sorted(names)
    averages = {results["results"][name]["avg@16,last"] for name in names}
    assert averages == {4 / 12}
    with pytest.raises(ValueError, match="must have 'task' or 'group' key"):
        run(manager({"group": "both", "task": ["toy", inner]}), "both_bayes")


def test_members_that_cannot_be_sampled_are_left_out_and_named(manager, caplog):
    likely = {**manager.toy, "task": "likely", "output_type": "loglikelihood"}
    choice = {**manager.toy, "task": "choice", "output_type": "multiple_choice"}
    included = {"task": "included", "include": "other.yaml"}
    none = {"group": "none", "task": ["likely", "choice"]}
    group = {"group": "both", "task": ["toy", "likely", "choice", included, "none"]}
    tasks = manager(likely, choice, none, group, bayes_n=2)
    results, _ = run(tasks, "both_bayes")
    assert set(run(tasks, "toys_bayes")[0]["samples"]) == set(results["samples"]) == {"toy_bayes"}
    assert (
        results["groups"]["both_bayes"]["avg@2,last"]
        == results["results"]["toy_bayes"]["avg@2,last"]
    )
    left_out = [r.getMessage() for r in caplog.records if "left out" in r.getMessage()]
    assert [message.rpartition("(")[2] for message in left_out] == [
        "output_type loglikelihood): likely",
        "output_type multiple_choice): choice",
        "include other.yaml): both::included",
        "output_type multiple_choice): choice",
        "output_type loglikelihood): likely",
    ]
    with refused("task", "unsupported", "none", error=TaskConfigError) as caught:
        run(tasks, "none_bayes")
    assert "likely" in str(caught.value)
    assert "choice" in str(caught.value)


def test_the_command_line_finds_sampled_tasks_by_patterns(manager, caplog):
    likely = {**manager.toy, "task": "toy_likely", "output_type": "loglikelihood"}
    tasks = manager({**manager.toy, "task": "second", "tag": "others"}, likely)
    assert tasks.match_tasks(["to?_bayes", "s*d_bayes"]) == ["toy_bayes", "second_bayes"]
    assert tasks.match_tasks(["*_likely_bayes"]) == []
    assert "(output_type loglikelihood): toy_likely" in caplog.text
    assert tasks.match_tasks(["toy*", "no_such*_bayes"]) == ["toy", "toy_likely", "toys"]


def test_a_group_of_the_users_may_list_sampled_tasks(manager):
    group = {"group": "mine", "task": ["toy_bayes", {"task": "second_bayes", "repeats": 2}]}
    loaded = manager({**manager.toy, "task": "second"}, group).load(["mine"])["tasks"]
    assert {name: task.settings.n for name, task in loaded.items()} == {
        "toy_bayes": 16,
        "second_bayes": 2,
    }


def test_a_tag_of_sampled_tasks(manager):
    results, _ = run(manager({**manager.toy, "task": "second"}, bayes_n=2), "toys_bayes")
    assert set(results["results"]) == {"toy_bayes", "second_bayes"}


def test_include_takes_the_name_of_a_task(tmp_path):
    override = "include: demo_arithmetic_bayes\ntask: demo_arithmetic_bayes\nrepeats: 5\n"
    (tmp_path / "override.yaml").write_text(override, encoding="utf-8")
    (tmp_path / "mine.yaml").write_text("include: demo_arithmetic_bayes\ntask: mine\n")
    manager = TaskManager(include_defaults=False, include_path=str(tmp_path))
    tasks = manager.load(["mine", "demo_arithmetic_bayes"])["tasks"]
    assert {name: task.settings.n for name, task in tasks.items()} == {
        "mine": 5,
        "demo_arithmetic_bayes": 5,
    }


def test_an_empty_dataset_is_named(manager, tmp_path):
    (tmp_path / "empty.jsonl").write_text("", encoding="utf-8")
    data = {"data_files": str(tmp_path / "empty.jsonl")}
    tasks = manager({**manager.toy, "task": "empty", "dataset_kwargs": data})
    with refused("dataset_path", "failed", "json", error=DatasetUnavailableError):
        tasks.load(["empty_bayes"])


def test_bayes_n_of_a_task_that_is_not_sampled_is_warned_of(manager, caplog):
    caplog.set_level(logging.WARNING)
    run(manager(bayes_n=4), "toy")
    assert "bayes_n has no effect on toy, which is not sampled repeatedly; toy_bayes is" in (
        caplog.text
    )
