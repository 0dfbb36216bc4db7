"""What every command that reads runs tells beside its output: warnings, progress, plain errors."""

from __future__ import annotations

import json
import shutil

from _support.command_line import answer, called, refusal
from _support.paths import REPOSITORY

from lm_eval_bayes.cli.ui import reading


def line(number, texts):
    return json.dumps(
        {"doc_id": number, "doc": {}, "doc_hash": f"{number}", "resps": [texts], "outcomes": [1, 0]}
    )


def test_warnings_and_progress_go_to_standard_error(tmp_path, capsys, monkeypatch):
    file = tmp_path / "samples_sums_2026-01-31T10-00-00.0.jsonl"
    (tmp_path / "results_2026-01-31T10-00-00.0.json").write_text('{"model_name": "a"}')
    complete = line(0, ["a" * 1_500_000, "b"]) + "\n"
    file.write_text(complete + line(1, ["c", "d"])[:-5])
    assert reading.ReadingOptions().read([file]).runs[0].n_trials == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error == f"warning: {file} ends in the middle of line 2; that line was left out\n"
    monkeypatch.setattr(reading, "_LONG", 1_000_000)
    reading.ReadingOptions().read([file])
    assert "megabytes read: 1 of 1 (100%" in capsys.readouterr().err


def test_a_count_of_several_models_is_of_each():
    """Both logs have one trial that a limit ended, and only one of them an error."""
    folder = REPOSITORY / "tests/runs/readers/data/tau2"
    logs = folder / "weak.json", folder / "strong.json"
    _, _, notes = called("summary", *logs, "--verbose")
    assert "note: each of openai/weak, openai/strong, mock: 1 trial ended with max_steps" in notes
    assert "note: openai/strong, mock: 1 trial ended with infrastructure_error" in notes


def test_a_model_is_named_and_its_runs_are_joined(tmp_path):
    for name, scores in (("a", "10"), ("b", "11"), ("c", "00")):
        rows = (f"q,{score}\n" for score in scores)
        (tmp_path / f"{name}.csv").write_text("question,score\n" + "".join(rows))
    paths = [tmp_path / f"{name}.csv" for name in "abc"]
    named = [f"--model=new={path}" for path in paths[:2]]
    rows = answer("summary", *paths, *named, "--json")["tasks"]
    assert {row["model"]: row["trials"] for row in rows} == {"new": 4, "c": 2}
    for text, rule in ((f"new={tmp_path / 'd.csv'}", "path"), ("new", "format")):
        assert refusal("summary", *paths, "--model", text) == ("--model", rule)


def test_unreadable_files_are_left_out_where_that_is_asked_for(tmp_path):
    folder = shutil.copytree(
        REPOSITORY / "tests/runs/readers/data/verifiers_traces", tmp_path / "r"
    )
    (folder / "weak" / "traces.jsonl").write_bytes(b"\0" * 100)
    assert refusal("summary", folder) == ("RUN", "damaged")
    code, _, error = called("summary", folder, "--skip-unreadable")
    assert code == 0
    assert f"warning: {folder / 'weak' / 'traces.jsonl'} was not read" in error
