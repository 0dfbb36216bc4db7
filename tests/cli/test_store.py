"""`lm-eval-bayes store …`: what it prints, what it changes, how it ends."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from _support.command_line import called
from _support.paths import REPOSITORY

from lm_eval_bayes.cli.ui import output
from lm_eval_bayes.store.outcomes import GradedQuestion, GradedTask, GradedTrial
from lm_eval_bayes.store.trial import Trial, TrialKey
from lm_eval_bayes.store.trial_store import TrialStore

COMMANDS = ("info", "merge", "verify", "export", "prune", "compact", "alias")
#: A name that would colour a terminal, be taken as markup, and break a line.
HOSTILE = "model \x1b[31m[bold]x[/bold]\n\u202e:smiley:"


@pytest.fixture
def lmeb():
    """Run a command; return (exit code, standard output, standard error)."""
    return called


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


def test_help_documents_exit_codes_and_every_command_has_two_examples(lmeb):
    code, printed, _ = lmeb("--help")
    assert code == 0
    for exit_code in ("0  ", "1  ", "2  ", "130", "141", "143"):
        assert re.search(rf"^ +{exit_code}  \w", printed, re.MULTILINE), exit_code
    for command in COMMANDS:
        code, printed, _ = lmeb("store", command, "--help")
        assert code == 0
        examples = printed.partition("Examples:")[2]
        assert examples.count(f"\n    lm-eval-bayes store {command} ") == 2
        assert command in lmeb("store", "-h")[1]


def test_version(lmeb):
    from lm_eval_bayes import __version__

    assert lmeb("--version") == (0, f"lm-eval-bayes {__version__}\n", "")


# -- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("info", "absent.sqlite"),
        ("verify", "absent.sqlite"),
        ("merge", "absent.sqlite", "-o", "all.sqlite"),
        ("export", "absent.sqlite", "-o", "a.jsonl"),
        ("prune", "absent.sqlite", "--trials-from", "1"),
    ],
)
def test_a_store_that_is_missing(lmeb, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    code, printed, error = lmeb("store", *arguments)
    assert (code, printed) == (2, "")
    assert error.startswith("error: ")
    assert "absent.sqlite cannot be opened: there is no such file" in error
    assert len(error.splitlines()) == 1
    assert os.listdir(tmp_path) == []


def test_an_error_is_one_printable_sentence(lmeb, tmp_path):
    path = tmp_path / "no\x1b[31m\nte.txt"
    path.write_text("hello")
    code, _, error = lmeb("store", "info", path)
    assert code == 2
    assert "no\\x1b[31m\\nte.txt is not a trial store" in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("arguments", [("merge", "a"), ("export",), ("info",), ("nothing",)])
def test_wrong_arguments(lmeb, arguments):
    code, _, error = lmeb("store", *arguments)
    assert code == 2
    assert "Traceback" not in error


# -- info --------------------------------------------------------------------------------------


def test_info(lmeb, make):
    path = make(task="aime")
    code, printed, error = lmeb("store", "info", path)
    assert (code, error) == (0, "")
    assert f"{path}: schema 1, " in printed
    assert "3 trials, 1 prompt, 0 prompts with signals, 3 graded outcomes" in printed
    assert '{"pretrained":"some/model"}' in printed
    line = next(line for line in printed.splitlines() if line.strip().startswith("aime"))
    assert line.split() == ["aime", "1.0", "none", "2", "1", "3"]


def test_info_as_json(lmeb, make):
    paths = [make("a.sqlite", task="aime"), make("b.sqlite", trials=(5,))]
    code, printed, _ = lmeb("store", "info", "--json", *paths)
    first, second = json.loads(printed)
    assert code == 0
    assert (first["path"], first["trials"], first["outcomes"]) == (str(paths[0]), 3, 3)
    assert first["tasks"][0]["task"] == "aime"
    (model, sampling) = (first["series"][0][name] for name in ("model", "sampling"))
    (counted,) = first["counts"]
    assert (counted["model"], counted["sampling"], counted["trials"]) == (model, sampling, 3)
    assert first["models"][model] == {"pretrained": "some/model"}
    assert (second["trials"], second["tasks"]) == (1, [])


def test_what_others_wrote_is_shown_as_text(lmeb, make):
    path = make(model=HOSTILE, task="[red]\x1b]0;title\x07")
    _, printed, _ = lmeb("store", "info", path)
    assert "\x1b" not in printed
    assert "\u202e" not in printed
    assert "[bold]x[/bold]" in printed
    assert "[red]\\x1b]0;title\\x07" in printed


def test_a_table_on_a_terminal_is_drawn_and_shows_markup_as_text(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    output.say_table("tit[b]le", ["na[i]me", "n"], [["[red]x[/red] :smiley:", 7], [HOSTILE, 8]])
    printed = capsys.readouterr().out
    assert "─" in printed
    for text in ("tit[b]le", "na[i]me", "[red]x[/red] :smiley:", "\\x1b[31m[bold]x[/bold]\\n"):
        assert text in printed
    assert "\u202e" not in printed


def test_an_ascii_terminal_gets_escapes(monkeypatch):
    import io

    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", stream)
    output.say("数 [bold]")
    stream.flush()
    assert stream.buffer.getvalue() == b"\\u6570 [bold]\n"


# -- merge ---------------------------------------------------------------------------------------


def test_merge(lmeb, make, tmp_path):
    parts = [make("a.sqlite", (0, 1), task="aime"), make("b.sqlite", (1, 2), task="aime")]
    target = tmp_path / "all.sqlite"
    code, printed, error = lmeb("store", "merge", *parts, "-o", target)
    assert (code, error) == (0, "")
    assert printed == f"{target}: 3 trials added, 1 already stored, 3 graded outcomes added\n"
    code, printed, _ = lmeb("store", "merge", "--json", *parts, "-o", target)
    report = json.loads(printed)
    assert (report["merged"], report["added"], report["known"]) == (True, 0, 4)


def test_conflicts_are_named_and_nothing_is_merged(lmeb, make, tmp_path):
    parts = [make("a.sqlite", range(8)), make("b.sqlite", range(2, 8), text="other {i}")]
    target = tmp_path / "all.sqlite"
    code, printed, error = lmeb("store", "merge", *parts, "-o", target)
    assert (code, printed) == (2, "")
    lines = error.splitlines()
    assert lines[0] == (
        "error: 6 trials differ, so nothing was merged: 6 in text, of 1 prompt and 1 model, "
        f"between {parts[0]} and {parts[1]}"
    )
    # Five examples, by the first digits of their hashes.
    for number, line in zip(range(2, 7), lines[1:6], strict=True):
        assert re.fullmatch(
            rf"  trial {number} of prompt \w{{8}} \(model \w{{8}}, sampling \w{{8}}\) has one text "
            f"in {re.escape(str(parts[0]))} and another in {re.escape(str(parts[1]))}",
            line,
        )
    assert lines[6] == "  and 1 more; --json lists all, with complete hashes"
    assert "--keep-first" in lines[7]
    assert len(lines) == 8
    assert not target.exists()
    code, printed, _ = lmeb("store", "merge", "--json", *parts, "-o", target)
    assert code == 2
    report = json.loads(printed)
    assert report["merged"] is False
    assert report["n_conflicts"] == 6
    assert [conflict["trial"] for conflict in report["conflicts"]] == list(range(2, 8))
    assert report["conflicts"][0]["key"]["prompt"].startswith("blake2b-128:")


def test_a_target_that_is_the_only_store(lmeb, make, tmp_path, monkeypatch):
    path = make()
    monkeypatch.chdir(tmp_path)
    code, printed, error = lmeb("store", "merge", path.name, path, "-o", path.name)
    assert (code, printed) == (2, "")
    assert error == (
        f"error: {path} is the target of --output and the only store that was given: there is "
        "nothing to merge\n"
    )


# -- compact --------------------------------------------------------------------------------------


def test_compact(lmeb, make, tmp_path):
    path = make(trials=range(80), text="So we have the number {i} of ways to choose them. " * 20)
    code, printed, error = lmeb("store", "compact", path)
    assert (code, error) == (0, "")
    assert re.fullmatch(
        rf"{re.escape(str(path))}: [\d.]+ kB before, [\d.]+ kB now "
        r"\(80 texts, [\d.]+ kB in [\d.]+ kB\)\n",
        printed,
    )
    absent = tmp_path / "absent.sqlite"
    code, printed, error = lmeb("store", "compact", absent)
    assert (code, "there is no such file" in error, absent.exists()) == (2, True, False)


def test_compact_leaves_damaged_texts(lmeb, make):
    path = make()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE trials SET text = x'ff00' WHERE trial = 1")
        connection.commit()
    code, _, error = lmeb("store", "compact", path)
    assert code == 0
    assert f"warning: 1 text of {path} cannot be read and stayed as before" in error


# -- verify ----------------------------------------------------------------------------------------


def test_verify(lmeb, make):
    path = make(task="aime")
    code, printed, error = lmeb("store", "verify", path)
    assert (code, error) == (0, "")
    assert printed.startswith(f"{path}: intact (3 trials, 4 descriptions, ")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE trials SET seed = 99 WHERE trial = 1")
        connection.commit()
    code, printed, _ = lmeb("store", "verify", path)
    assert code == 1
    assert "damaged, 1 problem" in printed
    assert "  trial 1 of prompt" in printed


def test_verify_goes_on_behind_a_store_that_is_missing(lmeb, make, tmp_path):
    path = make()
    code, printed, error = lmeb("store", "verify", tmp_path / "absent.sqlite", path)
    assert code == 2
    assert "error: " in error
    assert f"{path}: intact" in printed


# -- export ----------------------------------------------------------------------------------------


def test_export_jsonl(lmeb, make, tmp_path):
    target = tmp_path / "a.jsonl"
    code, printed, _ = lmeb("store", "export", make(task="aime"), "-o", target)
    assert code == 0
    assert printed.startswith(f"{target}: 3 trials, 9 lines, ")
    kinds = [json.loads(line)["kind"] for line in target.read_text().splitlines()]
    assert kinds == ["model", "sampling", "prompt", *["trial"] * 3, *["outcome"] * 3]
    code, _, error = lmeb("store", "export", make(), "-o", target)
    assert code == 2
    assert "exists already; nothing was exported" in error
    assert lmeb("store", "export", make(), "-o", target, "--overwrite")[0] == 0


def test_export_samples(lmeb, make, tmp_path):
    path = make(task="aime")
    code, printed, _ = lmeb("store", "export", path, "--format", "samples", "-o", tmp_path / "out")
    assert code == 0
    assert printed.endswith(": 1 line, 3 trials, task aime, 1.0\n")
    (name,) = os.listdir(tmp_path / "out")
    (line,) = (tmp_path / "out" / name).read_text().splitlines()
    assert json.loads(line)["outcomes"] == [0, 1, 0]
    code, printed, _ = lmeb(
        *("store", "export", path, "--format", "samples", "-o", tmp_path / "out"),
        *("--overwrite", "--json"),
    )
    assert json.loads(printed)["files"][0]["trials"] == 3
    code, _, error = lmeb("store", "export", path, "--format", "csv", "-o", tmp_path / "x")
    assert code == 2
    assert "csv" in error


def test_export_to_standard_output(lmeb, make, tmp_path):
    path, target = make(task="aime"), tmp_path / "a.jsonl"
    assert lmeb("store", "export", path, "-o", target)[0] == 0
    for name in ("-", "/dev/stdout"):
        assert lmeb("store", "export", path, "-o", name) == (0, target.read_text(), "")
    for more in (("--json",), ("--format", "samples")):
        code, printed, error = lmeb("store", "export", path, "-o", "-", *more)
        assert (code, printed) == (2, "")
        assert error.startswith("error: ")
        assert "--output" in error
    assert sorted(os.listdir(tmp_path)) == ["a.jsonl", "a.sqlite"]


@pytest.mark.parametrize("form", ["jsonl", "samples"])
def test_an_export_of_damaged_trials_says_so(lmeb, make, tmp_path, form):
    path = make(task="aime")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE trials SET seed = 99 WHERE trial < 2")
        connection.commit()
    ways = [("-o", tmp_path / "out"), ("-o", tmp_path / "out", "--overwrite", "--json")]
    if form == "jsonl":
        ways.append(("-o", "-"))
    for way in ways:
        code, printed, error = lmeb("store", "export", path, "--format", form, *way)
        assert code == 1
        assert error == (
            f"warning: 2 records exported from {path} do not match their hashes; "
            "see `lm-eval-bayes store verify`\n"
        )
        if "--json" in way:
            assert json.loads(printed)["damaged"] == 2
        elif "-" in way:
            assert len(printed.splitlines()) == 9


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_an_export_replaces_only_regular_files(lmeb, make, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    path = make()
    code, printed, error = lmeb("store", "export", path, "-o", tmp_path / "pipe", "--overwrite")
    assert (code, printed) == (2, "")
    assert "pipe is a device, pipe or socket, so it is not replaced; nothing was exported" in error
    assert len(error.splitlines()) == 1
    assert (tmp_path / "pipe").is_fifo()


# -- prune -----------------------------------------------------------------------------------------


def test_prune_only_counts_without_yes(lmeb, make):
    path = make(task="aime")
    code, printed, _ = lmeb("store", "prune", path, "--trials-from", 1)
    assert code == 0
    assert f"{path}: to be deleted: 2 trials, 2 graded outcomes" in printed
    assert "nothing was deleted" in printed
    with TrialStore.open(path, mode="read") as store:
        assert store.info().trials == 3
        (model,) = store.info().models
    code, printed, _ = lmeb("store", "prune", path, "--trials-from", 1, "--yes", "--json")
    (report,) = json.loads(printed)
    assert (report["trials"], report["outcomes"], report["dry_run"]) == (2, 2, False)
    assert lmeb("store", "prune", path, "--model", model, "--yes")[0] == 0
    with TrialStore.open(path, mode="read") as store:
        assert (store.info().trials, store.info().models) == (0, {})


def test_a_slip_in_the_second_store_deletes_nothing_in_the_first(lmeb, make):
    first, second = make("a.sqlite"), make("b.sqlite", model="other")
    with TrialStore.open(first, mode="read") as store:
        (model,) = store.info().models
    code, _, error = lmeb("store", "prune", first, second, "--model", model, "--yes")
    assert code == 2
    assert "error: `--model` must be the hash of a model in" in error
    code, _, error = lmeb("store", "prune", first, "--trials-from", -1)
    assert code == 2
    assert error.startswith("error: `--trials-from` must be ")
    with TrialStore.open(first, mode="read") as store:
        assert store.info().trials == 3


def test_prune_wants_to_know_what(lmeb, make):
    path = make()
    before = path.read_bytes()
    assert lmeb("store", "prune", path, "--yes") == (
        2,
        "",
        "error: no criterion: give --model, --sampling, --prompt or --trials-from\n",
    )
    assert path.read_bytes() == before


# -- as a process ----------------------------------------------------------------------------


def process(*arguments, code=None):
    command = ["-c", code] if code else ["-m", "lm_eval_bayes.cli.main"]
    return subprocess.run(
        [sys.executable, *command, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )


def test_help_loads_neither_the_harness_nor_torch():
    code = """
import sys
sys.argv = ["lm-eval-bayes", "store", "--help"]
from lm_eval_bayes.cli.main import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
heavy = ("lm_eval", "torch", "transformers", "datasets", "matplotlib", "sqlite3", "rich")
print("loaded:", [name for name in heavy if name in sys.modules])
"""
    done = process(code=code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "loaded: []"


def test_errors_and_output_in_a_pipe(make, tmp_path):
    path = make(task="aime")
    done = process("store", "info", path)
    assert (done.returncode, done.stderr) == (0, "")
    assert not set("─━│┃") & set(done.stdout), "no boxes are drawn in a pipe"
    assert max(map(len, done.stdout.splitlines()[1:])) <= 80
    trials = done.stdout.split("\ntrials\n")[1].splitlines()
    assert any("…" in line for line in trials[:6]), "hashes are shortened in the middle"
    complete = process("store", "info", "--wide", path)
    assert json.loads(process("store", "info", "--json", path).stdout)[0]["models"].keys() <= set(
        complete.stdout.split()
    )
    done = process("store", "info", tmp_path / "absent.sqlite")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command",
    [("merge", "-o", "new/deep/all.sqlite"), ("export", "-o", "new/deep/all.jsonl")],
    ids=lambda command: command[0],
)
def test_missing_folders_are_made_and_go_again_where_nothing_is_written(
    lmeb, make, tmp_path, monkeypatch, command
):
    monkeypatch.chdir(tmp_path)
    store = make()
    (name, *options) = command
    code, _, error = lmeb("store", name, tmp_path / "absent.sqlite", *options)
    assert (code, (tmp_path / "new").exists()) == (2, False), error
    code, _, error = lmeb("store", name, store, *options)
    assert (code, error) == (0, "")
    assert (tmp_path / options[1]).is_file()
    (tmp_path / "file").write_text("")
    code, _, error = lmeb("store", name, store, "-o", "file/all")
    assert code == 2
    assert "`--output` must lie in a folder" in error


# -- alias -----------------------------------------------------------------------------------------


def test_alias(lmeb, make):
    path = make(model="gpt-x")
    code, printed, error = lmeb("store", "alias", path, "gpt-x", "gpt-x-2026-05")
    assert (code, error) == (0, "")
    assert printed.startswith(f"{path}: gpt-x-2026-05 is gpt-x, blake2b-128:")
    digest = printed.split()[-1]
    for name in (digest, digest.partition(":")[2]):
        printed = lmeb("store", "alias", path, name, "gpt-y")[1]
        assert printed == f"{path}: gpt-y is {digest}\n"
    with TrialStore.open(path, mode="read") as store:
        assert store.aliases() == {"gpt-x-2026-05": digest, "gpt-y": digest}
    code, _, error = lmeb("store", "alias", path, "gpt-z", "gpt-y")
    assert (code, f"`OLD` must be a model of {path} (gpt-x); got 'gpt-z'" in error) == (2, True)


def test_an_alias_of_a_name_that_two_models_have(lmeb, make, tmp_path):
    path = make(model="gpt-x")
    with TrialStore.open(path) as store:
        store.describe_model({"pretrained": "gpt-x", "dtype": "float16"})
    code, _, error = lmeb("store", "alias", path, "gpt-x", "gpt-y")
    assert (code, "2 have this name, so give a hash: blake2b-128:" in error) == (2, True)
    absent = tmp_path / "absent.sqlite"
    assert lmeb("store", "alias", absent, "gpt-x", "gpt-y")[0] == 2
    assert not absent.exists()
