"""Matrices, counts and trial stores as runs, against numpy, passk-inference and what was stored."""

import csv
import io
import json
import zipfile

import numpy as np
import pytest

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.store.outcomes import GradedQuestion, GradedTask, GradedTrial
from lm_eval_bayes.store.trial import Trial, TrialKey
from lm_eval_bayes.store.trial_store import TrialStore


def trials_of(run):
    return [one.tolist() for one in run.trials]


def read_text(folder, text, name="mine.csv", **options):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_runs([path], **options)


# -- CSV -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "1,0,1\n0,,1\n",
        "1.0,0.00,true\nFalse,NaN,1\n",
        "\ufeff1;0;1\r\n0;n/a;1\r\n",
        "1\t0\t1\n0\t\t1",
        "trial_1,trial_2,trial_3\n1,0,1\n0,,1\n",
        "1,2,3\n1,0,1\n0,,1\n",
        "0,1,2\n1,0,1\n0,,1\n",
        ",0,1,2\n0,1,0,1\n1,0,,1\n",  # a data frame with its index
    ],
)
def test_a_matrix_of_one_model(tmp_path, text):
    (run,) = read_text(tmp_path, text).runs
    assert (run.model, run.task, run.question_ids) == ("mine", "outcomes", ("0", "1"))
    assert trials_of(run) == [[1, 0, 1], [0, 1]]
    assert run.outcomes.counts.tolist() == [[1, 2], [1, 1]]


def test_a_header_of_numbers_is_noted(tmp_path):
    # it could be the outcomes of a question in three categories
    (run,) = read_text(tmp_path, "0,1,2\n1,0,1\n").runs
    assert run.notes == ("line 1 (0, 1, 2) is read as the numbers of the columns",)
    (run,) = read_text(tmp_path, ",0,1,2\n0,1,0,1\n").runs
    assert run.notes == ()


def test_a_header_names_models_and_questions(tmp_path):
    text = 'Question,gpt-4,"a, b",gpt-4,gpt-4.1\nq1,1,0,0,1\nq2,0,1,,0\n'
    found = read_text(tmp_path, text, task="aime")
    assert found.models == ("gpt-4", "a, b", "gpt-4.1")
    assert found.tasks == ("aime",)
    assert [trials_of(run) for run in found.runs] == [[[1, 0], [0]], [[0], [1]], [[1], [0]]]
    assert found.runs[0].question_ids == ("q1", "q2")


def test_names_of_models_may_end_with_numbers(tmp_path):
    assert read_text(tmp_path, "gpt-4,o3\n1,0\n").models == ("gpt-4", "o3")
    assert read_text(tmp_path, "id,run 1,run 2\nq,1,0\n").models == ("mine",)


def test_columns_of_models_and_tasks(tmp_path):
    text = "model,task,id,t1,t2\nA,x,q,1,0\nA,y,q,1,1\nB,x,q,0,0\n"
    found = read_text(tmp_path, text)
    assert [(run.model, run.task, trials_of(run)) for run in found.runs] == [
        ("A", "x", [[1, 0]]),
        ("A", "y", [[1, 1]]),
        ("B", "x", [[0, 0]]),
    ]
    assert [run.task for run in read_text(tmp_path, text, task="y").runs] == ["y"]
    with pytest.raises(InvalidInputError, match="hold task z; there is x, y"):
        read_text(tmp_path, text, task="z")


def test_one_trial_a_row(tmp_path):
    text = "model,question,trial,correct\nA,q,0,1\nA,q,1,0\nA,r,0,1\n"
    (run,) = read_text(tmp_path, text).runs
    assert (run.model, trials_of(run)) == ("A", [[1, 0], [1]])
    with pytest.raises(
        InvalidInputError, match=r"a question once .*trial 1 of question q in rows 2 and 4"
    ):
        read_text(tmp_path, text + "A,q,1,1\n")


def test_real_outcomes(shared):
    """19 models on 15 questions, each asked four times: rows 1, 1.1, 1.2, 1.3, 2, …"""
    path = shared / "data" / "outcomes" / "matharena_aime_2025_II.csv"
    found = read_runs([path])
    table = np.genfromtxt(path, delimiter=",", skip_header=1, usecols=range(1, 20))
    assert len(found.models) == 19
    assert {(run.n_questions, run.n_common) for run in found.runs} == {(15, 4)}
    assert found.runs[0].matrix().tolist() == table[:, 0].reshape(15, 4).tolist()
    assert "rows 1, 1.1, … are read as 4 trials of question 1" in " ".join(found.runs[0].notes)
    assert [run.outcomes.counts[:, 1].sum() for run in found.runs] == table.sum(axis=0).tolist()
    counts = read_runs([shared / "data" / "outcomes" / "counts128_aime24_amc23.csv"])
    assert counts.models == ("base", "rl")
    assert [run.n_trials for run in counts.runs] == [69 * 128] * 2


@pytest.mark.parametrize(
    "ids", [["1", "1.1", "2"], ["1.1", "1.2", "2.1"], ["1", "1.2", "2", "2.2"], ["a", "b", "a.b"]]
)
def test_names_with_dots_that_are_no_repeated_labels(tmp_path, ids):
    (run,) = read_text(tmp_path, "id,A\n" + "".join(f"{id},1\n" for id in ids)).runs
    assert run.question_ids == tuple(ids)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "an empty file"),
        ("\n\n", "an empty file"),
        ("1,0\n1\n0,1\n", "all rows of one length; got '?1 cells in line 2, 2 in the first"),
        ("1,0\n1,2\n", "0 or 1 in every cell of mine.csv; more .* NPZ .*line 2, column 2"),
        ("q,A,B\na,1,x\n", "0 or 1 in every cell"),
        (
            "wonder,ok\nq0,1\nq1,0\n",
            r"question,trial,score / q1,0,1 / .*--columns question=NAME,score=NAME .* wonder, ok\)",
        ),
        ("1,0,inf\n0,1,1\n", "0 or 1 in every cell .*'inf' in line 1, column 3"),
        ("0,1,x\n0,1,1\n", "0 or 1 in every cell .*'x' in line 1, column 3"),
        ("id,A\nq,1\nq,0\n", "name every question once .*q in line 3"),
        ("id,A\n,1\n", "name every question once .*no name in line 2"),
        ("id\nq\n", "hold outcomes"),
        ("id,t1\n", "hold outcomes"),
        (",\n,\n", "an empty file"),
        ('id,A\nq,1\nr,"1\ns,0\n', "quotes that do not match in lines 3 to 4"),
        ('id,A\n"q"r,1\n', "quotes that do not match in line 2"),
        ('"id,A\n', "quotes that do not match in line 1"),
    ],
)
def test_tables_that_are_no_matrix(tmp_path, text, message):
    with pytest.raises(InvalidInputError, match=f"`RUN` must .*{message}"):
        read_text(tmp_path, text)


def test_a_table_whose_last_row_is_cut_off(tmp_path):
    found = read_text(tmp_path, "1,0,1\n0,1,1\n1,0")
    assert trials_of(found.runs[0]) == [[1, 0, 1], [0, 1, 1]]
    assert found.warnings == (
        f"{tmp_path / 'mine.csv'} ends in the middle of line 3; it was left out",
    )


def test_a_quote_that_is_not_closed_takes_no_rows(tmp_path):
    lines = ["question,trial,score,response"]
    lines += [f'q{q},{t},{(q + t) % 2},"said ""{q}"""' for q in range(4) for t in range(3)]
    (run,) = read_text(tmp_path, "\n".join(lines) + "\n").runs
    assert run.n_trials == 12
    cut = read_text(tmp_path, "\n".join(lines)[:-1])
    assert (cut.runs[0].n_trials, cut.warnings[0][-39:]) == (
        11,
        " the middle of line 13; it was left out",
    )
    short = [*lines[:-2], "q3,1,0", lines[-1][:-1]]
    with pytest.raises(InvalidInputError, match="3 cells in line 12, 4 in the first"):
        read_text(tmp_path, "\n".join(short))
    lines[4] = 'q1,0,1,"said'
    with pytest.raises(InvalidInputError, match="quotes that do not match in lines 5 to 6"):
        read_text(tmp_path, "\n".join(lines) + "\n")
    bare = [line.partition(',"')[0] + ",yes" for line in lines]
    bare[4] = 'q1,0,1,"said'
    with pytest.raises(InvalidInputError, match="quotes that do not match in lines 5 to 13"):
        read_text(tmp_path, "\n".join(bare) + "\n")


def test_long_cells_and_line_separators_within_cells(tmp_path):
    limit = csv.field_size_limit()
    text = "question,score,response\n" + "".join(
        f"q{i},{i % 2},a\x0cb\u2028c" + "x" * 200_000 + "\n" for i in range(4)
    )
    assert read_text(tmp_path, text).runs[0].n_questions == 4
    assert csv.field_size_limit() == limit


def test_files_of_one_name_are_two_models(tmp_path):
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "mine.csv").write_text("1,0\n")
    found = read_runs([tmp_path / "a" / "mine.csv", tmp_path / "b" / "mine.csv"])
    assert len(set(found.models)) == 2
    assert [run.n_trials for run in found.runs] == [2, 2]


def test_a_named_model_in_two_files(tmp_path):
    first, second, counts = (tmp_path / name for name in ("a.csv", "b.csv", "c.csv"))
    first.write_text("id,A,A\nq,1,0\nr,1,1\n")
    second.write_text("id,A,A\nq,0,0\ns,1,1\n")
    (run,) = read_runs([first, second]).runs
    assert dict(zip(run.question_ids, trials_of(run), strict=True)) == {
        "q": [1, 0, 0, 0],
        "r": [1, 1],
        "s": [1, 1],
    }
    second.write_text(first.read_text())
    with pytest.raises(InvalidInputError, match=r"4 of 4 trials of .*b\.csv are also in .*a\.csv"):
        read_runs([first, second])
    counts.write_text("model,id,c,n\nA,t,3,4\n")
    (run,) = read_runs([first, counts]).runs
    assert (run.trials, run.outcomes.counts.tolist()) == (None, [[1, 1], [0, 2], [1, 3]])
    counts.write_text("model,id,c,n\nA,q,3,4\n")
    with pytest.raises(InvalidInputError, match="have the counts of A on outcomes once"):
        read_runs([first, counts], dedupe=True)


# -- NPZ -------------------------------------------------------------------------------------------


def test_matrices_of_several_models_and_categories(tmp_path):
    outcomes = np.array([[[0, 2, np.nan], [1, 1, 0]], [[2, 2, 2], [0, np.nan, np.nan]]])
    path = tmp_path / "two.npz"
    names = {"models": np.array(["A", "Größe"]), "question_ids": np.array([7, 5])}
    np.savez(path, R=outcomes, weights=[0, 0.5, 1], task="aime", **names)
    first, second = read_runs([path]).runs
    assert (first.model, second.model, first.task) == ("A", "Größe", "aime")
    assert first.question_ids == ("7", "5")
    assert (trials_of(first), trials_of(second)) == ([[0, 2], [1, 1, 0]], [[2, 2, 2], [0]])
    assert second.outcomes.weights.tolist() == [0, 0.5, 1]
    np.savez_compressed(path, outcomes[:, :, :1] == 2)
    plain = read_runs([path]).runs
    assert [run.model for run in plain] == ["two 1", "two 2"]
    assert [trials_of(run) for run in plain] == [[[0], [0]], [[1], [0]]]


class Malicious:
    """Would make a folder if it were unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        import os

        return os.mkdir, (str(self.path),)


def test_nothing_in_a_file_is_executed(tmp_path):
    path, made = tmp_path / "bad.npz", tmp_path / "made"
    np.savez(path, R=np.array([[Malicious(made)]], dtype=object))
    with pytest.raises(InvalidInputError, match="Object arrays cannot be loaded"):
        read_runs([path])
    assert not made.exists()


def archive(path, **entries):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in entries.items():
            file.writestr(f"{name}.npy", content)
    return path


def test_files_that_only_look_like_matrices(tmp_path):
    path = tmp_path / "odd.npz"
    path.write_bytes(b"PK\x03\x04 not a zip")
    with pytest.raises(InvalidInputError, match="have an NPZ file of numbers and names"):
        read_runs([path])
    huge = io.BytesIO()
    head = {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)}
    np.lib.format.write_array_header_1_0(huge, head)
    with pytest.raises(InvalidInputError, match="have an NPZ file of numbers and names"):
        read_runs([archive(path, R=huge.getvalue())])
    with pytest.raises(InvalidInputError, match="have an NPZ file of numbers and names"):
        read_runs([archive(path, R=b"\x93NUMPY\x01\x00")])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"R": np.ones((2, 2)), "models": ["A", "B"]},
            "hold 1 different names in the array models",
        ),
        ({"R": np.ones((2, 2, 2)), "models": ["A", "A"]}, "hold 2 different names"),
        ({"R": np.ones((2, 2)), "ids": ["a"]}, "hold 2 different names in the array ids"),
        ({"R": [[0, 2]]}, r"categories 0..1 in the array R .*2 at \(0, 0, 1\)"),
        ({"R": [[0, 0.5]]}, "categories 0..1"),
        ({"R": [[0, np.inf]]}, "categories 0..1"),
        ({"R": [[0, -1]]}, "categories 0..1"),
        ({"R": [[0, 3]], "weights": [0, 0.5, 1]}, "categories 0..2"),
        ({"R": [[0, 1]], "weights": ["a", "b"]}, "array of numbers"),
        ({"R": np.ones((0, 3))}, "not be empty"),
        ({"R": ["a"]}, "hold one outcome matrix R"),
        ({"a": np.ones((2, 2)), "b": np.ones((2, 2))}, "hold one outcome matrix R"),
        ({}, "hold one outcome matrix R"),
    ],
)
def test_arrays_that_are_no_matrix(tmp_path, arrays, message):
    path = tmp_path / "odd.npz"
    np.savez(path, **{name: np.asarray(values) for name, values in arrays.items()})
    with pytest.raises(InvalidInputError, match=message):
        read_runs([path])


# -- counts ----------------------------------------------------------------------------------------


def test_counts_as_passk_inference_reads_them(tmp_path):
    io = pytest.importorskip("passk_inference.io")
    path = tmp_path / "base.jsonl"
    rows = [
        {"id": 3, "c": 2, "n": 8},
        {"id": "b", "c": 0, "n": 4, "more": [1]},
        {"id": "a", "c": 5, "n": 5},
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    theirs = io.load_counts(path)
    (run,) = read_runs([path]).runs
    assert run.question_ids == tuple(str(id) for id in theirs)
    expected = [[row["n"] - row["c"], row["c"]] for row in theirs.values()]
    assert run.outcomes.counts.tolist() == expected
    assert (run.model, run.task, run.trials) == ("base", "outcomes", None)


def test_counts_of_several_models(tmp_path):
    found = read_text(tmp_path, "model,ID,c,n\nA,q,1,4\nB,q,2,4\nA,r,4,4\n")
    assert found.models == ("A", "B")
    assert found.runs[0].outcomes.counts.tolist() == [[3, 1], [0, 4]]
    wide = read_text(tmp_path, "id,n,c_A,c_B,n_B\nq,4,1,2,3\n")
    assert [run.outcomes.counts.tolist() for run in wide.runs] == [[[3, 1]], [[1, 2]]]
    lines = '{"id": 1, "c": 1, "n": 2, "model": "A", "task": "t"}\n{"id": 1, "c": 2, "n": 2}\n'
    found = read_text(tmp_path, lines, "c.jsonl")
    assert [(run.model, run.task) for run in found.runs] == [("A", "t"), ("c", "outcomes")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id": 1, "c": 3, "n": 2}\n', r"0 <= c <= n \(.*c.jsonl, line 1\); got c=3, n=2"),
        ('{"id": 1, "c": true, "n": 2}\n', "c right ones of n trials"),
        ('{"id": 1, "c": 1.0, "n": 2}\n', "c right ones of n trials"),
        ('{"id": 1, "c": -1, "n": 2}\n', "c right ones of n trials"),
        ('{"id": 1, "c": 1, "n": 1e13}\n', "c right ones of n trials"),
        ('{"id": 1, "c": 1, "n": 2}\n{"id": 2, "c": 1}\n', "got c=1, n=None"),
        ('{"id": true, "c": 1, "n": 2}\n', "name the question in every row"),
        ('{"c": 1, "n": 2}\n', "name the question in every row"),
        ('{"id": 1, "c": 1, "n": 2}\n{"id": "1", "c": 1, "n": 2}\n', "once .*1 again in line 2"),
    ],
)
def test_counts_that_are_none(tmp_path, text, message):
    with pytest.raises(InvalidInputError, match=message):
        read_text(tmp_path, text, "c.jsonl")


def test_counts_that_stand_twice(tmp_path):
    twice = '{"id": 1, "c": 1, "n": 2}\n' * 2
    found = read_text(tmp_path, twice, "c.jsonl", dedupe=True)
    assert found.runs[0].n_trials == 2
    first = tmp_path / "a.csv"
    first.write_text("model,id,c,n\nA,q,1,4\n")
    second = tmp_path / "b.csv"
    second.write_text("model,id,c,n\nA,q,1,4\nA,r,1,4\n")
    with pytest.raises(InvalidInputError, match="have the counts of A on outcomes once"):
        read_runs([first, second])
    assert read_runs([first, second], dedupe=True).runs[0].n_trials == 8


# -- stores ----------------------------------------------------------------------------------------


def write_store(
    path,
    temperatures=(0.6,),
    version="1.0",
    **fingerprint,
):
    """Two questions; the first has three trials of which one is not graded, the second one."""
    graded = []
    with TrialStore.open(path) as store:
        model = store.describe_model({"backend": "vllm", "pretrained": "org/model", **fingerprint})
        for temperature in temperatures:
            sampling = store.describe_sampling({"temperature": temperature, "stops": []})
            prompts = store.describe_prompts(["Q: 1?", "Q: 2?"])
            keys = [TrialKey(model=model, prompt=one, sampling=sampling) for one in prompts]
            store.add(
                Trial(
                    key,
                    i,
                    f"text {i}",
                    seed=100 * n + i,
                    completion_tokens=10 + i,
                    generated_s=0.5,
                    signals={"bits": 0.25 * i, "words": ["a"]},
                    created=1000.0 + i,
                    versions={"vllm": "0.32"},
                )
                for n, key in enumerate(keys)
                for i in range(3 - 2 * n)
            )
            graded += [
                (0, [GradedTrial(keys[0], 0, 1, "42"), GradedTrial(keys[0], 2, 0)]),
                (1, [GradedTrial(keys[1], 0, 1, "7")]),
            ]
        questions = tuple(GradedQuestion(n, f"hash {n}", tuple(trials)) for n, trials in graded)
        store.add_outcomes([GradedTask("sums", version, "none", 2, questions)])
    return path


def test_a_store_with_all_that_it_measured(tmp_path):
    (run,) = read_runs([write_store(tmp_path / "s.sqlite")]).runs
    assert (run.model, run.task, run.question_ids) == ("org/model", "sums", ("hash 0", "hash 1"))
    assert trials_of(run) == [[1, 0], [1]]
    assert run.answers == (("42", None), ("7",))
    assert run.seeds == ((0, 2), (100,))
    assert run.questions == ("Q: 1?", "Q: 2?")
    assert sorted(run.measured) == ["bits", "completion_tokens", "generated_s"]
    assert run.measured["bits"][0].tolist() == [0, 0.5]
    assert (run.tokens, run.busy_seconds) == (32, 1.5)
    assert run.provenance.versions == {"vllm": "0.32", "task": "1.0"}
    assert (run.provenance.backend, run.provenance.date) == ("vllm", 1002.0)
    assert run.provenance.generation_kwargs["do_sample"] is True


def test_samplings_and_fingerprints_of_a_store_are_told_apart(tmp_path):
    path = write_store(tmp_path / "s.sqlite", (0.2, 0.8))
    write_store(path, (0.2,), dtype="float16")
    names = read_runs([path]).models
    assert sorted(names) == [
        "org/model (dtype=float16, temperature=0.2)",
        "org/model (temperature=0.2)",
        "org/model (temperature=0.8)",
    ]


def test_the_newest_version_of_a_task_in_a_store_counts(tmp_path):
    path = write_store(tmp_path / "s.sqlite", version="9.0")
    write_store(path, version="10.0")
    found = read_runs([path])
    assert found.runs[0].provenance.versions["task"] == "10.0"
    assert found.runs[0].n_trials == 3
    assert "in version 9.0 with 2 categories were left out" in found.warnings[0]


def test_stores_of_two_jobs_and_the_same_one_twice(tmp_path):
    first = write_store(tmp_path / "a.sqlite")
    second = write_store(tmp_path / "b.sqlite")
    told = r"3 of 3 trials of .*b\.sqlite are also in .*a\.sqlite"
    with pytest.raises(InvalidInputError, match=told):
        read_runs([first, second])
    assert read_runs([first, second], dedupe=True).runs[0].n_trials == 3


def test_a_store_that_nobody_graded(tmp_path):
    with TrialStore.open(tmp_path / "s.sqlite") as store:
        store.describe_prompts(["Q"])
    with pytest.raises(InvalidInputError, match=r"hold graded trials: .*0 trials without"):
        read_runs([tmp_path / "s.sqlite"])


def test_what_a_file_without_texts_or_filters_cannot_be_asked(tmp_path):
    with pytest.raises(InvalidInputError, match="`regrade` must be left out: only samples"):
        read_text(tmp_path, "1,0\n", regrade=lambda texts, target, marker: [])
    with pytest.raises(InvalidInputError, match="`filter` must be left out"):
        read_text(tmp_path, "1,0\n", filter="strict")
    with pytest.raises(InvalidInputError, match="`filter` must be a filter that graded task sums"):
        read_runs([write_store(tmp_path / "s.sqlite")], filter="strict")
