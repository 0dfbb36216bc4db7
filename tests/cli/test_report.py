"""`lm-eval-bayes report`: what it reads, what it writes, how it ends."""

from __future__ import annotations

import os
from functools import partial

import numpy as np
import pytest
from _support.command_line import answer, called, refusal
from _support.saved_runs import TASK, question, write_run

#: No part of it may ever become part of a path.
HOSTILE = "../../mod$x_1$el \x1b[31m<script>window.injected=1</script>\n\u202e"


lmeb = partial(called, "report")


def trial(right, tokens=20):
    return {
        "text": f"It is \\boxed{{{4 if right else 5}}}.",
        "outcome": int(right),
        "completion_tokens": tokens,
        "prompt_tokens": 9,
        "finish_reason": "stop",
        "prompt_bpt": 1.0,
        "completion_bpt": 0.5,
    }


def saved(folder, model, p, seed=0, n=6):
    rng = np.random.default_rng(seed)
    questions = [
        question([trial(rng.random() < item, 10 + q) for _ in range(n)], q, f"Question <b>{q}</b>?")
        for q, item in enumerate(p)
    ]
    return write_run(folder, model, questions)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two saved runs of the same task, whose trials recorded signals."""
    folder = tmp_path_factory.mktemp("runs")
    easy = saved(folder / "easy", "lab/easy", np.linspace(0.4, 0.95, 8))
    hard = saved(folder / "hard", "lab/hard", np.linspace(0.05, 0.6, 8), seed=1)
    return easy, hard


def test_runs_become_a_page(two, tmp_path):
    page = tmp_path / "page.html"
    code, printed, error = lmeb(*two, "-o", page)
    assert (code, error) == (0, "")
    assert "lab/easy leads" in printed.splitlines()[0]
    text = page.read_text(encoding="utf-8")
    for item in ("easy", "hard", TASK, ">Cost<"):
        assert item in text
    assert "Question &lt;b&gt;3&lt;/b&gt;?" in text
    assert "<b>3</b>" not in text
    # a second time it is replaced, and nothing else lies beside it
    assert lmeb(two[0], "-o", page)[0] == 0
    assert "lab/hard" not in page.read_text(encoding="utf-8")
    assert os.listdir(tmp_path) == ["page.html"]


def test_a_matrix_and_the_json(tmp_path):
    matrix = tmp_path / "phi.csv"
    matrix.write_text("0,1,1,0\n1,1,1,1\n0,0,0,1\n")
    page = tmp_path / "page.html"
    content = answer("report", matrix, "-o", page, "--scope", "population", "--level", ".9")
    assert content["bytes"] == page.stat().st_size
    assert (content["questions"], content["trials"]) == (3, 12)


def test_standard_output_gets_the_page(two):
    code, out, _ = lmeb(two[0], "-o", "-", "--title", "A & B")
    assert code == 0
    assert out.startswith("<!doctype html>")
    assert out.rstrip().endswith("</html>")
    assert "A &amp; B" in out


def test_somebody_elses_file_stays_unless_told(two, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("mine")
    assert lmeb(two[0], "-o", page)[0] == 2
    assert page.read_text() == "mine"
    assert lmeb(two[0], "-o", page, "--overwrite")[0] == 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_what_is_read_is_not_replaced(two, tmp_path, monkeypatch):
    folder = two[0]
    (samples,) = folder.glob("samples_*")
    (results,) = folder.glob("results_*")
    other = folder / "samples_other_task.jsonl"
    link = tmp_path / "link.html"
    link.symlink_to(samples)
    matrix = tmp_path / "board.npz"
    np.savez(matrix, R=np.array([[[1, 0], [1, 1], [0, 0]]]))
    monkeypatch.chdir(folder)
    cases = [(folder, samples), (folder, samples.name), (folder, results), (samples, results)]
    cases += [(folder, link), (matrix, matrix), (folder.parent, results), (folder, other)]
    other.write_bytes(samples.read_bytes())
    try:
        for path, target in cases:
            before = (folder / target).read_bytes()
            report = ("report", path, "-o", target, "--overwrite", "--task", TASK)
            assert refusal(*report) == ("--output", "conflict")
            assert (folder / target).read_bytes() == before
    finally:
        other.unlink()
    page = tmp_path / "results_page.json"
    page.write_text("mine")
    assert lmeb(matrix, "-o", page, "--overwrite")[0] == 0
