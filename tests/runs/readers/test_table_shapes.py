"""The shapes of tables beside one row per trial, against the same outcomes by hand."""

from __future__ import annotations

import json
import shutil
import time

import numpy as np
import pytest
from _support.errors import refused
from _support.tables import write_rows
from _support.tool_logs import DATA

from lm_eval_bayes._util import files
from lm_eval_bayes.runs.question_texts import question_texts
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.readers import tables
from lm_eval_bayes.store.trial_store import TrialStore

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


def means(saved):
    """Return the number of questions and trials, and the mean score, by model and task."""
    return {
        (run.model, run.task): (
            run.n_questions,
            run.n_trials,
            pytest.approx(float(run.outcomes.counts[:, 1].sum()) / run.n_trials),
        )
        for run in saved.runs
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("records_array.json", {("m", "outcomes"): (6, 18, 10 / 18)}),
        ("list_valued_scores.jsonl", {("list_valued_scores", "outcomes"): (6, 18, 2 / 3)}),
        ("livecodebench_eval_all.json", {("livecodebench_eval_all", "outcomes"): (6, 24, 0.75)}),
        (
            "several_arrays.npz",
            {
                ("several_arrays 1", "aime25"): (5, 20, 0.7),
                ("several_arrays 2", "aime25"): (5, 20, 0.25),
                ("several_arrays 1", "hmmt25"): (5, 20, 0.5),
                ("several_arrays 2", "hmmt25"): (5, 20, 0.6),
            },
        ),
    ],
)
def test_files_that_others_wrote(shared, name, expected):
    assert means(read_runs([shared / "cases" / name])) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"results": [{"id": "a", "correct": True}, {"id": "b", "correct": 0}]}, ("t", 2, 2, 0.5)),
        ({"a": [True, False], "b": [1, 1, 1]}, ("t", 2, 5, 0.8)),
        ({"m": {"a": [1, 0], "b": [1, 1]}}, ("m", 2, 4, 0.75)),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_json(tmp_path, content, expected, encoding):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(content), encoding=encoding)
    model, *numbers = expected
    assert means(read_runs([path])) == {(model, "outcomes"): tuple(numbers)}


@pytest.mark.parametrize(
    "content",
    [
        {"id": [0, 1], "correct": [1, 0]},  # columns
        {"m": {"a": [1]}, "b": [1]},
        {"a": ["x"]},
        {"results": {"t": {"acc": 0.5}}},
        [],
        [{"a": 1}],
        "some words",
    ],
)
def test_json_that_is_no_table(tmp_path, content):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(content))
    with refused("RUN", "path"):
        read_runs([path])


def test_an_array_that_is_cut_off_is_damaged(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps([{"id": i, "correct": 1} for i in range(9)])[:-5])
    with refused("RUN", "damaged"):
        read_runs([path])


LISTS = [
    {"id": "a", "correct": [1, 0, 1], "answer": ["7", "8", "7"], "tokens": [1, 2, 3]}
    | {"output": ["so 7", "so 8", "it is 7"], "reference output": "7", "seed": 3},
    {"id": "b", "correct": [0], "answer": ["9"], "tokens": 5}
    | {"output": ["so 9"], "reference output": "2", "seed": 3},
]


@pytest.mark.parametrize("ending", [".jsonl", ".json", ".parquet"])
def test_lists_hold_a_trial_each(tmp_path, ending):
    path = tmp_path / f"t{ending}"
    rows = [row | {"tokens": row["tokens"] if row["id"] == "a" else [5]} for row in LISTS]
    write_rows(path, rows if ending == ".parquet" else LISTS)
    (run,) = read_runs([path]).runs
    assert [trials.tolist() for trials in run.trials] == [[1, 0, 1], [0]]
    assert run.answers == (("7", "8", "7"), ("9",))
    assert run.measured["completion_tokens"][0].tolist() == [1, 2, 3]
    texts = question_texts(run, 0)
    assert texts.responses == ("so 7", "so 8", "it is 7")
    assert texts.right_answers == ("7",)


@pytest.mark.parametrize("change", [{"correct": []}, {"correct": 1}, {"answer": ["7"]}])
def test_lists_of_other_lengths_are_refused(tmp_path, change):
    path = write_rows(tmp_path / "t.jsonl", [LISTS[0] | change, LISTS[1]])
    with refused("RUN", "shape"):
        read_runs([path])
    (run,) = read_runs([write_rows(path, [LISTS[0] | {"output": ["x"] * 4}])]).runs
    with refused("RUN", "shape"):
        question_texts(run, 0)
    with refused("RUN", "duplicate"):
        read_runs([write_rows(path, [LISTS[0]] * 2)])


def test_the_table_of_evalstats(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("model,input,seed,score\nm,a,0,1\nm,a,1,0\nm,b,0,1\nm,b,1,1\n")
    assert means(read_runs([path])) == {("m", "outcomes"): (2, 4, 0.75)}
    assert read_runs([path]).runs[0].outcomes.counts.tolist() == [[1, 1], [0, 2]]


def test_arrays_by_their_names(tmp_path, shared):
    path = shared / "cases" / "several_arrays.npz"
    assert read_runs([path], task="hmmt25").tasks == ("hmmt25",)
    with refused("RUN", "choice"):
        read_runs([path], task="aime24")
    R = np.array([[1, 0], [1, 1]])
    np.save(tmp_path / "a.npy", R)
    np.save(tmp_path / "aime.npy", np.stack([R, R, 1 - R]))
    assert means(read_runs([tmp_path / "a.npy"])) == {("a", "outcomes"): (2, 4, 0.75)}
    assert list(means(read_runs([tmp_path / "aime.npy"]))) == [
        (f"aime {i}", "aime") for i in (1, 2, 3)
    ]
    np.save(tmp_path / "a.npy", np.array([[object()]]))
    with refused("RUN", "damaged"):
        read_runs([tmp_path / "a.npy"])


def test_an_empty_row_of_a_matrix_is_a_question(tmp_path):
    """It was dropped, and the questions behind it were paired with others of another file."""
    path = tmp_path / "m.csv"
    path.write_text("id,t1,t2\na,1,0\nb,,\nc,1,1\n\n")
    (run,) = read_runs([path]).runs
    assert (run.question_ids, run.outcomes.n_trials.tolist()) == (("a", "b", "c"), [2, 0, 2])
    path.write_text("question,trial,A,B\na,1,1,0\na,2,0,0\n")
    assert [run.outcomes.counts.tolist() for run in read_runs([path]).runs] == [[[1, 1]], [[2, 0]]]


@pytest.mark.parametrize("ending", ["csv", "json", "jsonl", "jsonl.gz", "parquet", "npz", "eval"])
def test_a_pointer_of_git_lfs_is_named(tmp_path, ending):
    path = tmp_path / f"t.{ending}"
    path.write_text(POINTER)
    with refused("RUN", "damaged") as caught:
        read_runs([path])
    assert "Git-LFS" in str(caught.value)


@pytest.mark.parametrize("ending", ["csv", "jsonl", "json", "parquet"])
def test_many_columns_are_read_in_seconds(tmp_path, ending):
    n = 20_000
    row = {"question": "a", "score": 1} | {f"column {i}": "x" for i in range(n)}
    path = tmp_path / f"t.{ending}"
    write_rows(path, [row, row | {"question": "b"}])
    start = time.process_time()
    assert read_runs([path]).runs[0].n_trials == 2
    assert time.process_time() - start < 10


@pytest.mark.parametrize("ending", [".csv.gz", ".jsonl.zst", ".json.gz"])
def test_a_file_that_grows_too_large_is_refused(tmp_path, monkeypatch, ending):
    rows = [{"question": f"q{i}", "score": i % 2} for i in range(3000)]
    path = write_rows(tmp_path / f"t{ending}", rows)
    assert read_runs([path]).runs[0].n_trials == 3000
    monkeypatch.setattr(files, "ALWAYS_BYTES", 2**10)
    monkeypatch.setattr(files, "MOST_BYTES", 2**12)
    with refused("RUN", "damaged"):
        read_runs([path])


def test_what_would_be_left_out_without_a_word_is_refused(tmp_path):
    np.savez(tmp_path / "two.npz", R=np.ones((5, 4), int), aime=np.zeros((5, 4), int))
    (tmp_path / "column.csv").write_text("question,trial_1,trial_2,trial_2\na,1,0,0\nb,0,1,1\n")
    rows = [{"question": "q", "score": 1}]
    (tmp_path / "two.json").write_text(json.dumps({"results": rows, "results_hard": rows}))
    rules = {"two.npz": "conflict", "column.csv": "duplicate", "two.json": "path"}
    for name, rule in rules.items():
        with refused("RUN", rule):
            read_runs([tmp_path / name], task="aime")


def test_a_trial_is_one_whether_it_is_written_0_or_0_0(tmp_path):
    for name, zero in (("a.csv", "0"), ("b.csv", "0.0")):
        (tmp_path / name).write_text(f"model,question,trial,score\nM,q,{zero},1\nM,r,{zero},0\n")
    with refused("RUN", "duplicate"):
        read_runs([tmp_path / "a.csv", tmp_path / "b.csv"])


def test_words_are_no_scores_where_bounds_are_given(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("question,score\nq,pass\nr,fail\n")
    with refused("RUN", "format"):
        read_runs([file], bounds=(0.0, 10.0))


def test_a_store_beside_other_logs_is_named(tmp_path):
    folder = shutil.copytree(DATA / "lm_eval_0.4.9", tmp_path / "runs")
    TrialStore.open(folder / "z.sqlite").close()
    (warning,) = read_runs([folder]).warnings
    assert "z.sqlite (trial store)" in warning


def test_a_table_of_too_many_rows_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "_MOST_ROWS", 3)
    (tmp_path / "a.csv").write_text("question,score\n" + "q,1\n" * 4)
    with refused("RUN", "range"):
        read_runs([tmp_path / "a.csv"])
