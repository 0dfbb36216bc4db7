"""Tables of several models: differing categories, impossible costs, trials without scores."""

from __future__ import annotations

from _support.command_line import called
from _support.tool_logs import write_lines

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
    return write_lines(folder / "t.jsonl", lines)


def test_categories_that_differ_between_models_are_warned_of(tmp_path):
    def category(model, question, trial):
        return "b" if (model, question) in {("m2", 0), ("m2", 4)} else "ab"[question % 2]

    saved = read_runs([table(tmp_path, rows(category=category))])
    (warning,) = saved.warnings
    assert all(text in warning for text in ("2 questions", "q0 in 'a' (m1) and 'b' (m2)"))
    alike = read_runs([table(tmp_path, rows(category=lambda m, q, t: "ab"[q % 2]))])
    assert (alike.warnings, alike.runs[0].categories) == ((), ("a", "b") * 6)


def test_a_question_in_a_list_of_categories_is_in_several(tmp_path):
    lists = rows(category=lambda m, q, t: ["x" * 4000, "y"] if q == 5 else ["z"])
    for run in read_runs([table(tmp_path, lists)]).runs:
        (note,) = run.notes
        assert run.categories is None
        assert "q5 is in 'xxx" in note
        assert len(note) < 150


def test_impossible_costs_and_times_have_no_total(tmp_path):
    value = 1e308
    lines = rows(cost=lambda *_: value, time=lambda *_: value, tokens=lambda *_: value)
    file = table(tmp_path, lines)
    (first, _) = read_runs([file]).runs
    assert (first.cost, first.busy_seconds, first.tokens) == (None, None, None)
    code, printed, error = called("summary", file)
    assert code == 0, error
    assert "inf" not in printed.replace("information", "").lower()
