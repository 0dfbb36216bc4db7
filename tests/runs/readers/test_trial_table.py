"""Tables with one row per trial, in every format, against the same outcomes as a matrix."""

from __future__ import annotations

import gzip
import json
import random

import numpy as np
import pytest
from _support.command_line import called
from _support.errors import refused
from _support.tables import write_rows

from lm_eval_bayes.runs.reader import read_runs, share_clusters
from lm_eval_bayes.runs.task_run import TaskRun

MODELS, QUESTIONS, N = ("x-1", "y-2", "z-3"), tuple(f"q{i}" for i in range(12)), 5


def outcomes():
    """Right and wrong trials, shape (models, questions, trials), of models of unlike ability."""
    rng = np.random.default_rng(0)
    p = np.array([0.2, 0.5, 0.8])[:, None, None]
    return (rng.random((len(MODELS), len(QUESTIONS), N)) < p).astype(int)


def rows_of(matrix):
    """One dict per trial, in an order of no meaning."""
    names = ("model", "task", "question_id", "epoch", "correct")
    rows = [
        dict(zip(names, (model, "aime", question, trial, bool(value)), strict=True))
        for model, of_model in zip(MODELS, matrix, strict=True)
        for question, trials in zip(QUESTIONS, of_model, strict=True)
        for trial, value in enumerate(trials)
    ]
    random.Random(3).shuffle(rows)
    return rows


@pytest.fixture
def read(tmp_path):
    """Write a table and read it."""

    def read(text, name="t.csv", **options):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return read_runs([path], **options)

    return read


@pytest.fixture
def counts(read):
    """Write a table of one run, and return the counts of its categories."""

    def counts(text, **options):
        (run,) = read(text, **options).runs
        return run.outcomes.counts.tolist()

    return counts


ENDINGS = (
    *(".csv", ".tsv", ".csv.gz", ".json", ".jsonl", ".jsonl.gz", ".jsonl.zst"),
    *(".parquet", ".arrow", ".feather"),
)


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_holds_the_outcomes_of_the_matrix(tmp_path, ending):
    saved = read_runs([write_rows(tmp_path / f"board{ending}", rows_of(outcomes()))])
    assert (saved.models, saved.tasks) == (tuple(sorted(MODELS, key=saved.models.index)), ("aime",))
    assert "question=question_id, trial=epoch, score=correct" in (saved.notes[0])
    for run in saved.runs:
        order = [QUESTIONS.index(id) for id in run.question_ids]
        assert run.matrix().tolist() == outcomes()[MODELS.index(run.model)][order].tolist()


def test_other_names_of_columns(read, tmp_path):
    text = "item,pass_,who\na,yes,A\na,no,A\nb,yes,A\n"
    chosen = {"question": "item", "score": "pass_", "model": "who"}
    (run,) = read(text, columns=chosen).runs
    assert (run.model, run.outcomes.counts.tolist()) == ("A", [[1, 1], [0, 1]])
    with refused("columns", "missing-column", "question=nothing"):
        read(text, columns={"question": "nothing"})
    for text, code in (("question=item,score=pass_,model=who", 0), ("what=item", 2)):
        assert called("summary", tmp_path / "t.csv", "--columns", text)[0] == code


def test_scores_between_0_and_1_are_scores(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text("model,question,score\nA,a,0.5\nA,a,1\nA,b,0\nB,a,1\nB,b,0\n")
    first, second = read_runs([path]).runs
    assert [row.tolist() for row in first.outcomes.scores] == [[0.5, 1.0], [0.0]]
    # of the same task, so scores too, though all of them are 0 and 1
    assert [row.tolist() for row in second.outcomes.scores] == [[1.0], [0.0]]
    other = tmp_path / "other.csv"
    other.write_text("model,question,score\nC,a,1\nC,b,1\n")
    assert all(run.scored for run in read_runs([path, other]).runs)
    assert not read_runs([other]).runs[0].scored


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("id,problem,score\n1,a,1\n2,a,0\n3,b,1\n4,b,1\n", "problem"),
        ("id,trial,correct,prompt\n0,0,1,p\n1,1,0,p\n2,0,1,q\n3,1,1,q\n", "prompt"),
    ],
    ids=["another column of questions", "numbers of trials that repeat"],
)
def test_numbers_of_rows_taken_for_questions_are_warned_of(read, text, column):
    saved = read(text)
    assert (saved.runs[0].n_common, len(saved.warnings)) == (1, 1)
    saved = read(text, columns={"question": column})
    assert saved.warnings == ()
    assert saved.runs[0].outcomes.counts.tolist() == [[1, 1], [0, 2]]


@pytest.mark.parametrize(
    "text",
    [
        "id,problem,model,score\n1,a,A,1\n2,b,A,0\n1,a,B,1\n2,b,B,1\n",
        "id,trial,correct\n0,7,1\n1,8,0\n",
    ],
    ids=["questions of two models", "labels of rows"],
)
def test_questions_of_one_trial_are_no_fault(read, text):
    assert read(text).warnings == ()


def test_agents_of_one_model_are_kept_apart(read):
    text = "model,agent,task_id,run,resolved\ngpt,a,q,1,1\ngpt,b,q,1,0\ngpt,b,q,2,0\n"
    saved = read(text)
    assert saved.models == ("gpt (a)", "gpt (b)")
    assert [run.n_trials for run in saved.runs] == [1, 2]
    assert read(text, columns={"model": "agent"}).models == ("a", "b")


def test_rows_without_trial_numbers_that_repeat_are_warned_of(read):
    (warning,) = read("question,score\na,1\na,1\nb,0\n").warnings
    assert "1 to 2" in warning


@pytest.mark.parametrize("column", ["seed,42", "trial,"])
def test_a_column_of_one_value_numbers_no_trials(read, column):
    name, value = column.split(",")
    saved = read(f"question,{name},score\na,{value},1\na,{value},0\nb,{value},1\nb,{value},1\n")
    assert saved.runs[0].outcomes.counts.tolist() == [[1, 1], [0, 2]]
    assert any(name in note for note in saved.notes)


def test_a_model_that_is_named_in_later_rows_alone_is_refused(read):
    row = {"question": "a", "score": 1}
    for name in ("t.jsonl", "c.jsonl"):
        first = row if name == "t.jsonl" else {"id": 1, "c": 1, "n": 2}
        with refused("RUN", "mismatch", "model in row 2 alone"):
            read("".join(json.dumps(r) + "\n" for r in (first, first | {"model": "A"})), name)


@pytest.mark.parametrize(("ending", "packed"), [(".csv", False), (".jsonl", False), (".csv", True)])
def test_a_text_that_is_not_utf_8_is_refused(tmp_path, ending, packed):
    path = tmp_path / (f"board{ending}.gz" if packed else f"board{ending}")
    text = write_rows(tmp_path / f"plain{ending}", rows_of(outcomes())).read_text(encoding="utf-8")
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "latin-1"):
        content = text.replace("aime", "Prüfung").encode(encoding)
        path.write_bytes(gzip.compress(content) if packed else content)
        with refused("RUN", "damaged"):
            read_runs([path])


def test_other_bounds(read, tmp_path):
    (run,) = read("question,score\na,4\na,5\nb,1.5\n", bounds=(1.0, 5.0)).runs
    assert run.outcomes.bounds == (1.0, 5.0)
    assert [row.tolist() for row in run.outcomes.scores] == [[4.0, 5.0], [1.5]]
    for wrong in ("5:1", "a:b", "1", "0:inf"):
        assert called("summary", tmp_path / "t.csv", "--bounds", wrong)[0] == 2


def test_files_without_trial_numbers_hold_further_trials(tmp_path):
    """A file per run of the model; a copy of one is refused, or counts once."""
    for number, values in enumerate(((1, 0), (0, 0), (1, 1))):
        text = f"model,question,score\nA,a,{values[0]}\nA,b,{values[1]}\n"
        (tmp_path / f"run{number}.csv").write_text(text)
    files = sorted(tmp_path.glob("*.csv"))
    (run,) = read_runs(files).runs
    assert run.outcomes.counts.tolist() == [[1, 2], [2, 1]]
    copy = tmp_path / "copies"
    copy.mkdir()
    (copy / "run0.csv").write_bytes(files[0].read_bytes())
    with refused("RUN", "duplicate"):
        read_runs([*files, copy / "run0.csv"])
    (run,) = read_runs([*files, copy / "run0.csv"], dedupe=True).runs
    assert run.n_trials == 6


def test_trials_by_name(read):
    (run,) = read("question,run,score\na,run_10,1\na,run_2,0\nb,run_2,1\nb,run_10,0\n").runs
    assert [row.tolist() for row in run.trials] == [[0, 1], [1, 0]]  # run_2 first
    text = "question,run,score\na,base,1\na,other,0\na,base,1\n"
    with refused("RUN", "duplicate"):
        read(text)
    (run,) = read(text, dedupe=True).runs
    assert run.outcomes.counts.tolist() == [[1, 1]]


def test_trials_without_a_score_are_left_out(read):
    (run,) = read("question,score,tokens\na,1,10\na,,20\nb,n/a,5\nb,0,\n").runs
    assert run.outcomes.counts.tolist() == [[0, 1], [1, 0]]
    (note,) = run.notes
    assert note.startswith("2 trials")
    assert np.isnan(run.measured["completion_tokens"][1]).all()


def test_clusters_answers_and_leading_zeros(read):
    text = "question,score,answer,contest\n007,1,70,I\n07,0,71,I\n7,1,70,II\n"
    (run,) = read(text, cluster="contest").runs
    assert (run.question_ids, run.clusters) == (("007", "07", "7"), ("I", "I", "II"))
    assert run.answers == (("70",), ("71",), ("70",))
    with refused("cluster", "missing-column"):
        read(text, cluster="topic")


def test_scores_have_no_clusters(read):
    text = "question,score,topic,cluster\na,0.5,I,I\nb,0.25,II,II\n"
    with refused("cluster", "missing"):
        read(text, cluster="topic")
    (run,) = read(text).runs
    assert (run.clusters, len(run.notes)) == (None, 1)
    # runs of one task of which only one has scores
    other = TaskRun.from_trials("B", run.task, [[1], [0]], ["a", "b"], clusters=["I", "II"])
    assert [run.clusters for run in share_clusters([run, other])] == [None, ("I", "II")]


@pytest.mark.parametrize(
    ("text", "rule", "value"),
    [
        ("question,score\na,maybe\n", "format", "'maybe' in row 1"),
        ("question,score\na,1\n,0\n", "missing", "none in row 2"),
        ("question,score\na,1\nb,1e400\n", "range", "1e400 in row 2"),
        ("question,score\n", "empty", "none"),
        ("question,score,cluster\na,1,I\na,0,II\n", "mismatch", "I and II"),
        ("question,score,score\na,1,0\nb,1,0\n", "duplicate", 2),
        ("model,question,trial,score\nm,a,0,1\n,a,1,0\n", "missing", "none in row 2"),
        ("agent,run,resolved\na,1,1\na,2,0\n", "missing-column", None),
        ("question,epoch1,epoch2,error\na,1,0,0\n", "conflict", "epoch1, epoch2, error"),
        ("id,accuracy,n\na,0.5,64\n", "range", None),
        ("id,trial_1,trial_2\nq1,85%,1\n", "format", None),
        ("question,score\na,85%\n", "format", "'85%' in row 1"),
        ("question;score\na;0,85\n", "format", "'0,85' in row 1"),
        ("question,score\na,1\na\n", "shape", "1 cells in line 3, 2 in the first"),
        ("question,score\na,1\nb,0.", "damaged", None),
        ("question,correct\na,1\nb,0\nquestion,correct\na,1\n", "duplicate", "row 4"),
    ],
)
def test_broken_tables(read, text, rule, value):
    with refused("RUN", rule) as caught:
        read(text)
    assert value in (None, caught.value.value)


@pytest.mark.parametrize("score", ["1e400", "-1e999", "1" + "0" * 400])
def test_a_score_larger_than_a_float_is_refused(read, score):
    rows = f'{{"question": "a", "score": 1}}\n{{"question": "b", "score": {score}}}\n'
    with refused("RUN", "range"):
        read(rows, "t.jsonl")
    assert read("question,score\n1e400,1\n1e401,0\n").runs[0].question_ids == ("1e400", "1e401")


def test_the_columns_of_tables_that_are_alike_are_noted_once(tmp_path):
    files = [tmp_path / f"t{n}.csv" for n in range(6)]
    for n, file in enumerate(files):
        file.write_text(f"model,item,pass\nm{n},a,1\nm{n},b,0\n")
    (note,) = read_runs(files, columns={"score": "pass"}).notes
    assert "question=item, score=pass" in note


# -- columns that hold no numbers, and which columns are read ------------------------------------


@pytest.mark.parametrize(
    ("ending", "wrong"),
    [*((".csv", wrong) for wrong in ("-1", "9" * 400, "20%")), (".parquet", "12k")],
)
def test_measurements_that_are_no_numbers_are_named(tmp_path, ending, wrong):
    rows = [
        {"question": f"q{i}", "score": i % 2, "output_tokens": str(10 + i), "cost": f"0.{i}"}
        for i in range(5)
    ]
    path = tmp_path / f"t{ending}"
    (run,) = read_runs([write_rows(path, rows)]).runs
    tokens = [column.tolist() for column in run.measured["completion_tokens"]]
    assert tokens == [[10.0 + i] for i in range(5)]
    rows[2]["output_tokens"] = wrong
    saved = read_runs([write_rows(path, rows)])
    assert set(saved.runs[0].measured) == {"cost"}
    (note,) = saved.notes
    assert "output_tokens" in note
    assert "is left out" in note


def test_all_columns_that_are_read_are_named(tmp_path, read):
    kinds = {
        **{"question": "item_id", "text": "problem", "model": "agent"},
        **{"task": "benchmark", "trial": "epoch"},
        **{"score": "reward", "answer": "parsed_answer", "response": "output", "target": "gold"},
        **{"tokens": "n_tokens", "cost": "total_cost", "time": "latency", "cluster": "cluster"},
    }
    row = dict.fromkeys(kinds.values(), "1") | {"other": "1"}
    (note,) = read_runs([write_rows(tmp_path / "all.jsonl", [row])]).notes
    named = ", ".join(f"{kind}={name}" for kind, name in kinds.items() if kind != name)
    assert note.endswith(f": {named}")
    # the right answers are read with the responses only
    (note,) = read("question,correct,target\na,1,7\n").notes
    assert note.endswith(": score=correct")
    assert read("question,score\na,1\n").notes == ()


def test_a_column_of_outcomes_without_a_known_name_is_a_warning(read):
    """It is counted, as the only column beside the trials, and the warning names it."""
    for column, n_warnings in (("foo", 1), ("correct", 0)):
        saved = read(f"question,trial,{column}\na,1,1\na,2,0\nb,1,0\nb,2,0\n")
        (run,) = saved.runs
        assert run.outcomes.counts.tolist() == [[1, 1], [2, 0]]
        assert len(saved.warnings) == n_warnings
        assert all(column in warning for warning in saved.warnings)


def test_columns_of_counts_that_are_not_read_are_named(read):
    assert read("source,id,c,n,cluster\nx,1,2,4,a\n").notes[0].endswith(": source")
    lines = '{"id": 1, "c_a": 2, "n": 4, "difficulty": "hard"}\n'
    assert read(lines, "c.jsonl").notes[0].endswith(": difficulty")


# -- answers ---------------------------------------------------------------------------------------


def task_of(path):
    code, out, error = called("summary", path, "--json")
    assert code == 0, error
    (task,) = json.loads(out)["tasks"]
    return task


def rows_with_gold(*more):
    """Four questions with five trials each: two right, three with wrong answers of their own."""
    names = ("question", "trial", "answer", *more, "correct")
    texts = [("7", 1), ("7", 1), ("8", 0), ("9", 0), ("10", 0)]
    return [
        dict(zip(names, (f"q{q}", i, 7, *(text for _ in more), right), strict=True))
        for q in range(4)
        for i, (text, right) in enumerate(texts)
    ]


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_a_column_of_right_answers_holds_no_votes(tmp_path, ending):
    """The right answer has two of five votes, and every other one has one."""
    path = tmp_path / f"t{ending}"
    task = task_of(write_rows(path, rows_with_gold("prediction")))
    assert task["rows"]["maj@5"] == 1.0
    assert task["avg"]["value"] == pytest.approx(0.4)
    task = task_of(write_rows(path, rows_with_gold()))
    assert [name for name in task["rows"] if name.startswith("maj")] == []
    assert task["avg"]["value"] == pytest.approx(0.4)
    # a single text that is right and wrong is enough
    rows = rows_with_gold("prediction")
    for row in rows[:10]:
        row["answer"] = row["trial"]
    assert read_runs([write_rows(path, rows)]).runs[0].answers[0][0] == "7"


def test_a_column_of_right_answers_in_a_file_per_trial_holds_no_votes(tmp_path):
    for trial in range(5):
        rows = [row for row in rows_with_gold() if row["trial"] == trial]
        text = "".join(f"m,{row['question']},7,{row['correct']}\n" for row in rows)
        (tmp_path / f"run{trial}.csv").write_text("model,question,answer,correct\n" + text)
    (run,) = read_runs(sorted(tmp_path.glob("run*.csv"))).runs
    assert (run.n_trials, run.answers) == (20, None)


@pytest.mark.parametrize(
    "rows",
    [
        "a,7,1\na,7,1\nb,9,0\nb,9,0\n",  # of a model that always says the same
        "a,7,1\na,7,1\nb,8,0\nb,9,0\n",
        "a,7,1\na,,0\nb,9,0\nb,,0\n",  # a trial without an answer does not vote
    ],
)
def test_answers_of_trials_vote(tmp_path, rows):
    path = tmp_path / "a.csv"
    path.write_text("question,answer,correct\n" + rows)
    assert task_of(path)["rows"]["maj@2"] == 0.5
