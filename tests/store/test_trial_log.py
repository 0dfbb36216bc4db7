"""Logs of trials: what others see is what was written, whole lines with their hash alone."""

from __future__ import annotations

import math

import pytest

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
