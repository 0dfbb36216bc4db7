"""Details of lighteval 0.13.0, which `data/lighteval/make.py` made.

The expected means and pass@2 are those that lighteval printed.
"""

import shutil

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from _support.errors import refused
from _support.tool_logs import DATA

from lm_eval_bayes.runs.reader import read_runs

OUTPUT = DATA / "lighteval"
FILES = {
    (model, task): next(OUTPUT.glob(f"details/{model}/*/details_{task}_*.parquet"))
    for model in ("strong", "weak")
    for task in ("sums", "once")
}

#: The answers of make.py that are right, of four samples.
OUTCOMES = {
    "strong": {"0": [1, 1, 1, 1], "1": [1, 1, 1, 0], "2": [1, 0, 1, 0], "3": [1, 1, 1, 1]},
    "weak": {"0": [1, 0, 0, 0], "1": [0, 0, 0, 0], "2": [1, 0, 1, 0], "3": [1, 1, 0, 1]},
}
OUTCOMES["strong"]["4"], OUTCOMES["weak"]["4"] = [1, 0, 1, 0], [0, 1, 0, 0]


def rows_of(file):
    return pyarrow.parquet.read_table(file).to_pylist()


@pytest.fixture
def details(tmp_path):
    """A file of details that may be changed."""
    folder = tmp_path / "details" / "weak" / "2026-01-05T12-00-00.000000"
    folder.mkdir(parents=True)
    return shutil.copy(FILES["weak", "sums"], folder / "details_sums.parquet")


def write(file, rows):
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    return file


def test_the_outcomes_were_counted_by_hand():
    for model, of_model in OUTCOMES.items():
        (run,) = read_runs([FILES[model, "sums"]]).runs
        right = dict(zip(run.question_ids, run.outcomes.counts[:, 1].tolist(), strict=True))
        assert right == {id: sum(scores) for id, scores in of_model.items()}
    assert read_runs([OUTPUT]).tasks == ("once|0", "sums|0")


@pytest.mark.parametrize(
    ("model", "task", "metric", "mean"),
    [
        ("strong", "sums", None, 0.75),
        ("weak", "sums", None, 0.35),
        ("weak", "sums", "pass@k:k=2&n=4", 0.5666666666666667),
        ("weak", "sums", "maj@n:n=4", 0.4),
        ("weak", "once", "f1", 0.6),
    ],
)
def test_the_mean_is_that_of_lighteval(model, task, metric, mean):
    (run,) = read_runs([FILES[model, task]], metric=metric).runs
    assert (run.model, run.task) == (model, f"{task}|0")
    assert run.metric == metric or metric is None
    outcomes = run.outcomes
    shares = (
        [float(np.mean(row)) for row in outcomes.scores]
        if run.scored
        else outcomes.counts[:, 1] / outcomes.n_trials
    )
    assert np.mean(shares) == pytest.approx(mean)


def test_texts_answers_tokens_and_settings_are_read():
    (run,) = read_runs([FILES["weak", "once"]]).runs
    answers = dict(zip(run.questions, run.answers, strict=True))
    assert answers == {
        "Question 0: 6 + 1 =": ("7",),
        "Question 1: 7 + 1 =": ("0",),
        "Question 2: 8 + 1 =": ("9",),
        "Question 3: 3 + 1 =": ("4",),
        "Question 4: 4 + 1 =": ("0",),
    }
    assert run.tokens == 10
    assert run.provenance.generation_kwargs == {"temperature": 0}


def test_one_value_of_several_samples_is_one_trial(details):
    (run,) = read_runs([details], metric="maj@n:n=4").runs
    assert run.n_trials == 5
    rows = rows_of(details)
    rows[0]["metric"]["avg@n:n=4"] = 0.3
    (run,) = read_runs([write(details, rows)]).runs
    assert (run.scored, run.n_trials) == (True, 5)


def test_a_field_of_the_document_names_clusters(details):
    rows = rows_of(details)
    for number, row in enumerate(rows):
        row["doc"]["specific"] = {"topic": "ab"[number % 2]}
    (run,) = read_runs([write(details, rows)], cluster="topic").runs
    assert sorted(run.clusters) == ["a", "a", "a", "b", "b"]


def test_questions_without_a_value_are_left_out(details):
    rows = rows_of(details)
    rows[0]["metric"] = dict.fromkeys(rows[0]["metric"])
    assert read_runs([write(details, rows)]).runs[0].n_questions == 4
    for row in rows:
        row["metric"] = dict.fromkeys(rows[0]["metric"])
    with refused("RUN", "missing", "5 trials without"):
        read_runs([write(details, rows)])


def test_a_question_that_is_there_twice(details):
    write(details, [*rows_of(details), *rows_of(details)])
    with refused("RUN", "duplicate"):
        read_runs([details])
    expected = read_runs([FILES["weak", "sums"]]).runs[0].outcomes.counts
    (run,) = read_runs([details], dedupe=True).runs
    assert run.outcomes.counts.tolist() == expected.tolist()
