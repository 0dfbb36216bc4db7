"""JSON lines: where they begin, and keys that occur twice."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pyarrow
import pytest
from _support.errors import refused
from _support.tool_logs import DATA, nested
from hypothesis import example, given
from hypothesis import strategies as st

from lm_eval_bayes import InvalidInputError
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.readers.text_files import JsonLines

LINE = '{"question": "q%d", "trial": 1, "score": %d, "response": "%s"}\n'


@pytest.mark.parametrize("place", ["outermost", "within"])
@pytest.mark.parametrize("ending", ["", "cut off", "array"])
def test_a_key_that_occurs_twice_is_refused(tmp_path, place, ending):
    lines = [LINE % (i, i % 2, "short") for i in range(30)]
    path = tmp_path / "t.jsonl"

    def write():
        content = f"[{','.join(lines)}]" if ending == "array" else "".join(lines)
        path.write_text(content + ('{"question": ' if ending == "cut off" else ""))

    write()
    assert read_runs([path]).runs[0].n_trials == 30
    twice = '"score" : 0.5, "score"' if place == "outermost" else '"x": {"a": 1, "a": 1}, "score"'
    lines[29] = lines[29].replace('"score"', twice, 1)
    write()
    with refused("RUN", "duplicate") as caught:
        read_runs([path])
    assert caught.value.value.endswith("2 times" if ending == "array" else "2 times in line 30")


LINES = st.sampled_from(
    [
        *(b'{"a": 1}', b'{"b": [1, {"a": 2}]}', b" ", b"", b'{"a": "\xc3\xa9"}', b'{"a": "\xff"}'),
        *(b'{"a": 1},{"b": 2}', b'{"a": [{"x": 1}', b'{"y": 2}]}', b"[1]", b"1", b'{"a": 1}}'),
        *(b'\xef\xbb\xbf{"a": 3}', b'{"a": 1, "a": 2}', b'{"a": NaN}\r', b'{"c":"\\u0000"}'),
    ]
)


@example([b" ", b"[1]"], False)
@given(st.lists(LINES, max_size=12), st.booleans())
def test_the_objects_are_those_at_their_offsets(tmp_path_factory, lines, ends):
    path = tmp_path_factory.mktemp("lines") / "t.jsonl"
    path.write_bytes(b"\n".join(lines) + (b"\n" if ends else b""))
    log = JsonLines(path, unique_keys=False)
    try:
        rows = [repr(row) for row in log]
    except InvalidInputError:
        return
    starts = [path.read_bytes()[offset:].split(b"\n")[0] for offset in log.offsets]
    parsed = [repr(json.loads(line.decode("utf-8-sig"))) for line in starts]
    assert parsed == (rows if log.offsets else [])
    n_objects = sum(line.strip() != b"" for line in lines)
    assert len(rows) == n_objects - len(log.warnings) or not log.random_access


@pytest.mark.parametrize(
    "name",
    [
        *("inspect_ai/weak.json", "tau2/weak.json", "tau_bench/gpt-4o-airline.json"),
        *("swe_bench/org__strong.run_1.json", "verifiers_traces/weak"),
        *("nemo_skills/published", "harbor/letters", "terminal_bench/ob1_1"),
        "evalscope/strong/reviews/strong/general_qa_words.jsonl",
    ],
)
def test_a_key_that_a_log_has_twice_is_refused(tmp_path, name):
    copy, source = tmp_path / Path(name).name, DATA / name
    (shutil.copytree if source.is_dir() else shutil.copy)(source, copy)
    assert read_runs([copy]).runs
    for file in [copy] if copy.is_file() else list(copy.rglob("*.json*")):
        before, _, after = file.read_text(encoding="utf-8").rpartition("}")
        file.write_text(f'{before}, "twice": 0, "twice": 1}}{after}', encoding="utf-8")
    with refused("RUN", "duplicate"):
        read_runs([copy])


ROW = '{"question":"a","score":1}'
ZSTD = pyarrow.compress(LINE.encode() * 5000, codec="zstd", asbytes=True)
GZIP = gzip.compress(LINE.encode() * 5000)


@pytest.mark.parametrize(
    ("name", "content", "rule"),
    [
        ("a.jsonl", f"[{ROW}]\n[{ROW}]\n", "damaged"),
        ("a.jsonl", f"{ROW}\n[1]\n", "format"),
        ("a.jsonl", "[1, 2]", "format"),
        ("a.jsonl", '[{"doc_id": 0}', "damaged"),
        ("a.jsonl", f"{ROW} {ROW}\n", "damaged"),
        ("a.jsonl", f"{ROW}\n{{a: 1}}\n{ROW}\n", "damaged"),
        ("a.jsonl", f'{{"question": 1, "score": 1, "x": {"9" * 5000}}}\n', "damaged"),
        ("a.jsonl", f'{{"question": 1, "score": 1, "x": {nested()}}}\n', "damaged"),
        ("a.csv.zst", ZSTD[: len(ZSTD) // 2], "damaged"),
        ("a.jsonl.zst", b"no zstd", "damaged"),
        ("a.csv.gz", GZIP[:50], "damaged"),
        ("a.csv.gz", "question,score\n", "damaged"),
    ],
    ids=range(12),
)
def test_broken_files(tmp_path, name, content, rule):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with refused("RUN", rule):
        read_runs([path])
