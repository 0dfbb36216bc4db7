"""`lm-eval-bayes noise`: one model, a board, and the card."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from _support.command_line import called as lmeb
from _support.saved_matrices import HOSTILE, outcomes, saved

from lm_eval_bayes import Outcomes, detectable_difference, variance_components


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    a = saved(folder / "a", "a", outcomes(1, 0.1))
    return a, saved(folder / "b", "b", outcomes(2))


def test_one_model(two):
    code, printed, _ = lmeb("noise", two[0], "--difference", ".05", "--json")
    assert code == 0
    content = json.loads(printed)
    assert (content["level"], content["difference"]) == (0.95, 0.05)
    (task,) = content["tasks"]
    (model,) = task["models"]
    R = outcomes(1, 0.1)
    components = variance_components(Outcomes.from_matrix(R))
    assert model["model"] == "a"
    assert model["components"]["icc"] == components.icc.to_dict()
    assert model["components"]["score"] == pytest.approx(R.mean())
    assert [run["trials"] for run in model["runs"]] == [1.0, 8.0]
    assert model["runs"][0]["distance"] == components.distance(1)
    detectable = model["runs"][1]["detectable"]
    assert detectable["paired"] == detectable_difference(components, 8, "paired")
    assert (task["correlation"], task["correlation_source"]) == (0.5, "assumed")
    assert [needed["design"] for needed in model["needed"]] == ["benchmark", "paired", "unpaired"]


def test_what_is_printed_of_one_model(two):
    code, printed, error = lmeb("noise", two[0], "--difference", ".05", width="80")
    assert (code, "few repeated trials" in error) == (0, False)
    lines = printed.splitlines()
    assert lines[0].startswith("contest_bayes, a: 12 questions, N = 8, score 0.")
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 40
    components = variance_components(Outcomes.from_matrix(outcomes(1, 0.1)))
    (row,) = [line.split() for line in lines if "95% at most" in line]
    assert row[-2:] == [f"{components.distance(1):.3f}", f"{components.distance(8):.3f}"]
    assert "no N is enough" in printed
    assert "correlation of two" in printed


def test_a_board(two):
    code, printed, _ = lmeb("noise", *two, "--difference", ".05", width="80")
    assert code == 0
    lines = printed.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "contest_bayes: 2 models, 12 questions"
    (row,) = [line.split() for line in lines if line.startswith("  a  ")][:1]
    components = variance_components(Outcomes.from_matrix(outcomes(1, 0.1)))
    assert row[1] == f"{outcomes(1, 0.1).mean():.3f}"
    assert row[2] == f"{components.icc.mu:.2f}"
    assert row[4:6] == [f"{components.distance(1):.3f}", f"{components.distance(8):.3f}"]
    code, printed, _ = lmeb("noise", *two, "--json")
    (task,) = json.loads(printed)["tasks"]
    assert task["correlation_source"] == "models"
    assert [model["model"] for model in task["models"]] == ["a", "b"]


def test_the_published_board_is_one_screen(shared):
    path = shared / "data/outcomes/matharena_aime_2025_II.csv"
    code, printed, _ = lmeb("noise", path, "--difference", ".02", width="80")
    assert code == 0
    lines = printed.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 40
    # the heading says which of the three rows of the table below it is
    assert [lines[2].split()[-2:], lines[3].split()[-1]] == [["shown", "4,"], "paired"]
    assert sum(line.split()[-1].startswith("0.") for line in lines if line.startswith("  ")) >= 19


def test_single_trials_are_bounds(tmp_path):
    path = tmp_path / "single.npz"
    np.savez(path, R=np.stack([outcomes(1, 0.1)[:, :1], outcomes(2)[:, :1]]))
    code, printed, error = lmeb("noise", path)
    assert code == 0
    assert "<=0." in printed
    assert "cannot be distinguished" in error
    assert "apart 1  shown 1, paired" in printed
    code, printed, _ = lmeb("noise", path, "--json")
    (task,) = json.loads(printed)["tasks"]
    assert task["models"][0]["components"]["within"] is None
    assert task["models"][0]["runs"][0]["is_bound"]


def test_the_card(two, tmp_path):
    card = tmp_path / "cards" / "noise.md"
    code, _, error = lmeb("noise", *two, "--card", card)
    assert (code, f"card written to {card}" in error) == (0, True)
    text = card.read_text(encoding="utf-8")
    assert text.startswith("## Noise of contest\\_bayes: 2 models, 12 questions\n")
    (row,) = [line for line in text.splitlines() if line.startswith("| a |")]
    components = variance_components(Outcomes.from_matrix(outcomes(1, 0.1)))
    assert f"| {components.icc.mu:.2f} |" in row
    code, _, error = lmeb("noise", *two, "--card", card)
    assert (code, "`--card` must be a new file, unless --overwrite is given" in error) == (2, True)
    assert lmeb("noise", *two, "--card", card, "--overwrite")[0] == 0
    samples = next(two[0].rglob("samples_*"))
    before = samples.read_bytes()
    code, _, error = lmeb("noise", *two, "--card", samples, "--overwrite")
    assert (code, "`--card` must be another file than those that" in error) == (2, True)
    assert samples.read_bytes() == before
    assert card.read_text(encoding="utf-8") == text


def test_no_impossible_difference_is_shown(tmp_path):
    """Of two questions tried twice, not even a difference of 1 is shown by single trials."""
    R = np.array([[1, 0], [1, 0]])
    components = variance_components(Outcomes.from_matrix(R))
    assert detectable_difference(components, 1) > 1.0 > detectable_difference(components, 2)
    one, board, card = tmp_path / "one.npz", tmp_path / "board.npz", tmp_path / "card.md"
    np.savez(one, R=R)
    code, printed, error = lmeb("noise", one, "--json")
    assert code == 0
    (model,) = json.loads(printed)["tasks"][0]["models"]
    single, full = model["runs"]
    assert single["detectable"] == dict.fromkeys(("benchmark", "paired", "unpaired"))
    assert single["not_detectable"] == ["benchmark", "paired", "unpaired"]
    assert full["not_detectable"] == []
    (note,) = [note for note in model["notes"] if note.startswith("No difference on this scale")]
    assert "the largest is 1, can be shown with 2 questions" in note
    _, printed, error = lmeb("noise", one, "--card", card)
    rows = [line.split() for line in printed.splitlines() if "shown: the" in line]
    assert [row[-2] for row in rows] == ["none"] * 3
    assert all(float(row[-1]) <= 1.0 for row in rows)
    assert note in error
    assert card.read_text(encoding="utf-8").count("| none |") == 3
    # in a board it is the highest of the models, not left out
    np.savez(board, R=np.array([[[1], [0]], [[1], [1]]]))
    code, printed, _ = lmeb("noise", board)
    assert code == 0
    rows = [line.split()[-3:] for line in printed.splitlines() if "shown: the pop" in line]
    assert [[cell == "none" for cell in row] for row in rows] == [[True, False, True]] * 2
    assert all(float(row[1]) <= 1.0 for row in rows)


def test_names_are_untrusted(tmp_path):
    run = saved(tmp_path / "a", HOSTILE, outcomes(1))
    other = saved(tmp_path / "b", "b" * 60 + "|", outcomes(2))
    card = tmp_path / "card.md"
    code, printed, _ = lmeb("noise", run, other, "--card", card, width="80")
    assert code == 0
    text = card.read_text(encoding="utf-8")
    for shown in (printed, text):
        assert "\x1b" not in shown
        assert "\u202e" not in shown
    assert "b" * 60 + "\\|" in text
    assert max(map(len, printed.splitlines())) <= 80


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--difference", "1.5"), "`--difference` must be at most the range of scores, 1"),
        (("--difference", "-1"), "`--difference` must be a finite number above 0"),
        (("--power", "1"), "`--power` must be a number strictly between 0 and 1"),
        (("--level", "0"), "`--level` must be"),
        (("--power", "abc"), "'abc'"),
        (("--seed", "1.5"), "'1.5'"),
    ],
)
def test_wrong_options(two, options, message):
    code, printed, error = lmeb("noise", two[0], *options)
    assert (code, printed) == (2, "")
    assert message in error


def test_tasks_stand_one_below_the_other(two, tmp_path):
    other = saved(tmp_path / "c", "a", outcomes(3), task="other_bayes", first=100)
    code, printed, _ = lmeb("noise", two[0], other)
    assert code == 0
    assert "\n\nother_bayes, a: 12 questions" in printed


def test_a_correlation_at_its_bound_has_a_note(tmp_path):
    # both models have the probabilities of one draw, and there are few questions and trials
    chance = random.Random(1)
    questions = [chance.betavariate(1, 1) for _ in range(15)]
    rows = [
        f"{model},q{q},{trial},{int(chance.random() < p)}"
        for model in "AB"
        for q, p in enumerate(questions)
        for trial in range(3)
    ]
    table = tmp_path / "board.csv"
    table.write_text("model,question,trial,score\n" + "\n".join(rows), encoding="utf-8")
    code, printed, _ = lmeb("noise", table, "--json")
    assert code == 0
    (task,) = json.loads(printed)["tasks"]
    assert task["correlation"] == 1.0
    (note,) = task["notes"]
    assert "paired differences are as small as if" in note
    _, _, error = lmeb("noise", table)
    assert error.count("estimated at its bound") == 1


def test_a_correlation_at_its_lower_bound_makes_differences_larger(tmp_path):
    """A is right where B is wrong."""
    table = tmp_path / "board.csv"
    rows = [
        f"{model},q{q},{trial},{int((q % 2 == 0) == (model == 'A'))}"
        for model in "AB"
        for q in range(12)
        for trial in range(4)
    ]
    table.write_text("model,question,trial,score\n" + "\n".join(rows), encoding="utf-8")
    code, printed, _ = lmeb("noise", table, "--json")
    assert code == 0
    (task,) = json.loads(printed)["tasks"]
    assert task["correlation"] == -1.0
    (note,) = task["notes"]
    assert "paired differences are as large as if" in note
    detectable = task["models"][0]["runs"][-1]["detectable"]
    assert detectable["paired"] > detectable["unpaired"]
