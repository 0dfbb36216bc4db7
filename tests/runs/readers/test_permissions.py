"""A file or a folder that the user may not read is named, whatever the format."""

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from _support.errors import refused
from _support.format_logs import SAVED
from _support.tool_logs import DATA

from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.readers.formats import recognise

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions of POSIX")

#: The user that has no rights.
NOBODY = 65534


@pytest.fixture
def folder():
    """A folder that every user can list, unlike those of pytest."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    for parent, folders, _ in os.walk(path):
        for name in folders:
            Path(parent, name).chmod(0o755)
    shutil.rmtree(path)


@contextmanager
def without_rights():
    """Run the block as a user to whom the modes of files apply."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


def check_refused(path, locked):
    """Check that a path is refused for a file or a folder in it that may not be read."""
    read_runs([DATA / "lm_eval_0.4.9"])  # imports that the other user may not read
    with (
        without_rights(),
        refused("RUN", "permission") as caught,
    ):
        read_runs([path])
    assert f"({locked})" in str(caught.value)


def copied(source, pattern, folder):
    """Return a copy of logs, and the file to lock."""
    shutil.copytree(DATA / source, folder / "logs")
    return folder / "logs", min((folder / "logs").glob(pattern))


@pytest.mark.parametrize(("source", "pattern"), SAVED)
def test_a_file_that_may_not_be_read_is_named(source, pattern, folder):
    logs, file = copied(source, pattern, folder)
    recognise(logs)
    mode = file.stat().st_mode
    file.chmod(0)
    check_refused(logs, file)
    check_refused(file, file)
    file.chmod(mode)
    # of a folder with the mode 444 the names can be listed, and no file be opened
    more = logs / "more"
    more.mkdir()
    (more / "a.json").write_text("{}")
    for mode, locked in ((0o000, more), (0o444, more / "a.json")):
        more.chmod(mode)
        check_refused(logs, locked)


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.npz", "a.csv.gz", "a.jsonl.zst", "a.db"])
def test_no_table_or_store_that_may_not_be_read_is_sniffed(name, folder):
    file = folder / name
    file.write_bytes(b"question,score\nq,1\n")
    file.chmod(0)
    check_refused(file, file)


def test_a_file_in_a_folder_that_may_not_be_searched(folder):
    (folder / "sub").mkdir()
    (folder / "sub" / "a.csv").write_text("question,score\nq,1\n")
    (folder / "sub").chmod(0)
    for path in (folder / "sub", folder / "sub" / "a.csv"):
        check_refused(path, path)


def test_a_file_of_another_tool_is_a_warning(folder):
    """The harness reads no such file, and the runs in its own are whole."""
    logs, _ = copied("lm_eval_0.4.9", "*", folder)
    (logs / "notes.json").write_text("{}")
    (logs / "notes.json").chmod(0)
    recognise(DATA / "lm_eval_0.4.9")
    with without_rights():
        saved = read_runs([logs])
    (warning,) = saved.warnings
    assert warning.startswith(f"{logs / 'notes.json'} was not read: permission denied")
