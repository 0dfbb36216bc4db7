"""Runs of a task that knows two filters, or two metrics: what is counted is said, and is one."""

from __future__ import annotations

import csv
import io
import json

import pytest
from _support.command_line import called, exported_table, refusal
from _support.run_files import row, write_run

GREEDY = {"until": ["Q:"], "do_sample": False}
N = 30
SHARES = {"strict-match": 0.4, "flexible-extract": 0.7}


def written(folder, filters):
    """Write a harness run in which a share of the answers is right, by filter."""
    rows = [
        row(i, filter=name, sent=GREEDY, exact_match=float(i < SHARES[name] * N))
        for name in filters
        for i in range(N)
    ]
    write_run(folder, rows, task="gsm8k", model=f"org/{folder.name}")
    return folder


@pytest.fixture
def strict(tmp_path):
    return written(tmp_path / "strict", ["strict-match"])


@pytest.fixture
def both(tmp_path):
    return written(tmp_path / "both", ["flexible-extract", "strict-match"])


COMMANDS = [
    ("compare",),
    ("rank",),
    ("plan", "--apart"),
    ("export", "table", "-o", "table.csv"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_answers_of_different_filters_are_not_compared(
    command, strict, both, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert refusal(*command, strict, both)[1] == "mismatch"
    assert sorted(tmp_path.rglob("*")) == before
    assert called(*command, strict, both, "--filter", "strict-match")[0] == 0


def test_what_was_counted_is_said(both, strict):
    _, printed, error = called("rank", both)
    assert "filter flexible-extract\n" in printed
    assert error.startswith("note: org/both, gsm8k: filter flexible-extract")
    filtered = (both, strict, "--filter", "strict-match")
    _, printed, _ = exported_table(".csv", *filtered)
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert {row["counted"] for row in rows} == {"exact_match, filter strict-match"}
    # greedy answers do not become other ones
    assert "how many more trials" not in called("compare", *filtered)[1]


def test_different_metrics_are_not_compared(tmp_path):
    for folder, name in (("a", "acc"), ("b", "acc_norm")):
        (tmp_path / folder).mkdir()
        rows = [{"doc_id": i, "doc": {}, "resps": [["x"]], "metrics": [name]} for i in range(9)]
        lines = (json.dumps({**row, name: float(row["doc_id"] % 2)}) + "\n" for row in rows)
        path = tmp_path / folder / "samples_arc_2026-01-31T10-00-00.5.jsonl"
        path.write_text("".join(lines), encoding="utf-8")
    assert refusal("compare", tmp_path / "a", tmp_path / "b") == ("B", "mismatch")
