"""A group that averages hbayes@N has the mean over its tasks under a prior that they share."""

from __future__ import annotations

import re

import datasets
import numpy as np
import pytest
from _support.errors import refused
from _support.toy import QUESTIONS, SCRIPT, ScriptedLM, all_rows, plain_task, toy_config
from lm_eval import evaluator
from lm_eval.api.group import Group

from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.harness.plugin import patches
from lm_eval_bayes.harness.task.final_results import check_group
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask
from lm_eval_bayes.harness.task.result_rows import HBAYES_AT_N
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.hierarchical.mean_over_tasks import mean_over_tasks
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.score_outcomes import ScoreOutcomes

pytestmark = pytest.mark.filterwarnings("default")

#: Right answers of four, question by question, as the script gives them.
RIGHT = np.array([3, 1, 0])
PARTS = {"a": [0, 1, 2], "b": [0, 1], "c": [2]}


def task(name, kind=RepeatedSamplingTask, **changes):
    part = [QUESTIONS[i] for i in PARTS[name]]
    data = datasets.Dataset.from_list(part)
    changes = {"task": name, "custom_dataset": lambda **_: {"test": data}, **changes}
    return kind(config=toy_config(**changes)) if kind else plain_task(**changes)


def grouped(tasks, *entries):
    config = {"group": "group", "task": list(PARTS), "aggregate_metric_list": list(entries)}
    group = Group.from_config(config)
    for each in tasks:
        group.add(each)
    return group


def evaluated(group):
    members = {each.config.task: each for each in group.get_all_tasks()}
    loaded = {"tasks": members, "groups": {"group": group}, "group_map": {"group": list(members)}}
    return evaluator.evaluate(ScriptedLM(SCRIPT), loaded, bootstrap_iters=0)


def outcomes():
    counts = {name: np.stack([4 - RIGHT[part], RIGHT[part]], 1) for name, part in PARTS.items()}
    return {name: Outcomes.from_counts(each) for name, each in counts.items()}


def test_a_group_has_the_mean_over_its_tasks():
    rows = (HBAYES_AT_N, "hbayes@4_population", "bayes@4")
    entries = ({"metric": row, "weight_by_size": True} for row in rows)
    tasks = [task(name, metadata={"bayes_interval": "exact", "bayes_k": 2}) for name in PARTS]
    evaluation = evaluated(grouped(tasks, *entries))
    results = {name: all_rows(evaluation, name) for name in ("group", *PARTS)}
    for scope, row in (("benchmark", "hbayes@4"), ("population", "hbayes@4_population")):
        posterior = mean_over_tasks(outcomes(), "size", scope=scope)
        interval = posterior.interval(0.95, "exact")
        expected = [posterior.mu, posterior.sigma, interval.low, interval.high]
        suffixes = ("", "_stderr", "_low", "_high")
        rows = [results["group"][f"{row}{suffix},none"] for suffix in suffixes]
        assert rows == pytest.approx(expected, abs=1e-12)
        # the shared prior pulls less: not the mean of the tasks' rows, which stay their own
        own = [results[name][f"{row},none"] for name in PARTS]
        assert own == pytest.approx([hbayes_at_n(each, scope).mu for each in outcomes().values()])
        assert abs(rows[0] - np.average(own, weights=[3, 2, 1])) > 1e-4
    shares = np.array([3, 2, 1]) / 6
    for row in ("bayes@4", "avg@4", "pass@2", "pass^2", "pass@4", "maj@4", "hpass@2", "hmaj@4"):
        own = np.array([results[name][f"{row},none"] for name in PARTS])
        assert results["group"][f"{row},none"] == pytest.approx(shares @ own, abs=1e-12)
    for row in ("bayes@4", "avg@4", "hpass@2", "hmaj@4"):  # the tasks' trials are independent
        own = np.array([results[name][f"{row}_stderr,none"] for name in PARTS])
        sd = float(np.sqrt(shares**2 @ own**2))
        assert results["group"][f"{row}_stderr,none"] == pytest.approx(sd, abs=1e-12)
        if row != "avg@4":
            low, high = (results["group"][f"{row}_{end},none"] for end in ("low", "high"))
            assert low < results["group"][f"{row},none"] < high
            assert 3 * sd < high - low < 4 * sd
    printed = [
        [k for k in sorted(evaluation["results"][name]) if "," in k] for name in ("a", "group")
    ]
    assert printed[0] == printed[1]
    assert evaluation["groups"]["group"] == evaluation["results"]["group"]


def test_the_score_of_a_group_comes_first_with_the_questions_of_its_tasks():
    from lm_eval_bayes.harness.plugin.wrappers import evaluate_with_trials

    group = grouped([task(name) for name in PARTS], {"metric": HBAYES_AT_N, "weight_by_size": True})
    members = {each.config.task: each for each in group.get_all_tasks()}
    loaded = {"tasks": members, "groups": {"group": group}, "group_map": {"group": list(members)}}
    original = patches.original(patches.EVALUATE)
    results, scores = evaluate_with_trials(
        original, lm=ScriptedLM(SCRIPT), task_dict=loaded, bootstrap_iters=0
    )
    assert [text.partition(":")[0] for text in scores] == ["group", *PARTS]
    assert [re.search(r"(\d+|this) question", text)[1] for text in scores] == [
        "6",
        "3",
        "2",
        "this",
    ]
    assert f" {all_rows(results, 'group')['hbayes@4,none']:.3f} on" in scores[0]


def test_a_group_of_scores_and_grades(caplog):
    def share(doc, results):
        return {"exact_match": 1 / (1 + abs(int(doc["answer"]) - len(results[0])))}

    scored = task("a", process_results=share, metadata={"version": 1.0, "bayes_bounds": [0, 2]})
    entries = [{"metric": row, "weight_by_size": True} for row in (HBAYES_AT_N, "bayes@4", "avg@4")]
    evaluation = evaluated(grouped([scored, task("b"), task("c")], *entries))
    results = {name: all_rows(evaluation, name) for name in ("group", *PARTS)}
    scores = [
        [1 / (1 + abs(int(q["answer"]) - len(t))) for t in SCRIPT[q["question"]]] for q in QUESTIONS
    ]
    tasks = {**outcomes(), "a": ScoreOutcomes.from_scores(scores, (0, 2))}
    posterior = mean_over_tasks(tasks, "size")
    assert results["group"]["hbayes@4,none"] == pytest.approx(posterior.mu, abs=1e-12)
    assert results["group"]["hbayes@4_stderr,none"] == pytest.approx(posterior.sigma, abs=1e-12)
    # scores have no bayes@N: the mean of the other tasks would be of other questions
    assert "bayes@4,none" not in results["group"]
    averages = [results[name]["avg@4,none"] for name in PARTS]
    assert results["group"]["avg@4,none"] == pytest.approx(np.average(averages, weights=[3, 2, 1]))
    assert "different bounds, 0 to 1, 0 to 2" in caplog.text


def test_a_group_of_other_tasks_is_left_alone():
    tasks = [task(name, None, repeats=1) for name in ("a", "b")]
    group = grouped(tasks, {"metric": "exact_match", "weight_by_size": False})
    results = evaluated(group)["results"]
    own = [results[name]["exact_match,none"] for name in "ab"]
    assert results["group"]["exact_match,none"] == pytest.approx(np.mean(own))
    assert "aggregate" not in vars(group)


def test_tasks_without_the_rows_are_left_out_and_named(caplog):
    tasks = [task("a"), task("b", None), task("c")]
    results = evaluated(grouped(tasks, {"metric": HBAYES_AT_N, "weight_by_size": False}))
    counted = {name: outcomes()[name] for name in ("a", "c")}
    posterior = mean_over_tasks(counted, "equal")
    assert results["groups"]["group"]["hbayes@4,none"] == pytest.approx(posterior.mu, abs=1e-12)
    assert "group group: its rows are without b" in caplog.text


def test_weights_and_settings_of_a_group_are_one():
    entries = [{"metric": row, "weight_by_size": "h" in row} for row in ("hbayes@4", "avg@4")]
    with refused("weight_by_size", "conflict", error=TaskConfigError):
        check_group(grouped([task("a")], *entries))
    for setting, others in (("bayes_n", 3), ("bayes_level", 0.9), ("bayes_interval", "beta")):
        tasks = [task("a"), task("b", metadata={setting: others})]
        with refused(setting, "mismatch"):
            check_group(grouped(tasks, entries[0]))
