"""A further format is one module with `sniff` and `read`, and one entry in a table."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from lm_eval_bayes.runs import reader
from lm_eval_bayes.runs.partial_run import PartialRun, QuestionTrials
from lm_eval_bayes.runs.readers import formats
from lm_eval_bayes.runs.readers.protocol import FileContents, Sniffed


def sniff(path):
    if path.is_dir():
        files = sorted(path.glob("*.tally"))
        return Sniffed(files, ("of a folder",)) if files else None
    return Sniffed([path]) if path.suffix == ".tally" else None


def read(file, query):
    content = json.loads(file.read_text())
    query.advance(file.stat().st_size)
    questions = {
        id: QuestionTrials(id, np.array(trials), np.arange(len(trials)))
        for id, trials in content.items()
    }
    runs = [PartialRun(file.stem, "sums", (str(file),), questions)]
    return FileContents(runs, ("sums",), warnings=(f"{file.name} was read",))


@pytest.fixture
def tally(monkeypatch, tmp_path):
    monkeypatch.setattr(
        formats,
        "FORMATS",
        (
            *formats.FORMATS,
            formats.Format(
                "tallies", "*.tally", "nothing", SimpleNamespace(sniff=sniff, read=read)
            ),
        ),
    )
    file = tmp_path / "model.tally"
    file.write_text(json.dumps({"a": [0, 1, 1], "b": [1, 1, 0]}))
    return file


def test_a_further_format_is_read_like_the_others(tally):
    progress = []
    saved = reader.read_runs([tally], progress=lambda done, total: progress.append((done, total)))
    (run,) = saved.runs
    assert (run.model, run.task, run.question_ids) == ("model", "sums", ("a", "b"))
    assert run.outcomes.counts.tolist() == [[1, 2], [1, 2]]
    assert saved.warnings == ("model.tally was read",)
    assert progress == [(tally.stat().st_size,) * 2]


def test_a_further_format_is_found_in_folders(tally):
    saved = reader.read_runs([tally.parent])
    assert saved.models == ("model",)
    assert saved.warnings == ("of a folder", "model.tally was read")
