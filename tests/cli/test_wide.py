"""Tables in a pipe: one block of 80 columns, all columns with --verbose, and the same JSON."""

from __future__ import annotations

import numpy as np
import pytest
from _support.command_line import called as lmeb

LONG = "x" * 440
MODELS = ("o3", "lab/a-model-of-7b-Instruct", f"lab/model-7b-{LONG}", f"lab/model-1b-{LONG}")
COMMANDS = {
    "rank": ("study rank", "--pairs", "--shared"),
    "convergence": ("study convergence", "--replicates", "5"),
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
    assert LONG not in printed
    for line in printed.splitlines():  # but for paths and a command to copy
        assert len(line) <= 80 or max(map(len, line.split())) > 40 or "lm-eval-bayes plan" in line


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_wide_shows_all_columns_and_complete_names(board, name):
    command, *options = COMMANDS[name]
    code, printed, _ = lmeb(command, board, *options, "--verbose", width="80")
    assert (code, "--verbose" in printed) == (0, False)
    assert all(model in printed for model in MODELS[2:])
