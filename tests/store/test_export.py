from __future__ import annotations

import io
import json
import os
import sqlite3
import stat
from contextlib import closing

import pytest
from _support.errors import refused

from lm_eval_bayes._util.hashing import hash_text, model_hash, sampling_hash
from lm_eval_bayes.store.export import export_jsonl, export_lines
from lm_eval_bayes.store.outcomes import Cluster, GradedQuestion, GradedTask, GradedTrial
from lm_eval_bayes.store.prune import verify

ODD = "NUL \x00, surrogate \ud83d, 😀, \u2028"


def refuse_constant(name):
    raise AssertionError(f"{name} is no strict JSON")


def read_lines(path):
    data = path.read_bytes()
    assert data.endswith(b"\n")
    return [json.loads(line, parse_constant=refuse_constant) for line in data.split(b"\n")[:-1]]


def test_everything_is_there(store, describe, make_trial, tmp_path):
    key = describe(store, ODD)
    trial = make_trial(key, 1, ODD)
    store.add([make_trial(key, 0, signals={"bits": float("nan")}), trial])
    store.add_prompt_signals(key.model, key.prompt, {"bits": float("inf"), "n": 1})
    questions = (GradedQuestion(4, "aa", (GradedTrial(key, 1, 0, ODD),), Cluster("year", "I")),)
    store.add_outcomes([GradedTask("aime", "1.0", "none", 2, questions)])
    report = export_jsonl(store.path, tmp_path / "a.jsonl")
    lines = read_lines(tmp_path / "a.jsonl")
    assert [line["kind"] for line in lines] == [
        "model",
        "sampling",
        "version",
        "prompt",
        "prompt_signal",
        "trial",
        "trial",
        "outcome",
        "cluster",
    ]
    assert (report.trials, report.lines) == (2, 9)
    assert report.size == (tmp_path / "a.jsonl").stat().st_size
    model, sampling, versions, prompt, signals, first, second, outcome, cluster = lines
    assert model["hash"] == model_hash(model["description"]) == key.model
    assert sampling["hash"] == sampling_hash(sampling["description"]) == key.sampling
    assert prompt["hash"] == hash_text(prompt["description"]) == key.prompt
    assert versions["description"] == {"vllm": "0.32.0", "torch": "2.13.0"}
    assert signals["signals"] == {"bits": None, "n": 1}
    assert first["signals"] == {"bits": None}
    assert second == {
        "kind": "trial",
        **key.to_dict(),
        "trial": 1,
        "text": ODD,
        "seed": 7,
        "signals": {"bits": 1.25, "closed": True, "tokens": [1, 2]},
        "prompt_tokens": 9,
        "completion_tokens": 4,
        "finish_reason": "stop",
        "stop_reason": "\n\n",
        "queued_s": 0.5,
        "generated_s": 2.25,
        "concurrency": 64,
        "versions": {"vllm": "0.32.0", "torch": "2.13.0"},
        "created": 1_790_000_000.5,
    }
    question = {"task": "aime", "version": "1.0", "filter": "none", "doc_id": 4}
    question |= {"categories": 2, "doc_hash": "aa"}
    assert outcome.pop("graded") > 1e9
    graded = {**key.to_dict(), "trial": 1, "outcome": 0, "answer": ODD, "error": None}
    assert outcome == {"kind": "outcome", **question, **graded}
    assert cluster == {"kind": "cluster", **question, "field": "year", "label": "I"}


def test_what_is_there_is_not_overwritten_unasked(filled, tmp_path):
    store, target = filled(), tmp_path / "a.jsonl"
    target.write_text("precious")
    with refused("path", "path"):
        export_jsonl(store, target)
    assert target.read_text() == "precious"
    assert export_jsonl(store, target, overwrite=True).trials == 6
    assert len(read_lines(target)) == 1 + 1 + 1 + 2 + 2 + 6


def test_a_store_is_never_overwritten(filled):
    store = filled()
    other = filled("other.sqlite")
    before = other.read_bytes()
    for target in (store, other):
        with refused("path", "type"):
            export_jsonl(store, target, overwrite=True)
    assert other.read_bytes() == before


def test_a_folder_is_not_overwritten(filled, tmp_path):
    (tmp_path / "folder").mkdir()
    with refused("path", "path"):
        export_jsonl(filled(), tmp_path / "folder", overwrite=True)
    assert sorted(os.listdir(tmp_path)) == ["folder", "trials.sqlite"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("overwrite", [False, True])
def test_only_regular_files_are_replaced(filled, tmp_path, overwrite):
    store = filled()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for name in ("pipe", "link"):
        with refused("path", "path"):
            export_jsonl(store, tmp_path / name, overwrite)
    assert stat.S_ISFIFO((tmp_path / "pipe").lstat().st_mode)
    assert (tmp_path / "link").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe", "trials.sqlite"]


def test_to_an_open_file(filled, tmp_path):
    store, output = filled(), io.StringIO()
    report = export_lines(store, output)
    assert export_jsonl(store, tmp_path / "a.jsonl").size == report.size
    assert output.getvalue() == (tmp_path / "a.jsonl").read_text(encoding="ascii")
    assert (report.path, report.trials, report.lines, report.damaged) == ("-", 6, 13, 0)


DAMAGE = {
    "a seed": ("UPDATE trials SET seed = 99 WHERE trial = 1", 2),
    "a prompt": ("UPDATE prompts SET description = x'41' WHERE id = 1", 1),
    "a sampling": ("UPDATE samplings SET description = '{}'", 1),
    "signals": ("UPDATE prompt_signals SET signals = '{}'", 2),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_what_is_damaged_is_left_out_and_counted(filled, tmp_path, what):
    store = filled()
    statement, damaged = DAMAGE[what]
    with closing(sqlite3.connect(store)) as connection:
        connection.execute(statement)
        connection.commit()
    report = export_jsonl(store, tmp_path / "a.jsonl")
    assert (report.lines, report.damaged) == (13 - damaged, damaged)
    assert verify(store).n_problems == damaged
    assert len(read_lines(tmp_path / "a.jsonl")) == 13 - damaged
