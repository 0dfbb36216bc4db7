"""`compare --margin` and `--fail-if-below` where one model lacks tasks of the other."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import numpy as np
import pytest
from _support.command_line import called


def tasks_of(path, tasks, p, seed):
    """A table of one model with a chance on these tasks."""
    rng = np.random.default_rng(seed)
    lines = [
        f"m,{task},q{q},{t},{int(rng.random() < p)}"
        for task in tasks
        for q in range(20)
        for t in range(4)
    ]
    path.write_text("model,task,question,trial,score\n" + "\n".join(lines) + "\n")


def gate_on_tasks(folder, of_a, of_b, *options):
    """Compare models, A far better; return the code, output, error, JUnit and Markdown."""
    tasks_of(folder / "a.csv", of_a, 0.9, 1)
    tasks_of(folder / "b.csv", of_b, 0.3, 2)
    files = ("--junit", folder / "gate.xml", "--markdown", folder / "gate.md")
    result = called("compare", folder / "a.csv", folder / "b.csv", *options, *files)
    suite = ElementTree.parse(folder / "gate.xml").getroot()
    return *result, suite, (folder / "gate.md").read_text()


@pytest.mark.parametrize("more", [(), ("--fail-if-below", ".5"), ("--json",)])
def test_a_task_that_only_b_has_fails(tmp_path, monkeypatch, more):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    options = ("--margin", "0", *more)
    code, out, error, suite, table = gate_on_tasks(tmp_path, ["x"], ["x", "y", "z"], *options)
    assert code == 1
    sentence = "failed: 2 tasks of B without a trial of A: y, z"
    annotations = [line for line in error.splitlines() if line.startswith("::error")]
    assert len(annotations) == 1
    assert sentence in annotations[0]
    (failure,) = suite.findall("testcase/failure")
    assert failure.get("message").startswith(sentence)
    n_checks = 3 if "--fail-if-below" in more else 2
    assert [suite.get(n) for n in ("tests", "failures", "skipped")] == [str(n_checks), "1", "0"]
    assert f"| A lacks tasks of B | {sentence}" in table
    assert "left out" not in table
    if more == ("--json",):
        report = json.loads(out)
        assert (report["outcome"], report["failed"]) == ("failed", True)
        assert (report["missing_tasks"], report["checks"][0]["outcome"]) == (["y", "z"], "passed")


@pytest.mark.parametrize(
    ("of_a", "of_b", "options", "side"),
    [
        ("x", "xy", ("--margin", "0", "--align", "intersection"), "B"),
        ("x", "xy", ("--fail-if-below", ".5"), "B"),
        ("xy", "x", ("--margin", "0"), "A"),
    ],
)
def test_tasks_that_are_left_out_are_named(tmp_path, of_a, of_b, options, side):
    code, out, _, suite, table = gate_on_tasks(tmp_path, of_a, of_b, *options)
    assert code == 0
    sentence = f"left out: y, which only {side} has"
    assert sentence in out.splitlines()
    assert suite.find("testcase/system-out").text == sentence
    assert sentence in table.splitlines()
    assert "without a trial of A" not in table
