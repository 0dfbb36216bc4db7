"""The reader in CONTRIBUTING.md, of a tool that there is not, reads its log as it says."""

from __future__ import annotations

import re
import types
from pathlib import Path

import pytest
from _support.errors import refused
from _support.tool_logs import outcomes_of, write_lines

from lm_eval_bayes.runs.question_texts import question_texts
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.readers import formats

GUIDE = Path(__file__).parents[3] / "CONTRIBUTING.md"

#: Three attempts of two items in two runs; the last one of every item timed out.
ROWS = [
    {
        **{"shaker": "1.0", "model": "org/m", "suite": "sums", "item": f"i{item}"},
        **{"started": started, "attempt": attempt, "prompt": f"{item}+1?", "gold": item + 1},
        **{"correct": attempt == item, "status": "timeout" if attempt == 2 else "ok"},
        **{"messages": [{"role": "assistant", "content": f"{started} {item} {attempt}"}]},
        **{"output_tokens": 7, "sampling": {"temperature": 0.5, "api_key": "secret"}},
    }
    for started in ("monday", "tuesday")
    for attempt in range(3)
    for item in range(2)
]


@pytest.fixture(autouse=True)
def reader(monkeypatch):
    """The reader, as the first of all formats."""
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S)
    assert len(code.splitlines()) < 60
    module = types.ModuleType("shaker_answers")
    exec(compile(code, "shaker_answers.py", "exec"), module.__dict__)
    format = formats.Format("shaker", "shaken*.jsonl", module, ("shaken*.jsonl",))
    monkeypatch.setattr(formats, "FORMATS", (format, *formats.FORMATS))


def test_its_log_is_read(tmp_path):
    for started in ("monday", "tuesday"):
        rows = [row for row in ROWS if row["started"] == started]
        write_lines(tmp_path / f"shaken-{started}.jsonl", rows)
    (run,) = read_runs([tmp_path]).runs
    assert (run.model, run.task, run.metric, run.tokens) == ("org/m", "sums", "correct", 84)
    assert [sorted(row.tolist()) for row in run.trials] == [[0, 0, 0, 0, 1, 1]] * 2
    assert run.provenance.generation_kwargs == {"temperature": 0.5}
    assert "4 trials ended with timeout, and counted by correct" in "".join(run.notes)
    texts = question_texts(run, 1)
    assert texts.right_answers == ("2",)
    assert sorted(texts.responses) == [f"{r['started']} 1 {r['attempt']}" for r in ROWS[1::2]]


def test_doubles_other_settings_and_damage(tmp_path):
    file = write_lines(tmp_path / "shaken.jsonl", ROWS)
    expected = outcomes_of(file)
    write_lines(file, [*ROWS, ROWS[3]])
    with refused("RUN", "duplicate"):
        read_runs([file])
    assert outcomes_of(file, dedupe=True) == expected
    write_lines(file, [row | {"sampling": {"temperature": row["attempt"]}} for row in ROWS])
    assert len(read_runs([file]).runs) == 3
    write_lines(file, [row | {"correct": None, "status": "ok"} for row in ROWS])
    with refused("RUN", "missing"):
        read_runs([file])
    write_lines(file, [*ROWS, {"shaker": "1.0"}])
    with refused("RUN", "missing"):
        read_runs([file])
