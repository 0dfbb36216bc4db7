"""The file of verdicts: what it holds, what it refuses, what a kill leaves."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace

import pytest
from _support.errors import refused

from lm_eval_bayes._util.hashing import hash_bytes
from lm_eval_bayes.rubric.verifier_prompt import VerifierInput
from lm_eval_bayes.runs.verdicts import (
    ChangedTrialError,
    TrialVerdict,
    VerdictsError,
    VerdictsHeader,
    case_hash,
    read_verdicts,
)
from lm_eval_bayes.store.errors import StoreFileError
from lm_eval_bayes.verifiers.judged_trials import OtherVerifierError, VerdictsFile

VERIFIER = {"kind": "transformers", "name": "judge", "labels": {"A": 1}, "temperature": 1.0}
HEADER = VerdictsHeader("samples_t_1.jsonl", VERIFIER, (-1.0, -2.0, -3.5))
TEXT = "blake2b-128:0a"


def verdict(doc_id, trial, text=TEXT, a=0.5):
    scores = (-0.1, -2.0, -3.0)
    return TrialVerdict(doc_id, trial, text, a, 0.75 - a, 0.25, scores)


FAILED = TrialVerdict(0, 1, TEXT, error="none of the labels")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "verdicts_t_1.jsonl"


@pytest.fixture
def written(path):
    with VerdictsFile(path, HEADER) as file:
        file.add([verdict(0, 0), FAILED])
        file.add([verdict(1, 0)])
    return path


def test_the_lines_are_the_documented_ones(written):
    first, *lines = [json.loads(line) for line in written.read_text().splitlines()]
    assert first == {
        "format": "lm-eval-bayes-verdicts",
        "version": 1,
        "samples": "samples_t_1.jsonl",
        "verifier": VERIFIER,
        "baseline": [-1.0, -2.0, -3.5],
    }
    judged = {"text": TEXT, "a": 0.5, "b": 0.25, "c": 0.25, "scores": [-0.1, -2.0, -3.0]}
    assert lines == [
        {"doc_id": 0, "trial": 0, **judged},
        {"doc_id": 0, "trial": 1, "text": TEXT, "error": "none of the labels"},
        {"doc_id": 1, "trial": 0, **judged},
    ]


def test_the_hash_is_that_of_the_three_texts():
    """The hash of ["q","42","a \\"b\\""] in canonical JSON, by the bytes."""
    assert case_hash(VerifierInput("q", "42", 'a "b"')) == hash_bytes(b'["q","42","a \\"b\\""]')


def test_a_file_is_gone_on_with(written):
    before = written.read_bytes()
    with VerdictsFile(written, replace(HEADER, baseline=(9.0, 9.0, 9.0))) as file:
        assert file.header.baseline == HEADER.baseline  # that of the verdicts which are there
        assert file.verdict_of(0, 0, TEXT) == verdict(0, 0)
        assert file.verdict_of(0, 1, TEXT) is None  # it may be judged again
        file.add([verdict(0, 1)])
        assert read_verdicts(written).trials[0, 1] == verdict(0, 1)  # before it is closed
    assert written.read_bytes().startswith(before)
    assert read_verdicts(written).trials[0, 1] == verdict(0, 1)  # the last line counts


def test_restart_replaces_the_file(written):
    other = replace(HEADER, verifier={"kind": "server"})
    with VerdictsFile(written, other, restart=True) as file:
        assert file.trials == {}
        file.add([verdict(3, 0)])
    assert read_verdicts(written).header == other
    assert list(read_verdicts(written).trials) == [(3, 0)]
    kept = written.with_name(f"{written.name}.before")
    assert sorted(os.listdir(written.parent)) == sorted([written.name, kept.name])
    assert set(read_verdicts(kept).trials) == {(0, 0), (0, 1), (1, 0)}


@pytest.mark.parametrize("cut", [1, 22, 50])
def test_a_torn_last_line_is_dropped(written, cut):
    whole = written.read_bytes()
    written.write_bytes(whole[:-cut])
    assert set(read_verdicts(written).trials) == {(0, 0), (0, 1)}
    with VerdictsFile(written, HEADER) as file:
        assert set(file.trials) == {(0, 0), (0, 1)}
        file.add([verdict(1, 0)])
    assert written.read_bytes() == whole


# -- what is refused ---------------------------------------------------------------------------


def test_another_verifier_is_refused_with_what_differs(written):
    before = written.read_bytes()
    other = replace(HEADER, verifier={**VERIFIER, "temperature": 2.0, "dtype": "float16"})
    differ = ["temperature 1, now 2", 'dtype null, now "float16"']
    with refused("verifier", "mismatch", differ, error=OtherVerifierError):
        VerdictsFile(written, other)
    differ = ['samples "samples_t_1.jsonl", now "s2"']
    with refused("verifier", "mismatch", differ, error=OtherVerifierError):
        VerdictsFile(written, replace(HEADER, samples="s2"))
    assert written.read_bytes() == before
    with VerdictsFile(written, replace(HEADER, verifier={**VERIFIER, "temperature": 1})):
        pass  # 1 and 1.0 are the same


def test_a_changed_trial_is_noticed(written):
    with refused(str(written), "mismatch", (0, 1), error=ChangedTrialError):
        read_verdicts(written).verdict_of(0, 1, "blake2b-128:ff")


def test_one_writer_at_a_time(written):
    with VerdictsFile(written, HEADER):
        for restart in (False, True):
            with refused(str(written), "conflict", error=VerdictsError):
                VerdictsFile(written, HEADER, restart)
    assert len(read_verdicts(written).trials) == 3


HEAD = json.dumps(HEADER.to_dict()).encode()
LINE = json.dumps(verdict(0, 0).to_dict())


def line(old, new):
    """Return a header and a line in which a text is replaced."""
    return HEAD + b"\n" + LINE.replace(old, new).encode() + b"\n"


@pytest.mark.parametrize(
    ("content", "number"),
    [
        (b"", 1),
        (HEAD, 1),
        (b"hello\n", 1),
        (HEAD.replace(b'"version": 1', b'"version": 2') + b"\n", 1),
        (HEAD.replace(b"-3.5", b"NaN") + b"\n", 1),
        (HEAD.replace(b'"samples_t_1.jsonl"', b"7") + b"\n", 1),
        (HEAD + b"\n[]\n", 2),
        (line("0.5", "0.6"), 2),
        (line('"trial": 0', '"trial": -1'), 2),
        (line(f'"{TEXT}"', "3"), 2),
        (line('"c": 0.25', '"d": 0.25'), 2),
    ],
)
def test_broken_files(path, content, number):
    path.write_bytes(content)
    with refused(str(path), "damaged", number, error=VerdictsError):
        VerdictsFile(path, HEADER)
    assert path.read_bytes() == content


def test_files_that_cannot_be_read_or_written(tmp_path):
    for path, reason in ((tmp_path / "absent", errno.ENOENT), (tmp_path, errno.EISDIR)):
        with refused(str(path), "path", os.strerror(reason), error=StoreFileError):
            read_verdicts(path)
    with refused(str(tmp_path), "path", os.strerror(errno.EISDIR), error=StoreFileError):
        VerdictsFile(tmp_path, HEADER)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_error(path, monkeypatch):
    def full(number):
        raise OSError(errno.ENOSPC, "No space left on device")

    with VerdictsFile(path, HEADER) as file:
        monkeypatch.setattr(os, "fsync", full)
        with refused(str(path), "path", "No space left on device", error=StoreFileError):
            file.add([verdict(1, 0)])
        assert (1, 0) not in file.trials


def test_two_verdicts_on_one_trial_are_refused(written):
    again = json.dumps(verdict(0, 0, a=0.25).to_dict())
    written.write_text(written.read_text() + again + "\n")
    with refused(str(written), "damaged", 5, error=VerdictsError):
        read_verdicts(written)
