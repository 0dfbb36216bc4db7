"""Trials in = trials counted + trials named as left out, for damaged and changed files.

A file of every format is damaged, or its bytes, rows or values are changed. What is counted then
is held against the rows that the changed file has, which are counted here and not by a reader.
"""

from __future__ import annotations

import codecs
import contextlib
import copy
import csv
import gzip
import io
import json
import random
import re
import shutil
import sqlite3
import struct
import zipfile
import zlib
from collections import Counter

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
from lm_eval_bayes.runs.readers.formats import FORMATS, recognise

#: The random mutations of all files.
CASES = 5_000

ALL = {
    f"{name}: {log.pattern}{' in its folder' if log.read else ''}": log
    for name, logs in LOGS.items()
    for log in logs
}


def counted(path, dedupe=False):
    """Return how often every question has a score, and what was said besides."""
    saved = read_runs([path], dedupe=dedupe)
    outcomes = Counter()
    for run in saved.runs:
        for i, id in enumerate(run.question_ids):
            counts = enumerate(run.outcomes.counts[i].tolist())
            scores = Counter(run.outcomes.scores[i].tolist()) if run.scored else dict(counts)
            for score, n in scores.items():
                outcomes[run.model, run.task, id, score] += n
        for i in range(min(2, run.n_questions)):
            with contextlib.suppress(LmEvalBayesError):  # a damaged column of texts
                assert len(question_texts(run, i).responses) in (0, run.outcomes.n_trials[i])
    notes = (note for run in saved.runs for note in run.notes)
    return +outcomes, {*saved.warnings, *saved.notes, *notes}


def read_or_refused(path, dedupe=False):
    """Return what :func:`counted` returns, or None and the error."""
    try:
        return counted(path, dedupe)
    except LmEvalBayesError as error:
        return None, str(error)


def news(notices, before):
    """Return the notices that say something else than those before, or the same of more trials."""
    numbers = Counter()
    for notice in before:
        numbers[re.sub(r"\d+", "#", notice)] += sum(map(int, re.findall(r"\d+", notice)))
    new = (
        notice
        for notice in notices
        for text in [re.sub(r"\d+", "#", notice)]
        if text not in numbers or sum(map(int, re.findall(r"\d+", notice))) > numbers[text]
    )
    return "\n".join(new)


class Copy:
    """A copy of a log, with what was counted in it before it was changed."""

    def __init__(self, log, folder):
        self.log, self.folder = log, folder
        folder.mkdir()
        if callable(log.source):
            log.source(folder / log.pattern)
        else:
            ignore = shutil.ignore_patterns("make*")
            shutil.copytree(DATA / log.source, folder, dirs_exist_ok=True, ignore=ignore)
        self.file = min(folder.glob(log.pattern))
        self.path = self.file if log.read is None else folder
        self.original = self.file.read_bytes()
        self.files = sorted(folder.rglob("*"))
        self.outcomes, self.notices = counted(self.path)
        self.n_rows = self.rows_of(self.original)

    def rows_of(self, content):
        """Return how many trials some bytes hold; None where they cannot be parsed."""
        try:
            parsed = load(self.file.name, content)
            return 0 if self.log.rows is None else sum(map(self.log.n, self.log.trial_rows(parsed)))
        except Exception:  # of bytes that are no file of the kind
            return None

    def check(self, content):
        """Read the file with other content; return what is counted, None where it is refused."""
        self.file.write_bytes(content)
        outcomes, said = read_or_refused(self.path)
        assert sorted(self.folder.rglob("*")) == self.files
        if outcomes is None:
            # of a folder whose only log is none any more the folder is named
            names = (self.file.name, f"{self.file.parent} ", "beside it", "be a run: ")
            names += (f"{self.folder} are also in", repr(self.file.parent.name))
            assert self.path == self.file or any(name in said for name in names)
            return None
        n, before, n_rows = outcomes.total(), self.outcomes.total(), self.rows_of(content)
        said = news(said, self.notices)
        if n_rows is None:
            assert n <= before
            assert n == before or self.file.name in said
        else:
            most = before + self.log.left_out - self.n_rows + n_rows
            assert n <= most
            assert n >= most - self.log.left_out or said
        return outcomes


@pytest.fixture
def copied(tmp_path):
    return lambda name: Copy(ALL[name], tmp_path / "logs")


def test_every_format_is_here():
    assert set(LOGS) == {format.name for format in FORMATS}


@pytest.mark.parametrize("name", ALL)
def test_all_rows_are_counted_or_named(name, copied):
    log = copied(name)
    assert recognise(log.path)[0].name == name.partition(":")[0]
    if log.path == log.file:
        assert log.outcomes.total() + log.log.left_out == log.n_rows
    if log.log.left_out:
        assert any(f"{log.log.left_out} trial" in notice for notice in log.notices)


# -- damage -------------------------------------------------------------------------------------


def _broken_first_line(content):
    first, end, rest = content.partition(b"\n")
    return first[: len(first) // 2] + end + rest


DAMAGES = {
    "empty": lambda content: b"",
    "8 bytes": lambda content: content[:8],
    "NUL": lambda content: bytes(len(content)),
    # not behind a line, where nothing shows that a file is cut off
    "half": lambda content: content[: len(content) * 3 // 5],
    "NUL tail": lambda content: content[: len(content) // 2 + 1] + bytes(len(content) // 2),
    "broken first line": _broken_first_line,
    "first line of another kind": lambda content: b"[1]\n" + content,
    "first line of no log": lambda content: b"{}\n" + content,
    "byte order mark": lambda content: codecs.BOM_UTF8 + content,
}
_BINARY = (".parquet", ".arrow", ".zst", ".gz", ".eval", ".npz", ".sqlite")

#: By source a log of it.
SOURCES = {
    log.source if isinstance(log.source, str) else name: log
    for name, log in ALL.items()
    if log.pattern != "published.parquet"
}
OF_TOOLS = [source for source, log in SOURCES.items() if source is log.source]


def files_of(folder):
    """Return one file of every name and depth below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {(file.name, len(file.parts)): file for file in files}.values()


#: Damages that are found where a file is cut to half or empty, too.
SLOW = ("8 bytes", "NUL", "NUL tail", "first line of another kind")


@pytest.mark.parametrize(
    "damage",
    [pytest.param(d, marks=[pytest.mark.slow] if d in SLOW else []) for d in DAMAGES],
)
@pytest.mark.parametrize("source", SOURCES)
def test_a_damaged_file_does_not_vanish(source, damage, tmp_path):
    folder = Copy(SOURCES[source], tmp_path / "logs").folder
    files = files_of(folder)
    before = {path: read_or_refused(path, dedupe=True) for path in (folder, *files)}
    for file in files:
        content = file.read_bytes()
        file.write_bytes(DAMAGES[damage](content))
        for path in (folder, file):
            expected, notices = before[path]
            outcomes, said = read_or_refused(path, dedupe=True)
            if outcomes is None:
                assert path == file or str(file) in said or len(files) == 1
            elif expected is not None:
                assert outcomes <= expected
                named = str(file) if path == folder else file.name
                assert outcomes == expected or named in "\n".join(said - notices)
            if damage == "byte order mark" and file.suffix not in _BINARY:
                assert outcomes == expected
        file.write_bytes(content)


@pytest.mark.parametrize("source", OF_TOOLS)
def test_broken_files_of_no_tool_are_no_error(source, tmp_path):
    log = Copy(SOURCES[source], tmp_path / "logs")
    settings = log.folder / ".vscode"
    settings.mkdir()
    settings.joinpath("tsconfig.json").write_text('{\n  // strict\n  "strict": true,\n}\n')
    before = read_or_refused(log.folder, dedupe=True)
    for parent in (log.folder, settings):
        parent.joinpath("events.jsonl").write_text("started\n")
        for name in ("README.md", "run.log", "plot.png", "table.parquet", "._results.json"):
            parent.joinpath(name).write_bytes(b"")
    assert read_or_refused(log.folder, dedupe=True) == before


# -- rows ---------------------------------------------------------------------------------------

ROWS = {name: log for name, log in ALL.items() if isinstance(log.rows, tuple)}


def with_rows(log, change):
    """Return the bytes of a log whose rows are changed in place."""
    content = load(log.file.name, log.original)
    change(log.log.trial_rows(content))
    return dump(log.file.name, log.original, content)


def twice(rows):
    rows[:] = rows * 2


def each_twice(rows):
    rows[:] = [row for row in rows for _ in range(2)]


# a database has every row once, and an archive every sample in a file of its own
@pytest.mark.parametrize("name", [name for name in ROWS if not name.endswith((".sqlite", ".eval"))])
def test_rows_that_are_there_twice(name, copied):
    log = copied(name)
    for change in (twice, each_twice):
        assert log.check(with_rows(log, change)) is None
        with contextlib.suppress(LmEvalBayesError):
            assert counted(log.path, dedupe=True)[0] == log.outcomes


@pytest.mark.parametrize("name", ROWS)
def test_rows_in_another_order(name, copied):
    log = copied(name)
    outcomes = log.check(with_rows(log, list.reverse))
    # logs of NeMo-Skills without ids and texts have their questions by line
    assert "NeMo-Skills" in name or outcomes in (None, log.outcomes)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_that_is_missing(name, copied):
    log = copied(name)
    for i in (0, 1, -1):
        outcomes = log.check(with_rows(log, lambda rows, i=i: rows.pop(i)))
        assert outcomes is None or outcomes <= log.outcomes


@pytest.mark.parametrize("name", [name for name, log in ALL.items() if log.rows is not None])
def test_a_field_that_is_missing(name, copied):
    log = copied(name)
    row = log.log.trial_rows(load(log.file.name, log.original))[0]
    for key in row if isinstance(row, dict) else ():
        for remove in (True, False):
            content = load(log.file.name, log.original)
            changed = log.log.trial_rows(content)[0]
            changed[key] = None
            if remove and log.file.suffix not in (".csv", ".tsv", ".gz"):
                del changed[key]
            try:
                log.check(dump(log.file.name, log.original, content))
            except AssertionError as error:
                error.add_note(f"{key}, {'removed' if remove else 'None'}")
                raise


@pytest.mark.parametrize("name", [name for name, log in ALL.items() if log.score])
def test_a_score_that_is_none(name, copied):
    """It is refused, or the trial is left out or counted as wrong with a word."""
    log = copied(name)
    for score in (float("nan"), float("inf"), "x", "", None, [], {}, 10**400):
        content = load(log.file.name, log.original)
        place = log.log.trial_rows(content)[0]
        for key in log.log.score[:-1]:
            place = place[key]
        place[log.log.score[-1]] = score
        with contextlib.suppress(pyarrow.ArrowException, OverflowError):
            if log.check(dump(log.file.name, log.original, content)) is not None:
                assert counted(log.path)[1] != log.notices, score


# -- values and bytes ---------------------------------------------------------------------------


def check_mutations(log, n):
    """Check mutations of a file; return how many were read."""
    n_read = 0
    for seed in range(n):
        try:
            n_read += log.check(mutated(log.file.name, log.original, seed)) is not None
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    return n_read


@pytest.mark.parametrize("name", ALL)
def test_some_changed_files(name, copied):
    check_mutations(copied(name), 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_changed_files(name, copied):
    assert check_mutations(copied(name), -(-CASES // len(ALL))) > 0


def load(name, content):
    """Return the content of a file as plain values.

    Rows are dictionaries in lists; of an archive there are the entries, of a database the tables.
    """
    name, content = plain(name, content)
    if name.endswith((".csv", ".tsv")):
        lines = [line for line in content.decode("utf-8-sig").splitlines() if line.strip()]
        cells = list(
            csv.reader(lines, delimiter="\t" if name.endswith(".tsv") else ",", strict=True)
        )
        if len(cells) < len(lines):
            raise ValueError("cells of several lines")
        return [dict(zip(cells[0], row, strict=True)) for row in cells[1:]]
    if name.endswith(".parquet"):
        return pyarrow.parquet.read_table(pyarrow.BufferReader(content)).to_pylist()
    if name.endswith(".arrow"):
        return pyarrow.ipc.open_stream(pyarrow.BufferReader(content)).read_all().to_pylist()
    if name.endswith(".npz"):
        with np.load(io.BytesIO(content)) as archive:
            return {name: archive[name].tolist() for name in archive}
    if name.endswith(".eval"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return {part.filename: json.loads(_entry(content, part)) for part in archive.infolist()}
    if name.endswith(".sqlite"):
        with database(content) as opened:
            return {table: list(map(list, opened.execute(f'SELECT * FROM "{table}"')))
                    for table in tables(opened)}  # fmt: skip
    text = content.decode("utf-8-sig")
    if ".jsonl" in name and not text.startswith("["):
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    return json.loads(text)


def dump(name, original, content):
    """Return the bytes of a file that has other content, see :func:`load`."""
    target = io.BytesIO()
    if name.endswith((".parquet", ".arrow")):
        table = pyarrow.Table.from_pylist(content)
        if name.endswith(".parquet"):
            pyarrow.parquet.write_table(table, target)
        else:
            with pyarrow.ipc.new_stream(target, table.schema) as file:
                file.write_table(table)
    elif name.endswith(".npz"):
        np.savez(target, **{key: as_array(value) for key, value in content.items()})
    elif name.endswith(".eval"):
        with zipfile.ZipFile(target, "w") as archive:
            for part, value in content.items():
                archive.writestr(part, json.dumps(value))
    elif name.endswith(".sqlite"):
        return _dumped(original, content)
    elif ".csv" in name or ".tsv" in name:
        delimiter = "\t" if ".tsv" in name else ","
        rows = [content[0], *(row.values() for row in content)]
        text = "".join(delimiter.join(map(str, row)) + "\n" for row in rows)
        return compressed(name, text.encode("utf-8", "surrogatepass"))
    elif ".jsonl" in name and not original.startswith(b"["):
        return compressed(name, "".join(json.dumps(row) + "\n" for row in content).encode())
    else:
        return compressed(name, json.dumps(content).encode())
    return target.getvalue()


def as_array(value):
    try:
        return np.array(value)
    except ValueError:
        return np.array(value, dtype=object)


def plain(name, content):
    """Return the name and the content of a file without its compression."""
    if name.endswith(".gz"):
        return name[:-3], gzip.decompress(content)
    if name.endswith(".zst"):
        with pyarrow.input_stream(io.BytesIO(content), compression="zstd") as stream:
            return name[:-4], stream.read()
    return name, content


def compressed(name, content):
    if name.endswith(".gz"):
        return gzip.compress(content)
    return pyarrow.compress(content, "zstd", asbytes=True) if name.endswith(".zst") else content


def _entry(content, part):
    """Return an entry of an archive, which inspect_ai compresses by zstd."""
    n_name, n_extra = struct.unpack("<HH", content[part.header_offset + 26 :][:4])
    start = part.header_offset + 30 + n_name + n_extra
    raw = content[start : start + part.compress_size]
    if part.compress_type == 93:
        raw = pyarrow.decompress(raw, part.file_size, "zstd", asbytes=True)
    if zlib.crc32(raw) != part.CRC:
        raise ValueError("another checksum")
    return raw


def _dumped(original, content):
    """Return a database with other rows."""
    with database(original) as opened:
        for table in tables(opened):
            opened.execute(f'DELETE FROM "{table}"')
            for row in content.get(table, ()):
                places = ", ".join("?" * len(row))
                opened.execute(f'INSERT INTO "{table}" VALUES ({places})', row)
        opened.commit()
        return opened.serialize()


@contextlib.contextmanager
def database(content):
    opened = sqlite3.connect(":memory:")
    try:
        opened.deserialize(content)
        opened.execute("PRAGMA ignore_check_constraints = ON")
        if opened.execute("PRAGMA integrity_check").fetchone() != ("ok",):
            raise ValueError("a damaged database")
        yield opened
    finally:
        opened.close()


def tables(opened):
    return [
        name for (name,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    ]


#: What a value may become.
ODD = (
    *(None, True, -1, 0.5, 7, 1e308, 10**400, float("nan"), float("inf")),
    *("", "x", "\ud800", "C", [], {}, [[]], [None], {"": {}}, ["a", 1], {"value": []}),
    *(" ", "1e400", "85%", "0,85", "=1+1", '"', "\0", "9" * 400, "a" * 200_000, "\u202e"),
    *("[" * 1000, "0x1", "1_0", "٣", "true\n", ";;", 2**62),
)
_ENCODINGS = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig", "cp1252", "cp037", "utf-7")


def mutated(name, content, seed):
    """Return a mutated file, which depends on the seed alone."""
    chance = random.Random(seed)
    kind = chance.choice(("bytes", "bytes", "lines", "encoding", "values", "values", "values"))
    if kind == "bytes":
        return mutated_bytes(content, chance)
    if kind == "values":
        with contextlib.suppress(Exception):
            changed = mutated_values(load(name, content), chance)
            return deepened(dump(name, content, changed), chance)
        return mutated_bytes(content, chance)
    text = plain(name, content)[1]
    if kind == "lines":
        return compressed(name, mutated_lines(text, chance))
    text = text.decode("utf-8", "replace").encode(chance.choice(_ENCODINGS), "replace")
    return compressed(name, text)


def deepened(content, chance):
    """Return a text of JSON in which seldom a value is nested deeply."""
    if chance.random() < 0.1:
        deep = nested(chance.choice((50, 400, 900, 960, 990, 100_000))).encode()
        return content.replace(chance.choice((b"null", b"1", b"true", b'""')), deep, 1)
    return content


def mutated_lines(content, chance):
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
            end = chance.choice((b"\r\n", b"\r", b"\n\n"))
            lines = [line.rstrip(b"\r\n") + end for line in lines]
    return b"".join(lines)


def mutated_bytes(content, chance):
    """Return bytes with a part changed, removed, doubled, or cut off."""
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


def mutated_values(content, chance):
    """Remove or replace some values of JSON, a table, an archive or a database."""
    for _ in range(chance.randint(1, 6)):
        node, place = content, None
        for _ in range(chance.randint(1, 9)):
            if not isinstance(node, (dict, list)) or not node:
                break
            keys = list(node) if isinstance(node, dict) else range(len(node))
            place = node, chance.choice(keys)
            node = node[place[1]]
        if place is None:
            continue
        if chance.random() < 0.3:
            del place[0][place[1]]
        else:
            place[0][place[1]] = copy.deepcopy(chance.choice(ODD))
    return content
