"""Mutated files of every format end in a result, or in an error that is meant for the user.

A mutation cuts, doubles or flips bytes, removes, doubles or exchanges lines, changes the encoding,
or replaces values by those of other types, sizes and depths. None may end in a traceback,
or leave a file behind.
"""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from _support.format_logs import LOGS
from _support.mutations import mutate
from _support.tool_logs import DATA

from lm_eval_bayes.errors import LmEvalBayesError
from lm_eval_bayes.runs.question_texts import question_texts
from lm_eval_bayes.runs.reader import read_runs
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
