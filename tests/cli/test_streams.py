"""Standard output that is full, closed, or read no further: how a command ends then."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from _support.command_line import called, command_error
from _support.paths import REPOSITORY

from lm_eval_bayes.cli.screens.layout import Form, say_sentence
from lm_eval_bayes.cli.ui.output import warn, warn_notes
from lm_eval_bayes.store.trial import Trial, TrialKey
from lm_eval_bayes.store.trial_store import TrialStore

COMMAND = [sys.executable, "-m", "lm_eval_bayes.cli.main"]

needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")

COMMANDS = {
    "info": ("store", "info", "STORE"),
    "export": ("store", "export", "STORE", "-o", "-"),
}


#: Python may be told to keep no buffer, as in many containers; then other lines fail.
CASES = [("info", "1"), ("export", "")]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("stores") / "a.sqlite"
    with TrialStore.open(path) as store:
        key = TrialKey(
            model=store.describe_model({"pretrained": "some/model"}),
            prompt=store.describe_prompts(["What is 6 times 7?"])[0],
            sampling=store.describe_sampling({"temperature": 0.6}),
        )
        # More than any pipe or buffer holds.
        store.add([Trial(key, i, "x" * 100_000, seed=i) for i in range(3)])
    return path


def environment(unbuffered):
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": unbuffered}


def started(name, store, **more):
    arguments = [str(store) if word == "STORE" else word for word in COMMANDS[name]]
    return subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True, **more)


@pytest.mark.parametrize("variable", ["GITHUB_ACTIONS", "TF_BUILD"])
def test_text_of_a_file_is_no_command_to_a_runner_of_jobs(tmp_path, monkeypatch, variable):
    # GitHub's runner reads "::" behind blanks, and "##[" anywhere; that of Azure "##vso[" anywhere
    names = ["::error::x", "a ##[add-mask]b", "##vso[task.setvariable variable=c]d"]
    rows = [f"{name},q{i},{i % 2}" for name in names for i in range(6)]
    file = tmp_path / "trials.csv"
    file.write_text("\n".join(["model,question,correct", *rows]))
    for name in ("GITHUB_ACTIONS", "TF_BUILD"):
        monkeypatch.delenv(name, raising=False)
    as_json = ("summary", file, "--json")
    _, elsewhere, _ = called("summary", file, width="80")
    assert all(name in elsewhere for name in names[:2])
    values = json.loads(called(*as_json)[1])
    monkeypatch.setenv(variable, "true")
    printed = "".join(called("summary", file, width="80")[1:])
    assert ": :error::x" in printed
    assert "a ## [add-mask]b" in printed
    _, text, _ = called(*as_json)
    assert json.loads(text) == values
    for line in (printed + text).splitlines():
        assert not line.lstrip().startswith("::")
        assert not re.search(r"##(vso)?\[", line)


@needs_full
@pytest.mark.parametrize(("name", "unbuffered"), CASES)
def test_a_full_disk_behind_standard_output(store, name, unbuffered):
    with open("/dev/full", "w") as full:
        process = started(name, store, stdout=full, env=environment(unbuffered))
        _, error = process.communicate(timeout=600)
    assert error == "error: standard output cannot be written: No space left on device\n"
    assert process.returncode == 2


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX pipes")
@pytest.mark.parametrize(
    ("name", "unbuffered"), [("info", "1"), ("export, after the first line", "")]
)
def test_a_reader_that_is_gone(store, name, unbuffered):
    command, _, after_a_line = name.partition(",")
    process = started(command, store, stdout=subprocess.PIPE, env=environment(unbuffered))
    if after_a_line:
        assert process.stdout.readline().startswith('{"kind": "model"')
    # otherwise long before the first line, as the interpreter has hardly begun to start
    process.stdout.close()
    error = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=600) == 141
    assert error == ""


@pytest.mark.skipif(os.name != "posix", reason="closes a descriptor with a shell")
def test_standard_output_that_was_closed(store):
    arguments = ["store", "export", str(store), "-o", "-"]
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, *arguments],
        stderr=subprocess.PIPE,
        text=True,
        timeout=600,
        env=environment(""),
    )
    assert (done.returncode, done.stderr.count("error: `--output`")) == (2, 1)


@needs_full
def test_standard_error_that_cannot_be_written(tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "store", "info", str(tmp_path / "absent.sqlite")],
            stdout=subprocess.PIPE,
            stderr=full,
            timeout=600,
            env=environment(""),
        )
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), BrokenPipeError(32, "Pipe")])
def test_errors_from_elsewhere_are_not_hidden(monkeypatch, error):
    def broken(*arguments, **more):
        raise error

    monkeypatch.setattr("lm_eval_bayes.runs.reader.read_runs", broken)
    if isinstance(error, BrokenPipeError):
        sentence = "error: a pipe or connection was closed by the other side: Pipe\n"
        assert called("summary", ".") == (2, "\n", sentence)
    else:
        with pytest.raises(OSError, match="Input/output error"):
            called("summary", ".")


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_that_ends_a_command_lets_it_tidy_up(monkeypatch, name):
    from typer.testing import CliRunner

    from lm_eval_bayes.cli.main import app

    tidied = []

    def interrupted(*arguments, **more):
        try:
            signal.raise_signal(getattr(signal, name))
        finally:
            tidied.append(name)

    monkeypatch.setattr("lm_eval_bayes.runs.reader.read_runs", interrupted)
    signum = getattr(signal, name)
    # as in a shell, whatever these tests were started by (nohup ignores SIGHUP)
    before = signal.signal(signum, signal.SIG_DFL)
    try:
        result = CliRunner().invoke(app, ["summary", "."])
        assert result.exit_code == 128 + signum
        assert tidied == [name]
        assert signal.getsignal(signum) is signal.SIG_DFL
    finally:
        signal.signal(signum, before)


def test_a_note_is_printed_once_with_all_that_it_is_about(capsys):
    models = [f"m{i}" for i in range(3)]
    notes = [("t", [model], "few questions") for model in models]
    notes += [("t", (), "of the task"), ("u", (), "of the task"), ("t", ["m1"], "its own")]
    notes += [("u", ["m1"], "of runs"), ("t", ["m0"], "of runs"), ("t", ["m0"], "of runs")]
    notes += [("v", [f"x{i}" for i in range(20)], "many")]
    warn_notes(notes)
    assert capsys.readouterr().err.splitlines() == [
        "note: m0, m1, m2, t: few questions",
        "note: t, u: of the task",
        "note: m1, t: its own",
        "note: m1 on u, m0 on t: of runs",
        "note: x0, x1, x2, x3, x4, x5, x6, 13 more models, v: many",
    ]


@pytest.mark.parametrize(("is_terminal", "n_lines"), [(False, 1), (True, 6)])
def test_sentences_and_warnings_fit_a_terminal(monkeypatch, capsys, is_terminal, n_lines):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: is_terminal, raising=False)
    say_sentence("some words " * 20, Form.of_output())
    warn("some words " * 20)
    for printed in capsys.readouterr():
        assert len(printed.splitlines()) == n_lines
        assert printed.split() == ["some", "words"] * 20


def test_an_error_lists_eight_models_of_sixty(tmp_path):
    names = [f"model-{number}" for number in range(60)]
    file = tmp_path / "trials.csv"
    file.write_text("\n".join(["model,question,correct", *(f"{name},q,1" for name in names)]))
    error = command_error("compare", file, "-a", "other")
    assert (error.argument, error.rule) == ("-a", "choice")
    assert re.findall(r"model-\d+|52 more", str(error)) == [*names[:8], "52 more"]
