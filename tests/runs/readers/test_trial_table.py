"""Tables with one row per trial, in every format, against the same outcomes as a matrix."""

from __future__ import annotations

import gzip
import json
import random
import re

import numpy as np
import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest
from _support.command_line import called
from _support.paths import SHARED

from lm_eval_bayes import InvalidInputError
from lm_eval_bayes.runs.clusters import share_clusters
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.task_run import TaskRun

MODELS, QUESTIONS, N = ("x-1", "y-2", "z-3"), tuple(f"q{i}" for i in range(12)), 5


def outcomes(seed=0):
    """Right and wrong trials, shape (models, questions, trials), of models of unlike ability."""
    rng = np.random.default_rng(seed)
    p = np.array([0.2, 0.5, 0.8])[:, None, None]
    return (rng.random((len(MODELS), len(QUESTIONS), N)) < p).astype(int)


NAMES = ("model", "task", "question_id", "epoch", "correct")


def rows_of(matrix, names=NAMES, shuffled=True):
    """One dict per trial, by default in an order of no meaning."""
    rows = [
        dict(zip(names, (model, "aime", question, trial, bool(value)), strict=True))
        for model, of_model in zip(MODELS, matrix, strict=False)
        for question, trials in zip(QUESTIONS, of_model, strict=True)
        for trial, value in enumerate(trials)
    ]
    if shuffled:
        random.Random(3).shuffle(rows)
    return rows


def csv_text(rows, delimiter=","):
    lines = [delimiter.join(rows[0]), *(delimiter.join(map(str, row.values())) for row in rows)]
    return "\n".join(lines) + "\n"


def json_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def written(folder, ending, rows):
    path = folder / f"board{ending}"
    if ending in (".csv", ".tsv"):
        path.write_text(csv_text(rows, "\t" if ending == ".tsv" else ","))
    elif ending == ".csv.gz":
        path.write_bytes(gzip.compress(csv_text(rows).encode()))
    elif ending == ".jsonl":
        path.write_text(json_lines(rows))
    elif ending == ".jsonl.gz":
        path.write_bytes(gzip.compress(json_lines(rows).encode()))
    elif ending == ".jsonl.zst":
        with pyarrow.output_stream(path, compression="zstd") as file:
            file.write(json_lines(rows).encode())
    elif ending == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif ending == ".arrow":
        with pyarrow.ipc.new_stream(path, pyarrow.Table.from_pylist(rows).schema) as file:
            file.write_table(pyarrow.Table.from_pylist(rows))
    else:
        pyarrow.feather.write_feather(pyarrow.Table.from_pylist(rows), path)
    return path


def matrix_file(folder):
    path = folder / "matrix.npz"
    names = {"models": np.array(MODELS), "question_ids": np.array(QUESTIONS), "task": "aime"}
    np.savez(path, R=outcomes(), **names)
    return path


ENDINGS = (
    *(".csv", ".tsv", ".csv.gz", ".jsonl", ".jsonl.gz", ".jsonl.zst"),
    *(".parquet", ".arrow", ".feather"),
)


def sorted_counts(path):
    return {
        run.model: dict(zip(run.question_ids, run.outcomes.counts.tolist(), strict=True))
        for run in read_runs([path]).runs
    }


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_holds_the_outcomes_of_the_matrix(tmp_path, ending):
    path = written(tmp_path, ending, rows_of(outcomes()))
    assert sorted_counts(path) == sorted_counts(matrix_file(tmp_path))
    saved = read_runs([path])
    assert saved.tasks == ("aime",)
    assert saved.notes == (
        f"columns of {path.name}: question=question_id, model=model, task=task, trial=epoch, "
        "score=correct",
    )
    for run in saved.runs:
        order = [QUESTIONS.index(id) for id in run.question_ids]
        assert run.matrix().tolist() == outcomes()[MODELS.index(run.model)][order].tolist()


def numbers_of(report):
    """All numbers of a JSON value, in the order of its keys."""
    if isinstance(report, dict):
        return [n for key in sorted(report) for n in numbers_of(report[key])]
    if isinstance(report, list):
        return [n for value in report for n in numbers_of(value)]
    return [report] if isinstance(report, float) else []


def json_of(*arguments):
    code, out, _ = called(*arguments, "--json")
    assert code == 0
    return json.loads(out)


@pytest.mark.parametrize("command", ["summary", "rank", "plan --width 0.05", "compare"])
def test_every_command_gives_the_numbers_of_the_matrix(tmp_path, command):
    n = 2 if command == "compare" else 3
    table = written(tmp_path, ".csv", rows_of(outcomes()[:n], shuffled=False))
    path = tmp_path / "matrix.npz"
    names = {"models": np.array(MODELS[:n]), "question_ids": np.array(QUESTIONS), "task": "aime"}
    np.savez(path, R=outcomes()[:n], **names)
    of_table, of_matrix = (json_of(*command.split(), file) for file in (table, path))
    assert numbers_of(of_table) == pytest.approx(numbers_of(of_matrix), abs=1e-12)
    assert len(numbers_of(of_table)) > 5


def test_other_names_of_columns(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("item,pass_,who\na,yes,A\na,no,A\nb,yes,A\n")
    with pytest.raises(InvalidInputError, match="0 or 1 in every cell"):
        read_runs([path])
    chosen = {"question": "item", "score": "pass_", "model": "who"}
    (run,) = read_runs([path], columns=chosen).runs
    assert (run.model, run.outcomes.counts.tolist()) == ("A", [[1, 1], [0, 1]])
    code, _, notes = called("summary", path, "--columns", "question=item,score=pass_,model=who")
    assert code == 0
    assert "columns of mine.csv: question=item, model=who, score=pass_" in notes
    for wrong, message in (("question=nothing", "name a column"), ("what=item", "KIND=COLUMN")):
        code, _, error = called("summary", path, "--columns", wrong)
        assert (code, message in error) == (2, True)


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


def test_a_row_number_that_is_called_id_is_warned_of(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,problem,score\n1,a,1\n2,a,0\n3,b,1\n4,b,1\n")
    saved = read_runs([path])
    assert saved.runs[0].n_common == 1
    assert saved.warnings == (
        "rows.csv: every row is another question by its column id, and by problem there are 2: "
        "--columns question=problem reads repeated trials",
    )
    saved = read_runs([path], columns={"question": "problem"})
    assert saved.warnings == ()
    assert saved.runs[0].outcomes.counts.tolist() == [[1, 1], [0, 2]]
    path.write_text("id,problem,model,score\n1,a,A,1\n2,b,A,0\n1,a,B,1\n2,b,B,1\n")
    assert read_runs([path]).warnings == ()


def test_agents_of_one_model_are_kept_apart(tmp_path):
    path = tmp_path / "agents.csv"
    path.write_text("model,agent,task_id,run,resolved\ngpt,a,q,1,1\ngpt,b,q,1,0\ngpt,b,q,2,0\n")
    saved = read_runs([path])
    assert saved.models == ("gpt (a)", "gpt (b)")
    assert [run.n_trials for run in saved.runs] == [1, 2]
    assert "agents.csv: a model is one of model with its agent" in saved.notes
    assert read_runs([path], columns={"model": "agent"}).models == ("a", "b")


def test_a_table_without_questions_is_refused(tmp_path):
    path = tmp_path / "noq.csv"
    path.write_text("agent,run,resolved\na,1,1\na,2,0\n")
    with pytest.raises(InvalidInputError, match="have a column of questions, as in"):
        read_runs([path])


def test_rows_without_trial_numbers_that_repeat_are_warned_of(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("question,score\na,1\na,1\nb,0\n")
    (warning,) = read_runs([path]).warnings
    assert "questions have 1 to 2" in warning


def test_a_constant_column_of_trials_numbers_none(tmp_path):
    path = tmp_path / "seed.csv"
    path.write_text("question,seed,score\na,42,1\na,42,0\nb,42,1\nb,42,1\n")
    saved = read_runs([path])
    assert saved.runs[0].outcomes.counts.tolist() == [[1, 1], [0, 2]]
    assert "seed.csv: seed is the same in all rows, which are trials" in saved.notes


def test_another_column_of_scores_is_named(tmp_path):
    path = tmp_path / "two.csv"
    path.write_text("question,score,resolved\na,0.5,1\n")
    assert "--columns score=resolved counts resolved" in read_runs([path]).notes[1]


def test_epochs_beside_another_column_are_no_models(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text("question,epoch1,epoch2,error\na,1,0,0\n")
    with pytest.raises(InvalidInputError, match="not both; got epoch1, epoch2 and error"):
        read_runs([path])


def test_a_share_of_many_trials_is_no_trial(tmp_path):
    path = tmp_path / "shares.csv"
    path.write_text("id,accuracy,n\na,0.5,64\n")
    with pytest.raises(InvalidInputError, match="0 or 1 in every cell"):
        read_runs([path])


def test_percentages_and_decimal_commas(tmp_path):
    def read(score, *more):
        path = tmp_path / "board.csv"
        cells = [f"q{i};{j};{s}\n" for i, row in enumerate(score) for j, s in enumerate(row)]
        path.write_text("question;trial;score\n" + "".join(cells))
        return called("summary", path, "--json", *more)

    for score, words in (
        ([["85%", "100 %"], ["0%", "7,5%"]], "score is written in percent: 85% is read as 0.85"),
        ([["0,85", "1"], ["0", ",075"]], "decimal comma: 0,85 is read as 0.85"),
    ):
        code, _, error = read(score)
        assert (code, words in error) == (0, True), error
        (run,) = read_runs([tmp_path / "board.csv"]).runs
        assert [row.tolist() for row in run.outcomes.scores] == [[0.85, 1.0], [0.0, 0.075]]
    for score, more, message in (
        ([["85%", "0.9"]], (), "all as 85%, or all as 0.85; got '0.9' in row 2"),
        ([["85%", "pass"]], (), "'pass' in row 2, beside percentages"),
        ([["85%", "9%"]], ("--bounds", "0:100"), "without % in the column score"),
        ([["0,85", "0.9"]], (), "'0.9' in row 2, beside numbers with a comma"),
        ([["0,85", "1,234"]], ("--bounds", "0:2"), "'1,234' in row 2, which may be 1.234 or 1234"),
        ([["185%", "0%"]], (), "1.85 in row 1"),
    ):
        code, _, error = read(score, *more)
        assert (code, message in error) == (2, True), error
    path = tmp_path / "wide.csv"
    path.write_text("id,trial_1,trial_2\nq1,85%,1\n")
    code, _, error = called("summary", path)
    assert (code, "a table with one row per trial" in error) == (2, True)
    path.write_text('question,score,tokens,cost\nq1,1,"1,234","0,5"\nq2,0,7,"0,25"\n')
    (run,) = read_runs([path]).runs
    notes = " ".join(read_runs([path]).notes)
    assert "the column tokens (tokens) is left out: '1,234' in line 2" in notes
    assert run.measured is None or "tokens" not in run.measured


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".csv.gz"])
def test_utf_16_is_read_by_its_byte_order_mark(tmp_path, ending):
    path = written(tmp_path, ending, rows_of(outcomes()))
    expected = [(run.model, run.outcomes.counts.tolist()) for run in read_runs([path]).runs]
    packed = ending.endswith(".gz")
    text = (gzip.decompress(path.read_bytes()) if packed else path.read_bytes()).decode()
    for encoding, mark in (("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")):
        content = mark + text.encode(encoding)
        path.write_bytes(gzip.compress(content) if packed else content)
        read = [(run.model, run.outcomes.counts.tolist()) for run in read_runs([path]).runs]
        assert read == expected
    path.write_bytes(gzip.compress(content[:-1]) if packed else content[:-1])
    with pytest.raises(InvalidInputError, match="UTF-16"):
        read_runs([path])
    # without the mark, and in another encoding, the refusal names the remedy
    for content, remedy in (
        (text.encode("utf-16-le"), "iconv -f UTF-16LE -t UTF-8"),
        (text.replace("aime", "Prüfung").encode("latin-1"), "iconv -f WINDOWS-1252 -t UTF-8"),
    ):
        path.write_bytes(gzip.compress(content) if packed else content)
        with pytest.raises(InvalidInputError, match=remedy):
            read_runs([path])


def test_other_bounds(tmp_path):
    path = tmp_path / "grades.csv"
    path.write_text("question,score\na,4\na,5\nb,1.5\n")
    with pytest.raises(InvalidInputError, match=r"scores from 0 to 1 .*--bounds.*4 in row 1"):
        read_runs([path])
    (run,) = read_runs([path], bounds=(1.0, 5.0)).runs
    assert run.outcomes.bounds == (1.0, 5.0)
    assert [row.tolist() for row in run.outcomes.scores] == [[4.0, 5.0], [1.5]]
    (entry,) = json_of("summary", path, "--bounds", "1:5")["tasks"]
    assert entry["avg"]["value"] == pytest.approx((4.5 + 1.5) / 2)
    for wrong in ("5:1", "a:b", "1", "0:inf"):
        assert called("summary", path, "--bounds", wrong)[0] == 2


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
    with pytest.raises(InvalidInputError, match="have every trial of A on outcomes once"):
        read_runs([*files, copy / "run0.csv"])
    (run,) = read_runs([*files, copy / "run0.csv"], dedupe=True).runs
    assert run.n_trials == 6


def test_trials_by_name(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("question,run,score\na,run_10,1\na,run_2,0\nb,run_2,1\nb,run_10,0\n")
    (run,) = read_runs([path]).runs
    assert [row.tolist() for row in run.trials] == [[0, 1], [1, 0]]  # run_2 first
    path.write_text("question,run,score\na,base,1\na,other,0\na,base,1\n")
    with pytest.raises(InvalidInputError, match="trial base of question a in rows 1 and 3"):
        read_runs([path])
    (run,) = read_runs([path], dedupe=True).runs
    assert run.outcomes.counts.tolist() == [[1, 1]]


def test_trials_without_a_score_are_left_out(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("question,score,tokens\na,1,10\na,,20\nb,n/a,5\nb,0,\n")
    (run,) = read_runs([path]).runs
    assert run.outcomes.counts.tolist() == [[0, 1], [1, 0]]
    assert run.notes == ("2 trials without a score left out",)
    assert np.isnan(run.measured["completion_tokens"][1]).all()


def test_clusters_answers_and_leading_zeros(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("question,score,answer,contest\n007,1,70,I\n07,0,71,I\n7,1,70,II\n")
    (run,) = read_runs([path], cluster="contest").runs
    assert (run.question_ids, run.clusters) == (("007", "07", "7"), ("I", "I", "II"))
    assert run.answers == (("70",), ("71",), ("70",))
    with pytest.raises(InvalidInputError, match="name a column of the table"):
        read_runs([path], cluster="topic")
    path.write_text("question,score,cluster\na,1,I\na,0,II\n")
    with pytest.raises(InvalidInputError, match="question a into one cluster"):
        read_runs([path])


def test_clusters_of_scores_are_refused_for_what_they_are(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("question,score,topic,cluster\na,0.5,I,I\nb,0.25,II,II\n")
    with pytest.raises(InvalidInputError, match=r"left out for scores.* a has scores on outcomes"):
        read_runs([path], cluster="topic")
    (run,) = read_runs([path]).runs
    assert run.clusters is None
    (note,) = run.notes
    assert "clusters are not used for scores" in note
    # runs of one task of which only one has scores
    other = TaskRun.from_trials("B", run.task, [[1], [0]], ["a", "b"], clusters=["I", "II"])
    assert [run.clusters for run in share_clusters([run, other])] == [None, ("I", "II")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("question,score\na,maybe\n", r"numbers, or words such as true .*'maybe' in row 1"),
        ("question,score\na,1\n,0\n", "name the question in every row .*none in row 2"),
        ("question,score\na,-0.5\n", "scores from 0 to 1"),
        ("question,score\na,inf\n", "scores from 0 to 1"),
        ("question,score\n", "hold trials"),
        ("question,score\na,1,2\nb,1\n", "all rows of one length"),
    ],
)
def test_broken_tables(tmp_path, text, message):
    path = tmp_path / "broken.csv"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match=message):
        read_runs([path])


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".csv.gz", ".jsonl.gz", ".jsonl.zst"])
def test_a_file_that_is_cut_off(tmp_path, ending):
    path = written(tmp_path, ending, rows_of(outcomes()))
    content = path.read_bytes()
    for size in (0, 3, len(content) // 2, len(content) - 9):
        path.write_bytes(content[:size])
        with pytest.raises(InvalidInputError, match="RUN"):
            read_runs([path])


def test_wide_columns_of_epochs_are_trials_of_one_model(tmp_path):
    path = tmp_path / "model.csv"
    path.write_text("question,epoch1,epoch2,gen_0,run1\na,1,0,1,1\nb,0,0,1,0\n")
    (run,) = read_runs([path]).runs
    assert (run.model, run.outcomes.counts.tolist()) == ("model", [[1, 3], [3, 1]])
    path.write_text("question,gpt-4,gpt-5\na,1,0\nb,0,0\n")
    saved = read_runs([path])
    assert saved.models == ("gpt-4", "gpt-5")
    assert saved.notes == ("columns of model.csv are read as models: gpt-4, gpt-5",)


@pytest.mark.benchmarks
def test_reading_lines_beside_json_loads(tmp_path):
    """At most 1.5 times `json.loads` line by line, in one run."""
    import time

    rows = [
        {"model": f"m{i % 20}", "question_id": f"question-{i // 20 % 500}", "trial": i // 10_000}
        | {"score": i % 3 == 0, "completion_tokens": 1000 + i % 777, "id": f"{i:x}"}
        for i in range(200_000)
    ]
    path = written(tmp_path, ".jsonl", rows)
    ratios = []
    for _ in range(5):
        start = time.perf_counter()
        with path.open("rb") as file:
            sum(len(json.loads(line)) for line in file)
        between = time.perf_counter()
        read_runs([path])
        ratios.append((time.perf_counter() - between) / (between - start))
    print(f"{path.stat().st_size / 1e6:.0f} MB, ratios {sorted(round(r, 2) for r in ratios)}")
    assert sorted(ratios)[2] < 1.6


def test_the_columns_of_tables_that_are_alike_are_noted_once(tmp_path):
    for n in range(6):
        (tmp_path / f"t{n}.csv").write_text(f"model,item,pass\nm{n},a,1\nm{n},b,0\n")
    (tmp_path / "u.csv").write_text("model,question,score\nx,a,1\nx,b,0\n")
    files = sorted(tmp_path.glob("*.csv"))
    saved = read_runs(files[:6], columns={"score": "pass"})
    assert saved.notes == (
        "columns of t0.csv, t1.csv, t2.csv, 3 more tables: question=item, model=model, score=pass",
    )
    assert read_runs(files[6:]).notes == (
        "columns of u.csv: question=question, model=model, score=score",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("question,score,score\na,1,0\nb,1,0\n", r"one column score in t\.csv; got 2"),
        (
            "model,question,trial,score\nm,a,0,1\n,a,1,0\n",
            r"name the model in every row of t\.csv, or in none; got an empty cell in row 2",
        ),
        ("task,question,score\n,a,1\nx,b,0\n", r"the task in every row .* cell in row 1"),
    ],
)
def test_what_would_be_read_as_something_else_is_refused(tmp_path, text, message):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match=message):
        read_runs([path])


def test_a_column_of_models_that_is_empty_names_none(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("model,question,score\n,a,1\n,b,0\n")
    assert read_runs([path]).models == ("t",)


@pytest.mark.parametrize(
    ("end", "warned"), [("b,1,0.", True), ("b,1,", True), ("b,1,0.5", False), ("b,1,0.\n", False)]
)
def test_a_table_that_may_end_within_a_number_is_warned_of(tmp_path, end, warned):
    path = tmp_path / "t.csv"
    path.write_text(f"question,trial,score\na,0,0.75\na,1,1\nb,0,0.9\n{end}")
    saved = read_runs([path])
    assert any("no line end after its last cell" in w for w in saved.warnings) == warned


# -- columns that hold no numbers, and which columns are read ------------------------------------


@pytest.mark.parametrize(
    ("ending", "place"),
    [(".csv", "line 4"), (".jsonl", "line 3"), (".jsonl.gz", "line 3"), (".parquet", "row 3")],
)
@pytest.mark.parametrize("wrong", ["12k", "-1", "1e999", "9" * 400, "20%"])
def test_measurements_that_are_no_numbers_are_named(tmp_path, ending, place, wrong):
    rows = [
        {"question": f"q{i}", "score": i % 2, "output_tokens": str(10 + i), "cost": f"0.{i}"}
        for i in range(5)
    ]
    path = written(tmp_path, ending, rows)
    (run,) = read_runs([path]).runs
    assert [column.tolist() for column in run.measured["completion_tokens"]] == [
        [10.0 + i] for i in range(5)
    ]
    rows[2]["output_tokens"] = wrong
    saved = read_runs([written(tmp_path, ending, rows)])
    (run,) = saved.runs
    assert set(run.measured) == {"cost"}
    assert saved.notes[0] == f"columns of {path.name}: question=question, score=score, cost=cost"
    value = {"-1": "'?-1", "1e999": "('1e999'|inf)"}.get(wrong, f"'{wrong[:38]}")
    start = re.escape(f"{path.name}: the column output_tokens (tokens) is left out: ")
    assert re.match(start + value, saved.notes[1])
    assert f" in {place} is no number of at least 0" in saved.notes[1]


def test_lines_are_counted_with_empty_ones(tmp_path):
    (tmp_path / "t.jsonl").write_text(
        '\n{"question": 1, "score": 1, "time": 2}\n\n{"question": 2, "score": 1, "time": true}\n'
    )
    (tmp_path / "t.csv").write_text('question,score,time\n"a\nb",1,2\n\nc,1,x\n')
    assert "True in line 4" in read_runs([tmp_path / "t.jsonl"]).notes[1]
    assert "'x' in line 5" in read_runs([tmp_path / "t.csv"]).notes[1]
    (tmp_path / "t.jsonl").write_text('[{"question": 1, "score": 1, "time": []}]')
    assert "[] in object 1" in read_runs([tmp_path / "t.jsonl"]).notes[1]


def test_all_columns_that_are_read_are_named(tmp_path):
    kinds = {
        **{"question": "item_id", "model": "agent", "task": "benchmark", "trial": "epoch"},
        **{"score": "reward", "answer": "parsed_answer", "response": "output", "target": "gold"},
        **{"tokens": "n_tokens", "cost": "total_cost", "time": "latency", "cluster": "cluster"},
    }
    row = dict.fromkeys(kinds.values(), "1") | {"other": "1", "problem": "1+1?"}
    path = written(tmp_path, ".jsonl", [row])
    named = ", ".join(f"{kind}={column}" for kind, column in kinds.items())
    (note,) = read_runs([path]).notes
    assert note == f"columns of {path.name}: {named}, text of the question=problem"
    _, out, _ = called("summary", "--help")
    assert set(kinds) <= set(re.findall(r"\w+", out.partition("Kinds:")[2].partition(".")[0]))
    # the right answers are read with the responses only
    path = written(tmp_path, ".csv", [{"question": "a", "score": 1, "target": 7}])
    assert read_runs([path]).notes == (f"columns of {path.name}: question=question, score=score",)


def test_columns_of_counts_that_are_not_read_are_named(tmp_path):
    path = tmp_path / "c.csv"
    path.write_text("source,id,c,n,cluster\nx,1,2,4,a\n")
    assert read_runs([path]).notes == ("columns of c.csv that are not read: source",)
    path = tmp_path / "c.jsonl"
    path.write_text('{"id": 1, "c_a": 2, "n": 4, "difficulty": "hard"}\n')
    assert read_runs([path]).notes == ("columns of c.jsonl that are not read: difficulty",)


@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_an_empty_column_of_trials_numbers_none(tmp_path, ending):
    rows = [{"question": "a", "trial": None, "score": score} for score in (1, 0, 1)]
    if ending == ".csv":
        rows = [{**row, "trial": ""} for row in rows]
    path = written(tmp_path, ending, rows)
    saved = read_runs([path])
    assert saved.runs[0].outcomes.counts.tolist() == [[1, 2]]
    assert f"{path.name}: trial is empty: every row is a trial" in saved.notes


def test_tokens_that_are_no_count_are_not_known(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("model,question,trial,score,tokens\nm,q,0,1,1e308\nm,q,1,0,1e308\n")
    (run,) = read_runs([path]).runs
    assert run.tokens is None


@pytest.mark.parametrize(
    ("models", "shown"),
    [
        (("Model", "model"), "'Model' and 'model'"),
        (("caf\u00e9", "cafe\u0301"), r"'caf\xe9' and 'cafe\u0301'"),
        (("CAF\u00c9", "cafe\u0301"), r"'CAF\xc9' and 'cafe\u0301'"),
        (("model", "model-2"), None),
    ],
)
def test_names_of_models_that_look_alike_are_warned_of(models, shown, tmp_path):
    path = tmp_path / "a.csv"
    lines = [f"{m},{q},{s}\n" for m in models for q, s in (("a", 0), ("b", 1))]
    path.write_text("model,question,score\n" + "".join(lines), encoding="utf-8")
    saved = read_runs([path])
    assert [run.model for run in saved.runs] == list(models)
    if shown is None:
        assert saved.warnings == ()
    else:
        (warning,) = saved.warnings
        assert warning.startswith(f"the names {shown} differ only in case")
        assert warning.endswith("counted as 2 models")


def test_numbers_of_rows_taken_for_questions_are_warned_of(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,trial,correct,prompt\n0,0,1,p\n1,1,0,p\n2,0,1,q\n3,1,1,q\n")
    (warning,) = read_runs([path]).warnings
    assert warning == (
        "a.csv: every question has one trial although column trial has 2 values; is id the number "
        "of the row? --columns question=NAME names the question's column"
    )
    saved = read_runs([path], columns={"question": "prompt"})
    assert saved.warnings == ()
    assert saved.runs[0].outcomes.counts.tolist() == [[1, 1], [0, 2]]


@pytest.mark.parametrize(
    "rows",
    ["0,0,1\n1,0,0\n", "0,7,1\n1,8,0\n", "0,0,1\n0,1,0\n1,0,1\n"],
    ids=["one trial of all", "labels of rows", "a question of two trials"],
)
def test_questions_of_one_trial_are_no_fault(rows, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,trial,correct\n" + rows)
    assert read_runs([path]).warnings == ()


def test_a_score_larger_than_a_float_is_shown_as_written(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("question,score\na,1\nb,1e400\n")
    with pytest.raises(InvalidInputError, match="got 1e400 in row 2"):
        read_runs([path])
    for score, shown in (("1e400", "inf"), ("-1e999", "-inf"), ("1" + "0" * 400, "inf")):
        lines = tmp_path / "a.jsonl"
        lines.write_text(
            f'{{"question": "a", "score": 1}}\n{{"question": "b", "score": {score}}}\n'
        )
        with pytest.raises(InvalidInputError, match=rf"got {shown} \(infinite, or beyond the larg"):
            read_runs([lines])
    path.write_text("question,score\n1e400,1\n1e401,0\n")
    assert read_runs([path]).runs[0].question_ids == ("1e400", "1e401")


def test_a_table_without_rows_holds_none(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("question,score\n")
    with pytest.raises(InvalidInputError, match=r"got none$"):
        read_runs([path])


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
    path = written(tmp_path, ending, rows_with_gold("prediction"))
    (task,) = json_of("summary", path)["tasks"]
    assert task["rows"]["maj@5"] == 1.0
    assert task["avg"]["value"] == pytest.approx(0.4)
    assert "answer=prediction" in read_runs([path]).notes[0]
    path = written(tmp_path, ending, rows_with_gold())
    (task,) = json_of("summary", path)["tasks"]
    assert [name for name in task["rows"] if name.startswith("maj")] == []
    assert task["avg"]["value"] == pytest.approx(0.4)
    # a single text that is right and wrong is enough
    rows = rows_with_gold("prediction")
    for row in rows[:10]:
        row["answer"] = row["trial"]
    assert read_runs([written(tmp_path, ending, rows)]).runs[0].answers[0][0] == "7"


def test_a_column_of_right_answers_in_a_file_per_trial_holds_no_votes(tmp_path):
    for trial in range(5):
        rows = [row for row in rows_with_gold() if row["trial"] == trial]
        text = "".join(f"m,{row['question']},7,{row['correct']}\n" for row in rows)
        (tmp_path / f"run{trial}.csv").write_text("model,question,answer,correct\n" + text)
    (run,) = read_runs(sorted(tmp_path.glob("run*.csv"))).runs
    assert (run.n_trials, run.answers) == (20, None)


@pytest.mark.parametrize(
    ("rows", "maj"),
    [
        ("a,7,1\na,7,1\nb,9,0\nb,9,0\n", 0.5),  # of a model that always says the same
        ("a,7,1\na,7,1\nb,8,0\nb,9,0\n", 0.5),
        ("a,7,1\na,,0\nb,9,0\nb,,0\n", 0.5),  # a trial without an answer does not vote
    ],
)
def test_answers_of_trials_vote(tmp_path, rows, maj):
    path = tmp_path / "a.csv"
    path.write_text("question,answer,correct\n" + rows)
    (task,) = json_of("summary", path)["tasks"]
    assert task["rows"]["maj@2"] == maj


@pytest.mark.parametrize("name", ["table_answer_is_gold", "table_question_answer_prediction"])
def test_the_vote_of_a_table_whose_answer_is_the_right_one(name):
    path = SHARED / "cases" / f"{name}.csv"
    if not path.exists():
        pytest.skip("no ../shared/cases")
    (task,) = json_of("summary", path)["tasks"]
    assert task["avg"]["value"] == pytest.approx(0.4)
    assert task["rows"].get("maj@5", 1.0) == 1.0
