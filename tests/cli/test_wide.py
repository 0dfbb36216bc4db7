"""Tables in a pipe: one block of 80 columns, all columns with --wide, and the same JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest
from _support.command_line import called as lmeb

LONG = "x" * 440
MODELS = ("o3", "lab/a-model-of-7b-Instruct", f"lab/model-7b-{LONG}", f"lab/model-1b-{LONG}")
COMMANDS = {
    "summary": ("summary",),
    "rank": ("rank", "--pairs", "--shared"),
    "noise": ("noise",),
    "plan": ("plan", "--width", ".02", "--separate"),
    "convergence": ("convergence", "--replicates", "5"),
    "compare": ("compare", "--model-a", MODELS[2], "--model-b", MODELS[3]),
}


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    """Return a table of two tasks, four models, ten questions and eight trials."""
    path = tmp_path_factory.mktemp("board") / "board.csv"
    rng = np.random.default_rng(0)
    lines = ["model,task,question,trial,score,tokens"]
    for i, model in enumerate(MODELS):
        for task in ("aime_2025_bayes", "hmmt_feb_2025_bayes"):
            for question in range(10):
                scores = rng.random(8) < 0.3 + 0.1 * i
                for trial, score in enumerate(scores.astype(int)):
                    lines.append(f"{model},{task},{question},{trial},{score},{100 + trial}")
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", COMMANDS)
def test_tables_fit_and_say_what_is_left_out(board, name):
    command, *options = COMMANDS[name]
    code, printed, _ = lmeb(command, board, *options, width="80")
    assert code == 0
    lines = [line for line in printed.splitlines() if not line.lstrip().startswith("left out: ")]
    rows = [line for line in lines if line.startswith("  ")]
    assert rows
    assert max(map(len, rows)) <= 80
    for line in printed.splitlines():  # sentences too, but for paths and a command to copy
        assert len(line) <= 80 or max(map(len, line.split())) > 40 or "lm-eval-bayes plan" in line
    assert LONG not in printed
    if name in ("summary", "rank", "plan"):
        assert len(lines) < len(printed.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_wide_shows_all_columns_and_complete_names(board, name):
    command, *options = COMMANDS[name]
    code, printed, _ = lmeb(command, board, *options, "--wide", width="80")
    assert code == 0
    assert "--wide" not in printed
    assert all(model in printed for model in MODELS[2:])
    if name == "summary":
        heads = [line for line in printed.splitlines() if "bayes@N, uniform prior" in line]
        assert all("the population of questions" in head for head in heads)
        assert len(heads) == 2


@pytest.mark.parametrize("name", ["summary", "rank"])
def test_json_is_the_same(board, name):
    plain, wide = (
        lmeb(name, board, "--json", *more, width=width)[1]
        for more, width in (((), "80"), (("--wide",), "400"))
    )
    assert json.loads(plain) == json.loads(wide)
