"""A damaged file of a folder is an error that names it; it never vanishes."""

import codecs
import shutil
import tracemalloc

import pytest
from _support.errors import refused
from _support.format_logs import SAVED
from _support.tool_logs import DATA, nested

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.readers import text_files

#: A folder whose only file, of any name, is damaged is refused as one of no tool.
SOURCES = dict.fromkeys(source for source, _ in SAVED if source != "tau_bench")


def _broken_first_line(content):
    first, end, rest = content.partition(b"\n")
    return first[: len(first) // 2] + end + rest


DAMAGES = {
    "empty": lambda content: b"",
    "8 bytes": lambda content: content[:8],
    "NUL": lambda content: bytes(len(content)),
    # one byte more than half, as a file that is cut off at the end of a line is no damaged file
    "half": lambda content: content[: len(content) // 2 + 1],
    "broken first line": _broken_first_line,
    "first line of another kind": lambda content: b"[1]\n" + content,
    "byte order mark": lambda content: codecs.BOM_UTF8 + content,
}


#: Damages that are found where a file is cut to half or empty, too.
SLOW = ("8 bytes", "NUL", "first line of another kind")


def copied(source, tmp_path):
    """Return a copy of a folder of logs."""
    return shutil.copytree(DATA / source, tmp_path / "runs", ignore=shutil.ignore_patterns("make*"))


def trials(saved):
    return {(run.model, run.task): int(run.outcomes.n_trials.sum()) for run in saved.runs}


def read_or_named(folder):
    """Return the trials of a folder, none where it is refused, and the warnings or the error."""
    try:
        saved = read_runs([folder], dedupe=True)
    except InvalidInputError as error:
        return None, str(error)
    return trials(saved), "\n".join(saved.warnings)


def files_of(folder):
    """Return one file of every name and depth below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {(file.name, len(file.parts)): file for file in files}.values()


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(damage, marks=[pytest.mark.slow] if damage in SLOW else [])
        for damage in DAMAGES
    ],
)
@pytest.mark.parametrize("source", SOURCES)
def test_a_damaged_file_does_not_vanish(source, damage, tmp_path):
    folder = copied(source, tmp_path)
    expected = trials(read_runs([folder], dedupe=True))
    for file in files_of(folder):
        content = file.read_bytes()
        file.write_bytes(DAMAGES[damage](content))
        counted, named = read_or_named(folder)
        assert counted == expected or str(file) in named
        if damage == "byte order mark" and file.suffix not in (".parquet", ".zst"):
            assert counted == expected
        file.write_bytes(content)


@pytest.mark.parametrize("source", SOURCES)
def test_broken_files_of_no_tool_are_no_error(source, tmp_path):
    folder = copied(source, tmp_path)
    saved = read_runs([folder], dedupe=True)
    settings = folder / ".vscode"
    settings.mkdir()
    settings.joinpath("tsconfig.json").write_text('{\n  // strict\n  "strict": true,\n}\n')
    for parent in (folder, settings):
        parent.joinpath("events.jsonl").write_text("started\n")
        for name in ("README.md", "run.log", "plot.png", "table.parquet", "._results.json"):
            parent.joinpath(name).write_bytes(b"")
    again = read_runs([folder], dedupe=True)
    assert trials(again) == trials(saved)
    assert again.warnings == saved.warnings


@pytest.mark.parametrize(
    ("source", "name", "first"),
    [
        ("nemo_skills/published/eval-results/gpqa", "output-rs0.jsonl", b"{}\n"),
        ("verifiers_traces", "weak/traces.jsonl", b"{}\n"),
        ("evalscope", "weak/reviews/weak/general_mcq_letters.jsonl", b"{}\n"),
    ],
)
def test_a_file_of_a_name_of_the_format_that_begins_otherwise_is_refused(
    source, name, first, tmp_path
):
    folder = copied(source, tmp_path)
    file = folder / name
    file.write_bytes(first + file.read_bytes())
    counted, named = read_or_named(folder)
    assert counted is None
    assert str(file) in named


# -- long lines and deep values ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["board.jsonl", "board.csv"])
def test_a_line_that_is_too_long_is_refused_before_it_is_in_memory(name, tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "_LONGEST_LINE", 2**22)
    file = tmp_path / name
    row, header = b'{"doc_id": 0, "question": "q", "score": 1}\n', b"question,score\n"
    with file.open("wb") as opened:
        opened.write(header if name.endswith(".csv") else row)
        opened.truncate(2**26)
    tracemalloc.start()
    try:
        with refused("RUN", "range", "line 2, which is longer"):
            read_runs([file])
        assert tracemalloc.get_traced_memory()[1] < 3 * 2**22
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("depth", "rule"), [(600, "range"), (100_000, "damaged")])
def test_values_nested_deeply_are_refused(depth, rule, tmp_path):
    folder = copied("lm_eval_0.4.9", tmp_path)
    (file,) = folder.glob("results_*.json")
    text = file.read_text(encoding="utf-8")
    changed = text.replace('"version": 1.0', f'"version": {nested(depth)}')
    file.write_text(changed, encoding="utf-8")
    with refused("RUN", rule):
        read_runs([folder])
