"""Results of promptfoo 0.121.20, which `data/promptfoo/make.sh` made.

The expected counts are those of promptfoo, in the results' `prompts`; the outcomes are the answers
in `provider.js`.
"""

import json

import pytest
from _support.tool_logs import DATA, content_of, outcomes_of, summary, written

from lm_eval_bayes.runs.reader import read_runs

RESULTS = DATA / "promptfoo"
SUMS = RESULTS / "sums.json"

IDS = [f"a={n}, b={n}" for n in range(1, 5)]
WEAK, STRONG = "weak", "arithmetic:strong"
RIGHT = {
    WEAK: dict(zip(IDS, ([1, 1, 0], [0, 1, 0], [1, 0, 0], [1, 1, 1]), strict=True)),
    STRONG: dict(zip(IDS, ([1, 1, 1], [1, 1, 0], [1, 1, 1], [0, 1, 1]), strict=True)),
}


@pytest.fixture
def content():
    return content_of(SUMS)


def test_the_outcomes_were_counted_by_hand():
    assert outcomes_of(SUMS) == RIGHT
    # an error has no named scores
    assert outcomes_of(SUMS, metric="right")[WEAK] == RIGHT[WEAK] | {IDS[2]: [1, 0]}


def test_the_counts_are_those_of_promptfoo(content):
    metrics = {entry["provider"]: entry["metrics"] for entry in content["results"]["prompts"]}
    for run in read_runs([SUMS]).runs:
        counted = metrics[run.model]
        assert run.outcomes.counts[:, 1].sum() == counted["testPassCount"]
        assert run.n_trials == sum(
            counted[f"test{kind}Count"] for kind in ("Pass", "Fail", "Error")
        )
    for run in read_runs([SUMS], metric="score").runs:
        assert sum(map(sum, run.outcomes.scores)) == pytest.approx(metrics[run.model]["score"])
    for model, of_model in outcomes_of(SUMS, metric="near").items():
        assert sum(map(sum, of_model.values())) == metrics[model]["namedScores"]["near"]


def test_measurements_and_versions_are_read():
    weak, strong = read_runs([SUMS]).runs
    assert strong.tokens == 4 * (1 + 2 + 3)  # as provider.js says
    assert weak.tokens is None  # the error has none
    assert strong.measured["cost"][0].tolist() == [0.5, 0.5, 0.5]
    assert strong.provenance.versions == {"promptfoo": "0.121.20"}
    assert strong.questions[0] == "What is 1 + 1?"


def test_metadata_and_variables_name_clusters():
    assert read_runs([SUMS], cluster="part").runs[0].clusters == ("I", "I", "II", "II")
    assert read_runs([SUMS], cluster="a").runs[0].clusters == ("1", "2", "3", "4")


@pytest.mark.parametrize("name", ["prompts.json", "prompts.jsonl"])
def test_prompts_are_models_of_their_own(name):
    saved = read_runs([RESULTS / name])
    assert sorted(saved.models) == sorted(
        f"{model} (prompt {n})" for model in (WEAK, STRONG) for n in (1, 2)
    )
    first_two = {id: row[:2] for id, row in RIGHT[WEAK].items()}
    outcomes = outcomes_of(RESULTS / name)
    assert outcomes["weak (prompt 1)"] == outcomes["weak (prompt 2)"] == first_two
    assert "prompt 2: {{a}} + {{b}} =" in saved.runs[0].notes


def test_tests_of_equal_variables_and_other_assertions_stay_apart(content, tmp_path):
    for row in content["results"]["results"]:
        row["testCase"]["vars"] = {"a": 1}
        row["testCase"]["assert"] = [{"type": "equals", "value": row["vars"]["a"]}]
    ids = read_runs([written(tmp_path, content)]).runs[0].question_ids
    assert ids == ("a=1", "a=1#2", "a=1#3", "a=1#4")


def test_addresses_of_providers_are_not_shown(content, tmp_path):
    for row in content["results"]["results"]:
        row["provider"] = {"id": "https://me:hunter2@example.org/v1?key=hunter2", "label": ""}
        row["testIdx"] = 2 * row["testIdx"] + row["promptIdx"]
    file = written(tmp_path, content)
    assert read_runs([file]).models == ("example.org",)
    assert "hunter2" not in "".join(called_with(file))


def called_with(file):
    tasks, said = summary(file)
    return json.dumps(list(tasks.values())), said
