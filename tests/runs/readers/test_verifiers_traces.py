"""Traces of verifiers 0.4.0, which `data/verifiers_traces/make.py` made.

The rewards were counted by hand from the answers in `make.py`.
"""

import json

import pytest
from _support.tool_logs import DATA, in_order, outcomes_of, rows_of, write_lines

from lm_eval_bayes.runs.reader import read_runs

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
    return rows_of(WEAK / "traces.jsonl")


@pytest.fixture
def write(tmp_path):
    def write(episodes, name="run"):
        (tmp_path / name).mkdir(exist_ok=True)
        return write_lines(tmp_path / name / "traces.jsonl", episodes)

    return write


def test_the_outcomes_were_counted_by_hand():
    assert in_order(outcomes_of(TRACES)) == in_order(REWARDS)


def test_rewards_and_metrics_are_chosen_by_name():
    right = {m: {q: [float(s == 1) for s in r] for q, r in of.items()} for m, of in REWARDS.items()}
    assert in_order(outcomes_of(TRACES, metric="right")) == in_order(right)
    assert set(map(tuple, outcomes_of(STRONG, metric="digits")["org/strong"].values())) == {
        (1, 1, 1, 1)
    }


def test_settings_clusters_and_versions_are_read():
    (run,) = read_runs([STRONG], metric="right", cluster="part").runs
    assert run.clusters == ("I", "I", "II", "II")
    assert run.tokens == 16
    assert run.provenance.generation_kwargs == {"temperature": 0.7}
    assert run.provenance.versions == {"verifiers": "0.4.0"}
    assert run.questions[0] == "1 + 1 = ?"


def test_the_agents_that_are_trained_count(episodes, write):
    for episode in episodes:
        judge = json.loads(json.dumps(episode["traces"][0]))
        judge["agent"] = {"config": {"model": "org/judge"}, "trainable": False}
        episode["traces"].append(judge)
    assert outcomes_of(write(episodes)) == outcomes_of(WEAK)
