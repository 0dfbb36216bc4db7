"""A store as the harness's own logs of samples."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from _support.errors import refused

from lm_eval_bayes.store.errors import StoreDamagedError
from lm_eval_bayes.store.outcomes import GradedQuestion, GradedTask, GradedTrial
from lm_eval_bayes.store.samples_export import export_samples

ODD = "NUL \x00, surrogate \ud83d, 😀, \u2028"
#: The fields that the harness writes, in its order.
FIELDS = [
    *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
    *("doc_hash", "prompt_hash", "target_hash"),
]
#: The form of its files' names.
NAME = re.compile(r"samples_[0-9a-f-]+_\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{6}\.jsonl")


def lines_of(entry):
    with open(entry.path, "rb") as file:
        return [json.loads(line) for line in file.read().splitlines()]


def task_of(key, outcomes, doc_id=0, **names):
    trials = tuple(
        GradedTrial(key, i, outcome, f"answer {i}", None if outcome else "no answer")
        for i, outcome in outcomes.items()
    )
    fields = {"task": "aime", "version": "1.0", "filter": "none", "categories": 2, **names}
    return GradedTask(questions=(GradedQuestion(doc_id, f"{doc_id:064x}", trials),), **fields)


def test_one_line_a_prompt(store, describe, make_trial, tmp_path):
    sampling = {"temperature": 0.6, "top_p": 0.95, "max_gen_toks": 9, "stops": ["Q:"]}
    for prompt in ("one", ODD):
        key = describe(store, prompt, sampling=sampling)
        store.add([make_trial(key, i, f"{prompt} {i}", seed=i) for i in (2, 0, 1)])
        store.add_prompt_signals(key.model, key.prompt, {"prompt_bpt": float("inf")})
    report = export_samples(store.path, tmp_path / "out")
    (entry,) = report.files
    assert (entry.lines, entry.trials, entry.task) == (2, 6, None)
    assert os.listdir(tmp_path / "out") == [os.path.basename(entry.path)]
    assert NAME.fullmatch(os.path.basename(entry.path))
    first, odd = lines_of(entry)
    assert list(first)[: len(FIELDS)] == FIELDS
    assert (first["doc_id"], odd["doc_id"]) == (0, 1)
    assert odd["doc"] == {"prompt": ODD}
    kwargs = {
        "temperature": 0.6,
        "top_p": 0.95,
        "max_gen_toks": 9,
        "until": ["Q:"],
        "do_sample": True,
    }
    assert odd["arguments"] == {"gen_args_0": {"arg_0": ODD, "arg_1": kwargs}}
    assert odd["resps"] == odd["filtered_resps"] == [[f"{ODD} {i}" for i in range(3)]]
    assert (first["filter"], first["metrics"], first["target"]) == ("none", [], "")
    assert first["prompt_hash"] == hashlib.sha256(b"one").hexdigest()
    assert first["target_hash"] == hashlib.sha256(b"").hexdigest()
    doc = json.dumps(first["doc"], indent=2).encode()
    assert first["doc_hash"] == hashlib.sha256(doc).hexdigest()
    assert first["lengths"] == [5, 5, 5]
    signals = first["signals"]
    assert (signals["trial"], signals["seed"]) == ([0, 1, 2], [0, 1, 2])
    assert signals["finish_reason"] == ["stop"] * 3
    assert signals["tokens"] == [[1, 2]] * 3
    # JSON has no infinity; the trials' own signals come before those of the prompt.
    assert signals["prompt_bpt"] == [None] * 3
    assert "outcomes" not in first


def test_what_was_graded_comes_with_it(store, describe, make_trial, tmp_path):
    key = describe(store)
    store.add([make_trial(key, i) for i in range(4)])
    store.add_outcomes([task_of(key, {0: 1, 1: 0, 3: 1}, doc_id=7)])
    (entry,) = export_samples(store.path, tmp_path / "out").files
    assert (entry.task, entry.version, entry.lines, entry.trials) == ("aime", "1.0", 1, 4)
    (line,) = lines_of(entry)
    assert (line["doc_id"], line["doc_hash"], line["filter"]) == (7, f"{7:064x}", "none")
    # The third was not graded: its run was killed before that.
    assert line["outcomes"] == [1, 0, None, 1]
    assert line["answers"] == ["answer 0", "answer 1", None, "answer 3"]
    assert line["grading_error_notes"] == {"1": "no answer"}
    assert len(line["resps"][0]) == 4


def test_models_samplings_and_tasks_have_files_of_their_own(store, describe, make_trial, tmp_path):
    for model in ("a", "../../b\x1b[31m"):
        for temperature in (0.6, 1):
            keys = [
                describe(store, prompt, {"pretrained": model}, {"temperature": temperature})
                for prompt in ("one", "two", "three")
            ]
            store.add([make_trial(key) for key in keys])
            store.add_outcomes(
                [
                    task_of(keys[0], {0: 1}),
                    task_of(keys[2], {0: 1}, doc_id=2, filter="strict"),
                    task_of(keys[2], {0: 1}, doc_id=2, task="../hmmt"),
                    task_of(keys[2], {0: 0}, doc_id=2, task="../hmmt", version="2"),
                ]
            )
    report = export_samples(store.path, tmp_path / "out")
    # For each model and sampling: aime, two versions of hmmt, and the prompt that none graded.
    assert len(report.files) == len({entry.path for entry in report.files}) == 4 * 4
    assert sorted(os.listdir(tmp_path / "out")) == sorted(
        os.path.basename(entry.path) for entry in report.files
    )
    assert all(NAME.fullmatch(name) for name in os.listdir(tmp_path / "out"))
    assert {name.partition("-")[0] for name in os.listdir(tmp_path)} == {"out", "trials.sqlite"}
    first = next(entry for entry in report.files if entry.task == "aime")
    assert [(line["doc_id"], line["filter"]) for line in lines_of(first)] == [
        (0, "none"),
        (2, "strict"),
    ]
    rest = next(entry for entry in report.files if entry.task is None)
    assert [line["doc"] for line in lines_of(rest)] == [{"prompt": "two"}]
    plain = json.loads(json.dumps(report.to_dict()))
    assert len(plain["files"]) == 16


def test_files_that_are_there_are_not_replaced_unasked(filled, tmp_path):
    store = filled()
    (entry,) = export_samples(store, tmp_path / "out").files
    Path(entry.path).write_text("precious")
    with refused("path", "path"):
        export_samples(store, tmp_path / "out")
    assert Path(entry.path).read_text() == "precious"
    export_samples(store, tmp_path / "out", overwrite=True)
    assert len(lines_of(entry)) == 2
    assert len(os.listdir(tmp_path / "out")) == 1


def test_an_export_that_fails_leaves_nothing(filled, tmp_path, monkeypatch):
    store = filled()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with refused("folder", "failed"):
        export_samples(store, tmp_path / "out")
    assert os.listdir(tmp_path) == ["trials.sqlite"]


DAMAGE = {
    "a seed": "UPDATE trials SET seed = 99 WHERE trial = 1",
    "a prompt": "UPDATE prompts SET description = x'41'",
    "a sampling": "UPDATE samplings SET description = '{}'",
    "signals": "UPDATE prompt_signals SET signals = '{}'",
    "an outcome": "UPDATE outcomes SET outcome = 0 WHERE trial = 0 AND question = 1",
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_store_is_refused(store, key, make_trial, path, tmp_path, what):
    store.add([make_trial(key, i) for i in range(3)])
    store.add_prompt_signals(key.model, key.prompt, {"bits": 0.5})
    store.add_outcomes([task_of(key, {0: 1, 1: 1})])
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(DAMAGE[what]).rowcount > 0
        connection.commit()
    with refused(None, "damaged", None, error=StoreDamagedError):
        export_samples(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_empty_store_gives_no_file(store, tmp_path):
    assert export_samples(store.path, tmp_path / "out").files == ()


def test_a_date_that_no_calendar_has(store, key, make_trial, tmp_path):
    store.add([make_trial(key, created=1e300)])
    (entry,) = export_samples(store.path, tmp_path / "out").files
    assert "_1970-01-01T00-00-00.000000.jsonl" in entry.path
