"""A reader recognises the files of its own tool, and those of no other."""

import gzip
import shutil

import pytest
from _support.errors import refused
from _support.tool_logs import DATA

from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.readers import tables
from lm_eval_bayes.runs.readers.formats import FORMATS, recognise
from lm_eval_bayes.runs.readers.tables import LogFile
from lm_eval_bayes.store.locations import store_of
from lm_eval_bayes.store.trial_store import TrialStore

#: By format its files, and the folder that holds them.
FILES = {
    "inspect_ai": ("inspect_ai", "*.eval", "*.json"),
    "verifiers, traces": ("verifiers_traces", "**/traces.jsonl"),
    "SWE-bench": ("swe_bench", "*.json"),
    "tau2-bench, tau-bench": ("tau2", "*.json"),
    "Harbor, terminal-bench": ("harbor", "letters/*"),
    "evalscope": ("evalscope", "*/reviews/*/*.jsonl"),
    "lighteval": ("lighteval", "details/*/*/*.parquet"),
    "NeMo-Skills": ("nemo_skills/published", "**/output-rs*.jsonl"),
    "MathArena": ("matharena/outputs", "**/1.json.zst"),
}
#: Tables are recognised by names of columns, which logs may have too: they come last.
GENERAL = ("counts", "table of trials", "matrix of outcomes")

#: Lines of tools whose rows are no trials of one model each, or hold their scores deeper.
PROMPTFOO = b'{"id": "e93f", "promptIdx": 0, "score": 1, "success": true, "testIdx": 0}\n'
EVERY_EVAL_EVER = b'{"schema_version": "0.3.0", "sample_id": "a", "evaluation": {"score": 1}}\n'

LOG = (DATA / "inspect_ai" / "strong.eval").read_bytes()

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
    file = path if path.is_file() else recognise(path)[1].files[0]
    claims = [f.name for f in FORMATS if file.is_file() and f.reader.is_mine(LogFile(file))]
    assert [name for name in claims if name not in GENERAL] in ([], [PATHS[path]])


def test_files_of_other_tools_in_a_folder_are_named(tmp_path):
    shutil.copy(DATA / "inspect_ai" / "strong.eval", tmp_path)
    shutil.copy(DATA / "tau2" / "strong.json", tmp_path)
    (tmp_path / "notes.json").write_text("{}")
    saved = read_runs([tmp_path])
    assert saved.tasks == ("letters",)
    (others,) = saved.warnings
    assert "strong.json (tau2-bench, tau-bench)" in others
    assert "notes.json" not in others


@pytest.mark.parametrize(
    ("name", "content", "rule"),
    [
        ("empty.json", b"", "empty"),
        ("cut.parquet", b"PAR1" + 60 * b"\x15", "damaged"),
        ("cut.arrow", b"ARROW1\0\0" + 60 * b"\xff", "damaged"),
        ("strong.zip", LOG, "path"),
        ("strong.eval.gz", gzip.compress(LOG), "damaged"),
        ("half.eval", LOG[: len(LOG) // 2], "damaged"),
        ("notes.txt", b"hello, I am no store", "path"),
        ("other.jsonl", b'{"a": 1}\n', "missing-column"),
        ("promptfoo.jsonl", PROMPTFOO, "missing-column"),
        ("run_samples.jsonl", EVERY_EVAL_EVER, "missing-column"),
        ("lines.jsonl", b"\n\n", "empty"),
        ("object.jsonl", b"{}\n", "empty"),
        ("cut.json", b'[{"a": 1}, {"a"', "damaged"),
        ("other.json", b'[{"a": 1}]', "path"),
    ],
)
def test_what_is_wrong_with_a_file_of_no_tool(tmp_path, name, content, rule):
    (tmp_path / name).write_bytes(content)
    with refused("RUN", rule):
        read_runs([tmp_path / name])


def test_a_file_is_read_once_for_all_formats(tmp_path, monkeypatch):
    paths = []
    monkeypatch.setattr(tables, "beginning", lambda path: paths.append(path) or b"{}")
    file = tmp_path / "results.json"
    file.write_text("{}")
    with refused("RUN", "path"):
        recognise(file)
    assert paths == [file]


def test_what_is_wrong_with_a_folder_of_no_tool(tmp_path):
    folder = tmp_path / "x.json"
    folder.mkdir()
    with refused("RUN", "path"):
        read_runs([folder])
    for name in ("notes.txt", "d.csv", "a.csv", "b.csv", "c.csv"):
        (folder / name).write_text("question,score\nq,1\n")
    with refused("RUN", "path") as caught:
        read_runs([folder])
    assert all(name in str(caught.value) for name in ("a.csv", "b.csv", "c.csv", "1 more"))


@pytest.mark.parametrize("path", ["nowhere", "a\0b", "nowhere/samples.jsonl"])
def test_a_path_that_does_not_exist_is_refused(path):
    with refused("RUN", "path", path):
        read_runs([path])


@pytest.mark.parametrize("name", ["x.sqlite-wal", "x.sqlite.processes.0a1b2c3d.json"])
def test_the_companion_of_a_store_is_no_run_of_its_own(tmp_path, name):
    """It is left out where other paths are runs; alone it is not."""
    store, companion = tmp_path / "x.sqlite", tmp_path / name
    companion.write_bytes(b"")
    assert store_of(companion) is None  # without its store it is what it is
    with refused("RUN", "empty"):
        read_runs([companion])
    TrialStore.open(store).close()
    companion.write_bytes(b"")
    assert store_of(companion) == store
    for merge in (True, False):
        with refused("RUN", "path"):
            read_runs([companion], merge=merge)
    run = DATA / "inspect_ai"
    alone, both = read_runs([run]), read_runs([run, companion])
    assert [r.n_trials for r in both.runs] == [r.n_trials for r in alone.runs]
    assert both.warnings == alone.warnings
