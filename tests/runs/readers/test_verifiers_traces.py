"""Traces of verifiers 0.4.0, which `data/verifiers_traces/make.py` made.

The rewards were counted by hand from the answers in `make.py`.
"""

import json
import shutil

import pytest
from _support.tool_logs import (
    DATA,
    all_commands,
    nested,
    outcomes_of,
    replaced_by_nested,
    same_as_table,
    summary,
)

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.readers.formats import recognise

TRACES = DATA / "verifiers_traces"
WEAK, STRONG = TRACES / "weak", TRACES / "strong"

#: 1 for the answer, 0.25 for one beside it; the error has none
REWARDS = {
    "org/weak": ([1, 1, 1, 0.25], [1, 0.25, 0.25, 0.25], [1, 1, 0.25], [1, 1, 1, 1]),
    "org/strong": ([1, 1, 1, 1], [1, 1, 1, 0.25], [1, 1, 1, 1], [1, 1, 1, 0.25]),
}
IDS = tuple(read_runs([STRONG]).runs[0].question_ids)
REWARDS = {model: dict(zip(IDS, rows, strict=True)) for model, rows in REWARDS.items()}


@pytest.fixture
def episodes():
    lines = (WEAK / "traces.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture
def write(tmp_path):
    def write(episodes, name="run"):
        (tmp_path / name).mkdir(exist_ok=True)
        file = tmp_path / name / "traces.jsonl"
        file.write_text("".join(json.dumps(e) + "\n" for e in episodes), encoding="utf-8")
        return file

    return write


def in_order(outcomes):
    """The scores of every question sorted: rollouts run side by side, in any order."""
    return {
        model: {question: sorted(scores) for question, scores in of_model.items()}
        for model, of_model in outcomes.items()
    }


def test_the_numbers_are_those_of_a_table(tmp_path):
    assert in_order(outcomes_of(TRACES)) == in_order(REWARDS)
    same_as_table(tmp_path, REWARDS, WEAK, STRONG)


def test_rewards_and_metrics_are_chosen_by_name():
    right = {m: {q: [float(s == 1) for s in r] for q, r in of.items()} for m, of in REWARDS.items()}
    assert in_order(outcomes_of(TRACES, metric="right")) == in_order(right)
    assert set(map(tuple, outcomes_of(STRONG, metric="digits")["org/strong"].values())) == {
        (1, 1, 1, 1)
    }
    with pytest.raises(InvalidInputError, match="be a metric of traces"):
        read_runs([WEAK], metric="style")


def test_every_command_reads_traces(tmp_path):
    all_commands(tmp_path, WEAK, STRONG)
    assert recognise(TRACES)[0].name == "verifiers, traces"


def test_errors_are_told_and_do_not_count():
    tasks, said = summary(WEAK)
    assert "1 trial ended in an error, and did not count" in said
    ((names, task),) = tasks.items()
    assert (names, task["trials"]) == (("org/weak", "sums"), 15)


def test_settings_clusters_and_versions_are_read():
    (run,) = read_runs([STRONG], metric="right", cluster="part").runs
    assert run.clusters == ("I", "I", "II", "II")
    assert run.tokens == 16
    assert run.provenance.generation_kwargs == {"temperature": 0.7}
    assert run.provenance.versions == {"verifiers": "0.4.0"}
    assert run.questions[0] == "1 + 1 = ?"


def test_a_copy_is_no_further_trials(tmp_path, episodes, write):
    copy = shutil.copytree(WEAK, tmp_path / "copy")
    with pytest.raises(InvalidInputError, match="15 of 15 trials"):
        read_runs([WEAK, copy])
    for episode in episodes:
        episode["run"]["name"] = "another"
    assert read_runs([WEAK, write(episodes)]).runs[0].n_trials == 30


def test_the_agents_that_are_trained_count(episodes, write):
    for episode in episodes:
        judge = json.loads(json.dumps(episode["traces"][0]))
        judge["agent"] = {"config": {"model": "org/judge"}, "trainable": False}
        episode["traces"].append(judge)
    assert outcomes_of(write(episodes)) == outcomes_of(WEAK)


def test_a_task_that_is_not_in_the_file_is_refused():
    with pytest.raises(InvalidInputError, match="hold task products; there is sums"):
        read_runs([WEAK], task="products")


def test_deep_nesting_is_read_or_refused(episodes, write):
    file = write(episodes)
    replaced_by_nested(file, '"1 + 1 = ?"')
    file.write_text(json.dumps(episodes[0]) + '\n{"traces": ' + nested() + "}\n")
    with pytest.raises(InvalidInputError, match="nested hundreds deep"):
        read_runs([file])
