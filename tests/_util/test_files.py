"""Files that are written whole or not at all, in folders that are made for them."""

from __future__ import annotations

import os

import pytest

from lm_eval_bayes._util.files import check_writable, write_atomic
from lm_eval_bayes.errors import InvalidInputError


def test_missing_folders_are_made(tmp_path):
    path = tmp_path / "a" / "b" / "c.txt"
    check_writable(path, "--output")
    assert not path.parent.exists()
    assert write_atomic(path, b"all of it")
    assert path.read_bytes() == b"all of it"
    assert os.listdir(path.parent) == ["c.txt"]


def test_folders_made_for_a_file_that_cannot_be_written_go_again(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lm_eval_bayes.store.locations.os.fsync", full)
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


def test_a_place_in_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        InvalidInputError, match=r"`--output` must lie in a folder; .*file is none; got"
    ):
        check_writable(tmp_path / "file" / "deep" / "c.txt", "--output")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes anywhere")
def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(InvalidInputError, match="lie in a folder that can be written"):
            check_writable(tmp_path / "new" / "c.txt", "--output")
    finally:
        tmp_path.chmod(0o700)
