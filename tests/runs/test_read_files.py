"""Matrices, counts and trial stores as runs, against numpy, passk-inference and what was stored."""

import json

import numpy as np
import pytest
from _support.errors import refused

from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.store.outcomes import GradedQuestion, GradedTask, GradedTrial
from lm_eval_bayes.store.trial import Trial, TrialKey
from lm_eval_bayes.store.trial_store import TrialStore


def trials_of(run):
    return [trials.tolist() for trials in run.trials]


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
        "trial_1,trial_2,trial_3\n1,0,1\n0,,1\n",
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
    (note,) = read_text(tmp_path, "0,1,2\n1,0,1\n").notes
    assert "row 1 (0, 1, 2)" in note
    assert read_text(tmp_path, ",0,1,2\n0,1,0,1\n").notes == ()


def test_a_header_names_models_and_questions(tmp_path):
    text = 'Question,gpt-4,"a, b",gpt-4,gpt-4.1\nq1,1,0,0,1\nq2,0,1,,0\n'
    saved = read_text(tmp_path, text, task="aime")
    assert saved.models == ("gpt-4", "a, b", "gpt-4.1")
    assert saved.tasks == ("aime",)
    assert [trials_of(run) for run in saved.runs] == [[[1, 0], [0]], [[0], [1]], [[1], [0]]]
    assert saved.runs[0].question_ids == ("q1", "q2")


def test_columns_of_models_and_tasks(tmp_path):
    text = "model,task,id,t1,t2\nA,x,q,1,0\nA,y,q,1,1\nB,x,q,0,0\n"
    saved = read_text(tmp_path, text)
    assert [(run.model, run.task, trials_of(run)) for run in saved.runs] == [
        ("A", "x", [[1, 0]]),
        ("A", "y", [[1, 1]]),
        ("B", "x", [[0, 0]]),
    ]
    assert [run.task for run in read_text(tmp_path, text, task="y").runs] == ["y"]


def test_real_outcomes(shared):
    """19 models on 15 questions, each asked four times: rows 1, 1.1, 1.2, 1.3, 2, …"""
    path = shared / "data" / "outcomes" / "matharena_aime_2025_II.csv"
    saved = read_runs([path])
    table = np.genfromtxt(path, delimiter=",", skip_header=1, usecols=range(1, 20))
    assert len(saved.models) == 19
    assert {(run.n_questions, run.n_common) for run in saved.runs} == {(15, 4)}
    assert saved.runs[0].matrix().tolist() == table[:, 0].reshape(15, 4).tolist()
    assert "rows 1, 1.1, … are read as 4 trials" in " ".join(saved.notes)
    assert [run.outcomes.counts[:, 1].sum() for run in saved.runs] == table.sum(axis=0).tolist()
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
    ("text", "rule", "value"),
    [
        ("", "damaged", "an empty file"),
        ("1,0\n1\n0,1\n", "shape", "1 cells in line 2, 2 in the first"),
        ("1,0,inf\n0,1,1\n", "conflict", "1, 0, inf"),
        ("1,0,1\n0,2,1\n", "range", "'2' in row 2, column 2"),
        ("id,A\nq,1\nq,0\n", "duplicate", None),
        ("id,A\n,1\n", "missing", "none in row 1"),
        ("id,t1\n", "empty", "none"),
        ('"id,A\n', "damaged", None),
    ],
)
def test_tables_that_are_no_matrix(tmp_path, text, rule, value):
    with refused("RUN", rule) as caught:
        read_text(tmp_path, text)
    assert value in (None, caught.value.value)


def test_a_quote_that_is_not_closed_takes_no_rows(tmp_path):
    lines = ["question,trial,score,response"]
    lines += [f'q{q},{t},{(q + t) % 2},"said ""{q}"""' for q in range(4) for t in range(3)]
    text = "\n".join(lines)
    assert read_text(tmp_path, text).runs[0].n_trials == 12
    open_quote = text.replace('"said ""1"""', '"said', 1)
    for damaged in (text[:-1], open_quote, open_quote.replace('"', "").replace("said", '"said', 1)):
        with refused("RUN", "damaged"):
            read_text(tmp_path, damaged)


def test_long_cells_and_line_separators_within_cells(tmp_path):
    text = "question,score,response\n" + "".join(
        f"q{i},{i % 2},a\x0cb\u2028c" + "x" * 200_000 + "\n" for i in range(4)
    )
    assert read_text(tmp_path, text).runs[0].n_questions == 4


def test_files_of_one_name_are_two_models(tmp_path):
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "mine.csv").write_text("1,0\n")
    saved = read_runs([tmp_path / "a" / "mine.csv", tmp_path / "b" / "mine.csv"])
    assert len(set(saved.models)) == 2
    assert [run.n_trials for run in saved.runs] == [2, 2]


def test_a_named_model_in_two_files(tmp_path):
    first, second, counts = (tmp_path / name for name in ("a.csv", "b.csv", "c.csv"))
    first.write_text("id,A,A\nq,1,0\nr,1,1\n")
    second.write_text("id,A,A\nq,0,0\ns,1,1\n")
    (run,) = read_runs([first, second]).runs
    trials = dict(zip(run.question_ids, trials_of(run), strict=True))
    assert trials == {"q": [1, 0, 0, 0], "r": [1, 1], "s": [1, 1]}
    second.write_text(first.read_text())
    with refused("RUN", "duplicate"):
        read_runs([first, second])
    counts.write_text("model,id,c,n\nA,t,3,4\n")
    (run,) = read_runs([first, counts]).runs
    assert (run.trials, run.outcomes.counts.tolist()) == (None, [[1, 1], [0, 2], [1, 3]])


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
    with refused("RUN", "damaged"):
        read_runs([path])
    assert not made.exists()


@pytest.mark.parametrize(
    ("arrays", "rule"),
    [
        ({"R": np.ones((2, 2)), "models": ["A", "B"]}, "duplicate"),
        ({"R": np.ones((2, 2, 2)), "models": ["A", "A"]}, "duplicate"),
        ({"R": np.ones((2, 2)), "ids": ["a"]}, "duplicate"),
        ({"R": [[0, 2]]}, "range"),
        ({"R": [[0, 0.5]]}, "range"),
        ({"R": [[0, 3]], "weights": [0, 0.5, 1]}, "range"),
        ({"R": np.ones((0, 3))}, "shape"),
        ({"R": ["a"]}, "shape"),
        ({"a": np.ones((2, 2)), "b": np.full((2, 2), 3)}, "range"),
    ],
)
def test_arrays_that_are_no_matrix(tmp_path, arrays, rule):
    path = tmp_path / "odd.npz"
    np.savez(path, **{name: np.asarray(values) for name, values in arrays.items()})
    with refused("RUN", rule):
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
    saved = read_text(tmp_path, "model,ID,c,n\nA,q,1,4\nB,q,2,4\nA,r,4,4\n")
    assert saved.models == ("A", "B")
    assert saved.runs[0].outcomes.counts.tolist() == [[3, 1], [0, 4]]
    wide = read_text(tmp_path, "id,n,c_A,c_B,n_B\nq,4,1,2,3\n")
    assert [run.outcomes.counts.tolist() for run in wide.runs] == [[[3, 1]], [[1, 2]]]
    lines = '{"id": 1, "c": 1, "n": 2, "model": "A", "task": "t"}\n{"id": 1, "c": 2, "n": 2}\n'
    saved = read_text(tmp_path, lines, "c.jsonl")
    assert [(run.model, run.task) for run in saved.runs] == [("A", "t"), ("c", "outcomes")]


@pytest.mark.parametrize(
    ("text", "rule", "value"),
    [
        ('{"id": 1, "c": 3, "n": 2}\n', "range", "c=3, n=2"),
        ('{"id": 1, "c": 1, "n": 1e13}\n', "range", "c=1, n=10000000000000.0"),
        ('{"id": true, "c": 1, "n": 2}\n', "missing", None),
        ('{"id": 1, "c": 1, "n": 2}\n{"id": "1", "c": 1, "n": 2}\n', "duplicate", None),
    ],
)
def test_counts_that_are_none(tmp_path, text, rule, value):
    with refused("RUN", rule) as caught:
        read_text(tmp_path, text, "c.jsonl")
    assert value in (None, caught.value.value)


def test_counts_that_stand_twice(tmp_path):
    line = '{"id": 1, "c": 1, "n": 2}\n'
    assert read_text(tmp_path, line * 2, "c.jsonl", dedupe=True).runs[0].n_trials == 2
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    first.write_text("model,id,c,n\nA,q,1,4\n")
    second.write_text("model,id,c,n\nA,q,1,4\nA,r,1,4\n")
    with refused("RUN", "duplicate"):
        read_runs([first, second])
    assert read_runs([first, second], dedupe=True).runs[0].n_trials == 8


# -- stores ----------------------------------------------------------------------------------------


def write_store(path, temperatures=(0.6,), version="1.0", **fingerprint):
    """Two questions; the first has three trials of which one is not graded, the second one."""
    graded = []
    with TrialStore.open(path) as store:
        model = store.describe_model({"backend": "vllm", "pretrained": "org/model", **fingerprint})
        for temperature in temperatures:
            sampling = store.describe_sampling({"temperature": temperature, "stops": []})
            prompts = store.describe_prompts(["Q: 1?", "Q: 2?"])
            keys = [TrialKey(model=model, prompt=prompt, sampling=sampling) for prompt in prompts]
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
    saved = read_runs([path])
    assert saved.runs[0].provenance.versions["task"] == "10.0"
    assert saved.runs[0].n_trials == 3
    assert "10.0" in saved.warnings[0]


def test_a_store_that_nobody_graded(tmp_path):
    with TrialStore.open(tmp_path / "s.sqlite") as store:
        store.describe_prompts(["Q"])
    with refused("RUN", "missing", "0 trials without a grade in s.sqlite"):
        read_runs([tmp_path / "s.sqlite"])


def test_what_a_file_without_texts_or_filters_cannot_be_asked(tmp_path):
    with refused("regrade", "conflict"):
        read_text(tmp_path, "1,0\n", regrade=lambda texts, target, marker: [])
    with refused("filter", "conflict", "strict"):
        read_text(tmp_path, "1,0\n", filter="strict")
    with refused("filter", "choice", "strict"):
        read_runs([write_store(tmp_path / "s.sqlite")], filter="strict")
