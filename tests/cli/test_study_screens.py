"""The screens of `study` on a terminal: 80 columns and 25 lines, whatever the names."""

from __future__ import annotations

import numpy as np
import pytest
from _support.command_line import called
from _support.saved_runs import question, write_run
from rich.cells import cell_len

from lm_eval_bayes.cli.screens.layout import Form

LONG = "x" * 440
MODELS = ("o3", "lab/a-model-of-7b-Instruct", f"lab/model-7b-{LONG}", f"模型{LONG}", "phi", "qwen")
TASKS = ("aime_2025_bayes", "hmmt_feb_2025_bayes")
COMMANDS = (
    ("study rank", "--shared", "--ties", "adjacent"),
    ("study convergence", "--replicates", "5"),
    ("study convergence", "--replicates", "5", "--task", TASKS[0]),
    ("study anchors", "--task", TASKS[0]),
    ("study anchors", "--task", TASKS[0], "--target", "o3"),
)


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    """Return a table of two tasks, six models, ten questions and eight trials."""
    path = tmp_path_factory.mktemp("board") / "board.csv"
    rng = np.random.default_rng(0)
    lines = ["model,task,question,trial,score,tokens"]
    for i, model in enumerate(MODELS):
        for task in TASKS:
            for number in range(10):
                scores = rng.random(8) < 0.3 + 0.1 * i
                for trial, score in enumerate(scores.astype(int)):
                    lines.append(f"{model},{task},{number},{trial},{score},{100 + trial}")
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Return the folder of runs of six models whose signals were recorded."""
    folder, rng = tmp_path_factory.mktemp("runs"), np.random.default_rng(1)
    for i, model in enumerate(MODELS):
        trials = [
            [
                {"text": "\\boxed{4}", "outcome": int(right), "completion_tokens": int(tokens),
                 "finish_reason": "stop", "completion_bpt": float(bits)}
                for right, tokens, bits in zip(rng.random(6) < 0.5, rng.integers(1, 64, 6),
                                               rng.random(6), strict=True)
            ]
            for _ in range(4)
        ]  # fmt: skip
        questions = [question(of_question, number) for number, of_question in enumerate(trials)]
        write_run(folder / str(i), model, questions)
    return folder


@pytest.fixture
def on_a_terminal(monkeypatch):
    form = Form(drawn=True, width=80)
    monkeypatch.setattr(Form, "of_output", classmethod(lambda cls: form))


def check(command, *words):
    code, printed, _ = called(command, *words)
    lines = [line for line in printed.splitlines() if not line.startswith("Next: ")]
    assert code == 0
    assert len(lines) < 25
    # a sentence names its models in full
    assert max(cell_len(line) for line in lines if LONG not in line) <= 80


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_screen_fits(board, on_a_terminal, words):
    command, *options = words
    check(command, board, *options)


@pytest.mark.parametrize("options", [(), ("--schema", "format_aware")], ids=["all", "one"])
def test_the_screens_of_rubrics_fit(recorded, on_a_terminal, options):
    check("study rubric", recorded, *options)
