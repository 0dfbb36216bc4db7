"""Results of verifiers 0.1.14, which `data/verifiers/make.py` made.

The expected numbers are those of `metadata.json`, which verifiers computed; the rewards were
counted by hand from the answers in `make.py`.
"""

import json
import shutil

import numpy as np
import pytest
from _support.tool_logs import (
    DATA,
    all_commands,
    nested,
    outcomes_of,
    same_as_table,
    summary,
)

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.readers.formats import recognise

RESULTS = DATA / "verifiers"
WEAK, STRONG = (RESULTS / f"sums--org--{name}" / "run1" for name in ("weak", "strong"))
NEAR = RESULTS / "near-sums--org--weak" / "run1"

RIGHT = {
    "org/weak": {"0": [1, 1, 0, 1], "1": [0, 1, 0, 0], "2": [1, 1, 0, 0], "3": [1, 1, 1, 1]},
    "org/strong": {"0": [1, 1, 1, 1], "1": [1, 1, 0, 1], "2": [1, 1, 1, 1], "3": [0, 1, 1, 1]},
}
#: 0.75 for the answer and 0.25 for one beside it or itself; an error is 0
PARTIAL = {
    "org/weak": {
        "0": [1, 1, 0.25, 1],
        "1": [0.25, 1, 0.25, 0.25],
        "2": [1, 1, 0, 0.25],
        "3": [1, 1, 1, 1],
    }
}


def in_order(of_model):
    """The scores of every question sorted: rollouts run side by side, in any order."""
    return {question: sorted(scores) for question, scores in of_model.items()}


def metadata(folder):
    return json.loads((folder / "metadata.json").read_text(encoding="utf-8"))


@pytest.fixture
def rows():
    lines = (WEAK / "results.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture
def write(tmp_path):
    """Write rollouts, with the metadata of a run unless told otherwise."""

    def write(rows, name="run2", **changes):
        folder = tmp_path / "sums--org--other" / name
        folder.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "results.jsonl").write_text(text, encoding="utf-8")
        content = {**metadata(WEAK), **changes}
        if changes.get("metadata", True):
            (folder / "metadata.json").write_text(json.dumps(content), encoding="utf-8")
        return folder

    return write


@pytest.mark.parametrize("folder", [WEAK, STRONG, NEAR], ids=lambda folder: folder.parent.name)
def test_the_numbers_are_those_of_verifiers(folder):
    ((_, run),) = summary(folder)[0].items()
    expected = metadata(folder)
    assert (run["task"], run["model"]) == (expected["env_id"], expected["model"])
    assert run["avg"]["value"] == pytest.approx(expected["avg_reward"])
    for k in "24":
        assert run["rows"][f"pass@{k}"] == pytest.approx(expected["pass_at_k"][k])
        assert run["rows"][f"pass^{k}"] == pytest.approx(expected["pass_all_k"][k])


@pytest.mark.parametrize("metric", ["right", "near"])
def test_metrics_are_chosen_by_name(metric):
    ((_, of_model),) = outcomes_of(WEAK, metric=metric).items()
    mean = np.mean([np.mean(scores) for scores in of_model.values()])
    assert mean == pytest.approx(metadata(WEAK)["avg_metrics"][metric])


def test_the_numbers_are_those_of_a_table(tmp_path):
    same_as_table(tmp_path, RIGHT, RESULTS, task="sums")
    ((model, of_model),) = outcomes_of(NEAR).items()
    assert in_order(of_model) == in_order(PARTIAL[model])


def test_every_command_reads_results(tmp_path):
    all_commands(tmp_path, WEAK, STRONG)
    assert recognise(RESULTS)[0].name == "verifiers"
    assert len(recognise(RESULTS)[1].files) == 3


def test_errors_and_metrics_are_told():
    _, said = summary(WEAK)
    assert "metric reward was counted; --metric chooses among reward, right, near" in said
    assert "1 trial ended in an error, and counted by the reward" in said
    with pytest.raises(InvalidInputError, match="be a metric of results"):
        read_runs([WEAK], metric="style")


def test_tokens_settings_and_version_are_read():
    (run,) = read_runs([STRONG]).runs
    assert run.tokens == 4 * (1 + 2 + 3 + 4)  # as the server in make.py says
    assert run.provenance.generation_kwargs == {"temperature": 0.7, "max_tokens": 16}
    assert run.provenance.versions == {"verifiers": "0.1.14"}
    assert run.questions[0] == "1 + 1 = ?"


def test_a_field_of_info_names_clusters():
    (run,) = read_runs([STRONG], cluster="part").runs
    assert run.clusters == ("I", "I", "II", "II")


def test_a_copy_is_no_further_trials(tmp_path, rows, write):
    copy = shutil.copytree(WEAK, tmp_path / "elsewhere")
    with pytest.raises(InvalidInputError, match="16 of 16 trials"):
        read_runs([WEAK, copy])
    assert read_runs([WEAK, copy], dedupe=True).runs[0].n_trials == 16
    for row in rows:
        row["timing"]["start_time"] += 1000
    (run,) = read_runs([WEAK, write(rows)]).runs
    assert run.n_trials == 32


def test_other_settings_are_another_model(rows, write):
    other = write(rows, sampling_args={"temperature": 1.0, "max_tokens": 16})
    assert read_runs([WEAK, other]).models == (
        "org/weak (temperature=0.7)",
        "org/weak (temperature=1.0)",
    )


def test_names_are_those_of_the_folder_without_metadata(rows, write):
    (run,) = read_runs([write(rows, metadata=False)]).runs
    assert (run.model, run.task) == ("org/other", "sums")


def test_metrics_of_earlier_releases_are_columns(rows, write):
    for row in rows:
        del row["metrics"]
        row["timing"] = {"generation_ms": 1500, "scoring_ms": 1, "total_ms": 1501}
    folder = write(rows)
    ((model, of_model),) = outcomes_of(folder, metric="right").items()
    assert in_order(of_model) == in_order(RIGHT[model])
    (run,) = read_runs([folder]).runs
    assert run.busy_seconds == pytest.approx(1.5 * 16)


def test_true_and_false_are_rewards(rows, write):
    for i, row in enumerate(rows):
        row["reward"] = i % 3 == 0
    ((_, of_model),) = outcomes_of(write(rows)).items()
    scores = [score for of_question in of_model.values() for score in of_question]
    assert len(scores) == len(rows)
    assert sum(scores) == sum(row["reward"] for row in rows)


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), "high", [1]])
def test_a_reward_that_is_no_number_is_refused(rows, write, reward):
    rows[1]["reward"] = reward
    named = f"as reward of example {rows[1]['example_id']}"
    with pytest.raises(InvalidInputError, match=rf"have finite numbers as scores .*{named}"):
        read_runs([write(rows)])


def test_rewards_beyond_one_need_bounds(rows, write):
    for row in rows:
        row["reward"] *= 5
    folder = write(rows)
    with pytest.raises(InvalidInputError, match="--bounds"):
        read_runs([folder])
    assert sorted(read_runs([folder], bounds=(0, 5)).runs[0].outcomes.scores[0]) == [0, 5, 5, 5]
    for bounds in ("0:5", "-9:6"):
        assert summary(folder, "--bounds", bounds)[0]


def test_a_line_that_is_cut_off_is_left_out(rows, write):
    folder = write(rows)
    file = folder / "results.jsonl"
    file.write_bytes(file.read_bytes()[:-9])
    saved = read_runs([folder])
    assert saved.runs[0].n_trials == 15
    assert "ends in the middle of line 16" in saved.warnings[0]


def test_deep_nesting_is_refused(rows, write):
    folder = write(rows)
    (folder / "metadata.json").write_text(nested())
    with pytest.raises(InvalidInputError, match="nested hundreds deep"):
        read_runs([folder])
