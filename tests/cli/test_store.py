"""`lm-eval-bayes store …`: what it prints, what it changes, how it ends."""

from __future__ import annotations

import io
import json
import os
import re
import sqlite3
from contextlib import closing
from functools import partial

import pytest
from _support.command_line import answer, called, command_error, refusal

from lm_eval_bayes.cli.screens.layout import say_table
from lm_eval_bayes.cli.ui import output
from lm_eval_bayes.store.outcomes import GradedQuestion, GradedTask, GradedTrial
from lm_eval_bayes.store.trial import Trial, TrialKey
from lm_eval_bayes.store.trial_store import TrialStore

#: A name that would colour a terminal, be taken as markup, and break a line.
HOSTILE = "model \x1b[31m[bold]x[/bold]\n\u202e:smiley:"


lmeb = partial(called, "store")


@pytest.fixture
def make(tmp_path):
    """Make a closed store of one model's trials, graded if told; return its path."""

    def store_of(name="a.sqlite", trials=(0, 1, 2), text="{i}", model="some/model", task=None):
        path = tmp_path / name
        with TrialStore.open(path) as store:
            key = TrialKey(
                model=store.describe_model({"pretrained": model}),
                prompt=store.describe_prompts(["What is 6 times 7?"])[0],
                sampling=store.describe_sampling({"temperature": 0.6}),
            )
            store.add([Trial(key, i, text.format(i=i), seed=i) for i in trials])
            if task is not None:
                graded = tuple(GradedTrial(key, i, i % 2, str(i)) for i in trials)
                requests = GradedQuestion(0, "aa", graded)
                store.add_outcomes([GradedTask(task, "1.0", "none", 2, (requests,))])
        return path

    return store_of


# -- info --------------------------------------------------------------------------------------


def test_info_as_json(make):
    paths = [make("a.sqlite", task="aime"), make("b.sqlite", trials=(5,))]
    first, second = answer("store", "info", *paths)
    assert (first["path"], first["trials"], first["outcomes"]) == (str(paths[0]), 3, 3)
    assert first["tasks"][0]["task"] == "aime"
    assert (first["series"][0]["prompts"], first["series"][0]["trials"]) == (1, 3)
    assert first["models"][first["series"][0]["model"]] == {"pretrained": "some/model"}
    assert (second["trials"], second["tasks"]) == (1, [])


def test_info_names_models_tasks_and_questions_times_trials(make):
    code, printed, error = lmeb("info", make(task="aime"))
    assert (code, error) == (0, "")
    (row,) = [line for line in printed.splitlines() if "aime" in line]
    assert row.split()[:8] == ["some/model", "aime", "1.0", "none", "1", "×", "3", "3"]


def test_a_store_without_trials(make):
    code, printed, error = lmeb("info", make(trials=()), "--verbose")
    assert (code, error, "0 trials, " in printed) == (0, "", True)


def test_what_others_wrote_is_shown_as_text(make):
    path = make(model=HOSTILE, task="[red]\x1b]0;title\x07")
    _, printed, _ = lmeb("info", path)
    assert "\x1b" not in printed
    assert "\u202e" not in printed
    assert "[red]\\x1b]0;title\\x07" in printed


def test_a_table_shows_markup_as_text(capsys):
    say_table("tit[b]le", ["na[i]me", "n"], [["[red]x[/red] :smiley:", 7], [HOSTILE, 8]])
    printed = capsys.readouterr().out
    for text in ("tit[b]le", "na[i]me", "[red]x[/red] :smiley:", "\\x1b[31m[bold]x[/bold]\\n"):
        assert text in printed
    assert "\u202e" not in printed


def test_an_ascii_terminal_gets_escapes(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", stream)
    output.say("数 [bold]")
    stream.flush()
    assert stream.buffer.getvalue() == b"\\u6570 [bold]\n"


# -- merge ---------------------------------------------------------------------------------------


def test_conflicts_are_named_and_nothing_is_merged(make, tmp_path):
    parts = [make("a.sqlite", range(8)), make("b.sqlite", range(2, 8), text="other {i}")]
    target = tmp_path / "all.sqlite"
    code, printed, error = lmeb("merge", *parts, "-o", target)
    assert (code, printed) == (2, "")
    named = re.findall(r"^  trial (\d+) of prompt ", error, re.MULTILINE)
    assert named == ["2", "3", "4", "5", "6"]
    assert "and 1 more" in error
    assert not target.exists()
    code, printed, _ = lmeb("merge", "--json", *parts, "-o", target)
    report = json.loads(printed)
    assert (code, report["merged"], report["n_conflicts"]) == (2, False, 6)
    assert [conflict.split()[1] for conflict in report["conflicts"]] == list("234567")
    assert lmeb("merge", *parts, "-o", target, "--keep-first")[0] == 0


def changed(path, statement):
    """Damage a store."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


# -- verify ----------------------------------------------------------------------------------------


def test_verify(make):
    path = make(task="aime")
    code, printed, error = lmeb("info", "--check", path)
    assert (code, error) == (0, "")
    assert printed.startswith(f"{path}: intact (")
    assert ", 3 trials, 3 outcomes, " in printed
    changed(path, "UPDATE trials SET seed = 99 WHERE trial = 1")
    code, printed, _ = lmeb("info", "--check", path)
    assert code == 1
    assert "  trial 1 of prompt" in printed


def test_verify_goes_on_behind_a_store_that_is_missing(make, tmp_path):
    path = make()
    code, printed, error = lmeb("info", "--check", tmp_path / "absent.sqlite", path)
    assert (code, error.count("error: ")) == (2, 1)
    assert f"{path}: intact" in printed


# -- export ----------------------------------------------------------------------------------------


def test_export_jsonl(make, tmp_path):
    target = tmp_path / "a.jsonl"
    export = ("export", make(task="aime"), "-o", target)
    assert lmeb(*export)[0] == 0
    kinds = [json.loads(line)["kind"] for line in target.read_text().splitlines()]
    descriptions = ["model", "sampling", "version", "prompt"]
    assert kinds == [*descriptions, *["trial"] * 3, *["outcome"] * 3]
    before = target.read_bytes()
    command_error("store", *export)
    assert target.read_bytes() == before
    assert lmeb(*export, "--overwrite")[0] == 0


def test_export_samples(make, tmp_path):
    export = ("export", make(task="aime"), "--format", "samples", "-o", tmp_path / "out")
    report = answer("store", *export)
    assert report["files"][0]["trials"] == 3
    (name,) = os.listdir(tmp_path / "out")
    (line,) = (tmp_path / "out" / name).read_text().splitlines()
    assert json.loads(line)["outcomes"] == [0, 1, 0]


def test_export_to_standard_output(make, tmp_path):
    path, target = make(task="aime"), tmp_path / "a.jsonl"
    assert lmeb("export", path, "-o", target)[0] == 0
    for name in ("-", "/dev/stdout"):
        assert lmeb("export", path, "-o", name) == (0, target.read_text(), "")
    assert sorted(os.listdir(tmp_path)) == ["a.jsonl", "a.sqlite"]


def test_an_export_of_damaged_trials_says_so(make, tmp_path):
    path = make(task="aime")
    changed(path, "UPDATE trials SET seed = 99 WHERE trial < 2")
    export = ("export", path, "-o", tmp_path / "out")
    code, _, error = lmeb(*export)
    assert (code, error.startswith("warning: 2 records ")) == (1, True)
    code, printed, _ = lmeb(*export, "--overwrite", "--json")
    assert (code, json.loads(printed)["damaged"]) == (1, 2)
    assert command_error("store", "export", path, "--format", "samples", "-o", tmp_path / "s")


# -- prune -----------------------------------------------------------------------------------------


def test_prune_only_counts_without_yes(make):
    path = make(task="aime")
    (report,) = answer("store", "prune", path, "--trials-from", 1)
    assert (report["trials"], report["outcomes"], report["dry_run"]) == (2, 2, True)
    with TrialStore.open(path, mode="read") as store:
        assert store.info().trials == 3
        (model,) = store.info().models
    (report,) = answer("store", "prune", path, "--trials-from", 1, "--yes")
    assert (report["trials"], report["outcomes"], report["dry_run"]) == (2, 2, False)
    assert lmeb("prune", path, "--model", model, "--yes")[0] == 0
    with TrialStore.open(path, mode="read") as store:
        assert (store.info().trials, store.info().models) == (0, {})


def test_prune_without_a_criterion_is_refused(make):
    assert refusal("store", "prune", make(), "--yes") == ("prune", "missing")


def test_a_slip_in_the_second_store_deletes_nothing_in_the_first(make):
    first, second = make("a.sqlite"), make("b.sqlite", model="other")
    with TrialStore.open(first, mode="read") as store:
        (model,) = store.info().models
    for criterion in (("--model", model), ("--trials-from", -1)):
        prune = ("store", "prune", first, second, *criterion, "--yes")
        assert refusal(*prune)[0] == criterion[0]
    with TrialStore.open(first, mode="read") as store:
        assert store.info().trials == 3


def test_output_in_a_pipe(make):
    path = make(task="aime")
    code, printed, error = lmeb("info", path, width="80")
    assert (code, error) == (0, "")
    assert not set("─━│┃") & set(printed), "no boxes are drawn in a pipe"
    (info,) = answer("store", "info", path)
    assert not info["models"].keys() & set(printed.split())
    assert info["models"].keys() <= set(lmeb("info", "--verbose", path)[1].split())


@pytest.mark.parametrize(
    ("command", "target"), [("merge", "new/deep/all.sqlite"), ("export", "new/deep/all.jsonl")]
)
def test_missing_folders_are_made(make, tmp_path, monkeypatch, command, target):
    monkeypatch.chdir(tmp_path)
    assert lmeb(command, make(), "-o", target)[0] == 0
    assert (tmp_path / target).is_file()
