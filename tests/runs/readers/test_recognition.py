"""A reader recognises the files of its own tool, and those of no other."""

import gzip
import shutil

import pytest
from _support.command_line import called
from _support.tool_logs import DATA

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.readers.formats import FORMATS, recognise
from lm_eval_bayes.store.locations import store_of
from lm_eval_bayes.store.trial_store import TrialStore

#: By format its files, and the folder that holds them.
FILES = {
    "inspect_ai": ("inspect_ai", "*.eval", "*.json"),
    "verifiers": ("verifiers", "**/results.jsonl"),
    "verifiers, traces": ("verifiers_traces", "**/traces.jsonl"),
    "Every Eval Ever": ("every_eval_ever", "*_samples.jsonl", "*.json"),
    "SWE-bench": ("swe_bench", "*.json", "**/report.json"),
    "promptfoo": ("promptfoo", "*.json", "*.jsonl"),
}
#: Tables are recognised by names of columns, which logs may have too: they come last.
GENERAL = ("counts", "table of trials", "matrix of outcomes")

PATHS = {
    path: name
    for name, (folder, *patterns) in FILES.items()
    for path in [
        DATA / folder,
        *(p for pattern in patterns for p in DATA.joinpath(folder).glob(pattern)),
    ]
}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: str(path.relative_to(DATA)))
def test_a_file_is_of_one_format(path):
    assert recognise(path)[0].name == PATHS[path]
    claims = [format.name for format in FORMATS if format.reader.sniff(path) is not None]
    assert [name for name in claims if name not in GENERAL] == [PATHS[path]]


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[]", b"PK", b"\xff\xfe", b"[" * 5000])
@pytest.mark.parametrize("name", ["a.json", "report.json", "a.jsonl", "a.eval", "a_samples.jsonl"])
def test_files_of_no_tool_are_left_to_others(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    names = {name for name in FILES if name != "inspect_ai" or content != b"PK"}
    for format in FORMATS:
        if format.name in names:
            assert format.reader.sniff(tmp_path / name) is None
            assert format.reader.sniff(tmp_path) is None


def test_files_of_other_tools_in_a_folder_are_named(tmp_path):
    shutil.copy(DATA / "inspect_ai" / "strong.eval", tmp_path)
    shutil.copy(DATA / "tau2" / "strong.json", tmp_path)
    shutil.copy(DATA / "tau_bench" / "gpt-4o-airline.json", tmp_path)
    (tmp_path / "notes.json").write_text("{}")
    saved = read_runs([tmp_path])
    assert saved.tasks == ("letters",)
    (others,) = saved.warnings
    assert others.startswith(f"2 files were not read in {tmp_path}: gpt-4o-airline.json (tau2")
    assert "strong.json (tau2-bench, tau-bench)" in others
    assert "notes.json" not in others


@pytest.mark.parametrize("name", FILES)
def test_a_folder_of_one_tool_has_no_such_warning(name):
    assert recognise(DATA / FILES[name][0])[1].warnings == (
        (
            f"{DATA / 'inspect_ai' / 'weak.json'} was left out: weak.eval is a copy, or a retry, "
            "which holds its samples",
        )
        if name == "inspect_ai"
        else ()
    )


def test_what_is_wrong_with_a_file_of_no_tool_is_said(tmp_path):
    log = (DATA / "inspect_ai" / "strong.eval").read_bytes()
    contents = {
        "empty.json": (b"", "this file is empty"),
        "cut.parquet": (b"PAR1" + 60 * b"\x15", "have a complete table in cut.parquet"),
        "cut.arrow": (b"ARROW1\0\0" + 60 * b"\xff", "have a complete table in cut.arrow"),
        "empty.eval": (b"", "this file is empty"),
        "strong.zip": (log, "be unpacked first, or be named .eval"),
        "strong": (log, "be unpacked first, or be named .eval"),
        "strong.eval.gz": (gzip.compress(log), "be decompressed first"),
        "half.eval": (log[: len(log) // 2], "half.eval; got a file whose end is missing"),
        "keys.json": (b"{}", "a complete log of another tool"),
    }
    for name, (content, message) in contents.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InvalidInputError) as raised:
            read_runs([tmp_path / name])
        assert message in str(raised.value)
    for name in ("missing.json", "keys.json/samples.jsonl"):
        with pytest.raises(InvalidInputError, match="this path does not exist"):
            read_runs([tmp_path / name])


def test_what_is_wrong_with_a_folder_of_no_tool_is_said(tmp_path):
    folder = tmp_path / "x.json"
    folder.mkdir()
    with pytest.raises(InvalidInputError, match="this folder is empty"):
        read_runs([folder])
    (folder / "notes.txt").write_text("notes")
    with pytest.raises(InvalidInputError, match=r"logs of another tool .* tables are named one by"):
        read_runs([folder])
    for name in ("d.csv", "a.csv", "b.csv", "c.csv"):
        (folder / name).write_text("question,score\nq,1\n")
    with pytest.raises(InvalidInputError) as raised:
        read_runs([folder])
    assert f"as in {folder / 'a.csv'}" in str(raised.value)
    assert "it holds a.csv, b.csv, c.csv and 1 more" in str(raised.value)


COMPANIONS = [
    "x.sqlite-wal",
    "x.sqlite-shm",
    "x.sqlite-journal",
    "x.sqlite.processes.0a1b2c3d.json",
]


@pytest.mark.parametrize("name", COMPANIONS)
def test_the_companion_of_a_store_is_no_run_of_its_own(tmp_path, name):
    """It is left out where other paths are runs; alone it is not."""
    store, companion = tmp_path / "x.sqlite", tmp_path / name
    companion.write_bytes(b"")
    assert store_of(companion) is None  # without its store it is what it is
    with pytest.raises(InvalidInputError, match="`RUN` must"):
        read_runs([companion])
    TrialStore.open(store).close()
    companion.write_bytes(b"")
    assert store_of(companion) == store
    match = r"must name the store itself, .*x\.sqlite; what was named is a part of it; got"
    for merge in (True, False):
        with pytest.raises(InvalidInputError, match=match):
            read_runs([companion], merge=merge)
    code, _, error = called("doctor", companion)
    assert code == 2
    assert "name the store itself" in error
    run = DATA / "inspect_ai"
    alone, both = read_runs([run]), read_runs([run, companion])
    assert [r.n_trials for r in both.runs] == [r.n_trials for r in alone.runs]
    assert both.warnings == alone.warnings
    printed = [called("doctor", *paths, "--json")[1] for paths in ([run], [run, companion])]
    assert printed[0] == printed[1]


@pytest.mark.parametrize("name", ["x.sqlite", "x.sqlite.bak", "y.sqlite-wal", "x.sqlite-walk"])
def test_other_files_are_no_companions(tmp_path, name):
    TrialStore.open(tmp_path / "x.sqlite").close()
    assert store_of(tmp_path / name) is None
