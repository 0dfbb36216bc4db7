"""Runs of terminal-bench as they were submitted, and a job made with the records of Harbor 0.25.0.

The expected accuracies are in the files of terminal-bench; pass@k and the counts of Harbor are what
its functions gave (`data/harbor/make.py` prints them).
"""

import json
import shutil

import numpy as np
import pytest
from _support.errors import refused
from _support.tool_logs import DATA, content_of, counted_by_hand, outcomes_of, summary

from lm_eval_bayes.runs.reader import read_runs

RUNS = DATA / "terminal_bench"
JOB = DATA / "harbor" / "letters"
SONNET = "anthropic/claude-sonnet-4-20250514"

OUTCOMES = {
    "strong": {
        "fix-git": [1, 1, 1, 1],
        "hello-world": [1, 1, 1, 1],
        "solve-maze": [0, 1, 0, 1],
        "chess": [0, 0, 1, 1],
    },
    "weak": {
        "fix-git": [0, 1, 0, 1],
        "hello-world": [1, 1, 0, 1],
        "solve-maze": [0, 0, 0, 0],
        "chess": [0, 0, 0, 0],
    },
}


@pytest.fixture
def job(tmp_path):
    """The first question of the job, in a folder that may be changed."""
    folder = tmp_path / "jobs" / "letters"
    for path in JOB.glob("chess__s*"):
        shutil.copytree(path, folder / path.name)
    return folder


@pytest.fixture
def run(tmp_path):
    """A run of terminal-bench, in a folder that may be changed."""
    return shutil.copytree(RUNS / "ob1_1", tmp_path / "ob1_1")


def rewrite(file, change):
    content = content_of(file)
    change(content)
    file.write_text(json.dumps(content))


# -- terminal-bench ----------------------------------------------------------------------------


def test_the_outcomes_were_counted_by_hand():
    assert outcomes_of(JOB) == counted_by_hand(OUTCOMES)
    for path in (JOB / "result.json", JOB.parent):
        assert outcomes_of(path) == outcomes_of(JOB)
    (file,) = JOB.glob("hello-world__s0*/result.json")
    assert outcomes_of(file) == outcomes_of(file.parent) == {"strong": {"hello-world": [1]}}


@pytest.mark.parametrize("name", ["chaterm_1", "chaterm_2", "ob1_1", "ob1_2"])
def test_the_accuracy_is_that_of_terminal_bench(name):
    accuracy = content_of(RUNS / name / "results.json")["accuracy"]
    for path in (RUNS / name, RUNS / name / "results.json"):
        ((_, outcomes),) = outcomes_of(path).items()
        assert np.mean([row for (row,) in outcomes.values()]) == pytest.approx(accuracy)


def test_runs_in_a_folder_are_further_trials_of_their_models():
    runs = {run.model: run for run in read_runs([RUNS]).runs}
    assert sorted(runs) == [SONNET, "ob1-sdk"]
    assert [run.n_trials for run in runs.values()] == [160, 160]
    assert runs[SONNET].outcomes.counts.sum(axis=0).tolist() == [160 - 37 - 42, 37 + 42]
    assert runs["ob1-sdk"].task == "terminal-bench-core 0.1.1"


def test_trials_in_files_of_their_own_are_read(tmp_path, run):
    whole = outcomes_of(run)
    results = content_of(run / "results.json")["results"]
    (run / "results.json").unlink()
    for result in results:
        folder = run / result["task_id"] / result["trial_name"]
        folder.mkdir(parents=True)
        (folder / "results.json").write_text(json.dumps(result))
    assert outcomes_of(run) == outcomes_of(tmp_path) == whole
    (run / "run_metadata.json").unlink()
    assert list(outcomes_of(run)) == ["ob1_1"]
    single = folder / "results.json"
    ((_, of_model),) = outcomes_of(single).items()
    assert of_model == {result["task_id"]: [int(bool(result["is_resolved"]))]}
    assert outcomes_of(folder.parent) == outcomes_of(single) == {"ob1_1": of_model}


def test_trials_of_one_run_keep_their_numbers(tmp_path, run):
    def repeat(content):
        (first,) = content["results"][:1]
        names = [f"{first['task_id']}.{n}-of-3.x" for n in (3, 1, 2)]
        content["results"] = [
            first | {"trial_name": name, "is_resolved": resolved, "trial_started_at": None}
            for name, resolved in zip(names, (True, False, None), strict=True)
        ]

    rewrite(run / "results.json", repeat)
    ((_, of_model),) = outcomes_of(run).items()
    assert list(of_model.values()) == [[0, 0, 1]]


@pytest.mark.parametrize("id", [None, []])
def test_a_trial_without_its_task_is_refused(run, id):
    def drop(content):
        content["results"][5]["task_id"] = id

    rewrite(run / "results.json", drop)
    with refused("RUN", "missing", "none in row 6"):
        read_runs([run])


# -- Harbor ------------------------------------------------------------------------------------


def test_pass_at_k_is_that_of_harbor():
    tasks, _ = summary(JOB)
    for model, expected in (("strong", (0.9166666666666667, 1.0)), ("weak", (0.45833333333, 0.5))):
        rows = tasks[model, "letters"]["rows"]
        assert [rows[f"pass@{k}"] for k in (2, 4)] == pytest.approx(expected)


def test_tokens_cost_time_and_versions_are_read():
    run = read_runs([JOB]).runs[0]
    assert (run.tokens, run.busy_seconds) == (160, 320)
    assert sum(column.sum() for column in run.measured["cost"]) == 4.0
    assert run.provenance.versions == {"terminus-2": "2.0.0"}


def test_one_of_several_rewards_is_chosen(job):
    for number, file in enumerate(sorted(job.glob("*/result.json"))):
        rewards = {"style": number / 4, **({"tests": 1} if number % 2 else {})}
        rewrite(file, lambda content, r=rewards: content.update(verifier_result={"rewards": r}))
    assert outcomes_of(job)["strong"] == {"chess": [0, 0.25, 0.5, 0.75]}
    assert outcomes_of(job, metric="tests")["strong"] == {"chess": [0, 1, 0, 1]}


def test_two_agents_of_one_model_are_told_apart(tmp_path, job):
    other = shutil.copytree(job, tmp_path / "other")
    for file in other.glob("*/result.json"):
        rewrite(file, lambda content: content["agent_info"].update(name="codex"))
    models = read_runs([job, other]).models
    assert models == ("strong (agent=terminus-2)", "strong (agent=codex)")


def test_runs_in_files_named_by_their_times_are_of_one_model(tmp_path):
    folder = tmp_path / "goose"
    folder.mkdir()
    for name in ("ob1_1", "ob1_2"):
        target = folder / f"2025-08-27__22-13-1{name[-1]}_results.json"
        shutil.copy(RUNS / name / "results.json", target)
    (saved,) = read_runs([folder]).runs
    assert (saved.model, saved.n_trials) == ("goose", 160)
    target.rename(folder / "codex_results.json")
    assert read_runs([folder]).models == ("goose", "goose/codex")


@pytest.mark.parametrize("agent", ["Agent X", None])
def test_runs_of_which_no_model_is_named_are_those_of_their_agent(tmp_path, agent):
    for name in ("ob1_1", "ob1_2"):
        folder = shutil.copytree(RUNS / name, tmp_path / name)
        about = {"model_name": None, "agent_name": agent}
        rewrite(folder / "run_metadata.json", lambda content, about=about: content.update(about))
    saved = read_runs([tmp_path])
    if agent is None:
        assert saved.models == ("ob1_1", "ob1_2")
        return
    assert [(run.model, run.n_trials) for run in saved.runs] == [("Agent X", 160)]
    assert saved.notes[0].startswith("Agent X: ")
