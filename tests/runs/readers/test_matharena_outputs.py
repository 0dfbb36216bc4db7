"""Outputs of MathArena that its own code wrote, which `data/matharena/make.py` made.

The expected means are the `pass_at_1` that MathArena computed of every problem.
"""

import json

import numpy as np
import pyarrow
import pytest
from _support.errors import refused
from _support.tool_logs import DATA, counted_by_hand, outcomes_of

from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.readers.formats import recognise

OUTPUTS = DATA / "matharena" / "outputs"
AIME = OUTPUTS / "aime" / "aime_2025"
STRONG, WEAK = AIME / "openai" / "strong", AIME / "open" / "weak"
TABLE = DATA / "matharena" / "published.parquet"

PASS_AT_1 = {
    "openai/strong": {"1": 1.0, "2": 0.75, "3": 0.5, "4": 0.75},
    "open/weak": {"1": 0.5, "2": 0.0, "3": 0.25},
}
OUTCOMES = {
    "openai/strong": {"1": [1, 1, 1, 1], "2": [1, 1, 0, 1], "3": [0, 1, 1, 0], "4": [1, 1, 1, 0]},
    "open/weak": {"1": [1, 0, 1, 0], "2": [0, 0, 0, 0], "3": [0, 0, 1, 0], "4": [1, 1, 0, None]},
}


def content_of(file):
    with pyarrow.input_stream(str(file), compression="zstd") as stream:
        return json.loads(stream.read())


@pytest.fixture
def folder(tmp_path):
    """The problems of a model as JSON that is not compressed, as earlier versions wrote it."""
    folder = tmp_path / "outputs" / "aime" / "open" / "weak"
    folder.mkdir(parents=True)
    for file in WEAK.iterdir():
        (folder / file.stem).write_text(json.dumps(content_of(file)))
    return folder


def rewrite(file, change):
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    return file


def test_the_outcomes_were_counted_by_hand():
    assert outcomes_of(OUTPUTS) == counted_by_hand(OUTCOMES)
    assert outcomes_of(STRONG / "2.json.zst") == {"openai/strong": {"2": [1, 1, 0, 1]}}


def test_the_means_are_those_of_matharena():
    for model, outcomes in outcomes_of(OUTPUTS).items():
        means = {problem: np.mean(row) for problem, row in outcomes.items()}
        assert means | PASS_AT_1[model] == means
    assert read_runs([OUTPUTS]).tasks == ("aime/aime_2025",)


def test_the_published_table_has_the_same_outcomes():
    assert recognise(TABLE)[0].name == "table of trials"
    runs = {run.model: run for run in read_runs([TABLE]).runs}
    files = {run.model: run for run in read_runs([OUTPUTS]).runs}
    assert sorted(runs) == ["Strong", "Weak"]
    table, own = runs["Strong"], files["openai/strong"]
    assert [row.tolist() for row in table.trials] == [row.tolist() for row in own.trials]
    assert (table.answers, table.questions) == (own.answers, own.questions)
    assert table.tokens == own.tokens == 80
    assert table.measured["cost"][0].tolist() == [0.25] * 4


def test_answers_texts_tokens_cost_and_time_are_read():
    (run,) = read_runs([WEAK]).runs
    assert run.questions[0] == "What is 1 + 1?"
    assert run.answers == (
        *(("2", "1", "2", "3"), ("0", "1", "2", "3")),
        *(("0", "1", "6", "3"), ("8", "8", "2")),
    )
    assert (run.tokens, run.busy_seconds) == (75, 30.0)


def test_runs_that_were_not_graded_are_refused(folder):
    for file in folder.iterdir():
        rewrite(file, lambda content: content.update(correct=["TODO"] * 4))
    with refused("RUN", "missing"):
        read_runs([folder])


def test_files_that_are_not_compressed_are_read(folder):
    (run,) = read_runs([folder]).runs
    assert (run.model, run.task) == ("open/weak", "aime")
    assert outcomes_of(folder) == outcomes_of(WEAK)


def test_a_field_of_the_problems_names_clusters():
    (run,) = read_runs([WEAK], cluster="types").runs
    assert run.clusters == ("Algebra", "Number Theory", "Algebra", "Number Theory")
