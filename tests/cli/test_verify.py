"""`lm-eval-bayes study verify`: what it prints, what it leaves, how it ends."""

from __future__ import annotations

import json
import sys
from functools import partial

import pytest
from _support.command_line import answer, called, command_error, refusal
from _support.fake_judge import FakeJudge, expected, opinion
from _support.judged_runs import ROWS, STAMP, row, write
from _support.label_server import serving

from lm_eval_bayes.cli.ui import output
from lm_eval_bayes.runs.verdicts import read_verdicts

#: The labels A, B and C of the trials of each model and task of the runs.
JUDGED = [("m1", "demo", 3, 3, 2), ("m2", "demo", 2, 1, 1), ("m2", "other", 1, 0, 0)]

run = partial(called, "study verify")


@pytest.fixture
def runs(tmp_path):
    """Two models' runs."""
    write(tmp_path / "runs" / "m1", ROWS)
    write(tmp_path / "runs" / "m2", ROWS[:1])
    write(tmp_path / "runs" / "m2", [row(0, ["7"], gold="7")], task="other")
    return tmp_path / "runs"


@pytest.fixture
def judges(monkeypatch):
    """Put a judge that needs no model in the place of the local one."""
    created = []

    def make(name, **settings):
        judge = FakeJudge(name=name, limit=settings["max_length"])
        judge.die_after, judge.settings = make.die_after, settings
        created.append(judge)
        return judge

    make.die_after = None
    make.provenance = created
    monkeypatch.setattr("lm_eval_bayes.verifiers.local_judge.LocalJudge", make)
    return make


def verdicts(folder, task="demo"):
    return read_verdicts(folder / f"verdicts_{task}_{STAMP}.jsonl")


def test_a_folder_of_runs_is_judged(runs, judges):
    first = answer("study verify", runs, "--verifier", "judge")
    (judge,) = judges.provenance
    assert judge.closed == 1
    assert sorted(path.name for path in runs.rglob("verdicts_*")) == [
        f"verdicts_demo_{STAMP}.jsonl",
        f"verdicts_demo_{STAMP}.jsonl",
        f"verdicts_other_{STAMP}.jsonl",
    ]
    assert [(row["model"], row["task"], *row["labels"].values()) for row in first] == JUDGED
    # seven different answers of 13 trials, and the prompt without an answer
    assert sum(map(len, judge.batches)) == 8
    for trial in verdicts(runs / "m1").trials.values():
        text = ROWS[trial.doc_id]["resps"][0][trial.trial].split("</think>")[-1]
        response = next(
            opinion(prompt)
            for prompt in judge.prompts
            if f"Question {trial.doc_id}?" in prompt and f"\n{text.strip()}\n" in prompt
        )
        assert [trial.a, trial.b, trial.c] == pytest.approx(expected(response), abs=1e-9)

    second = answer("study verify", runs, "--verifier", "judge")
    assert judges.provenance[1].batches == []
    assert [row["kept"] for row in second] == [row["trials"] for row in first]
    assert [row["means"] for row in second] == [row["means"] for row in first]


def test_the_table(runs, judges):
    code, printed, error = run(runs, "--verifier", "judge")
    assert code == 0
    cells = [tuple(line.split()[:6]) for line in printed.splitlines()]
    for model, task, *labels in JUDGED:
        assert (model, task, *map(str, [sum(labels), *labels])) in cells
    assert "answers judged: 7 of 7 (100%, " in error


def test_options_reach_the_judge_and_the_file(runs, judges, tmp_path):
    samples = runs / "m1" / f"samples_demo_{STAMP}.jsonl"
    code, _, _ = run(
        *(samples, "--verifier", "org/judge", "--device", "cpu", "--revision", "v2"),
        *("--max-length", "900", "--batch-size", "2"),
        *("--limit", "1", "--out", tmp_path / "v.jsonl"),
    )
    assert code == 0
    (judge,) = judges.provenance
    settings = {"revision": "v2", "device": "cpu", "max_length": 900}
    assert judge.settings == {**settings, "weights": None}
    assert max(map(len, judge.batches)) == 2
    result = read_verdicts(tmp_path / "v.jsonl")
    assert (len(result.trials), result.header.samples) == (4, samples.name)
    assert not list(runs.rglob("verdicts_*"))


def test_ctrl_c_keeps_what_was_judged_and_the_same_command_goes_on(runs, judges):
    judges.die_after = 3
    arguments = (runs / "m1", "--verifier", "judge", "--batch-size", "2")
    code, printed, error = run(*arguments)
    assert (code, printed, error.splitlines()[-1]) == (130, "", "stopped")
    assert judges.provenance[0].closed == 1
    saved = len(verdicts(runs / "m1").trials)
    assert saved >= 4
    judges.die_after = None
    (row,) = answer("study verify", *arguments)
    assert (row["trials"], row["kept"]) == (8, saved)
    stopped, resumed = (set(judge.prompts) for judge in judges.provenance)
    assert not stopped & resumed


def test_answers_that_cannot_be_judged_end_in_exit_code_1(tmp_path, judges):
    path = write(tmp_path, [row(0, ["It is 42.", "fail", "fail"])])
    code, printed, _ = run(path, "--verifier", "judge", "--json")
    (result,) = json.loads(printed)
    assert (code, result["failed"]) == (1, 2)


def test_a_model_that_does_not_answer_with_a_label_is_told_of(runs, judges, monkeypatch):
    plain = FakeJudge.scores

    def faint(self, prompts):
        return [tuple(score - 7 for score in row) for row in plain(self, prompts)]

    monkeypatch.setattr(FakeJudge, "scores", faint)
    code, _, error = run(runs / "m1", "--verifier", "judge")
    assert (code, "0.00091" in error) == (0, True)


def test_a_server_is_asked_by_the_same_command(runs, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-key")
    with serving() as server:
        code, printed, error = run(
            runs, "--verifier", "judge", "--base-url", server.url(), "--json"
        )
        assert set(server.keys) == {"Bearer sk-very-secret-key"}
        assert len(set(server.prompts())) == 8
    assert code == 0
    assert "sk-very" not in printed + error
    rows = json.loads(printed)
    assert [(row["model"], row["task"], *row["labels"].values()) for row in rows] == JUDGED
    assert verdicts(runs / "m1").header.verifier["kind"] == "server"


# -- errors, all before a model is asked -------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ("--base-url http://h --device cpu", "--device"),
        ("--base-url http://h --revision x", "--revision"),
        ("--task absent", "RUN"),
        ("--out absent", "--out"),
        ("--max-length 100", "--max-length"),
    ],
)
def test_errors_come_before_a_model_is_asked(runs, judges, options, argument):
    error = command_error("study verify", runs, "--verifier", "judge", *options.split())
    assert argument in str(error)
    assert not list(runs.rglob("verdicts_*"))
    assert all(judge.batches == [] for judge in judges.provenance)


def test_questions_without_a_standard_answer_are_refused(tmp_path, judges):
    write(tmp_path / "gold", [row(0, ["x"], target="")])
    assert refusal("study verify", tmp_path / "gold", "--verifier", "judge")[0] == "RUN"
    assert judges.provenance == []


def test_nothing_that_others_wrote_reaches_a_terminal_raw(tmp_path, judges):
    hostile = "\x1b[31m[bold]\u202e"
    path = write(tmp_path / "m", [row(0, ["x"], question=f"{hostile} long " * 200)], task="demo")
    code, printed, error = run(path, "--verifier", "judge", "--max-length", "300")
    assert (code, "\\x1b[31m[bold]" in error) == (2, True)
    path = write(tmp_path / "m", [row(0, ["It is 42."])], task=f"t{hostile}")
    code, table, progress = run(path, "--verifier", "judge")
    assert (code, "\\x1b[31m" in table) == (0, True)
    for character in ("\x1b", "\u202e"):
        assert character not in printed + error + table + progress


# -- local weights, and how progress is told ----------------------------------------------------


def test_local_weights_are_hashed(tmp_path, judges, runs):
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"weights")
    for verifier in ("org/judge", model):
        assert run(runs / "m1", "--verifier", verifier, "--restart")[0] == 0
    hub, local = (judge.settings["weights"] for judge in judges.provenance)
    assert (hub, local[:7]) == (None, "sha256:")


def test_progress_in_a_pipe_is_a_line_now_and_then(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
    with output.Progress("answers judged", 1000) as progress:
        for _ in range(100):
            now[0] += 1.0
            progress.advance(10)
    lines = capsys.readouterr().err.splitlines()
    shown = [int(line.split()[2].replace(",", "")) for line in lines]
    assert shown == [*range(150, 1000, 150), 1000]


def test_progress_on_a_terminal_is_a_bar(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with output.Progress("answers [bold]judged", 4) as progress:
        progress.advance(4)
    shown = capsys.readouterr().err
    assert "answers [bold]judged" in shown
    assert "4/4" in shown
