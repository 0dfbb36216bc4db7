"""Outputs of MathArena that its own code wrote, which `data/matharena/make.py` made.

The expected means are the `pass_at_1` that MathArena computed of every problem.
"""

import json
import shutil

import numpy as np
import pyarrow
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


def test_the_means_are_those_of_matharena():
    for model, outcomes in outcomes_of(OUTPUTS).items():
        means = {problem: np.mean(row) for problem, row in outcomes.items()}
        assert means | PASS_AT_1[model] == means
    assert read_runs([OUTPUTS]).tasks == ("aime/aime_2025",)


def test_the_numbers_are_those_of_a_table(tmp_path):
    same_as_table(tmp_path, OUTCOMES, OUTPUTS)


def test_every_command_reads_folders(tmp_path):
    all_commands(tmp_path, STRONG, WEAK)
    for path in (OUTPUTS, AIME, STRONG, STRONG / "1.json.zst"):
        assert recognise(path)[0].name == "MathArena"
    assert outcomes_of(STRONG / "2.json.zst") == {"openai/strong": {"2": [1, 1, 0, 1]}}


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


def test_runs_that_were_not_graded_are_told(folder):
    assert "1 trial without a score left out" in summary(WEAK)[1]
    for file in folder.iterdir():
        rewrite(file, lambda content: content.update(correct=["TODO"] * 4))
    with pytest.raises(InvalidInputError, match="have graded runs"):
        read_runs([folder])


def test_files_that_are_not_compressed_are_read(folder):
    (run,) = read_runs([folder]).runs
    assert (run.model, run.task) == ("open/weak", "aime")
    assert outcomes_of(folder) == outcomes_of(WEAK)


def test_points_are_scores(folder):
    for file in folder.iterdir():
        rewrite(file, lambda content: content.update(correct=[0.5, 1.0, 0, 2 / 7]))
    assert outcomes_of(folder)["open/weak"]["1"] == [0.5, 1.0, 0.0, 2 / 7]


def test_a_copy_is_no_further_trials(tmp_path):
    copy = shutil.copytree(OUTPUTS, tmp_path / "outputs")
    with pytest.raises(InvalidInputError, match="15 of 15 trials"):
        read_runs([WEAK, copy / "aime" / "aime_2025" / "open"])


def test_a_field_of_the_problems_names_clusters():
    (run,) = read_runs([WEAK], cluster="types").runs
    assert run.clusters == ("Algebra", "Number Theory", "Algebra", "Number Theory")
    with pytest.raises(InvalidInputError, match="a field of the problems"):
        read_runs([WEAK], cluster="topic")


def test_other_names_are_refused():
    with pytest.raises(InvalidInputError, match="hold task hmmt; there is aime/aime_2025"):
        read_runs([WEAK], task="hmmt")
    with pytest.raises(InvalidInputError, match="be a metric of weak, correct"):
        read_runs([WEAK], metric="points")


def test_a_file_that_is_cut_off_is_refused_with_its_folder(folder):
    file = folder / "2.json"
    file.write_text(file.read_text()[:200])
    for path in (folder, file):
        with pytest.raises(InvalidInputError, match=r"have a complete .*2\.json") as raised:
            read_runs([path])
        assert str(file) in str(raised.value)


def test_relative_paths_are_read(monkeypatch, folder):
    monkeypatch.chdir(folder)
    assert outcomes_of("1.json").keys() == outcomes_of(".").keys() == {"open/weak"}


def test_deep_nesting_is_refused(folder):
    file = folder / "1.json"
    file.write_text('{"idx": 1, "problem": "", "correct": ' + nested() + "}")
    with pytest.raises(InvalidInputError, match="nested hundreds deep"):
        read_runs([file])
