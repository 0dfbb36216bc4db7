"""Outputs of evalscope 1.14.1, which `data/evalscope/make.py` made.

The expected means are those in the reports of evalscope; outcomes follow from the answers that the
mock model was given.
"""

import json
import shutil

import numpy as np
import pytest
from _support.errors import refused
from _support.tool_logs import DATA, counted_by_hand, outcomes_of, rows_of, write_lines

from lm_eval_bayes.runs.question_texts import question_texts
from lm_eval_bayes.runs.reader import read_runs

STRONG, WEAK = DATA / "evalscope" / "strong", DATA / "evalscope" / "weak"
MCQ, QA = "general_mcq_letters", "general_qa_words"
REVIEWS = {
    (model, task): DATA / "evalscope" / model / "reviews" / model / f"{task}.jsonl"
    for model in ("strong", "weak")
    for task in (MCQ, QA)
}

OUTCOMES = {
    "strong": {"0": [1, 1, 1], "1": [1, 1, 0], "2": [1, 1, 1], "3": [1, 1, None]},
    "weak": {"0": [1, 0, 0], "1": [1, 0, 0], "2": [0, 0, 0], "3": [1, 0, 0]},
}


@pytest.fixture
def outputs(tmp_path):
    """The outputs of a model, in a folder that may be changed."""
    return shutil.copytree(WEAK, tmp_path / "20260105_120000")


def test_the_outcomes_were_counted_by_hand():
    for model in ("strong", "weak"):
        expected = counted_by_hand(OUTCOMES)[model]
        assert outcomes_of(REVIEWS[model, MCQ]) == {model: expected}


@pytest.mark.parametrize(
    ("model", "task", "metric", "mean"),
    [
        ("strong", MCQ, "accuracy", 0.9091),
        ("weak", MCQ, "accuracy", 0.25),
        ("strong", QA, None, 0.8333),
        ("weak", QA, "Rouge-L-F", 0.5556),
    ],
)
def test_the_mean_is_that_of_evalscope(model, task, metric, mean):
    file = REVIEWS[model, task]
    (run,) = read_runs([file], metric=metric).runs
    assert (run.model, run.task, run.metric) == (model, task, metric or "Rouge-L-R")
    outcomes = outcomes_of(file, metric=metric)[model]
    assert np.mean([score for row in outcomes.values() for score in row]) == pytest.approx(
        mean, abs=5e-5
    )


def test_a_generation_without_a_review_is_named_at_its_question(tmp_path):
    (run,) = read_runs([STRONG], task=MCQ).runs
    assert [np.flatnonzero(~graded).tolist() for graded in run.is_graded] == [[], [], [], [2]]
    assert run.n_trials == 11
    (run,) = read_runs([STRONG], task=MCQ, unscored="wrong").runs
    assert run.outcomes.n_trials.tolist() == [3, 3, 3, 3]
    assert run.trials[3][2] == 0
    assert question_texts(run, 3).responses[2] is None
    shutil.copytree(STRONG, tmp_path / "out")
    report = tmp_path / "out" / "reports" / "strong" / "general_mcq.json"
    content = json.loads(report.read_text())
    content["execution_summary"]["subsets"]["letters"]["errored"] = 4  # of questions in no review
    report.write_text(json.dumps(content))
    (run,) = read_runs([tmp_path / "out"], task=MCQ, unscored="wrong").runs
    assert run.outcomes.n_trials.tolist() == [3, 3, 3, 2]


def test_answers_texts_tokens_and_time_are_read(outputs):
    (run,) = read_runs([REVIEWS["strong", MCQ]]).runs
    assert run.answers[1] == ("B", "B", "A")
    assert run.questions == tuple(f"Question {n}?" for n in range(4))
    assert run.provenance.dataset == "general_mcq"
    file = outputs / "predictions" / "weak" / f"{MCQ}.jsonl"
    rows = rows_of(file)
    for row in rows:
        row["model_output"] |= {"usage": {"output_tokens": 5}, "time": 0.5}
    write_lines(file, rows)
    (run,) = read_runs([outputs], task=MCQ).runs
    assert (run.tokens, run.busy_seconds) == (60, 6.0)
    file.unlink()
    assert read_runs([outputs], task=MCQ).runs[0].tokens is None


def test_subsets_of_a_dataset_are_a_group(outputs):
    folder = outputs / "reviews" / "weak"
    shutil.copy(folder / f"{MCQ}.jsonl", folder / "general_mcq_more.jsonl")
    saved = read_runs([outputs])
    assert saved.groups == {"general_mcq": (MCQ, "general_mcq_more")}
    assert read_runs([outputs], task="general_mcq").tasks == (MCQ, "general_mcq_more")


def test_samples_without_a_score_do_not_count(outputs):
    file = outputs / "reviews" / "weak" / f"{MCQ}.jsonl"
    rows = rows_of(file)
    rows[0]["sample_score"]["score"] |= {"value": {}, "status": "judge_error"}
    rows[1]["sample_score"]["generation_index"] = None
    write_lines(file, rows)
    assert outcomes_of(file)["weak"]["0"] == [0, 0]
    for row in rows:
        row["sample_score"]["score"]["value"] = {}
    with refused("RUN", "missing", "12 trials without"):
        read_runs([write_lines(file, rows)])


def test_a_sample_with_two_scores_is_refused(outputs):
    """Appended rows with the other accuracy gave .75 in place of .25 without a word."""
    file = outputs / "reviews" / "weak" / f"{MCQ}.jsonl"
    rows = rows_of(file)
    value = rows[0]["sample_score"]["score"]["value"]
    other = {key: 1 - number for key, number in value.items()}
    rows.append(json.loads(json.dumps(rows[0])))
    rows[-1]["sample_score"]["score"]["value"] = other
    write_lines(file, rows)
    for dedupe in (False, True):
        with refused("RUN", "duplicate"):
            read_runs([outputs], task=MCQ, dedupe=dedupe)


def test_reviews_that_are_lost_are_named_by_the_report(outputs):
    file = outputs / "reviews" / "weak" / f"{QA}.jsonl"
    write_lines(file, rows_of(file)[:-2])
    (warning,) = read_runs([file]).warnings
    assert "holds 7 of 9 reviews" in warning
