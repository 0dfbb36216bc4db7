"""`compare --margin` and `--fail-if-below` as a gate for continuous integration."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from _support.command_line import called
from _support.paths import REPOSITORY
from scipy import stats

from lm_eval_bayes import Outcomes, hbayes_at_n, pass_hat_k_posterior
from lm_eval_bayes.analysis.comparison import compare_runs
from lm_eval_bayes.analysis.gate import gate_checks
from lm_eval_bayes.cli.ui.errors import TerminatedError
from lm_eval_bayes.cli.ui.gate import gate_files
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.reader import read_runs

#: Files of an earlier check, by their suffix.
EARLIER = {
    ".xml": '<testsuite name="lm-eval-bayes" tests="9" failures="0" errors="0" />\n',
    ".md": "**a** and **b**\n\n| check | outcome | estimate ± sd |\n",
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
    code, out, error = called("compare", path, *options, "--json")
    return code, json.loads(out), error


@pytest.mark.parametrize(
    ("new", "outcome", "exit_code", "words"),
    [
        (0.2, "failed", 1, "worse: P"),
        (0.9, "passed", 0, "not worse"),
        (0.6, "not known yet", 0, ""),
    ],
)
def test_three_outcomes(tmp_path, new, outcome, exit_code, words):
    counts = board(tmp_path / "two.csv", new, 0.6)
    code, report, error = gate(tmp_path / "two.csv", "--margin", "0")
    (check,) = report["checks"]
    assert (code, report["outcome"], check["outcome"]) == (exit_code, outcome, outcome)
    assert words in error
    a, b = (hbayes_at_n(outcomes(counts[name])) for name in ("new", "old"))
    z = (a.mu - b.mu) / np.hypot(a.sigma, b.sigma)
    assert check["probability"] == pytest.approx(stats.norm.cdf(-z), abs=0.02)
    assert check["probability"] == pytest.approx(report["p_a_less"], abs=1e-12)
    code, report, _ = gate(tmp_path / "two.csv", "--margin", "0", "--fail-if-unknown")
    assert code == (0 if outcome == "passed" else 1)
    if outcome == "not known yet":
        n = 8 * ((stats.norm.ppf(0.95) / z) ** 2 - 1)
        assert check["further_trials"] == pytest.approx(n, rel=0.02, abs=1)
        assert f"about {check['further_trials']:,} further trials" in error


def test_what_fails_the_step_fails_in_the_xml(tmp_path):
    board(tmp_path / "two.csv", 0.6, 0.6)
    options = ("--margin", "0", "--junit", tmp_path / "gate.xml")
    for more, counts in (((), ("0", "1")), (("--fail-if-unknown",), ("1", "0"))):
        code, _, _ = gate(tmp_path / "two.csv", *options, *more)
        suite = ElementTree.parse(tmp_path / "gate.xml").getroot()
        assert (suite.get("failures"), suite.get("skipped")) == counts
        assert code == int(counts[0])


def test_both_formats_in_one_file_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    board(tmp_path / "two.csv", 0.6, 0.2)
    (tmp_path / "gate").write_text(EARLIER[".xml"])
    options = ("--margin", "0", "--junit", "gate", "--markdown", tmp_path / "gate")
    code, _, error = called("compare", tmp_path / "two.csv", *options)
    assert code == 2
    assert "`--markdown` must be another file than that of --junit" in error
    assert error_of(tmp_path / "gate").startswith("`--markdown` must be another file")


def error_of(junit):
    """The message of a JUnit file with one error."""
    suite = ElementTree.parse(junit).getroot()
    assert [suite.get(name) for name in ("tests", "errors", "failures")] == ["1", "1", "0"]
    return suite.find("testcase/error").get("message")


#: Wrong arguments that the parser refuses, that the command refuses, and a run that is missing.
WRONG = (
    ("two.csv", "--margin", "high"),
    ("two.csv", "--margin", "0", "--no-such-option"),
    ("two.csv", "--margin", "0", "--scope", "none"),
    ("--margin", "0"),
    ("two.csv", "--margin", "0", "third.csv", "fourth.csv"),
    ("two.csv", "--margin", "-1"),
    ("two.csv",),
    ("missing.csv", "--margin", "0"),
)


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_arguments_are_reported_where_outcomes_are(tmp_path, monkeypatch, wrong):
    monkeypatch.chdir(tmp_path)
    board(tmp_path / "two.csv", 0.6, 0.2)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    for junit in (("--junit", "gate.xml"), ("--junit=gate.xml",)):
        Path("gate.xml").write_text(EARLIER[".xml"])
        Path("gate.md").write_text(EARLIER[".md"])
        Path("summary.md").write_text("before\n")
        code, _, error = called("compare", *wrong, *junit, "--markdown", "gate.md")
        assert code == 2
        message = error_of("gate.xml")
        assert f"error: {message}" in error
        (annotation,) = (line for line in error.splitlines() if line.startswith("::"))
        assert annotation == f"::error title=lm-eval-bayes::{message.replace('%', '%25')}"
        text = Path("gate.md").read_text()
        assert text.startswith("**error** ")
        assert Path("summary.md").read_text() == "before\n" + text


def test_wrong_arguments_of_no_gate_are_not_annotated(tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    for wrong in (("missing.csv",), ("missing.csv", "--no-such-option")):
        code, _, error = called("compare", *wrong)
        assert (code, "::" in error, (tmp_path / "summary.md").exists()) == (2, False, False)


@pytest.mark.parametrize(("new", "exit_code"), [(0.2, 1), (0.9, 0)])
def test_a_summary_that_cannot_be_written_changes_no_outcome(tmp_path, monkeypatch, new, exit_code):
    board(tmp_path / "two.csv", new, 0.6)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    options = ("--margin", "0", "--junit", tmp_path / "gate.xml")
    code, report, error = gate(tmp_path / "two.csv", *options)
    assert (code, report["failed"]) == (exit_code, bool(exit_code))
    assert f"warning: the summary of the job cannot be written to {tmp_path}" in error
    suite = ElementTree.parse(tmp_path / "gate.xml").getroot()
    assert (suite.get("failures"), suite.get("errors")) == (str(exit_code), "0")


def test_an_error_leaves_no_earlier_outcome(tmp_path, monkeypatch):
    board(tmp_path / "two.csv", 0.6, 0.2)
    files = {"--junit": tmp_path / "gate.xml", "--markdown": tmp_path / "gate.md"}
    options = [word for pair in files.items() for word in pair] + ["--margin", "0"]
    assert called("compare", tmp_path / "two.csv", *options)[0] == 0
    assert "error" not in files["--markdown"].read_text()
    for bad in (("no\x1b|.csv",), ("two.csv", "--level", "3"), ("two.csv", "--model-a", "x")):
        for path in files.values():
            path.write_text(EARLIER[path.suffix])
        code, _, error = called("compare", tmp_path / bad[0], *bad[1:], *options)
        assert code == 2
        suite = ElementTree.parse(files["--junit"]).getroot()
        assert [suite.get(name) for name in ("tests", "errors", "failures")] == ["1", "1", "0"]
        message = suite.find("testcase/error").get("message")
        assert f"error: {message}" in error.splitlines()
        assert "|" not in files["--markdown"].read_text().replace("**error** ", "")

    def interrupted(*_, **__):
        suite = ElementTree.parse(files["--junit"]).getroot()
        assert suite.find("testcase/error").get("message") == "the command did not finish"
        raise KeyboardInterrupt

    monkeypatch.setattr("lm_eval_bayes.cli.commands.compare._read_sides", interrupted)
    assert called("compare", tmp_path / "two.csv", *options)[0] == 130
    suite = ElementTree.parse(files["--junit"]).getroot()
    message = suite.find("testcase/error").get("message")
    assert message == "the command was interrupted by Ctrl-C"


def test_a_margin_makes_equal_models_not_worse(tmp_path):
    board(tmp_path / "two.csv", 0.6, 0.6, n=64)
    assert gate(tmp_path / "two.csv", "--margin", "0")[1]["outcome"] == "not known yet"
    code, report, _ = gate(tmp_path / "two.csv", "--margin", "0.05")
    assert (code, report["outcome"]) == (0, "passed")


def test_below_a_score(tmp_path):
    counts = board(tmp_path / "two.csv", 0.5, 0.6)
    posterior = hbayes_at_n(outcomes(counts["new"]))
    for limit, outcome in ((0.3, "passed"), (0.7, "failed"), (0.5, "not known yet")):
        code, report, _ = gate(tmp_path / "two.csv", "--fail-if-below", limit)
        (check,) = report["checks"]
        assert (check["outcome"], code) == (outcome, int(outcome == "failed"))
        p = float(posterior.distribution.cdf(np.array([limit]))[0])
        assert check["probability"] == pytest.approx(p, abs=1e-9)


def test_pass_hat_k(tmp_path):
    counts = board(tmp_path / "two.csv", 0.75, 0.85)
    _, report, _ = gate(tmp_path / "two.csv", "--margin", "0", "--gate-on", "pass^4")
    (check,) = report["checks"]
    a, b = (pass_hat_k_posterior(outcomes(counts[name]), 4) for name in ("new", "old"))
    assert check["quantity"] == "pass^4"
    assert check["estimate"] == pytest.approx(a.mu - b.mu, abs=1e-9)
    assert check["sd"] == pytest.approx(np.hypot(a.sigma, b.sigma), rel=1e-6)
    assert check["extrapolated_from"] is None
    fewest = int(outcomes(counts["new"]).n_trials.min())
    k = f"pass^{fewest + 1}"
    _, report, error = gate(tmp_path / "two.csv", "--margin", "0", "--gate-on", k)
    assert report["checks"][0]["extrapolated_from"] == fewest
    assert f"({k}, extrapolated from N = {fewest})" in error


def test_pass_hat_k_of_scores_is_between_0_and_1(tmp_path):
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
    (check,) = gate_checks(comparison, below=0.9, pass_hat_k=2)
    assert (check.outcome, check.limit, check.extrapolated_from) == ("failed", 0.9, None)
    with pytest.raises(InvalidInputError, match="above 0 and at most 1, the bounds of the pass"):
        gate_checks(comparison, below=3.0, pass_hat_k=2)
    with pytest.raises(InvalidInputError, match="above 1 and at most 5, the bounds of the score"):
        gate_checks(comparison, below=0.9)


def test_annotations_summary_and_junit(tmp_path, monkeypatch):
    names = ("new|<b>%0A", "old\t::error::x")
    board(tmp_path / "two.csv", 0.2, 0.6, names=names)
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    options = ("--junit", tmp_path / "gate.xml", "--markdown", tmp_path / "gate.md")
    code, _, error = gate(tmp_path / "two.csv", "--margin", "0", "--fail-if-below", ".5", *options)
    assert code == 1
    annotations = [line for line in error.splitlines() if line.startswith("::")]
    assert [line.split(" ")[0] for line in annotations] == ["::error", "::error"]
    assert all("%250A" in line for line in annotations)
    assert summary.read_text() == "before\n" + (tmp_path / "gate.md").read_text()
    table = (tmp_path / "gate.md").read_text()
    assert "<b>" not in table
    assert len(table.splitlines()) == 7
    suite = ElementTree.parse(tmp_path / "gate.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "2", "0")
    assert all(case.find("failure") is not None for case in suite)


def test_questions_that_are_left_out_are_named_in_the_files(tmp_path):
    rows = [f"{m},q{q},{t},{(q + t) % 2}" for m in "AB" for q in range(6) for t in range(4)]
    rows = [row for row in rows if not row.startswith(("A,q5", "A,q4"))]
    table = tmp_path / "two.csv"
    table.write_text("model,question,trial,score\n" + "\n".join(rows), encoding="utf-8")
    files = ("--junit", tmp_path / "gate.xml", "--markdown", tmp_path / "gate.md")
    options = ("--align", "intersection", "--margin", "0")
    assert called("compare", table, *options, *files)[0] == 0
    sentence = "left out: outcomes: 2 questions that only B has"
    suite = ElementTree.parse(tmp_path / "gate.xml").getroot()
    assert suite.find("testcase/system-out").text == sentence
    assert (tmp_path / "gate.md").read_text().splitlines()[-2:] == [sentence, ""]


@pytest.mark.parametrize("option", ["--junit", "--markdown"])
def test_only_files_of_earlier_checks_are_replaced(tmp_path, option):
    runs = tmp_path / "two.csv"
    board(runs, 0.2, 0.6)
    before = runs.read_bytes()
    for arguments in (("--margin", "0"), ("--margin", "nothing"), ()):
        code, _, error = called("compare", runs, *arguments, option, runs)
        assert code == 2
        assert runs.read_bytes() == before
    assert f"`{option}` must name a new file, or one that an earlier check wrote" in error
    other = tmp_path / "other"
    for options in (
        ("--margin", "0"),
        ("--fail-if-below", ".1"),
        ("--margin", "x"),
    ):
        outcome = other.read_bytes() if other.exists() else None
        called("compare", runs, *options, option, other)
        assert other.read_bytes() != outcome


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with a name")
@pytest.mark.parametrize("option", ["--junit", "--markdown"])
def test_a_pipe_is_not_replaced(tmp_path, monkeypatch, option):
    board(tmp_path / "two.csv", 0.2, 0.6)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    monkeypatch.delattr("lm_eval_bayes.cli.commands.compare._read_sides")
    for margin in ("0", "nothing"):
        options = ("--margin", margin, option, pipe)
        code, _, error = called("compare", tmp_path / "two.csv", *options)
        assert (code, pipe.is_fifo()) == (2, True)
        assert f"`{option}` must be a regular file; it is a device, pipe or socket" in error


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX pipes")
@pytest.mark.parametrize(("target", "exit_code"), [("closed", 141), ("/dev/full", 2)])
def test_an_error_of_standard_output_is_no_outcome(tmp_path, target, exit_code):
    board(tmp_path / "two.csv", 0.2, 0.6)
    if target == "closed":
        reader, output = os.pipe()
        os.close(reader)
    elif os.path.exists(target):
        output = os.open(target, os.O_WRONLY)
    else:
        pytest.skip(f"needs {target}")
    command = [sys.executable, "-m", "lm_eval_bayes.cli.main", "compare", "two.csv"]
    result = subprocess.run(
        [*command, "--margin", "0", "--junit", "gate.xml", "--markdown", "gate.md"],
        cwd=tmp_path,
        stdout=output,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"},
        text=True,
        timeout=120,
    )
    os.close(output)
    assert result.returncode == exit_code
    assert "worse: P" in result.stderr
    suite = ElementTree.parse(tmp_path / "gate.xml").getroot()
    assert [suite.get(name) for name in ("failures", "errors")] == ["1", "0"]
    assert "| worse: P" in (tmp_path / "gate.md").read_text()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (TerminatedError(signal.SIGTERM), "the command was terminated by SIGTERM"),
        (OSError(5, "Input/output error", "a.csv"), "system of a.csv: Input/output error"),
        (ZeroDivisionError("x"), "the command ended with an unexpected error"),
    ],
)
def test_no_class_of_an_exception_is_an_outcome(tmp_path, error, message):
    with pytest.raises(type(error)), gate_files(tmp_path / "gate.xml", None, is_gate=True):
        raise error
    assert message in error_of(tmp_path / "gate.xml")
    assert type(error).__name__ not in error_of(tmp_path / "gate.xml")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--junit", "x.xml"), "--margin or --fail-if-below"),
        (("--fail-if-unknown",), "--margin or --fail-if-below; got neither of them"),
        (("--gate-on", "pass^4"), "--margin or --fail-if-below; got neither of them"),
        (("--margin", "0", "--gate-on", "pass@4"), "score, or pass^K"),
        (("--margin", "0", "--gate-on", "pass^0"), "score, or pass^K"),
        (("--margin", "-1"), "margin"),
        (("--fail-if-below", "nan"), "finite"),
        (("--fail-if-below", "1.2"), "be above 0 and at most 1"),
        (("--fail-if-below", "0"), "be above 0 and at most 1"),
        (("--margin", "0", "--gate-on", "pass^2", "--scope", "population"), "gate-on"),
    ],
)
def test_bad_options(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    board(tmp_path / "two.csv", 0.5, 0.6)
    code, _, error = called("compare", tmp_path / "two.csv", *options)
    assert code == 2
    assert message in error
    assert "--junit" not in options or message in error_of("x.xml")


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
        timeout=120,
    )
    assert result.returncode == 1, result.stderr
    assert ElementTree.parse(tmp_path / "gate.xml").getroot().get("failures") == "1"
    assert "worse" in (tmp_path / "summary.md").read_text()


def test_an_agent_that_ends_in_errors_does_not_pass(tmp_path):
    board(tmp_path / "two.csv", 0.9, 0.6, n=1, m=100)
    lines = (tmp_path / "two.csv").read_text().splitlines()
    new = [i for i, line in enumerate(lines) if line.startswith('"new"')]
    for i in new[:50]:
        lines[i] = lines[i].rpartition(",")[0] + ","
    (tmp_path / "two.csv").write_text("\n".join(lines) + "\n")
    right = sum(lines[i].endswith(",1") for i in new)
    code, report, error = gate(tmp_path / "two.csv", "--margin", "0")
    (check,) = report["checks"]
    assert (code, report["outcome"], check["without_trials"]) == (1, "failed", 50)
    assert "failed: 50 questions without a trial of A that counts (--unscored wrong" in error
    code, report, error = gate(tmp_path / "two.csv", "--margin", "0", "--unscored", "wrong")
    (check,) = report["checks"]
    assert "50 trials without a score counted as wrong (--unscored wrong)" in error
    assert "without a score left out" not in error
    assert (code, check["without_trials"], right < 60) == (1, 0, True)
    assert check["probability"] > 0.95


def test_two_runs_of_one_model_have_one_label_each(tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    for file, new in (("a.csv", 0.2), ("b.csv", 0.6)):
        board(tmp_path / file, new, new, names=("m", "other"))
        text = (tmp_path / file).read_text()
        lines = [line for line in text.splitlines() if "other" not in line]
        (tmp_path / file).write_text("\n".join(lines) + "\n")
    options = ("--margin", "0", "--markdown", tmp_path / "gate.md")
    code, _, error = called("compare", tmp_path / "a.csv", tmp_path / "b.csv", *options)
    assert code == 1
    assert "::m (A) and m (B): failed" in error or "::m (A) and m (B): worse" in error
    assert (tmp_path / "gate.md").read_text().startswith("**m** (A) and **m** (B)\n")
