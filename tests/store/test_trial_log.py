"""Logs of trials: what others see is what was written, whole lines with their hash alone."""

from __future__ import annotations

import json
import math
import os

import pytest

from lm_eval_bayes._util.hashing import hash_bytes
from lm_eval_bayes.store.errors import StoreFileError
from lm_eval_bayes.store.trial import Trial, TrialKey
from lm_eval_bayes.store.trial_log import TrialLog

KEY = TrialKey("blake2b-128:0a", "blake2b-128:0b", "blake2b-128:0c")
ODD = Trial(
    KEY,
    3,
    "a\nb\u2028c\x00 \ud800 ü",
    seed=-(2**63),
    signals={"bpt": math.inf, "list": [1, None]},
    completion_tokens=7,
    stop_reason="\n",
    generated_s=0.25,
    versions={"vllm": "0.27"},
    created=1.5,
)


def test_a_trial_comes_as_it_was_sent(tmp_path):
    with TrialLog(tmp_path / "logs", "a") as first, TrialLog(tmp_path / "logs", "b") as second:
        first.add(ODD)
        first.add_prompt_signals("m", "p", {"prompt_bpt": 0.5})
        received = second.receive()
        assert received.trials == [ODD]
        assert received.prompt_signals == [("m", "p", {"prompt_bpt": 0.5})]
        assert received.damaged == []
        assert first.receive().trials == []  # its own
        assert second.receive().trials == []  # once
        first.add(Trial(KEY, 4, "next"))
        assert [trial.text for trial in second.receive().trials] == ["next"]


def test_a_line_that_is_still_written_comes_later(tmp_path):
    with TrialLog(tmp_path, "a") as writer, TrialLog(tmp_path, "b") as reader:
        writer.add(ODD)
        path = tmp_path / "a.jsonl"
        complete = path.read_bytes()
        for length in range(len(complete)):
            path.write_bytes(complete[:length])
            received = reader.receive()
            assert (received.trials, received.damaged) == ([], [])
        path.write_bytes(complete)
        assert reader.receive().trials == [ODD]


def test_every_flipped_bit_is_seen(tmp_path):
    with TrialLog(tmp_path, "a") as writer:
        writer.add(Trial(KEY, 0, "first", created=1.0))
        writer.add(Trial(KEY, 1, "second", created=1.0))
    path = tmp_path / "a.jsonl"
    complete = path.read_bytes()
    middle = complete.index(b"\n") // 2
    for position in range(0, middle, 3):
        damaged = bytearray(complete)
        damaged[position] ^= 1
        path.write_bytes(bytes(damaged))
        received = TrialLog(tmp_path, "b").receive()
        assert [trial.trial for trial in received.trials] == [1]
        assert received.damaged == ["a.jsonl at byte 0"]


@pytest.mark.parametrize("replaced", [b"\0", b"\n"])
def test_the_writer_of_a_damaged_line_appends_the_record_again(tmp_path, replaced):
    trials = [Trial(KEY, number, f"text {number}", created=1.0) for number in range(4)]
    with TrialLog(tmp_path, "a") as writer, TrialLog(tmp_path, "b") as reader:
        for trial in trials:
            writer.add(trial)
        path = tmp_path / "a.jsonl"
        content = path.read_bytes()
        at = content.index(b"text 1")
        with path.open("r+b") as file:
            file.seek(at)
            file.write(replaced)
        received = reader.receive()
        assert [t.trial for t in received.trials] == [0, 2, 3]
        reader.ask_again(received)
        writer.receive()
        again = reader.receive()
        assert (again.trials, again.damaged) == ([trials[1]], [])
        size = path.stat().st_size
        writer.receive()  # once
        assert path.stat().st_size == size


def test_texts_longer_than_a_chunk(tmp_path):
    long = Trial(KEY, 0, "x" * 3_000_000, created=1.0)
    with TrialLog(tmp_path, "a") as writer, TrialLog(tmp_path, "b") as reader:
        writer.add(long)
        writer.add(ODD)
        assert reader.receive().trials == [long, ODD]


def test_a_log_that_cannot_be_written(tmp_path):
    with TrialLog(tmp_path, "a") as writer:
        (tmp_path / "a.jsonl").mkdir()
        with pytest.raises(StoreFileError, match=r"a\.jsonl cannot be written: File exists"):
            writer.add(ODD)


def signed(record):
    text = json.dumps(record).encode() if not isinstance(record, bytes) else record
    return hash_bytes(text).encode() + b" " + text + b"\n"


def record(**changes):
    return {"kind": "trial", "key": KEY.to_dict(), "trial": 0, "text": "x", **changes}


@pytest.mark.parametrize(
    "content",
    [
        record(text=5),
        record(trial="x"),
        record(trial=-1),
        record(seed=2**70),
        record(signals=[1]),
        record(versions=None),
        record(created="now"),
        record(other=1),
        record(key={"model": ["m"], "prompt": "p", "sampling": "s"}),
        record(key="k"),
        {"kind": "prompt_signals", "model": ["m"], "prompt": "p", "signals": {}},
        {"kind": "prompt_signals", "model": "m", "prompt": "p", "signals": [1]},
        {"kind": "note"},
        {},
        [1],
        7,
        b"[" * 100_000,
    ],
    ids=repr,
)
def test_what_no_store_takes_is_a_damaged_line(tmp_path, content):
    """A file of another release, or of somebody else, whose hashes are right."""
    (tmp_path / "other.jsonl").write_bytes(signed(content) + signed(record(trial=1)))
    received = TrialLog(tmp_path, "b").receive()
    assert [trial.trial for trial in received.trials] == [1]
    assert received.damaged == ["other.jsonl at byte 0"]
    assert received.prompt_signals == []


def test_what_is_no_regular_file_is_no_log(tmp_path):
    with TrialLog(tmp_path, "a") as writer:
        writer.add(ODD)
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "nowhere.jsonl").symlink_to(tmp_path / "missing")
    (tmp_path / "notes.txt").write_text("x")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.jsonl")
    assert TrialLog(tmp_path, "b").receive().trials == [ODD]


def test_a_log_that_is_removed_ends_its_process(tmp_path):
    """The others would wait for its trials as long as it lives."""
    with TrialLog(tmp_path, "a") as log:
        log.receive()
        log.add(ODD)
        log.receive()
        (tmp_path / "a.jsonl").unlink()
        with pytest.raises(StoreFileError, match=r"a\.jsonl was removed while this process uses"):
            log.receive()


def test_a_log_that_is_cut_ends_its_process(tmp_path):
    with TrialLog(tmp_path, "a") as log:
        log.add(ODD)
        log.add(ODD)
        os.truncate(tmp_path / "a.jsonl", 50)
        with pytest.raises(StoreFileError, match=r"a\.jsonl was cut short while this process uses"):
            log.receive()


def test_a_file_where_the_folder_of_logs_should_be(tmp_path):
    (tmp_path / "trials").write_text("x")
    with pytest.raises(StoreFileError, match=r"folder of logs .* cannot be created: File exists"):
        TrialLog(tmp_path / "trials", "a")
