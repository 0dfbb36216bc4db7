"""Rows that a log holds twice are refused, or count once with `--dedupe`; no row is lost."""

from __future__ import annotations

import json
import shutil

import pytest
from _support.errors import refused
from _support.tables import write_rows
from _support.tool_logs import DATA, in_order, outcomes_of, rows_of

from lm_eval_bayes.runs.frames import read_frame
from lm_eval_bayes.runs.reader import read_runs

NEMO = "nemo_skills/published/eval-results"

#: Logs of which every trial is a row: the folder, the file, and the key of the rows, None of lines.
LOGS = [
    ("verifiers_traces/weak", "traces.jsonl", None),
    (f"{NEMO}/answer-judge", "output-rs0.jsonl", None),
    (f"{NEMO}/hendrycks_math", "output-rs2.jsonl", None),
    ("tau2", "weak.json", "simulations"),
    ("tau_bench", "gpt-4o-airline.json", ""),
    ("evalscope/weak", "reviews/weak/general_mcq_letters.jsonl", None),
    ("terminal_bench/ob1_1", "results.json", "results"),
]

#: Three trials of two questions, of which two of the first have one text.
ROWS = [
    {"question": question, "response": text, "seconds": seconds, "correct": right}
    for question, text, seconds, right in (
        *(("a", "it is 7", 1.5, 1), ("a", "it is 7", 2.25, 1), ("a", "it is 8", 1.25, 0)),
        *(("b", "it is 9", 0.5, 0), ("b", "it is 6", 3.5, 1), ("b", "it is 5", 2.5, 0)),
    )
]


def twice(rows, order):
    """Return rows twice: all of them behind each other, or every one behind itself."""
    return rows * 2 if order == "file" else [row for row in rows for _ in range(2)]


def change_rows(file, key, change):
    text = file.read_text(encoding="utf-8")
    if key is None:
        changed = "".join(change(text.splitlines(keepends=True)))
    else:
        content = json.loads(text)
        rows = change(content[key] if key else content)
        changed = json.dumps({**content, key: rows} if key else rows)
    file.write_text(changed, encoding="utf-8")


def check_refused(path):
    with refused("RUN", "duplicate"):
        read_runs([path])


@pytest.mark.parametrize("order", ["file", "row"])
@pytest.mark.parametrize(("folder", "name", "key"), LOGS)
def test_rows_of_a_log_that_are_there_twice(tmp_path, folder, name, key, order):
    copy = shutil.copytree(DATA / folder, tmp_path / folder)
    read = copy if folder.startswith(NEMO) else copy / name
    expected = outcomes_of(read)
    change_rows(copy / name, key, lambda rows: twice(rows, order))
    check_refused(read)
    assert outcomes_of(read, dedupe=True) == expected


@pytest.mark.parametrize(
    ("folder", "name", "key"), [log for log in LOGS if not log[0].startswith(NEMO)]
)
def test_rows_of_a_log_in_another_order_and_without_one(tmp_path, folder, name, key):
    file = shutil.copytree(DATA / folder, tmp_path / folder) / name
    expected = in_order(outcomes_of(file))
    change_rows(file, key, lambda rows: rows[::-1])
    assert in_order(outcomes_of(file)) == expected
    n_trials = read_runs([file]).runs[0].n_trials
    change_rows(file, key, lambda rows: rows[1:])
    assert read_runs([file]).runs[0].n_trials == n_trials - 1


@pytest.mark.parametrize("order", ["file", "row"])
@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.parquet"])
def test_rows_of_a_table_with_responses_that_are_there_twice(tmp_path, name, order):
    path = write_rows(tmp_path / name, twice(ROWS, order))
    check_refused(path)
    (run,) = read_runs([path], dedupe=True).runs
    assert run.outcomes.counts.tolist() == [[1, 2], [2, 1]]


def test_rows_of_a_frame_that_are_there_twice():
    columns = {name: [row[name] for row in ROWS * 2] for name in ROWS[0]}
    with refused("frame", "duplicate"):
        read_frame(columns)


def test_a_trial_is_known_by_its_id(tmp_path):
    """Two trials with one id, of which one has another field, and trials alike but for the id."""
    rows = rows_of(DATA / "verifiers_traces" / "weak" / "traces.jsonl")

    def again(**fields):
        traces = [rows[0]["traces"][0] | fields]
        return write_rows(tmp_path / "traces.jsonl", [*rows, rows[0] | {"traces": traces}])

    check_refused(again(num_output_tokens=99))
    (run,) = read_runs([DATA / "verifiers_traces" / "weak"]).runs
    assert read_runs([again(id="another")]).runs[0].n_trials == run.n_trials + 1
    # and two of one id contradict each other
    for dedupe in (False, True):
        with refused("RUN", "duplicate"):
            read_runs([again(rewards={})], dedupe=dedupe)


@pytest.mark.parametrize("named", [{"id": "q"}, {}])
def test_a_line_of_nemo_skills_that_was_generated_again(tmp_path, named):
    """A question of one seed that is there again, with another text, is the same trial."""
    rows = [
        {"problem": f"{n}+{n}?", "generation": str(n), "symbolic_correct": n < 2}
        | {key: f"{value}{n}" for key, value in named.items()}
        for n in range(3)
    ]
    path = write_rows(tmp_path / "output-rs0.jsonl", [*rows, rows[2]])
    check_refused(path)
    assert read_runs([path], dedupe=True).runs[0].question_ids == (
        read_runs([write_rows(tmp_path / "output-rs0.jsonl", rows)]).runs[0].question_ids
    )
    write_rows(tmp_path / "output-rs0.jsonl", [*rows, rows[2] | {"generation": "4"}])
    if named:
        check_refused(path)
    else:  # two questions of one text, as some benchmarks have them
        assert read_runs([path]).runs[0].n_questions == 4
