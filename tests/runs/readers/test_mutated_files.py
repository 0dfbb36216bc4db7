"""Mutated files of every format end in a result, or in an error that is meant for the user.

A mutation cuts, doubles or flips bytes, removes, doubles or exchanges lines, changes the encoding,
or replaces values by those of other types, sizes and depths. None may end in a traceback,
or leave a file behind.
"""

from __future__ import annotations

import contextlib
import copy
import gzip
import io
import json
import random
import shutil
import sqlite3
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest
from _support.format_logs import LOGS
from _support.tool_logs import DATA, nested

from lm_eval_bayes.errors import LmEvalBayesError
from lm_eval_bayes.runs.question_texts import question_texts
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.readers import inspect_log
from lm_eval_bayes.runs.readers.formats import FORMATS, recognise

#: The mutations of all files.
CASES = 5_000

SAMPLES = [(name, *sample) for name, samples in LOGS.items() for sample in samples]


def copied(source, pattern, read, folder):
    """Return the file to change, and what is read, in a folder of its own."""
    folder.mkdir()
    if callable(source):
        source(folder / pattern)
    else:
        shutil.copytree(DATA / source, folder, dirs_exist_ok=True)
    file = min(folder.glob(pattern))
    return file, file if read is None else folder / read


def read_or_refuse(path):
    """Read a file; whether there was a result."""
    try:
        runs = read_runs([path], dedupe=True).runs
    except LmEvalBayesError:
        return False
    for run in runs:
        assert np.isfinite(run.outcomes.weights).all()
        assert run.n_questions > 0
        for number in range(min(2, run.n_questions)):
            try:
                texts = question_texts(run, number).responses
            except LmEvalBayesError:  # a table whose column of texts is damaged
                assert path.suffix in (".parquet", ".arrow")
            else:
                assert len(texts) in (0, run.outcomes.n_trials[number])
    return True


def mutated_cases(sample, n, tmp_path):
    """Read mutations of a file; return how many were read."""
    name, source, pattern, read = sample
    file, path = copied(source, pattern, read, tmp_path / "logs")
    assert recognise(path)[0].name == name
    assert read_or_refuse(path)
    original = file.read_bytes()
    before = sorted(tmp_path.joinpath("logs").rglob("*"))
    n_read = 0
    for seed in range(n):
        file.write_bytes(original)
        mutate(file, seed)
        try:
            n_read += read_or_refuse(path)
        except BaseException as error:
            error.add_note(f"{name}: {file.name}, seed {seed}")
            raise
        assert sorted(tmp_path.joinpath("logs").rglob("*")) == before
    return n_read


IDS = [f"{name}: {pattern}" for name, _, pattern, _ in SAMPLES]


def test_every_format_is_here():
    assert set(LOGS) == {format.name for format in FORMATS}


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_some_mutated_files_are_read_or_refused(sample, tmp_path):
    mutated_cases(sample, 3, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_mutated_files_are_read_or_refused(sample, tmp_path):
    n = -(-CASES // len(SAMPLES))
    n_read = mutated_cases(sample, n, tmp_path)
    # a broken part of a folder may be left out, with a warning
    assert 0 < n_read < n + (sample[-1] is not None)


# -- mutations of files -------------------------------------------------------------------------

#: What a value of a JSON file may become.
ODD = (
    *(None, True, -1, 0.5, 7, 1e308, 10**400, float("nan"), float("inf")),
    *("", "x", "\ud800", "C", [], {}, [[]], [None], {"": {}}, ["a", 1], {"value": []}),
)
#: Cells that a table does not expect.
CELLS = (
    *("", " ", "x", "-1", "2", "1e400", "nan", "inf", "85%", "0,85", "1,234", "=1+1", '"', "\0"),
    *("9" * 400, "a" * 200_000, "\u202e", "\ud800", "[" * 1000, "0x1", "1_0", "٣", "true\n", ";;"),
)
_ENCODINGS = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig", "cp1252", "cp037", "utf-7")


def mutate(file: Path, seed: int) -> None:
    """Replace a file by a mutated one, which depends on the seed alone."""
    chance = random.Random(seed)
    content = file.read_bytes()
    kind = chance.choice(("bytes", "bytes", "lines", "encoding", "values", "values", "values"))
    changed = None
    if kind == "values":
        with contextlib.suppress(
            pyarrow.ArrowException, UnicodeError, OverflowError, sqlite3.Error
        ):
            changed = _values(file.name, content, chance)
    elif kind == "lines":
        changed = _within(file.name, content, lambda text: _lines(text, chance))
    elif kind == "encoding":
        changed = _within(file.name, content, lambda text: _encoded(text, chance))
    if changed is None:
        changed = mutated_bytes(content, seed)
    file.write_bytes(changed)


def _within(name, content, change):
    """Return the file with its uncompressed bytes changed."""
    if name.endswith(".gz"):
        return gzip.compress(change(gzip.decompress(content)))
    if name.endswith(".zst"):
        codec = pyarrow.Codec("zstd")
        with pyarrow.input_stream(io.BytesIO(content), compression="zstd") as stream:
            return codec.compress(change(stream.read()), asbytes=True)
    return change(content)


def _lines(content, chance):
    """Remove, double, exchange or cut lines."""
    lines = content.splitlines(keepends=True) or [b""]
    for _ in range(chance.choice((1, 1, 5))):
        i, j = chance.randrange(len(lines)), chance.randrange(len(lines))
        kind = chance.randrange(5)
        if kind == 0 and len(lines) > 1:
            del lines[i]
        elif kind == 1:
            lines.insert(j, lines[i])
        elif kind == 2:
            lines[i], lines[j] = lines[j], lines[i]
        elif kind == 3:
            lines[i] = lines[i][: chance.randrange(len(lines[i]) + 1)]
        else:
            lines = [
                line.rstrip(b"\r\n") + chance.choice((b"\r\n", b"\r", b"\n\n")) for line in lines
            ]
    return b"".join(lines)


def _encoded(content, chance):
    """Return a text in another encoding than UTF-8."""
    text = content.decode("utf-8", "replace")
    return text.encode(chance.choice(_ENCODINGS), "replace")


def _values(name, content, chance):
    """Replace values by those of other types, sizes and depths."""
    seed = chance.randrange(2**32)
    if name.endswith((".csv", ".tsv", ".csv.gz")):
        return _within(name, content, lambda text: _cells(text, chance))
    if name.endswith((".parquet", ".arrow")):
        return _rows(name, content, seed)
    if name.endswith(".npz"):
        return _arrays(content, chance)
    if name.endswith(".sqlite"):
        return _records(content, chance)
    if name.endswith(".eval"):
        return _entries(name, content, chance)
    return _within(name, content, lambda text: _json(name, text, seed))


def _json(name, text, seed):
    chance = random.Random(seed)
    if ".jsonl" in name and not text.startswith(b"["):
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        changed = "".join(json.dumps(row) + "\n" for row in mutated_json(rows, seed, n=8))
    else:
        changed = json.dumps(mutated_json(json.loads(text), seed, n=6))
    if chance.random() < 0.1:
        depth = chance.choice((50, 400, 900, 960, 990, 100_000))
        changed = changed.replace(chance.choice(("null", "1", "true", '""')), nested(depth), 1)
    return changed.encode()


def _cells(content, chance):
    text = content.decode("utf-8")
    delimiter = "\t" if "\t" in text else ","
    rows = [line.split(delimiter) for line in text.splitlines()]
    for _ in range(chance.choice((1, 1, 4, 30))):
        row = chance.choice(rows)
        i = chance.randrange(len(row))
        row[i] = chance.choice((*CELLS, *chance.choice(rows)))
    return "\n".join(map(delimiter.join, rows)).encode("utf-8", "surrogatepass")


def _rows(name, content, seed):
    chance = random.Random(seed)
    read = pyarrow.parquet.read_table if name.endswith(".parquet") else pyarrow.feather.read_table
    table = read(pyarrow.BufferReader(content))
    if chance.random() < 0.5:  # a column of another type
        i = chance.randrange(table.num_columns)
        value = chance.choice((1, 0.5, "x", True, None, b"\xff", [1], {"a": 1}, 10**15))
        column = pyarrow.array([value] * table.num_rows)
        table = table.set_column(i, table.schema.field(i).name, column)
    else:
        rows = json.loads(json.dumps(mutated_json(table.to_pylist(), seed), default=str))
        table = pyarrow.Table.from_pylist([row for row in rows if isinstance(row, dict)])
    target = io.BytesIO()
    if name.endswith(".parquet"):
        pyarrow.parquet.write_table(table, target)
    else:
        pyarrow.feather.write_feather(table, target)
    return target.getvalue()


def _arrays(content, chance):
    with np.load(io.BytesIO(content)) as archive:
        arrays = dict(archive)
    name = chance.choice(list(arrays))
    value = arrays[name]
    changes = [
        lambda: value.astype(object),
        lambda: value.astype(str),
        lambda: np.ones(value.shape, dtype=complex),
        lambda: value.ravel(),
        lambda: np.asarray(value)[..., None, None],
        lambda: np.atleast_1d(value)[:0],
        lambda: np.full(value.shape, chance.choice((np.nan, np.inf, -1.0, 0.5, 1e300))),
        lambda: np.full(value.shape, 2**63 - 1),
        lambda: np.zeros((1, 10**6), dtype=np.int8),
        lambda: np.array("x"),
    ]
    arrays[chance.choice((name, "weights", "models", "question_ids", "R"))] = chance.choice(
        changes
    )()
    target = io.BytesIO()
    np.savez(target, **arrays)
    return target.getvalue()


def _records(content, chance):
    """Replace values in the tables of a database."""
    database = sqlite3.connect(":memory:")
    try:
        database.deserialize(content)
        database.execute("PRAGMA ignore_check_constraints = ON")
        tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master "
                                                     "WHERE type = 'table'")]  # fmt: skip
        for _ in range(chance.choice((1, 1, 4))):
            table = chance.choice(tables)
            columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
            value = chance.choice((None, -1, 2**62, 0.5, "x", b"\xff", "\0", "[" * 2000, "{}", ""))
            with contextlib.suppress(sqlite3.Error):
                if chance.random() < 0.2:
                    database.execute(f'DELETE FROM "{table}"')
                else:
                    database.execute(
                        f'UPDATE "{table}" SET "{chance.choice(columns)}" = ?', [value]
                    )
        database.commit()
        return database.serialize()
    finally:
        database.close()


def _entries(name, content, chance):
    """Change a JSON entry of an archive, whose compression only the reader knows."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, name)
        file.write_bytes(content)
        with zipfile.ZipFile(file) as archive:
            parts = {part: inspect_log._entry(file, archive, part) for part in archive.namelist()}
    name = chance.choice(list(parts))
    parts[name] = _json("x.json", parts[name], chance.randrange(2**32))
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return target.getvalue()


def mutated_bytes(content, seed):
    """Return bytes with a part changed, removed, doubled, or cut off."""
    chance = random.Random(seed)
    at = chance.randrange(len(content))
    size = chance.choice((1, 1, 2, 8, 100))
    kind = chance.randrange(5)
    if kind == 0:
        return content[:at]
    if kind == 1:
        return content[:at] + content[at + size :]
    if kind == 2:
        return content[: at + size] + content[at:]
    if kind == 3:
        return content[:at] + bytes([content[at] ^ (1 << chance.randrange(8))]) + content[at + 1 :]
    return content[:at] + chance.randbytes(size) + content[at + size :]


def mutated_json(content, seed, n=3):
    """Return a JSON value in which some values are removed or replaced."""
    chance = random.Random(seed)
    content = copy.deepcopy(content)
    for _ in range(chance.randint(1, n)):
        node, place = content, None
        for _ in range(chance.randint(1, 9)):
            if not isinstance(node, (dict, list)) or not node:
                break
            place = (
                node,
                chance.choice(list(node) if isinstance(node, dict) else range(len(node))),
            )
            node = node[place[1]]
        if place is None:
            continue
        if chance.random() < 0.3:
            del place[0][place[1]]
        else:
            place[0][place[1]] = copy.deepcopy(chance.choice(ODD))
    return content
