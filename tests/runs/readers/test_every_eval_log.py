"""Records of Every Eval Ever: those of this package, and those of every-eval-ever 0.3.0.

The latter were made by `data/every_eval_ever/make.py`; the expected means are in the aggregate
record, as inspect_ai computed them.
"""

import json

import numpy as np
import pytest
from _support.command_line import called
from _support.errors import refused
from _support.tool_logs import DATA, outcomes_of, rows_of, write_lines

from lm_eval_bayes.runs.reader import read_runs

CONVERTED = DATA / "every_eval_ever"
OUTCOMES = {"p": [1, 0, 1], "q": [0, 0, 0], "r": [1, 1, 0], "s": [1, 1, 1]}
SCORES = {"p": [4.5, 0, 5], "q": [1.5, 2, 0], "r": [3, 1, 0], "s": [5, 5, 4]}


def write_table(file, scores):
    rows = [f"{q},{t},{score}" for q, row in scores.items() for t, score in enumerate(row)]
    file.write_text("question,trial,score\n" + "\n".join(rows) + "\n")
    return file


def exported(folder, table, model, *more):
    options = ("-o", folder, "--model-id", model, "--instances", *more)
    code, _, error = called("export", "every-eval-ever", table, "--task", "letters", *options)
    assert code == 0, error
    return folder


@pytest.fixture
def records(tmp_path):
    """A folder of this package's records, and those records."""
    folder = exported(tmp_path / "out", write_table(tmp_path / "t.csv", OUTCOMES), "org/A")
    (file,) = folder.rglob("*_samples.jsonl")
    return file, rows_of(file)


def test_what_was_exported_is_read_with_the_same_numbers(records):
    file, _ = records
    assert outcomes_of(file) == {"org/A": OUTCOMES}
    (run,) = read_runs([file.parents[3]]).runs
    assert (run.model, run.task, run.metric) == ("org/A", "letters", "avg@N")
    beside = file.with_name(file.name.replace("_samples.jsonl", ".json"))
    assert outcomes_of(beside) == outcomes_of(file)


def test_scores_are_read_with_their_bounds(tmp_path):
    table = write_table(tmp_path / "t.csv", SCORES)
    folder = exported(tmp_path / "out", table, "org/A", "--bounds", "0:5")
    assert read_runs([folder]).runs[0].outcomes.bounds == (0, 5)
    assert outcomes_of(folder) == {"org/A": SCORES}
    for file in folder.rglob("*.json"):
        file.unlink()
    with refused("RUN", "range", "4.5 in row 1"):
        read_runs([folder])
    assert outcomes_of(folder, bounds=(0, 5)) == {"org/A": SCORES}


def test_an_export_that_is_repeated_is_no_further_trials(tmp_path, records):
    file, rows = records
    for row in rows:
        row["evaluation_id"] = "letters/org/A/17"  # the time of another export
    again = write_lines(tmp_path / file.name, rows)
    with refused("RUN", "duplicate"):
        read_runs([file, again])
    other = write_lines(tmp_path / "other_samples.jsonl", rows)
    assert read_runs([file, other]).runs[0].n_trials == 24


@pytest.mark.parametrize("result", ["match:accuracy", "closeness:accuracy"])
def test_the_means_are_those_of_the_aggregate_record(result):
    (aggregate,) = CONVERTED.glob("*.json")
    results = json.loads(aggregate.read_text())["evaluation_results"]
    expected = {r["evaluation_result_id"]: r["score_details"]["score"] for r in results}
    ((model, of_model),) = outcomes_of(CONVERTED, metric=result).items()
    assert model == "openai/openai/weak"
    mean = np.mean([np.mean(scores) for scores in of_model.values()])
    assert mean == pytest.approx(expected[result])
    assert [len(scores) for scores in of_model.values()] == [3, 3, 2, 3, 3]


def test_records_of_others_need_neither_results_nor_trials(tmp_path, records):
    _, rows = records
    for row in rows:
        del row["metadata"], row["evaluation_result_id"]
    rows[0] |= {"error": "timeout", "evaluation": {"score": 0, "is_correct": False}}
    other = write_lines(tmp_path / "records.jsonl", rows)
    assert outcomes_of(other) == {"org/A": OUTCOMES | {"p": [0, 0, 1]}}
    assert "1 trial with an error counted by the recorded score" in read_runs([other]).runs[0].notes


def test_several_tasks_and_models_may_be_in_one_file(tmp_path, records):
    _, rows = records
    more = [{**row, "evaluation_name": "sums", "evaluation_result_id": "f1"} for row in rows]
    more += [{**row, "model_id": "org/B"} for row in rows]
    other = write_lines(tmp_path / "records.jsonl", rows + more)
    read = [(run.model, run.task, run.metric) for run in read_runs([other]).runs]
    expected = [("org/A", "letters"), ("org/B", "letters"), ("org/A", "sums")]
    assert [names[:2] for names in read] == expected
    assert [names[2] for names in read] == ["avg@N", "avg@N", "f1"]
    assert len(read_runs([other], task="sums").runs) == 1
    assert len(read_runs([other], metric="f1").runs) == 1
