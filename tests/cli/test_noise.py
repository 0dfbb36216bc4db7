"""`lm-eval-bayes noise`: one model, a board, and the card."""

from __future__ import annotations

import numpy as np
import pytest
from _support.command_line import answer, refusal
from _support.command_line import called as lmeb
from _support.saved_matrices import HOSTILE, outcomes, saved
from _support.tables import write_rows

from lm_eval_bayes import Outcomes, detectable_difference, variance_components


@pytest.fixture(scope="module")
def two(files):
    return files / "a", files / "b"


def test_one_model(two):
    content = answer("noise", two[0], "--difference", ".05")
    assert (content["level"], content["difference"]) == (0.95, 0.05)
    (task,) = content["tasks"]
    (model,) = task["models"]
    R = outcomes(1, 0.1)
    components = variance_components(Outcomes.from_matrix(R))
    assert model["components"]["icc"] == components.icc.to_dict()
    assert model["components"]["score"] == pytest.approx(R.mean())
    assert [run["trials"] for run in model["runs"]] == [1.0, 8.0]
    assert model["runs"][0]["distance"] == components.distance(1)
    detectable = model["runs"][1]["detectable"]
    assert detectable["paired"] == detectable_difference(components, 8, "paired")
    assert (task["correlation"], task["correlation_source"]) == (0.5, "assumed")
    assert [needed["design"] for needed in model["needed"]] == ["benchmark", "paired", "unpaired"]
    _, printed, _ = lmeb("noise", two[0], "--difference", ".05")
    (row,) = [line.split() for line in printed.splitlines() if line.startswith("this model")]
    assert row[-3:-1] == [f"{components.distance(n):.3f}" for n in (1, 8)]
    assert f"{components.distance(8):.3f}" in printed.splitlines()[0]
    rows = [line for line in printed.splitlines() if line.startswith(("these", "the pop"))]
    sizes = [needed["questions"] for needed in model["needed"]]
    assert [int(row.split()[-1]) for row in rows] == sizes


def test_single_trials_are_bounds(tmp_path):
    path = tmp_path / "single.npz"
    np.savez(path, R=np.stack([outcomes(1, 0.1)[:, :1], outcomes(2)[:, :1]]))
    assert "at most" in lmeb("noise", path)[1].partition("\n\n")[2]
    (task,) = answer("noise", path)["tasks"]
    assert task["models"][0]["components"]["within"] is None
    assert task["models"][0]["runs"][0]["is_bound"]


def test_the_card(two, tmp_path):
    card = tmp_path / "cards" / "noise.md"
    noise = ("noise", *two, "--card")
    assert lmeb(*noise, card)[0] == 0
    text = card.read_text(encoding="utf-8")
    row, *runs = [line.split(" | ") for line in text.splitlines() if line.startswith("| a |")]
    components = variance_components(Outcomes.from_matrix(outcomes(1, 0.1)))
    assert f"{components.icc.mu:.2f}" == row[5]
    distances = [[cells[1], cells[5]] for cells in runs]
    assert distances == [[str(n), f"{components.distance(n):.3f}"] for n in (1, 8)]
    assert refusal(*noise, card) == ("--card", "path")
    assert lmeb(*noise, card, "--overwrite")[0] == 0
    samples = next(two[0].rglob("samples_*"))
    before = samples.read_bytes()
    assert refusal(*noise, samples, "--overwrite") == ("--card", "conflict")
    assert samples.read_bytes() == before


def test_no_impossible_difference_is_shown(tmp_path):
    """Of two questions tried twice, not even a difference of 1 is shown by single trials."""
    R = np.array([[1, 0], [1, 0]])
    components = variance_components(Outcomes.from_matrix(R))
    assert detectable_difference(components, 1) > 1.0 > detectable_difference(components, 2)
    single_model = tmp_path / "one.npz"
    np.savez(single_model, R=R)
    (model,) = answer("noise", single_model)["tasks"][0]["models"]
    single, full = model["runs"]
    assert single["detectable"] == dict.fromkeys(("benchmark", "paired", "unpaired"))
    assert single["not_detectable"] == ["benchmark", "paired", "unpaired"]
    assert full["not_detectable"] == []
    assert all(float(value) <= 1.0 for value in full["detectable"].values())
    assert any("2 questions" in note for note in model["notes"])
    _, printed, _ = lmeb("noise", single_model)
    rows = [line for line in printed.splitlines() if "other questions" in line]
    assert [row.split()[-3] for row in rows] == ["none"]


def test_names_are_untrusted(tmp_path):
    run = saved(tmp_path / "a", HOSTILE, outcomes(1))
    other = saved(tmp_path / "b", "b" * 60 + "|", outcomes(2))
    card = tmp_path / "card.md"
    _, printed, _ = lmeb("noise", run, other, "--card", card, width="80")
    text = card.read_text(encoding="utf-8")
    for character in ("\x1b", "\u202e"):
        assert character not in printed + text
    assert "b" * 60 + "\\|" in text


def test_a_correlation_at_its_lower_bound_makes_differences_larger(tmp_path):
    """A is right where B is wrong."""
    right = np.tile(np.arange(12)[:, None] % 2 == 0, 4)
    np.savez(tmp_path / "board.npz", R=np.stack([right, ~right]).astype(int))
    (task,) = answer("noise", tmp_path / "board.npz")["tasks"]
    assert (task["correlation"], len(task["notes"])) == (-1.0, 1)
    detectable = task["models"][0]["runs"][-1]["detectable"]
    assert detectable["paired"] > detectable["unpaired"]


def test_models_that_answered_different_questions_are_shown_one_by_one(tmp_path):
    rows = [
        {"model": model, "question": f"{model}{i}", "trial": trial, "score": i * trial % 2}
        for model in "ab"
        for i in range(6)
        for trial in range(3)
    ]
    write_rows(tmp_path / "ab.jsonl", rows)
    tasks = answer("noise", tmp_path / "ab.jsonl")["tasks"]
    write_rows(tmp_path / "b.jsonl", rows[18:])
    (alone,) = answer("noise", tmp_path / "b.jsonl")["tasks"]
    assert [[model["model"] for model in task["models"]] for task in tasks] == [["a"], ["b"]]
    assert tasks[1]["models"] == alone["models"]
