"""Runs of a task that knows two filters, or two metrics: what is counted is said, and is one."""

from __future__ import annotations

import csv
import io
import json

import pytest
from _support.command_line import called, exported_table

GREEDY = {"until": ["Q:"], "do_sample": False}
N = 30


def written(folder, filters, right, stamp="2026-01-31T10-00-00.5"):
    """Write a harness run; `right` says by filter what share of the answers is right."""
    folder.mkdir()
    rows = [
        {
            "doc_id": i,
            "doc": {"question": f"{i} + 1"},
            "target": str(i + 1),
            "arguments": {"gen_args_0": {"arg_0": f"Q: {i} + 1", "arg_1": GREEDY}},
            "resps": [[str(i + 1)]],
            "filtered_resps": [str(i + 1)],
            "filter": name,
            "metrics": ["exact_match"],
            "exact_match": float(i < right[name] * N),
            "doc_hash": f"{i:064d}",
            "prompt_hash": f"{i:064d}",
        }
        for name in filters
        for i in range(N)
    ]
    path = folder / f"samples_gsm8k_{stamp}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    results = {"model_name": f"org/{folder.name}", "model_source": "hf", "config": {"model": "hf"}}
    (folder / f"results_{stamp}.json").write_text(json.dumps(results), encoding="utf-8")
    return folder


SHARES = {"strict-match": 0.4, "flexible-extract": 0.7}


@pytest.fixture
def strict(tmp_path):
    return written(tmp_path / "strict", ["strict-match"], SHARES)


@pytest.fixture
def both(tmp_path):
    return written(tmp_path / "both", ["flexible-extract", "strict-match"], SHARES)


COMMANDS = [
    ("compare",),
    ("rank",),
    ("noise",),
    ("plan", "--separate"),
    ("convergence",),
    ("anchors",),
    ("export", "table", "-o", "table.csv"),
    ("report", "-o", "page.html"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_answers_of_different_filters_are_not_compared(
    command, strict, both, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    code, printed, error = called(*command, strict, both)
    if command[0] == "report":  # which shows what cannot be compared side by side
        assert code == 0
        page = (tmp_path / "page.html").read_text(encoding="utf-8")
        assert page.count("have another metric or filter, and cannot be ranked") == 2
        return
    assert (code, printed) == (2, "")
    (message,) = [line for line in error.splitlines() if line.startswith("error: ")]
    assert "have the same filter; " in message
    assert "(--filter selects one that all runs have)" in message
    assert sorted(tmp_path.rglob("*")) == before
    done = called(*command, strict, both, "--filter", "strict-match")
    assert done[0] == 0


def test_what_was_counted_is_said(both, strict):
    code, printed, error = called("rank", both)
    assert code == 0
    assert "counted: exact_match, filter flexible-extract\n" in printed
    message = "filter flexible-extract was counted; --filter chooses among"
    assert error.startswith(f"note: org/both, gsm8k: {message} flexible-extract or strict-match\n")
    _, printed, _ = exported_table(".csv", both, strict, "--filter", "strict-match")
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert {row["counted"] for row in rows} == {"exact_match, filter strict-match"}
    for suffix in (".md", ".tex"):
        _, printed, _ = exported_table(suffix, both)
        # a LaTeX caption may break after the hyphen
        assert "flexible-extract" in printed.replace(r"\allowbreak{}", "")
        assert "Metric: exact" in printed
    _, printed, _ = called("compare", both, strict, "--filter", "strict-match")
    assert "N = 1, exact_match, filter strict-match, " in printed
    # greedy answers do not become other ones
    assert "how many more trials" not in printed


def test_different_metrics_are_not_compared(tmp_path):
    for folder, name in (("a", "acc"), ("b", "acc_norm")):
        (tmp_path / folder).mkdir()
        rows = [{"doc_id": i, "doc": {}, "resps": [["x"]], "metrics": [name]} for i in range(9)]
        lines = (json.dumps({**row, name: float(row["doc_id"] % 2)}) + "\n" for row in rows)
        path = tmp_path / folder / "samples_arc_2026-01-31T10-00-00.5.jsonl"
        path.write_text("".join(lines), encoding="utf-8")
    code, _, error = called("compare", tmp_path / "a", tmp_path / "b")
    assert code == 2
    assert "`B` must have the same metric; " in error
    assert "has acc on arc (--metric selects one that all runs have); got acc_norm of " in error
