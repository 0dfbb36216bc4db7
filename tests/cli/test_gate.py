"""`lm-eval-bayes gate`: its outcomes, exit codes and files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from _support.command_line import answer, called, refusal
from _support.errors import refused
from _support.paths import REPOSITORY
from scipy import stats

from lm_eval_bayes import Outcomes, hbayes_at_n, pass_hat_k_posterior
from lm_eval_bayes.analysis.comparison import compare_runs
from lm_eval_bayes.analysis.gate import gate_checks
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.reader import read_runs

#: Files of an earlier check, by their suffix.
EARLIER = {
    ".xml": '<testsuite name="lm-eval-bayes" tests="9" failures="0" errors="0" />\n',
    ".md": "**lm-eval-bayes gate**\n\n| outcome | check | numbers |\n",
}


def board(path, new, old, n=8, m=30, seed=1, names=("new", "old")):
    """A table of two models with these chances on every question; returns the right answers."""
    rng = np.random.default_rng(seed)
    lines, counts = ["model,question,trial,correct"], {}
    for name, p in zip(names, (new, old), strict=True):
        right = (rng.random((m, n)) < p).astype(int)
        counts[name] = right.sum(axis=1)
        lines += [
            f'"{name}",q{q},{t},{value}'
            for q, row in enumerate(right)
            for t, value in enumerate(row)
        ]
    path.write_text("\n".join(lines) + "\n")
    return counts


def outcomes(right, n=8):
    return Outcomes.from_counts(np.stack([n - right, right], axis=1))


def gate(path, *options):
    code, out, error = called("gate", path, *options, "--json")
    return code, json.loads(out), error


def suite_of(junit):
    return ElementTree.parse(junit).getroot()


def counted(junit, *names):
    """Return attributes of the test suite of a JUnit file."""
    return [suite_of(junit).get(name) for name in names]


@pytest.mark.parametrize(
    ("new", "outcome", "exit_code"),
    [(0.2, "failed", 1), (0.9, "passed", 0), (0.6, "not known yet", 0)],
)
def test_three_outcomes(tmp_path, new, outcome, exit_code):
    counts = board(tmp_path / "two.csv", new, 0.6)
    code, report, _ = gate(tmp_path / "two.csv", "--margin", "0")
    (check,) = report["checks"]
    assert (code, report["outcome"], check["outcome"]) == (exit_code, outcome, outcome)
    a, b = (hbayes_at_n(outcomes(counts[name])) for name in ("new", "old"))
    z = (a.mu - b.mu) / np.hypot(a.sigma, b.sigma)
    assert check["probability"] == pytest.approx(stats.norm.cdf(-z), abs=0.02)
    assert check["probability"] == pytest.approx(report["p_a_less"], abs=1e-12)
    forecasts = [
        line["forecast"] for line in answer("plan", tmp_path / "two.csv")["separation"][0]["pairs"]
    ]
    assert [check["forecast"]] == (forecasts or [None])


def test_what_fails_the_step_fails_in_the_xml(tmp_path):
    board(tmp_path / "two.csv", 0.6, 0.6)
    options = ("--margin", "0", "--junit", tmp_path / "gate.xml")
    for more, counts in (((), ["0", "1"]), (("--fail-if-unknown",), ["1", "0"])):
        code, _, _ = gate(tmp_path / "two.csv", *options, *more)
        assert counted(tmp_path / "gate.xml", "failures", "skipped") == counts
        assert code == 3 * int(counts[0])


def test_both_formats_in_one_file_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    board(tmp_path / "two.csv", 0.6, 0.2)
    options = ("--margin", "0", "--junit", "gate", "--markdown", tmp_path / "gate")
    assert refusal("gate", tmp_path / "two.csv", *options) == ("--markdown", "conflict")
    assert not (tmp_path / "gate").exists()


def error_of(junit):
    """The message of a JUnit file with one error."""
    assert counted(junit, "tests", "errors", "failures") == ["1", "1", "0"]
    return suite_of(junit).find("testcase/error").get("message")


#: Wrong arguments, and a run that is missing.
WRONG = (
    "two.csv --margin -1 --junit gate.xml",
    "two.csv --on pass^0 --junit gate.xml",
    "missing.csv --margin 0 --junit gate.xml",
)


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_arguments_are_reported_where_outcomes_are(tmp_path, monkeypatch, wrong):
    monkeypatch.chdir(tmp_path)
    board(tmp_path / "two.csv", 0.6, 0.2)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    Path("gate.xml").write_text(EARLIER[".xml"])
    Path("gate.md").write_text(EARLIER[".md"])
    Path("summary.md").write_text("before\n")
    code, _, error = called("gate", *wrong.split(), "--markdown", "gate.md")
    assert code == 2
    message = error_of("gate.xml")
    assert f"error: {message}" in error
    (annotation,) = (line for line in error.splitlines() if line.startswith("::"))
    assert annotation == f"::error title=lm-eval-bayes::{message.replace('%', '%25')}"
    text = Path("gate.md").read_text()
    assert "error:" in text
    assert Path("summary.md").read_text() == "before\n" + text


def test_a_summary_that_cannot_be_written_changes_no_outcome(tmp_path, monkeypatch):
    board(tmp_path / "two.csv", 0.2, 0.6)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    options = ("--margin", "0", "--junit", tmp_path / "gate.xml")
    code, report, error = gate(tmp_path / "two.csv", *options)
    assert (code, report["failed"]) == (1, True)
    assert f"warning: the summary of the job cannot be written to {tmp_path}" in error
    assert counted(tmp_path / "gate.xml", "failures", "errors") == ["1", "0"]


def test_an_interrupted_check_leaves_no_earlier_outcome(tmp_path, monkeypatch):
    board(tmp_path / "two.csv", 0.6, 0.2)
    junit = tmp_path / "gate.xml"
    junit.write_text(EARLIER[".xml"])

    def interrupted(*_, **__):
        assert error_of(junit) == "the command did not finish"
        raise KeyboardInterrupt

    monkeypatch.setattr("lm_eval_bayes.cli.commands.gate.read_sides", interrupted)
    assert called("gate", tmp_path / "two.csv", "--margin", "0", "--junit", junit)[0] == 130
    assert error_of(junit) == "the command did not finish"


def test_a_margin_makes_equal_models_not_worse(tmp_path):
    board(tmp_path / "two.csv", 0.6, 0.6, n=64)
    assert gate(tmp_path / "two.csv", "--margin", "0")[1]["outcome"] == "not known yet"
    code, report, _ = gate(tmp_path / "two.csv", "--margin", "0.05")
    assert (code, report["outcome"]) == (0, "passed")


def test_below_a_score(tmp_path):
    counts = board(tmp_path / "two.csv", 0.5, 0.6)
    posterior = hbayes_at_n(outcomes(counts["new"]))
    for limit, outcome in ((0.3, "passed"), (0.7, "failed"), (0.5, "not known yet")):
        code, report, _ = gate(tmp_path / "two.csv", "--floor", limit)
        (check,) = report["checks"]
        assert (check["outcome"], code) == (outcome, int(outcome == "failed"))
        p = float(posterior.distribution.cdf(np.array([limit]))[0])
        assert check["probability"] == pytest.approx(p, abs=1e-9)


def test_pass_hat_k(tmp_path):
    counts = board(tmp_path / "two.csv", 0.75, 0.85)
    _, report, _ = gate(tmp_path / "two.csv", "--margin", "0", "--on", "pass^4")
    (check,) = report["checks"]
    a, b = (pass_hat_k_posterior(outcomes(counts[name]), 4) for name in ("new", "old"))
    assert check["quantity"] == "pass^4"
    assert check["estimate"] == pytest.approx(a.mu - b.mu, abs=1e-9)
    width = check["interval"]["high"] - check["interval"]["low"]
    assert width == pytest.approx(2 * 1.96 * np.hypot(a.sigma, b.sigma), rel=0.03)
    assert check["extrapolated_from"] is None
    _, report, _ = gate(tmp_path / "two.csv", "--margin", "0", "--on", "pass^9")
    assert report["checks"][0]["extrapolated_from"] == 8


def test_every_question_has_to_reach_the_floor(tmp_path):
    """Beta(1 + c, 9 − c) of the right answers c of 8; refused by Bonferroni over the questions."""
    rows = [("m", f"q{q}", t, int(t < c)) for q, c in enumerate((8, 7, 6, 0)) for t in range(8)]

    def gated(n_questions, floor, *more):
        lines = [",".join(map(str, row)) for row in rows if int(row[1][1:]) < n_questions]
        (tmp_path / "m.csv").write_text("\n".join(["model,question,trial,correct", *lines]))
        code, report, _ = gate(tmp_path / "m.csv", "--on", "question", "--floor", floor, *more)
        (check,) = report["checks"]
        return code, check

    p_below = [float(stats.beta.cdf(0.5, 1 + c, 9 - c)) for c in (8, 7, 6, 0)]
    code, check = gated(2, 0.5)
    assert (code, check["outcome"], check["questions"]) == (0, "passed", [])
    assert check["probability"] == pytest.approx(p_below[1], abs=1e-9)
    assert p_below[1] < 0.025
    for more, expected in (((), 0), (("--fail-if-unknown",), 3)):
        code, check = gated(3, 0.5, *more)
        assert (code, check["outcome"], check["questions"]) == (expected, "not known yet", ["q2"])
    code, check = gated(4, 0.5)
    assert 1.0 - 0.025 / 4 < p_below[3] == pytest.approx(check["probability"], abs=1e-9)
    assert (code, check["outcome"], check["questions"]) == (1, "failed", ["q3"])


def test_limits_lie_within_the_bounds_of_scores_and_of_pass_hat_k(tmp_path):
    lines = ["model,question,trial,score"]
    lines += [
        f"{name},q{q},{t},{1 + (q + t + i) % 5}"
        for i, name in enumerate(("new", "old"))
        for q in range(20)
        for t in range(4)
    ]
    (tmp_path / "grades.csv").write_text("\n".join(lines) + "\n")
    runs = read_runs([tmp_path / "grades.csv"], bounds=(1.0, 5.0)).runs
    new, old = (replace(run, threshold=4.0) for run in runs)
    comparison = compare_runs([new], [old])
    (check,) = gate_checks(comparison, floor=0.9, pass_hat_k=2)
    assert (check.outcome, check.limit, check.extrapolated_from) == ("failed", 0.9, None)
    for options in ({"floor": 3.0, "pass_hat_k": 2}, {"floor": 0.9}, {"floor": 1.0}):
        with pytest.raises(InvalidInputError) as caught:
            gate_checks(comparison, **options)
        assert caught.value.value == options["floor"]
    with refused("on", "unsupported", "question"):
        gate_checks(comparison, floor=3.0, every_question=True)


def test_annotations_summary_and_junit(tmp_path, monkeypatch):
    names = ("new|<b>%0A", "old\t::error::x")
    board(tmp_path / "two.csv", 0.2, 0.6, names=names)
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    junit = tmp_path / "gate.xml"
    options = ("--junit", junit, "--markdown", tmp_path / "gate.md")
    code, _, error = gate(tmp_path / "two.csv", "--margin", "0", "--floor", ".5", *options)
    assert code == 1
    annotations = [line for line in error.splitlines() if line.startswith("::")]
    assert [line.split(" ")[0] for line in annotations] == ["::error", "::error"]
    assert all("%250A" in line for line in annotations)
    table = (tmp_path / "gate.md").read_text()
    assert summary.read_text() == "before\n" + table
    assert "<b>" not in table
    assert len(table.splitlines()) == 7
    assert counted(junit, "tests", "failures", "skipped") == ["2", "2", "0"]
    assert all(case.find("failure") is not None for case in suite_of(junit))


def test_questions_that_are_left_out_are_named_in_the_files(tmp_path):
    rows = [f"{m},q{q},{t},{(q + t) % 2}" for m in "AB" for q in range(6) for t in range(4)]
    rows = [row for row in rows if not row.startswith(("A,q5", "A,q4"))]
    table = tmp_path / "two.csv"
    table.write_text("model,question,trial,score\n" + "\n".join(rows), encoding="utf-8")
    files = ("--junit", tmp_path / "gate.xml", "--markdown", tmp_path / "gate.md")
    assert called("gate", table, "--align", "intersection", "--margin", "0", *files)[0] == 0
    sentence = suite_of(tmp_path / "gate.xml").find("testcase/system-out").text
    assert "outcomes: 2 questions" in sentence
    assert (tmp_path / "gate.md").read_text().splitlines()[-2:] == [sentence, ""]


@pytest.mark.parametrize("option", ["--junit", "--markdown"])
def test_only_files_of_earlier_checks_are_replaced(tmp_path, option):
    runs = tmp_path / "two.csv"
    board(runs, 0.2, 0.6)
    before = runs.read_bytes()
    assert refusal("gate", runs, "--margin", "0", option, runs) == (option, "path")
    assert runs.read_bytes() == before
    other = tmp_path / "other"
    for options in (("--margin", "0"), ("--floor", ".1"), ("--margin", "-1")):
        outcome = other.read_bytes() if other.exists() else None
        called("gate", runs, *options, option, other)
        assert other.read_bytes() != outcome


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with a name")
@pytest.mark.parametrize("option", ["--junit", "--markdown"])
def test_a_pipe_is_not_replaced(tmp_path, monkeypatch, option):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    monkeypatch.delattr("lm_eval_bayes.cli.commands.gate.read_sides")
    assert refusal("gate", "two.csv", "--margin", "0", option, pipe) == (option, "path")
    assert pipe.is_fifo()


def test_an_error_of_standard_output_is_no_outcome(tmp_path, monkeypatch):
    def broken(*_):
        raise BrokenPipeError(32, "Broken pipe")

    board(tmp_path / "two.csv", 0.2, 0.6)
    monkeypatch.setattr("lm_eval_bayes.cli.commands.gate.say_json", broken)
    command = ("gate", tmp_path / "two.csv", "--margin", "0", "--junit", tmp_path / "gate.xml")
    code, _, error = called(*command, "--json")
    assert (code, "FAIL  new is worse than old" in error) == (2, True)
    assert counted(tmp_path / "gate.xml", "failures", "errors") == ["1", "0"]


@pytest.mark.slow
def test_the_action_is_a_gate(tmp_path):
    """The composite action's step, with the variables that its inputs become."""
    action = yaml.safe_load((REPOSITORY / "examples/github_action/action.yml").read_text())
    *_, step = action["runs"]["steps"]
    defaults = {name: entry.get("default", "") for name, entry in action["inputs"].items()}
    assert step["run"] == 'bash "${{ github.action_path }}/gate.sh"'
    inputs = {name: value.split("inputs.")[1].strip(" }") for name, value in step["env"].items()}
    assert set(inputs.values()) == set(defaults) - {"install"}
    board(tmp_path / "two.csv", 0.2, 0.6)
    variables = {name: defaults[input_name] for name, input_name in inputs.items()}
    variables |= {"NEW": "two.csv", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    script = REPOSITORY / "examples/github_action/gate.sh"
    result = subprocess.run(
        ["bash", str(script)],
        cwd=tmp_path,
        env={**os.environ, **variables, "PATH": path},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 1, result.stderr
    assert ElementTree.parse(tmp_path / "gate.xml").getroot().get("failures") == "1"
    assert "worse" in (tmp_path / "summary.md").read_text()


def test_an_agent_that_ends_in_errors_does_not_pass(tmp_path):
    board(tmp_path / "two.csv", 0.9, 0.6, n=1, m=100)
    lines = (tmp_path / "two.csv").read_text().splitlines()
    new = [i for i, line in enumerate(lines) if line.startswith('"new"')]
    for i in new[:60]:
        lines[i] = lines[i].rpartition(",")[0] + ","
    (tmp_path / "two.csv").write_text("\n".join(lines) + "\n")
    code, report, _ = gate(tmp_path / "two.csv", "--margin", "0")
    (check,) = report["checks"]
    assert (code, report["outcome"], check["without_trials"]) == (1, "failed", 60)
    code, report, _ = gate(tmp_path / "two.csv", "--margin", "0", "--unscored", "wrong")
    (check,) = report["checks"]
    assert (code, check["without_trials"]) == (1, 0)
    assert check["probability"] > 0.975


def test_two_runs_of_one_model_have_one_label_each(tmp_path):
    for file, seed in (("a.csv", 2), ("b.csv", 3)):
        tasks_of(tmp_path / file, "x", 0.5, seed)
    options = ("--margin", "0", "--markdown", tmp_path / "gate.md")
    called("gate", tmp_path / "a.csv", tmp_path / "b.csv", *options)
    assert " m (A) " in (tmp_path / "gate.md").read_text()
    assert " m (B) " in (tmp_path / "gate.md").read_text()


# -- tasks that one of the models lacks ------------------------------------------------------------


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
    """Compare models, A far better; return the code, the JSON, the JUnit and the Markdown."""
    tasks_of(folder / "a.csv", of_a, 0.9, 1)
    tasks_of(folder / "b.csv", of_b, 0.3, 2)
    files = ("--junit", folder / "gate.xml", "--markdown", folder / "gate.md", "--json")
    code, printed, _ = called("gate", folder / "a.csv", folder / "b.csv", *options, *files)
    return (
        code,
        json.loads(printed),
        suite_of(folder / "gate.xml"),
        (folder / "gate.md").read_text(),
    )


@pytest.mark.parametrize(("more", "n_checks"), [((), 2), (("--floor", ".5"), 3)])
def test_a_task_that_only_b_has_fails(tmp_path, more, n_checks):
    code, report, suite, table = gate_on_tasks(tmp_path, "x", "xyz", "--margin", "0", *more)
    assert (code, report["outcome"], report["failed"]) == (1, "failed", True)
    assert (report["missing_tasks"], report["checks"][0]["outcome"]) == (["y", "z"], "passed")
    (failure,) = suite.findall("testcase/failure")
    assert "y, z" in failure.get("message")
    assert [suite.get(n) for n in ("tests", "failures", "skipped")] == [str(n_checks), "1", "0"]
    assert failure.get("message") in table


@pytest.mark.parametrize(
    ("of_a", "of_b", "options"),
    [
        ("x", "xy", ("--margin", "0", "--align", "intersection")),
        ("x", "xy", ("--floor", ".5")),
        ("xy", "x", ("--margin", "0")),
    ],
)
def test_tasks_that_are_left_out_are_named(tmp_path, of_a, of_b, options):
    code, report, suite, table = gate_on_tasks(tmp_path, of_a, of_b, *options)
    assert (code, report["missing_tasks"]) == (0, [])
    sentence = suite.find("testcase/system-out").text
    assert sentence.startswith("left out: y, ")
    assert sentence in table.splitlines()
