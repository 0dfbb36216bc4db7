"""Saved trials as cases, and where the verdicts on them go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from _support.errors import refused
from _support.judged_runs import ROWS, STAMP, row, write

from lm_eval_bayes.rubric.verifier_prompt import VerifierInput
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.verdicts import case_hash
from lm_eval_bayes.verifiers.judged_trials import files_to_judge, verdict_targets


def cases(folder, rows, limit=None):
    (file,) = files_to_judge(read_runs([write(folder, rows)]).runs, limit)
    return file.trials


def test_question_standard_answer_and_the_text_after_the_reasoning(tmp_path):
    trials = cases(tmp_path, ROWS)
    assert [(t.doc_id, t.trial) for t in trials] == [(q, i) for q in (0, 1) for i in range(4)]
    assert trials[2].read() == VerifierInput("Question 0?", "42", "It is 42.")
    assert trials[4].read() == VerifierInput("Question 1?", "7", "Hm, 7")
    assert trials[0].text == trials[2].text == case_hash(trials[0].read())
    assert trials[0].text != trials[5].text  # the same words, to another question


@pytest.mark.parametrize(
    ("doc", "question"),
    [
        ({"problem": " What? "}, "What?"),
        ({"problem": "", "question": "Why?"}, "Why?"),
        ({"text": "Who?"}, "Solve: Question 0?"),
    ],
)
def test_where_a_question_stands(tmp_path, doc, question):
    (trial,) = cases(tmp_path, [row(0, ["x"], doc=doc)])
    assert trial.read().question == question


@pytest.mark.parametrize(
    ("target", "gold"), [(" 42 ", "42"), (42, "42"), (0.5, "0.5"), (["a", "b"], "a or b")]
)
def test_standard_answers(tmp_path, target, gold):
    (trial,) = cases(tmp_path, [row(0, ["x"], target=target)])
    assert trial.read().gold == gold


@pytest.mark.parametrize(
    "changes",
    [
        {"target": None},
        {"doc": {}, "arguments": {}},
        {"resps": [[["-1.5", "True"]]]},
        {"resps": [["a"], ["b"]]},
    ],
)
def test_samples_that_cannot_be_judged(tmp_path, changes):
    with refused("RUN", "missing") as caught:
        cases(tmp_path, [row(1, ["x"]), {**row(3, ["y"]), **changes}])
    assert "question 3" in caught.value.value


# -- where to ----------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    for model in ("m1", "m2"):
        write(tmp_path / model, ROWS)
    return files_to_judge(read_runs([tmp_path]).runs)


def test_verdicts_lie_beside_the_samples(saved, tmp_path):
    name = f"verdicts_demo_{STAMP}.jsonl"
    assert verdict_targets(saved, None) == [tmp_path / "m1" / name, tmp_path / "m2" / name]


def test_one_task_may_go_to_a_file_or_a_folder(saved, tmp_path):
    assert verdict_targets(saved[:1], tmp_path / "v.jsonl") == [tmp_path / "v.jsonl"]
    assert verdict_targets(saved[:1], tmp_path) == [tmp_path / f"verdicts_demo_{STAMP}.jsonl"]


def test_places_that_will_not_do(saved, tmp_path):
    samples = Path(os.path.relpath(saved[0].samples))
    for files, place, rule in (
        (saved, tmp_path / "absent", "conflict"),
        (saved, tmp_path, "conflict"),
        (saved[:1], tmp_path / "absent" / "v.jsonl", "path"),
        (saved[:1], samples, "conflict"),
    ):
        with refused("--out", rule):
            verdict_targets(files, place)
