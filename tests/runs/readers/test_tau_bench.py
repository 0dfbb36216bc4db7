"""Results of tau2-bench 1.0.1, which `data/tau2/make.py` made, and of tau-bench, as published.

The expected numbers are those that tau2 printed for its results, and those in the README of
tau-bench.
"""

import math
import shutil

import numpy as np
import pytest
from _support.errors import refused
from _support.tool_logs import DATA, content_of, counted_by_hand, outcomes_of, written

from lm_eval_bayes.runs.reader import read_runs

STRONG, WEAK = DATA / "tau2" / "strong.json", DATA / "tau2" / "weak.json"
FOLDER = DATA / "tau2" / "folder"
AIRLINE = DATA / "tau_bench" / "gpt-4o-airline.json"

OUTCOMES = {
    "openai/strong": {
        "create_task_1": [1, 1, 1, 0],
        "update_task_1": [1, 1, 1, 1],
        "update_task_with_initialization_data": [1, 0, 0, 1],
        "impossible_task_1": [0, 1, 1, None],
    },
    "openai/weak": {
        "create_task_1": [1, 0, 0, 0],
        "update_task_1": [1, 1, 0, 0],
        "update_task_with_initialization_data": [0, 0, 0, 0],
        "impossible_task_1": [0, 0, 0, 0],
    },
}


@pytest.fixture
def content():
    return content_of(STRONG)


@pytest.fixture
def results():
    return content_of(AIRLINE)


def pass_hat(outcomes, k):
    """The pass^k of tau-bench: the share of draws of k trials of a task that are all right."""
    ratios = [math.comb(sum(row), k) / math.comb(len(row), k) for row in outcomes.values()]
    return float(np.mean(ratios))


def test_the_outcomes_were_counted_by_hand():
    assert outcomes_of(STRONG) | outcomes_of(WEAK) == counted_by_hand(OUTCOMES)


@pytest.mark.parametrize(
    ("file", "pass_hats"),
    [
        (STRONG, [0.7291666666666666, 0.5, 0.3125]),
        (WEAK, [0.1875, 0.041666666666666664, 0.0, 0.0]),
    ],
)
def test_pass_hat_k_is_that_of_tau2(file, pass_hats):
    ((_, outcomes),) = outcomes_of(file).items()
    assert [pass_hat(outcomes, k + 1) for k in range(len(pass_hats))] == pytest.approx(pass_hats)


def test_pass_hat_k_is_that_of_tau_bench():
    ((model, outcomes),) = outcomes_of(AIRLINE).items()
    assert (model, len(outcomes)) == ("gpt-4o-airline", 50)
    assert [round(pass_hat(outcomes, k), 3) for k in (1, 2, 3, 4)] == [0.42, 0.273, 0.22, 0.2]
    assert read_runs([AIRLINE]).tasks == ("tau-bench airline",)


@pytest.mark.parametrize("tool", ["tau2", "tau-bench"])
def test_a_simulation_that_is_damaged_is_refused(content, results, tmp_path, tool):
    broken = content if tool == "tau2" else results
    rows = content["simulations"] if tool == "tau2" else results
    about = rows[2].get("reward_info", rows[2])
    about["reward"] = [1]
    with refused("RUN", "format", "'[1]' in row 3"):
        read_runs([written(tmp_path, broken)])
    about["reward"] = math.nan
    assert "without a score" in "".join(read_runs([written(tmp_path, broken)]).runs[0].notes)
    for odd in (None, {"reward": 1}):
        rows[2] = odd
        with refused("RUN", "missing", "none in row 3"):
            read_runs([written(tmp_path, broken)])


def test_text_settings_tokens_and_time_are_read():
    (run,) = read_runs([WEAK]).runs
    assert run.task == "mock"
    assert run.provenance.generation_kwargs == {"temperature": 0.5}
    assert run.questions[0].startswith("You are a team member who needs to create a task")
    assert run.tokens == 16 * 7  # one answer of 7 tokens is left of every conversation
    assert run.busy_seconds > 0


def test_simulations_in_files_of_their_own_are_read(tmp_path):
    first = {id: row[:1] for id, row in OUTCOMES["openai/weak"].items()}
    assert outcomes_of(FOLDER) == {"openai/weak": first}
    index = shutil.copy(FOLDER / "results.json", tmp_path)
    assert outcomes_of(index) == {"openai/weak": first}


def test_a_reward_between_is_a_failure_unless_rewards_are_asked_for(tmp_path, content):
    """A reward from 1 to within 1e-6 of it is right, as in the tool."""
    infos = [s["reward_info"] for s in content["simulations"] if s["reward_info"]]
    for info, reward in zip(infos, (0.5, 1 - 9e-7, 1 + 9e-7, 1 - 2e-6), strict=False):
        info["reward"] = reward
    counted = {info["reward"]: 0 for info in infos[:4]}
    file = written(tmp_path, content)
    success, rewards = outcomes_of(file), outcomes_of(file, metric="reward", bounds=(0, 2))
    for id, of_question in rewards["openai/strong"].items():
        for reward, right in zip(of_question, success["openai/strong"][id], strict=True):
            if reward in counted:
                counted[reward] += right
    assert counted == {0.5: 0, 1 - 9e-7: 1, 1 + 9e-7: 1, 1 - 2e-6: 0}


def test_another_simulated_user_is_another_run(tmp_path, content):
    content["timestamp"] = "2026-01-01T00:00:00"
    content["info"]["user_info"]["llm"] = "openai/other"
    models = read_runs([STRONG, written(tmp_path, content)]).models
    assert models == ("openai/strong (user=openai/user)", "openai/strong (user=openai/other)")


def test_the_name_of_a_file_of_tau_bench_names_the_model(tmp_path, results):
    name = "tool-calling-gpt-4o-mini-0.0_range_0--1_user-gpt-4o-llm_0918123456.json"
    results[0]["info"]["error"] = "the connection was lost"
    (run,) = read_runs([written(tmp_path, results, name)]).runs
    assert (run.model, run.task) == ("gpt-4o-mini", "tau-bench airline")
    assert run.provenance.generation_kwargs == {"temperature": 0.0}
    assert "1 trial ended with an error, and counted by success" in "".join(run.notes)


def test_a_field_of_the_tasks_names_clusters(tmp_path, content):
    for task in content["tasks"]:
        task["ticket"] = "new" if task["id"].startswith("create") else "old"
    (run,) = read_runs([written(tmp_path, content)], cluster="ticket").runs
    assert run.clusters == ("new", "old", "old", "old")
    with refused("cluster", "choice", "topic"):
        read_runs([AIRLINE], cluster="topic")


def test_a_run_that_ended_before_its_first_task_is_left_out(tmp_path, content):
    shutil.copy(STRONG, tmp_path)
    dead = written(tmp_path, content | {"simulations": [], "simulation_index": None}, "dead.json")
    saved = read_runs([tmp_path])
    assert saved.models == ("openai/strong",)
    (warning,) = saved.warnings
    assert str(dead) in warning
    with refused("RUN", "missing"):
        read_runs([dead])


def test_a_run_that_did_not_end_is_told(tmp_path, content):
    assert read_runs([STRONG]).warnings == ()
    del content["simulations"][7:]
    assert "7 of 16" in read_runs([written(tmp_path, content)]).warnings[0]


def test_merged_runs_of_different_code_are_told(tmp_path, content):
    content["timestamp"] = "2026-01-01T00:00:00"
    content["info"]["git_commit"] = "b3af1655ec1cab37b53bb9a517f3e6dbd7f7e9a8"
    first = written(tmp_path, content, "first.json")
    content["timestamp"] = "2026-01-02T00:00:00"
    content["info"]["git_commit"] = "unknown"
    (run,) = read_runs([first, written(tmp_path, content)]).runs
    assert "git_commit: b3af1655ec1c…6dbd7f7e9a8 (1 file), unknown (1 file)" in "".join(run.notes)


def test_a_copy_with_another_score_counts_nothing_twice(content, tmp_path):
    shutil.copy(STRONG, tmp_path / "a.json")
    content["simulations"][0]["reward_info"]["reward"] = 0.0
    written(tmp_path, content, "b.json")
    with refused("RUN", "duplicate"):
        read_runs([tmp_path])
    with refused("RUN", "mismatch"):
        read_runs([tmp_path], dedupe=True)
