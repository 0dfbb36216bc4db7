"""Files that are written completely or not at all, with the folders that they need."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from _support.errors import refused

from lm_eval_bayes._util.files import check_writable, write_all_or_none, write_atomic, write_errors
from lm_eval_bayes._util.sqlite import check_not_store


def test_missing_folders_are_made(tmp_path):
    path = tmp_path / "a" / "b" / "c.txt"
    check_writable(path, "--output")
    assert not path.parent.exists()
    assert write_atomic(path, b"all of it")
    assert path.read_bytes() == b"all of it"
    assert os.listdir(path.parent) == ["c.txt"]


def test_folders_made_for_a_file_that_cannot_be_written_go_again(tmp_path, monkeypatch):
    monkeypatch.setattr("lm_eval_bayes._util.files.os.fsync", no_space)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(tmp_path / "a" / "b" / "c.txt", b"all of it")
    assert os.listdir(tmp_path) == []


def test_a_file_that_is_there_stays_unless_it_is_to_be_replaced(tmp_path):
    path = tmp_path / "c.txt"
    path.write_bytes(b"old")
    assert not write_atomic(path, b"new", replace=False)
    assert path.read_bytes() == b"old"
    assert write_atomic(path, b"new")
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"new", ["c.txt"])


def no_space(*arguments):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("write", [write_atomic, lambda *file: write_all_or_none([file])])
def test_an_error_names_the_path_as_it_was_given(tmp_path, monkeypatch, write):
    monkeypatch.chdir(tmp_path)
    path = Path("folder", "c.txt")
    with pytest.raises(OSError, match="No space left on device") as caught:
        write(path, no_space)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    # The name is allowed, and that of the temporary file is too long.
    long_name = Path("folder", "c" * 250)
    with pytest.raises(OSError, match="too long") as caught:
        write(long_name, b"")
    assert (caught.value.errno, caught.value.filename) == (errno.ENAMETOOLONG, str(long_name))

    def read_only(path, *arguments):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    for function in ("os.link", "os.mkdir"):
        with monkeypatch.context() as context:
            context.setattr(function, read_only)
            context.setattr("os.open", read_only)
            context.setattr("os.replace", read_only)
            with pytest.raises(PermissionError, match="Permission denied") as caught:
                write(path, b"")
        assert caught.value.filename == str(path)
    assert os.listdir(tmp_path) == []


def test_the_error_of_an_argument_names_a_long_path_in_full(tmp_path):
    path = tmp_path / ("d" * 120) / "c.txt"
    with refused("--output", "failed", str(path)) as caught, write_errors("--output"):
        write_atomic(path, no_space)
    assert str(path) in str(caught.value)


def test_an_error_of_another_file_that_a_content_reads_stays(tmp_path):
    def copy(output):
        output.write((tmp_path / "missing").read_bytes())

    with pytest.raises(FileNotFoundError) as caught:
        write_atomic(tmp_path / "c.txt", copy)
    assert caught.value.filename == str(tmp_path / "missing")


def test_of_a_link_the_file_it_leads_to_is_written(tmp_path):
    (tmp_path / "folder").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "folder" / "c.txt")
    assert write_atomic(link, b"new", replace=False)
    assert not write_atomic(link, b"newer", replace=False)
    write_all_or_none([(link, b"newest")], replace=True)
    assert (link.is_symlink(), os.listdir(tmp_path / "folder")) == (True, ["c.txt"])
    assert (tmp_path / "folder" / "c.txt").read_bytes() == b"newest"


@pytest.mark.parametrize("replace", [False, True])
def test_all_files_are_written_or_none(tmp_path, replace):
    paths = [tmp_path / "a" / name for name in ("1", "2", "3")]

    def fail(output):
        output.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_all_or_none([(paths[0], b"one"), (paths[1], fail)], replace)
    assert os.listdir(tmp_path) == []
    write_all_or_none(((path, path.name.encode()) for path in paths), replace)
    assert [path.read_bytes() for path in paths] == [b"1", b"2", b"3"]
    assert sorted(os.listdir(tmp_path / "a")) == ["1", "2", "3"]


def test_of_several_files_none_is_written_if_one_exists(tmp_path):
    (tmp_path / "2").write_bytes(b"old")
    files = [(tmp_path / name, b"new") for name in ("1", "2", "3")]
    with pytest.raises(FileExistsError) as caught:
        write_all_or_none(files)
    assert caught.value.filename == str(tmp_path / "2")
    assert (os.listdir(tmp_path), (tmp_path / "2").read_bytes()) == (["2"], b"old")


def test_two_contents_for_one_new_file_are_refused(tmp_path):
    with pytest.raises(FileExistsError):
        write_all_or_none([(tmp_path / "1", b"a"), (tmp_path / "1", b"b")])
    assert os.listdir(tmp_path) == []


def test_trial_stores_and_damaged_sqlite_files_are_recognised(tmp_path):
    for name, content in (("text", b"hello"), ("lines", b"{}\n" * 100)):
        (tmp_path / name).write_bytes(content)
        check_not_store(tmp_path / name, "--output")
    for name, application_id in (("other", 1), ("trials", 0x4C4D4542)):
        with closing(sqlite3.connect(tmp_path / name)) as connection:
            connection.execute(f"PRAGMA application_id = {application_id}")
            connection.execute("CREATE TABLE t (x)")
            connection.commit()
    check_not_store(tmp_path / "other", "--output")
    for size in (None, 4096 + 100):
        if size:
            os.truncate(tmp_path / "trials", size)
        with refused("--output", "type"):
            check_not_store(tmp_path / "trials", "--output")
    assert sorted(os.listdir(tmp_path)) == ["lines", "other", "text", "trials"]


def test_a_place_in_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with refused("--output", "path"):
        check_writable(tmp_path / "file" / "deep" / "c.txt", "--output")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes anywhere")
def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with refused("--output", "permission", str(tmp_path / "new" / "c.txt")):
            check_writable(tmp_path / "new" / "c.txt", "--output")
    finally:
        tmp_path.chmod(0o700)
