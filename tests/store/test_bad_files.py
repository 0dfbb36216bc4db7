"""Whatever lies at the path: one sentence, and nothing is harmed."""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from _support.errors import refused
from _support.paths import REPOSITORY

from lm_eval_bayes.store.errors import (
    NotAStoreError,
    OtherSchemaError,
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreFileError,
    StoreFullError,
    translate_error,
)
from lm_eval_bayes.store.export import export_jsonl
from lm_eval_bayes.store.merge import merge
from lm_eval_bayes.store.prune import verify
from lm_eval_bayes.store.schema import SCHEMA
from lm_eval_bayes.store.trial_store import TrialStore

JPEG = (
    b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00" + bytes(range(256)) * 30
)


def foreign_sqlite(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
        connection.execute("INSERT INTO bookmarks VALUES ('x')")
        connection.commit()


def foreign_sqlite_with_a_log(path):
    """Another application that was killed: its log must not be folded in by us."""
    script = (
        "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "c.execute('PRAGMA journal_mode = WAL'); c.execute('PRAGMA application_id = 5');"
        "c.execute('CREATE TABLE t (x)'); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)
    assert path.with_name(path.name + "-wal").stat().st_size > 0


def store_without_its_header(path):
    TrialStore.open(path).close()
    data = path.read_bytes()
    path.write_bytes(bytes(16) + data[16:])


FOREIGN = {
    "a JPEG": lambda path: path.write_bytes(JPEG),
    "a text": lambda path: path.write_text("trial,text\n0,42\n" * 99),
    "five bytes": lambda path: path.write_bytes(b"SQLit"),
    "an empty file": lambda path: path.touch(),
    "another application's": foreign_sqlite,
    "another one's, with a log": foreign_sqlite_with_a_log,
    "a store without its header": store_without_its_header,
    "a directory": lambda path: path.mkdir(),
}


def contents(folder):
    return {
        path.relative_to(folder): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def ways(path, store):
    """Return the ways to open what lies at a path; the store is a good one."""
    return (
        lambda: TrialStore.open(path),
        lambda: TrialStore.open(path, mode="read"),
        lambda: merge([path], path.parent / "new.sqlite"),
        lambda: merge([store], path),
    )


@pytest.mark.parametrize("what", FOREIGN)
def test_foreign_files(what, path, filled):
    make = FOREIGN[what]
    store = filled("good.sqlite")
    make(path)
    before = contents(path.parent)
    for way in (*ways(path, store), lambda: verify(path)):
        with refused(None, "path", None, error=StoreError) as caught:
            way()
        assert str(path) in str(caught.value)
        assert contents(path.parent) == before


@pytest.mark.parametrize("schema", [0, SCHEMA + 1])
def test_a_store_of_another_schema_is_refused_and_left_alone(path, filled, schema):
    store = filled("good.sqlite")
    filled()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {schema}")
        connection.execute("PRAGMA journal_mode = WAL")
    before = contents(path.parent)
    for way in (*ways(path, store), lambda: verify(path)):
        with refused(str(path), "schema", schema, error=OtherSchemaError):
            way()
        assert contents(path.parent) == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_named_pipe_is_not_waited_for(path):
    os.mkfifo(path)
    with refused(None, "path", None, error=NotAStoreError):
        TrialStore.open(path)


def test_missing_places(tmp_path):
    with refused("store", "path", error=StoreFileError):
        TrialStore.open(tmp_path / "absent" / "a.sqlite")
    (tmp_path / "file").touch()
    with refused("store", "failed", error=StoreFileError):
        TrialStore.open(tmp_path / "file" / "a.sqlite")
    with refused("store", "path", error=StoreFileError):
        TrialStore.open(tmp_path / "a.sqlite", mode="read")
    with refused("store", "failed", error=StoreFileError):
        TrialStore.open(tmp_path / ("x" * 300))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with refused("store", "failed", error=StoreFileError):
        TrialStore.open(tmp_path / "loop")
    assert sorted(os.listdir(tmp_path)) == ["file", "loop"]


@pytest.mark.parametrize("keep", [100, 2048, 3 * 4096, -4096])
def test_a_store_that_is_cut_off(keep, path, filled):
    store = filled("good.sqlite", text="{q} {i} " + "x" * 3000)
    path.write_bytes(store.read_bytes()[:keep])
    before = contents(path.parent)
    for way in ways(path, store):
        with refused(None, "damaged", None, error=StoreDamagedError):
            way()
    with refused("path", "type"):
        export_jsonl(store, path, overwrite=True)
    assert not verify(path).ok
    assert contents(path.parent) == before


def test_a_row_that_cannot_be_read_is_named_and_replaced(path, filled, make_trial, keys_of):
    filled(prompts=("one",))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE trials SET text = x'ff' WHERE trial = 1")
        connection.commit()
    with TrialStore.open(path, mode="read") as store:
        (key,) = keys_of(store)
        with refused(None, "damaged", None, error=StoreDamagedError):
            store.trials(key)
        assert store.trials_of([key], first=2)[key][2].text == "one 2"
        damaged = []
        assert list(store.trials_of([key], damaged=damaged)[key]) == [0, 2]
        assert damaged == [(key, 1)]
    new = make_trial(key, 1, "again", seed=9)
    with TrialStore.open(path) as store:
        assert store.add([make_trial(key, 0, "one 0", seed=0), new]) == 1
        assert store.trials(key)[1] == new
    assert verify(path).ok


@pytest.mark.parametrize("table", ["models", "samplings", "prompts", "versions", "prompt_signals"])
def test_descriptions_that_cannot_be_read_are_damage(path, filled, table, keys_of):
    filled(prompts=("one",))
    with TrialStore.open(path, mode="read") as store:
        (key,) = keys_of(store)
    column = "signals" if table == "prompt_signals" else "description"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE {table} SET {column} = x'ff'")
        connection.commit()
    with TrialStore.open(path, mode="read") as store:
        ask = {
            "models": [lambda: store.model(key.model), store.info, store.models],
            "samplings": [lambda: store.sampling(key.sampling), store.info],
            "prompts": [lambda: store.prompt(key.prompt)],
            "versions": [lambda: store.trials(key)],
            "prompt_signals": [lambda: store.prompt_signals(key.model, [key.prompt])],
        }
        for question in ask[table]:
            with refused(None, "damaged", None, error=StoreDamagedError):
                question()
    assert export_jsonl(path, path.with_name("a.jsonl")).damaged > 0


def test_a_store_that_stays_locked(path, filled):
    filled()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with refused(None, "failed", None, error=StoreBusyError):
            TrialStore.open(path, wait_s=0.1)
        with TrialStore.open(path, mode="read", wait_s=0.1) as store:
            assert store.info().trials == 6


# Read-only files and folders. The superuser is bound by no permissions, so these run as nobody.

AS_NOBODY = """
import os, sys
from lm_eval_bayes.errors import LmEvalBayesError
from lm_eval_bayes.store.trial import Trial
from lm_eval_bayes.store.trial_store import TrialStore
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
for mode, path in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        with TrialStore.open(path, mode=mode) as store:
            print("opened with", store.info().trials)
    except LmEvalBayesError as error:
        print(type(error).__name__, error.rule, path)
"""


@pytest.fixture
def open_folder():
    """A folder that other users reach, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(dir="/tmp" if os.name == "posix" else None))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def as_nobody(*modes_and_paths):
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, *map(str, modes_and_paths)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX permissions")
def test_files_and_a_folder_that_are_not_ours(open_folder, filled):
    names = ("a.sqlite", "ours.sqlite", "closed.sqlite", "new.sqlite")
    store, ours, closed, new = (open_folder / name for name in names)
    root = os.geteuid() == 0
    modes = {store: 0o666, ours: 0o644 if root else 0o444, closed: 0o600 if root else 0o000}
    content = filled().read_bytes()
    for file, mode in modes.items():
        file.write_bytes(content)
        file.chmod(mode)
    open_folder.chmod(0o555)
    written = as_nobody("write", store, "write", ours, "write", closed, "write", new)
    assert written == [
        f"StoreFileError failed {store}",
        f"StoreFileError permission {ours}",
        f"StoreFileError failed {closed}",
        f"StoreFileError failed {new}",
    ]
    read = as_nobody("read", store, "read", ours, "read", closed)
    assert read == ["opened with 6", "opened with 6", f"StoreFileError failed {closed}"]
    assert sorted(os.listdir(open_folder)) == sorted(names[:3])


def test_a_file_marked_read_only_is_kept_even_from_the_superuser(path, filled):
    filled()
    path.chmod(0o444)
    before = path.read_bytes()
    with refused("store", "permission", error=StoreFileError):
        TrialStore.open(path)
    with TrialStore.open(path, mode="read") as store:
        assert store.info().trials == 6
    assert verify(path).ok
    assert contents(path.parent) == {Path(path.name): before}
    path.chmod(0o644)


def test_a_frozen_file_that_changes_after_all_is_noticed(path, filled):
    filled()
    path.chmod(0o444)
    with TrialStore.open(path, mode="read") as store:
        assert store.info().trials == 6
        path.chmod(0o644)
        with TrialStore.open(path) as writer:
            writer.describe_prompts(["new"])
        with refused("store", "failed", error=StoreFileError):
            store.info()


# A full disk.


@contextmanager
def small_disk(folder, size):
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("may not mount a small file system here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk(tmp_path, describe, make_trial, plainly):
    with small_disk(tmp_path / "disk", "600k") as disk:
        path = disk / "a.sqlite"
        (disk / "filler").write_bytes(bytes(100_000))
        with TrialStore.open(path) as store:
            key = describe(store)
            numbers = itertools.count()
            with pytest.raises(StoreFullError):
                all(store.add([make_trial(key, i, f"{i} " + "x" * 3000)]) for i in numbers)
            stored = next(numbers) - 1
            assert stored > 10
            assert len(store.trials(key)) == stored
            with refused(None, "failed", None, error=StoreError):
                TrialStore.open(disk / "b.sqlite")
            assert not [name for name in os.listdir(disk) if "b.sqlite" in name]
            (disk / "filler").unlink()
            assert store.add([make_trial(key, stored, f"{stored} more")]) == 1
        trials = plainly(path)
        assert {row_id[3] for row_id in trials} == set(range(stored + 1))
        assert all(text.startswith(f"{row_id[3]} ") for row_id, (_, text) in trials.items())
        assert verify(path).ok


@pytest.mark.parametrize("free", [0, 16_384])
def test_a_disk_without_room_for_the_log_of_a_store(tmp_path, filled, free):
    """SQLite calls it an I/O error where even the index of its log finds no room."""
    content = filled().read_bytes()
    with small_disk(tmp_path / "disk", "600k") as disk:
        path = disk / "a.sqlite"
        path.write_bytes(content)
        room = shutil.disk_usage(disk).free - free
        (disk / "filler").write_bytes(bytes(room))
        assert shutil.disk_usage(disk).free == free
        with refused(None, "failed", None, error=StoreFullError):
            TrialStore.open(path)
        (disk / "filler").unlink()
        with TrialStore.open(path) as store:
            assert store.info().trials == 6


@pytest.mark.parametrize("message", ["disk I/O error", "database or disk is full"])
def test_a_full_disk_is_known_by_the_words_where_there_is_no_code(path, monkeypatch, message):
    usage = shutil.disk_usage(path.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=0))
    error = translate_error(sqlite3.OperationalError(message), path, "read")
    assert isinstance(error, StoreFullError)


def test_creation_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def fail(*args):
        raise sqlite3.OperationalError("no")

    monkeypatch.setattr("lm_eval_bayes.store.file.create_tables", fail)
    with refused("store", "failed", error=StoreFileError):
        TrialStore.open(tmp_path / "a.sqlite")
    assert os.listdir(tmp_path) == []


def test_a_store_that_another_process_creates_meanwhile_is_not_replaced(path, appears_meanwhile):
    with TrialStore.open(path) as store:
        assert store.info().trials == 6


@pytest.mark.skipif(os.name != "posix", reason="an open file cannot be removed elsewhere")
@pytest.mark.parametrize("replaced", [False, True])
def test_a_store_that_is_removed_while_it_is_in_use(path, key, store, make_trial, replaced):
    """What is written to it afterwards would be lost with this process, without a word."""
    store.add([make_trial(key, 0)])
    path.unlink()
    if replaced:
        with TrialStore.open(path):
            pass
    with refused("store", "path", error=StoreFileError):
        store.add([make_trial(key, 1)])
