"""Results of tau2-bench 1.0.1, which `data/tau2/make.py` made, and of tau-bench, as published.

The expected numbers are those that tau2 printed for its results, and those in the README of
tau-bench.
"""

import json
import math
import shutil

import numpy as np
import pytest
from _support.command_line import called
from _support.tool_logs import (
    DATA,
    all_commands,
    nested,
    outcomes_of,
    same_as_table,
    summary,
)

from lm_eval_bayes.analysis.independence import repeat_note
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.readers.formats import recognise

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
    return json.loads(STRONG.read_text(encoding="utf-8"))


@pytest.fixture
def results():
    return json.loads(AIRLINE.read_text(encoding="utf-8"))


def written(folder, content, name="results.json"):
    file = folder / name
    file.write_text(json.dumps(content))
    return file


def pass_hat(outcomes, k):
    """The pass^k of tau-bench: the share of draws of k trials of a task that are all right."""
    ratios = [math.comb(sum(row), k) / math.comb(len(row), k) for row in outcomes.values()]
    return float(np.mean(ratios))


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


def test_the_numbers_are_those_of_a_table(tmp_path):
    same_as_table(tmp_path, OUTCOMES, STRONG, WEAK)


def test_every_command_reads_a_folder(tmp_path):
    all_commands(tmp_path, STRONG, WEAK)
    (tmp_path / "runs" / "strong").mkdir(parents=True)
    (tmp_path / "runs" / "weak").mkdir()
    shutil.copy(STRONG, tmp_path / "runs" / "strong" / "results.json")
    shutil.copy(WEAK, tmp_path / "runs" / "weak" / "results.json")
    assert recognise(tmp_path / "runs")[0].name == "tau2-bench, tau-bench"
    assert outcomes_of(tmp_path / "runs") == outcomes_of(STRONG) | outcomes_of(WEAK)


def test_errors_and_early_ends_are_told():
    _, said = summary(STRONG)
    assert "1 trial ended in an infrastructure error, and did not count" in said
    assert "1 trial ended early (max_steps 1), and counted by the reward" in said
    assert "without a score left out" not in said  # it is the trial with the infrastructure error


def test_a_trial_without_a_reward_is_one_trial(content, tmp_path):
    for simulation in content["simulations"]:
        if simulation["termination_reason"] == "infrastructure_error":
            simulation["termination_reason"] = "user_stop"
            simulation["reward_info"] = None
    (run,) = read_runs([written(tmp_path, content)]).runs
    assert "1 trial without a score left out" in run.notes


@pytest.mark.parametrize(
    ("reward", "shown"),
    [
        ("NaN", "NaN as"),
        ("1e400", "inf (infinite, or beyond the largest float, 1.8e308) as"),
        ("-1e400", "-inf (infinite, or beyond the largest float, 1.8e308) as"),
        ('"high"', '"high" as'),
        ('""', '"" as'),
        ("[1]", "[1] as"),
        ("{}", "{} as"),
    ],
)
def test_a_reward_that_is_no_number_is_refused(content, tmp_path, reward, shown):
    content["simulations"][2]["reward_info"]["reward"] = "REWARD"
    file = written(tmp_path, content)
    file.write_text(file.read_text().replace('"REWARD"', reward))
    rule = f"`RUN` must have finite numbers as scores ({file}); got {shown} reward of task "
    with pytest.raises(InvalidInputError) as raised:
        read_runs([file])
    assert str(raised.value) == rule + content["simulations"][2]["task_id"]


def test_a_reward_of_the_first_release_that_is_no_number_is_refused(results, tmp_path):
    results[1]["reward"] = float("nan")
    with pytest.raises(InvalidInputError, match="got NaN as reward of task"):
        read_runs([written(tmp_path, results)])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (None, "got null in simulation 3"),
        ({"task_id": {"a": 1}}, 'got the task_id {"a": 1} in simulation 3'),
        ({"task_id": None}, "got the task_id null in simulation 3"),
        ({"trial": -7}, "got the trial -7 in simulation 3"),
        ({"trial": 1.5}, "got the trial 1.5 in simulation 3"),
        ({"trial": "1"}, 'got the trial "1" in simulation 3'),
        ({"trial": True}, "got the trial true in simulation 3"),
    ],
)
@pytest.mark.parametrize("tool", ["tau2", "tau-bench"])
def test_a_broken_simulation_is_named(content, results, tmp_path, tool, changed, message):
    listed = content["simulations"] if tool == "tau2" else results
    listed[2] = None if changed is None else listed[2] | changed
    with pytest.raises(InvalidInputError) as raised:
        read_runs([written(tmp_path, content if tool == "tau2" else results)])
    assert message in str(raised.value)


def test_why_there_is_no_pass_at_k_is_said(content, tmp_path):
    reason = "mock, openai/strong: no avg@N and no Pass@k family, because 1 of 4 questions has no"
    _, table, _ = called("summary", written(tmp_path, content))
    assert "no avg@N" not in table
    for simulation in content["simulations"]:
        if simulation["task_id"] == "create_task_1":
            simulation["termination_reason"] = "infrastructure_error"
    _, table, _ = called("summary", written(tmp_path, content))
    assert f"{reason} trial that counts\n" in table
    assert "pass@k" not in table
    scores = tmp_path / "scores.csv"
    scores.write_text("question,score\na,0.5\nb,\nc,\n")
    _, table, _ = called("summary", scores)
    assert "no avg@N, because 2 of 3 questions have no trial that counts\n" in table


def test_text_settings_tokens_and_time_are_read():
    (run,) = read_runs([WEAK]).runs
    assert run.task == "mock"
    assert run.provenance.generation_kwargs == {"temperature": 0.5}
    assert run.questions[0].startswith("You are a team member who needs to create a task")
    assert run.tokens == 16 * 7  # one answer of 7 tokens is left of every conversation
    assert run.busy_seconds > 0


def test_simulations_in_files_of_their_own_are_read(tmp_path, content):
    (run,) = read_runs([FOLDER]).runs
    assert run.question_ids == tuple(sorted(run.question_ids, key=list(run.question_ids).index))
    assert outcomes_of(FOLDER)["openai/weak"].keys() == OUTCOMES["openai/weak"].keys()
    first = {id: row[:1] for id, row in OUTCOMES["openai/weak"].items()}
    assert outcomes_of(FOLDER) == {"openai/weak": first}
    index = shutil.copy(FOLDER / "results.json", tmp_path)
    assert outcomes_of(index) == {"openai/weak": first}


def test_a_reward_between_is_a_failure_unless_rewards_are_asked_for(tmp_path, content):
    infos = [s["reward_info"] for s in content["simulations"] if s["reward_info"]]
    infos[0]["reward"], infos[1]["reward"] = 0.5, 1 - 1e-9
    file = written(tmp_path, content)
    read = outcomes_of(file)["openai/strong"]
    assert read["create_task_1"] == [0, 1, 1, 0]
    assert read["update_task_1"] == [1, 1, 1, 1]
    said = summary(file)[1]
    assert "2 rewards other than 0 and 1 were counted as right or wrong" in said
    assert outcomes_of(file, metric="reward")["openai/strong"]["create_task_1"] == [0.5, 1, 1, 0]
    with pytest.raises(InvalidInputError, match=r"a metric of results\.json, success or reward"):
        read_runs([file], metric="pass^4")


def test_true_and_false_are_rewards(tmp_path, content):
    infos = [s["reward_info"] for s in content["simulations"] if s["reward_info"]]
    for i, info in enumerate(infos):
        info["reward"] = i % 3 == 0
    ((_, of_model),) = outcomes_of(written(tmp_path, content)).items()
    scores = [score for of_question in of_model.values() for score in of_question]
    assert (len(scores), sum(scores)) == (len(infos), sum(info["reward"] for info in infos))


def test_a_copy_is_no_further_trials_and_another_run_is(tmp_path, content):
    with pytest.raises(InvalidInputError, match="15 of 15 trials"):
        read_runs([STRONG, written(tmp_path, content)])
    content["timestamp"] = "2026-01-01T00:00:00"
    (run,) = read_runs([STRONG, written(tmp_path, content)]).runs
    assert run.n_trials == 30


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
    assert "1 trial ended in an error, and counted by the reward 0" in "".join(run.notes)


def test_a_field_of_the_tasks_names_clusters(tmp_path, content):
    for task in content["tasks"]:
        task["ticket"] = "new" if task["id"].startswith("create") else "old"
    (run,) = read_runs([written(tmp_path, content)], cluster="ticket").runs
    assert run.clusters == ("new", "old", "old", "old")
    with pytest.raises(InvalidInputError, match="a field of the tasks"):
        read_runs([STRONG], cluster="topic")
    with pytest.raises(InvalidInputError, match="no fields of tasks"):
        read_runs([AIRLINE], cluster="topic")


def test_results_without_rewards_are_refused(tmp_path, content):
    for simulation in content["simulations"]:
        simulation["reward_info"] = None
    with pytest.raises(InvalidInputError, match="have rewards of simulations"):
        read_runs([written(tmp_path, content)])


def test_a_task_that_is_not_in_the_results_is_refused():
    with pytest.raises(InvalidInputError, match="hold task retail; there is mock"):
        read_runs([STRONG], task="retail")


def test_relative_paths_are_read(monkeypatch):
    monkeypatch.chdir(FOLDER)
    assert outcomes_of("results.json") == outcomes_of(".") == outcomes_of(FOLDER)


def test_deep_nesting_is_refused(tmp_path):
    file = tmp_path / "results.json"
    file.write_text('{"info": {"git_commit": "x"}, "simulations": ' + nested() + "}")
    with pytest.raises(InvalidInputError, match="nested hundreds deep"):
        read_runs([file])


def test_a_run_that_ended_before_its_first_task_is_left_out(tmp_path, content):
    shutil.copy(STRONG, tmp_path)
    dead = written(tmp_path, content | {"simulations": [], "simulation_index": None}, "dead.json")
    saved = read_runs([tmp_path])
    assert saved.models == ("openai/strong",)
    assert saved.warnings == (f"left out: {dead}, without simulations",)
    with pytest.raises(InvalidInputError, match=r"hold simulations \(dead.json\); got none, as of"):
        read_runs([dead])


def test_a_run_that_did_not_end_is_told(tmp_path, content):
    assert read_runs([STRONG]).warnings == ()
    del content["simulations"][7:]
    file = written(tmp_path, content)
    held = f"{file} holds 7 of 16 planned simulations: those that it holds count"
    assert read_runs([file]).warnings[0] == held
    del content["simulations"][3:]
    written(tmp_path, content)
    held = held.replace("7 of 16", "3 of 16")
    assert read_runs([file]).warnings[0] == f"{held}; 1 task of 4 without any"


def test_merged_runs_of_different_code_are_told(tmp_path, content):
    content["timestamp"] = "2026-01-01T00:00:00"
    content["info"]["git_commit"] = "b3af1655ec1cab37b53bb9a517f3e6dbd7f7e9a8"
    content["info"]["environment_info"]["policy"] = "Refund."
    first = written(tmp_path, content, "first.json")
    content["timestamp"] = "2026-01-02T00:00:00"
    content["info"]["git_commit"] = "unknown"
    content["info"]["environment_info"]["policy"] = "Never refund."
    (run,) = read_runs([first, written(tmp_path, content)]).runs
    commits, policies = (note for note in run.notes if "versions were merged" in note)
    assert commits == (
        "runs of different versions were merged: git_commit b3af16…7e9a8 (1 file), unknown (1 file)"
    )
    assert policies.startswith("runs of different versions were merged: policy ")
    (run,) = read_runs([STRONG]).runs
    assert not [note for note in run.notes if "merged" in note]


def test_compare_tells_which_simulated_users_differ(tmp_path, content):
    content["timestamp"] = "2026-01-01T00:00:00"
    content["info"]["user_info"]["llm"] = "openai/other"
    code, printed, error = called("compare", STRONG, written(tmp_path, content))
    assert code == 0
    assert "A is openai/strong (user=openai/user)" in printed
    assert "B is openai/strong (user=openai/other)" in printed
    assert "different settings (user: openai/user, openai/other)" in error


def test_an_agent_without_a_name_is_said(tmp_path, content):
    content["info"]["agent_info"] = None
    (run,) = read_runs([written(tmp_path, content)]).runs
    assert any("does not name its agent" in note for note in run.notes)


def test_trials_of_an_agent_at_temperature_zero_are_no_repeats(tmp_path, content):
    content["info"]["agent_info"]["llm_args"] = {"temperature": 0.0}
    for simulation in content["simulations"]:
        simulation["reward_info"] = {"reward": 1.0}
        simulation["termination_reason"] = "user_stop"
    (run,) = read_runs([written(tmp_path, content)]).runs
    assert run.provenance.generation_kwargs == {"temperature": 0.0}
    assert repeat_note(run) is None


def test_every_k_of_both_tools_is_in_the_table():
    (task,) = summary(AIRLINE)[0].values()
    rows = [task["rows"][name] for name in ("pass@1", "pass^2", "pass^3", "pass^4")]
    assert np.round(rows, 3).tolist() == [0.42, 0.273, 0.22, 0.2]
    _, printed, _ = called("summary", AIRLINE)
    (line,) = (line for line in printed.splitlines() if " pass^k " in line)
    assert line.partition("pass^k")[2].split()[::3] == ["0.420", "0.273", "0.220", "0.200"]
