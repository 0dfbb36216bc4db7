"""A damaged file of a folder is an error that names it, or named as left out; it never vanishes."""

import codecs
import shutil

import pytest
from _support.tool_logs import DATA

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.readers.formats import FORMATS

#: By format its folders; the formats that are not here are read as single files.
FOLDERS = {
    "lm-evaluation-harness": ("lm_eval_0.4.9", "lm_eval_0.4.2"),
    "inspect_ai": ("inspect_ai",),
    "verifiers": ("verifiers",),
    "verifiers, traces": ("verifiers_traces",),
    "Every Eval Ever": ("every_eval_ever",),
    "SWE-bench": ("swe_bench", "swe_bench/logs"),
    "promptfoo": ("promptfoo",),
    "tau2-bench, tau-bench": ("tau2", "tau2/folder"),
    "Harbor, terminal-bench": ("harbor/letters", "terminal_bench"),
    "evalscope": ("evalscope",),
    "lighteval": ("lighteval",),
    "NeMo-Skills": ("nemo_skills",),
    "MathArena": ("matharena/outputs",),
}
CASES = [(name, folder) for name, folders in FOLDERS.items() for folder in folders]
SINGLE = {"counts", "table of trials", "matrix of outcomes", "trial store"}


def _broken_first_line(content):
    first, end, rest = content.partition(b"\n")
    return first[: len(first) // 2] + end + rest


DAMAGES = {
    "empty": lambda content: b"",
    "8 bytes": lambda content: content[:8],
    "NUL": lambda content: bytes(len(content)),
    # one byte more than half, as a file that is cut off at the end of a line is no damaged file
    "half": lambda content: content[: len(content) // 2 + 1],
    "NUL tail": lambda content: content + bytes(64),
    "broken first line": _broken_first_line,
    "first line of another kind": lambda content: b"[1]\n" + content,
    "byte order mark": lambda content: codecs.BOM_UTF8 + content,
}


def copied(source, tmp_path):
    """Return a copy of a folder of logs."""
    return shutil.copytree(DATA / source, tmp_path / "runs", ignore=shutil.ignore_patterns("make*"))


def trials(saved):
    return {(run.model, run.task): int(run.outcomes.n_trials.sum()) for run in saved.runs}


def read_or_named(folder):
    """Return the trials of a folder, none where it is refused, and what was said."""
    try:
        saved = read_runs([folder], dedupe=True)
    except InvalidInputError as error:
        return None, str(error)
    return trials(saved), "\n".join(saved.warnings)


def files_of(folder):
    """Return one file of every name and depth below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {(file.name, len(file.parts)): file for file in files}.values()


def test_every_format_is_here():
    assert FOLDERS.keys() | SINGLE == {format.name for format in FORMATS}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(("name", "source"), CASES, ids=[source for _, source in CASES])
def test_a_damaged_file_does_not_vanish(name, source, damage, tmp_path):
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


@pytest.mark.parametrize(
    ("source", "pattern", "n_trials", "n_others"),
    [
        ("promptfoo", "prompts.json", 56, 24),
        ("tau2", "weak.json", 31, 19),
        ("swe_bench", "org__weak-1.5.run_2.json", 24, 20),
    ],
)
def test_a_damaged_file_of_any_name_is_named(source, pattern, n_trials, n_others, tmp_path):
    """These tools' files have any name: a damaged one beside them may be of another tool."""
    folder = copied(source, tmp_path)
    assert sum(trials(read_runs([folder], dedupe=True)).values()) == n_trials
    (folder / pattern).write_bytes(b"")
    saved = read_runs([folder], dedupe=True)
    assert sum(trials(saved).values()) == n_others
    assert any(f"{folder / pattern} was left out" in warning for warning in saved.warnings)


@pytest.mark.parametrize("source", [source for _, source in CASES])
def test_broken_files_of_no_tool_are_no_error(source, tmp_path):
    folder = copied(source, tmp_path)
    saved = read_runs([folder], dedupe=True)
    for parent in (folder, folder / ".vscode"):
        parent.mkdir(exist_ok=True)
        parent.joinpath("tsconfig.json").write_text('{\n  // strict\n  "strict": true,\n}\n')
        parent.joinpath("events.jsonl").write_text("started\n")
        for name in ("README.md", "run.log", "plot.png", "empty.json", "table.parquet"):
            parent.joinpath(name).write_bytes(b"")
    again = read_runs([folder], dedupe=True)
    assert trials(again) == trials(saved)
    more = [warning for warning in again.warnings if warning not in saved.warnings]
    assert all(f"{folder}/tsconfig" in w or f"{folder}/empty" in w for w in more)
    named_by_their_folder = ("inspect_ai", "swe_bench", "promptfoo", "tau2", "tau2/folder")
    assert len(more) == (2 if source in named_by_their_folder else 0)
