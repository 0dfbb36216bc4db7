"""Tables of several models: differing categories, impossible costs, trials without scores."""

from __future__ import annotations

import json

import pytest
from _support.command_line import called

from lm_eval_bayes.runs.reader import read_runs

MODELS = ("m1", "m2")


def rows(score=lambda model, question, trial: (question + trial) % 2, **more):
    """Yield the rows of two models; further columns are functions of the same arguments."""
    for cell in [(m, q, t) for m in MODELS for q in range(12) for t in range(4)]:
        columns = {name: column(*cell) for name, column in more.items()}
        model, question, trial = cell
        yield {"model": model, "question": f"q{question}", "trial": trial} | {
            "score": score(*cell),
            **columns,
        }


def table(folder, lines):
    file = folder / "t.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in lines))
    return file


def test_trials_that_count_as_wrong_are_counted_by_model(tmp_path):
    def score(model, question, trial):
        return None if model == "m1" and question < 3 and trial == 0 else 1

    runs = read_runs([table(tmp_path, rows(score))], unscored="wrong").runs
    assert [run.notes for run in runs] == [
        ("3 trials without a score counted as wrong (--unscored wrong)",),
        (),
    ]


def test_categories_that_differ_between_models_are_warned_of(tmp_path):
    def category(model, question, trial):
        return "b" if (model, question) in {("m2", 0), ("m2", 4)} else "ab"[question % 2]

    saved = read_runs([table(tmp_path, rows(category=category))])
    (warning,) = saved.warnings
    assert warning == (
        "task outcomes: the runs have 2 questions in different categories, as q0 in 'a' (m1) and "
        "'b' (m2)"
    )
    alike = read_runs([table(tmp_path, rows(category=lambda m, q, t: "ab"[q % 2]))])
    assert (alike.warnings, alike.runs[0].categories) == ((), ("a", "b") * 6)


def test_a_question_in_a_list_of_categories_is_in_several(tmp_path):
    lists = rows(category=lambda m, q, t: ["x" * 4000, "y"] if q == 5 else ["z"])
    for run in read_runs([table(tmp_path, lists)]).runs:
        (note,) = run.notes
        assert run.categories is None
        assert "q5 is in 'xxx" in note
        assert len(note) < 150


@pytest.mark.parametrize(
    "command", ["summary", "summary --json", "rank", "plan --width .05", "export table", "report"]
)
def test_impossible_costs_and_times_have_no_total(tmp_path, command):
    value = 1e308
    lines = rows(cost=lambda *_: value, time=lambda *_: value, tokens=lambda *_: value)
    files = {"report": tmp_path / "r.html", "export table": tmp_path / "r.json"}
    out = ("-o", files[command]) if command in files else ()
    code, printed, error = called(*command.split(), table(tmp_path, lines), *out)
    assert code == 0, error
    if command == "export table":
        printed = files[command].read_text(encoding="utf-8")
    assert "inf" not in printed.replace("information", "").lower()
    (first, _) = read_runs([tmp_path / "t.jsonl"]).runs
    assert (first.cost, first.busy_seconds, first.tokens) == (None, None, None)
