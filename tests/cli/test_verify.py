"""`lm-eval-bayes verify`: what it prints, what it leaves, how it ends."""

from __future__ import annotations

import json
import os
import sys

import pytest
from _support.command_line import called
from _support.fake_judge import FakeJudge, expected, opinion
from _support.judged_runs import ROWS, STAMP, row, write
from _support.label_server import Act, serving

from lm_eval_bayes.cli.ui import output
from lm_eval_bayes.runs.verdicts import read_verdicts
from lm_eval_bayes.verifiers import backends


def run(*arguments):
    return called("verify", *arguments)


@pytest.fixture
def runs(tmp_path):
    """Two models' runs; the first has an older one too."""
    write(tmp_path / "runs" / "m1", [row(0, ["older"])], stamp="2025-01-01T00-00-00.000001")
    write(tmp_path / "runs" / "m1", ROWS)
    write(tmp_path / "runs" / "m2", ROWS[:1])
    write(tmp_path / "runs" / "m2", [row(0, ["7"], gold="7")], task="other")
    return tmp_path / "runs"


@pytest.fixture
def judges(monkeypatch):
    """Put a judge that needs no model in the place of the one of transformers."""
    created = []

    def make(name, **settings):
        judge = FakeJudge(name=name, limit=settings["max_length"])
        judge.die_after, judge.settings = make.die_after, settings
        created.append(judge)
        return judge

    make.die_after = None
    make.provenance = created
    monkeypatch.setattr("lm_eval_bayes.verifiers.transformers_judge.TransformersJudge", make)
    monkeypatch.setattr(backends, "local_backend", lambda device: "transformers")
    return make


def verdicts(folder, task="demo"):
    return read_verdicts(folder / f"verdicts_{task}_{STAMP}.jsonl")


def test_help():
    code, printed, _ = run("--help")
    assert code == 0
    assert printed.partition("Examples:")[2].count("\n    lm-eval-bayes verify ") == 2
    for option in (
        *("--verifier", "--backend", "--base-url", "--revision", "--device", "--dtype"),
        *("--batch-size", "--max-length", "--task", "--limit"),
        *("--out", "--restart", "--timeout", "--json"),
        "|".join(backends.BACKENDS),
    ):
        assert option in printed


def test_a_folder_of_runs_is_judged(runs, judges):
    code, printed, error = run(runs, "--verifier", "judge")
    assert code == 0
    (judge,) = judges.provenance
    assert judge.closed == 1
    assert sorted(path.name for path in runs.rglob("verdicts_*")) == [
        f"verdicts_demo_{STAMP}.jsonl",
        f"verdicts_demo_{STAMP}.jsonl",
        f"verdicts_other_{STAMP}.jsonl",
    ]
    head, *rows, last = printed.splitlines()[1:-2]
    assert " ".join(head.split()) == "model task trials A B C mean A mean B mean C not judged"
    assert [line.split()[:6] for line in rows] == [
        ["m1", "demo", "8", "3", "3", "2"],
        ["m2", "demo", "4", "2", "1", "1"],
        ["m2", "other", "1", "1", "0", "0"],
    ]
    assert last.endswith("8 trials")
    assert "13 trials of 3 tasks; to be judged: 7 different answers" in error
    assert error.splitlines()[-1].startswith("answers judged: 7 of 7 (100%, ")
    for trial in verdicts(runs / "m1").trials.values():
        text = ROWS[trial.doc_id]["resps"][0][trial.trial].split("</think>")[-1]
        response = next(
            opinion(prompt)
            for prompt in judge.prompts
            if f"Question {trial.doc_id}?" in prompt and f"\n{text.strip()}\n" in prompt
        )
        assert [trial.a, trial.b, trial.c] == pytest.approx(expected(response), abs=1e-9)

    code, again, error = run(runs, "--verifier", "judge")
    assert code == 0
    assert "to be judged: 0 different answers" in error
    assert judges.provenance[1].batches == []
    assert f"m1/verdicts_demo_{STAMP}.jsonl: 8 trials (8 judged before)" in again
    assert again.splitlines()[:5] == printed.splitlines()[:5]


def test_json(runs, judges):
    code, printed, _ = run(runs, "--verifier", "judge", "--json", "--task", "demo")
    assert code == 0
    first, second = json.loads(printed)
    assert (first["model"], first["task"], first["trials"]) == ("m1", "demo", 8)
    assert first["labels"] == {"A": 3, "B": 3, "C": 2}
    assert sum(first["means"]) == pytest.approx(1)
    trials = verdicts(runs / "m1").trials.values()
    assert first["means"][0] == pytest.approx(sum(t.a for t in trials) / 8, abs=1e-12)
    assert (first["kept"], first["failed"], first["failures"]) == (0, 0, {})
    assert second["verdicts"] == str(runs / "m2" / f"verdicts_demo_{STAMP}.jsonl")


def test_options_reach_the_judge_and_the_file(runs, judges, tmp_path):
    samples = runs / "m1" / f"samples_demo_{STAMP}.jsonl"
    code, _, _ = run(
        *(samples, "--verifier", "org/judge", "--backend", "transformers", "--device", "cpu"),
        *("--dtype", "bfloat16", "--revision", "v2", "--max-length", "900", "--batch-size", "2"),
        *("--limit", "1", "--out", tmp_path / "v.jsonl"),
    )
    assert code == 0
    (judge,) = judges.provenance
    assert judge.settings == {
        "revision": "v2",
        "weights": None,
        "device": "cpu",
        "dtype": "bfloat16",
        "max_length": 900,
    }
    assert max(map(len, judge.batches)) == 2
    result = read_verdicts(tmp_path / "v.jsonl")
    assert len(result.trials) == 4
    assert result.header.samples == samples.name
    assert not list(runs.rglob("verdicts_*"))


def test_ctrl_c_keeps_what_was_judged_and_the_same_command_goes_on(runs, judges):
    judges.die_after = 3
    arguments = (runs / "m1", "--verifier", "judge", "--batch-size", "2")
    code, printed, error = run(*arguments)
    assert (code, printed) == (130, "")
    assert error.splitlines()[-2:] == [
        "the verdicts so far are saved; run the same command again to resume",
        "stopped",
    ]
    assert judges.provenance[0].closed == 1
    saved = len(verdicts(runs / "m1").trials)
    assert saved >= 4
    judges.die_after = None
    code, printed, _ = run(*arguments)
    assert code == 0
    assert f"8 trials ({saved} judged before)" in printed
    stopped, resumed = (set(judge.prompts) for judge in judges.provenance)
    assert not stopped & resumed


def test_answers_that_cannot_be_judged_end_in_exit_code_1(tmp_path, judges):
    path = write(tmp_path, [row(0, ["It is 42.", "fail", "fail"])])
    code, printed, error = run(path, "--verifier", "judge")
    assert code == 1
    assert "2 trials could not be judged: no scores" in error
    assert printed.splitlines()[2].split()[-1] == "2"


def test_a_model_that_does_not_answer_with_a_label_is_told_of(runs, judges, monkeypatch):
    plain = FakeJudge.scores

    def faint(self, prompts):
        return [tuple(score - 7 for score in row) for row in plain(self, prompts)]

    monkeypatch.setattr(FakeJudge, "scores", faint)
    code, _, error = run(runs / "m1", "--verifier", "judge")
    assert code == 0
    assert "a total probability of 0.00091 as the next token" in error


def test_a_server_is_asked_by_the_same_command(runs, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-key")
    with serving() as server:
        code, printed, error = run(runs, "--verifier", "judge", "--base-url", server.url())
        assert set(server.keys) == {"Bearer sk-very-secret-key"}
        assert len(set(server.prompts())) == 8
    assert code == 0
    assert "sk-very" not in printed + error
    assert [line.split()[:6] for line in printed.splitlines()[2:5]] == [
        ["m1", "demo", "8", "3", "3", "2"],
        ["m2", "demo", "4", "2", "1", "1"],
        ["m2", "other", "1", "1", "0", "0"],
    ]
    assert verdicts(runs / "m1").header.verifier["kind"] == "server"


def test_a_server_that_breaks_down_loses_nothing_that_was_judged(runs, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr("lm_eval_bayes._util.retry.FIRST_PAUSE_S", 0.001)

    def script(number, path, body):
        return Act(500, {"error": "down"}) if server_down and number >= 6 else None

    server_down = True
    with serving(script) as server:
        arguments = ("--verifier", "judge", "--base-url", server.url(), "--batch-size", "1")
        code, printed, error = run(runs / "m1", *arguments)
        assert (code, printed) == (2, "")
        assert "the verdicts so far are saved" in error
        assert error.splitlines()[-1].endswith("did not answer, asked 5 times: HTTP 500: down")
        saved = len(verdicts(runs / "m1").trials)
        assert 1 <= saved < 8
        server_down = False
        code, printed, _ = run(runs / "m1", *arguments)
    assert code == 0
    assert f"8 trials ({saved} judged before)" in printed


# -- errors, all before a model is asked -------------------------------------------------------


def test_a_verifier_has_to_be_named(runs):
    code, _, error = run(runs)
    assert code == 2
    assert "--verifier" in error


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--backend", "onnx"], "`--backend` must be one of"),
        (["--backend", "server"], "`--base-url` must be the address of the server; got None"),
        (
            ["--backend", "vllm", "--base-url", "http://127.0.0.1:9/v1"],
            "`--base-url` must be left out with --backend vllm",
        ),
        (["--base-url", "nowhere"], "`base_url` must be the address of a server"),
        (["--base-url", "http://127.0.0.1:9", "--device", "cpu"], "`--device` must be left out"),
        (["--base-url", "http://127.0.0.1:9", "--dtype", "float16"], "`--dtype` must be left out"),
        (["--base-url", "http://127.0.0.1:9", "--revision", "x"], "`--revision` must be left out"),
        (["--dtype", "int8"], '`--dtype` must be one of "auto"'),
        (["--batch-size", "0"], "`--batch-size`"),
        (["--limit", "0"], "`--limit`"),
        (["--max-length", "-1"], "`--max-length`"),
        (["--timeout", "0"], "`--timeout` must be a number of seconds above 0"),
        (["--task", "absent"], "`RUN` must hold task absent"),
        (["--out", "absent"], "`--out` must be a folder that exists, for the 3 files"),
        (["--max-length", "100"], "at most 100"),
    ],
)
def test_bad_options(runs, judges, options, sentence):
    code, printed, error = run(runs, "--verifier", "judge", *options)
    assert (code, printed) == (2, "")
    assert sentence in error
    notes = [line for line in error.splitlines() if not line.startswith("error: ")]
    assert len(error.splitlines()) - len(notes) == 1
    assert all("was left out: its trials are all in" in note for note in notes)
    assert not list(runs.rglob("verdicts_*"))
    assert all(judge.batches == [] for judge in judges.provenance)


def test_runs_that_are_none(tmp_path, judges, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "samples_bad_x.jsonl").write_text('{"doc_id": 0, "outcomes"\n')
    (tmp_path / "empty").mkdir()
    write(tmp_path / "gold", [row(0, ["x"], target="")])
    for name, sentence in (
        ("absent", "`RUN` must be a run, and this path does not exist"),
        ("empty", "hold a run, and this folder is empty"),
        ("samples_bad_x.jsonl", "`RUN` must have a complete samples_bad_x.jsonl"),
        ("gold", "hold the standard answer of every question"),
    ):
        code, printed, error = run(name, "--verifier", "judge")
        assert (code, printed) == (2, "")
        assert sentence in error
        assert len(error.splitlines()) == 1
    assert judges.provenance == []


def test_another_verifiers_file_is_refused_and_restart_replaces_it(runs, judges):
    assert run(runs / "m1", "--verifier", "first")[0] == 0
    code, _, error = run(runs / "m1", "--verifier", "second")
    assert code == 2
    assert "name first, now second" in error
    assert "--out" in error
    assert "--restart" in error
    assert judges.provenance[1].batches == []
    assert judges.provenance[1].closed == 1
    assert run(runs / "m1", "--verifier", "second", "--restart")[0] == 0
    assert verdicts(runs / "m1").header.verifier["name"] == "second"


def test_samples_that_changed_are_noticed(runs, judges):
    assert run(runs / "m2", "--verifier", "judge", "--task", "other")[0] == 0
    write(runs / "m2", [row(0, ["8"], gold="7")], task="other")
    code, _, error = run(runs / "m2", "--verifier", "judge", "--task", "other")
    assert code == 2
    assert "another text of trial 0 of question 0" in error


def test_nothing_that_others_wrote_reaches_a_terminal_raw(tmp_path, judges):
    hostile = "\x1b[31m[bold]\u202e"
    path = write(tmp_path / "m", [row(0, ["x"], question=f"{hostile} long " * 200)], task="demo")
    code, _, error = run(path, "--verifier", "judge", "--max-length", "300")
    assert code == 2
    assert "\\x1b[31m[bold]" in error
    assert "\x1b" not in error
    assert "\u202e" not in error
    path = write(tmp_path / "m", [row(0, ["It is 42."])], task=f"t{hostile}")
    code, printed, error = run(path, "--verifier", "judge")
    assert code == 0
    assert "\x1b" not in printed + error
    assert "\\x1b[31m" in printed


# -- what is chosen, and how progress is told ---------------------------------------------------


def test_the_backend_that_is_taken_by_default(monkeypatch):
    for vllm, cuda, device, expected_backend in (
        (True, True, None, "vllm"),
        (True, True, "cuda", "vllm"),
        (True, False, None, "transformers"),
        (True, True, "cpu", "transformers"),
        (False, True, None, "transformers"),
    ):
        monkeypatch.setattr(backends, "find_spec", lambda name, result=vllm: result or None)
        monkeypatch.setattr(
            "lm_eval_bayes.verifiers.transformers_judge.default_device",
            lambda result=cuda: "cuda" if result else "cpu",
        )
        assert backends.local_backend(device) == expected_backend


def test_local_weights_are_hashed(tmp_path, judges, runs):
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"weights")
    for verifier in ("org/judge", model):
        assert run(runs, "--verifier", verifier, "--restart")[0] == 0
    hub, local = (judge.settings["weights"] for judge in judges.provenance)
    assert hub is None
    assert local.startswith("sha256:")


def test_progress_in_a_pipe_is_a_line_now_and_then(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
    with output.Progress("answers judged", 1000) as message:
        for _ in range(100):
            now[0] += 1.0
            message.advance(10)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        *(
            f"answers judged: {n} of 1,000 ({n / 1000:.0%}, 10 a second)"
            for n in range(150, 1000, 150)
        ),
        "answers judged: 1,000 of 1,000 (100%, 10 a second)",
    ]


def test_progress_on_a_terminal_is_a_bar(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with output.Progress("answers [bold]judged", 4) as message:
        message.advance(3)
        message.advance(1)
    shown = capsys.readouterr().err
    assert "answers [bold]judged" in shown
    assert "4/4" in shown


def test_an_unlucky_folder_is_one_sentence(runs, judges):
    if os.geteuid() == 0:
        (runs / "m1" / f"verdicts_demo_{STAMP}.jsonl").mkdir()
    else:
        (runs / "m1").chmod(0o555)
    code, _, error = run(runs / "m1", "--verifier", "judge")
    assert code == 2
    assert "cannot be" in error.splitlines()[-1]
