"""Saved runs under a judge that needs no model: batches, resuming, what is judged once."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from _support.errors import refused
from _support.fake_judge import BASELINE, FakeJudge, expected, opinion

from lm_eval_bayes.rubric.verifier_prompt import (
    PromptTooLongError,
    VerifierInput,
    verifier_prompt,
)
from lm_eval_bayes.runs.verdicts import (
    ChangedTrialError,
    case_hash,
    read_verdicts,
)
from lm_eval_bayes.verifiers.judge import (
    Unjudged,
    VerifierError,
    baseline_scores,
    judge_batches,
)
from lm_eval_bayes.verifiers.judged_trials import JudgedFile, OtherVerifierError, TrialCase
from lm_eval_bayes.verifiers.verification import Verification

ANSWERS = [
    ["It is 42.", "It is 41.", "It is 42.", "No idea.", "Perhaps 40, then"],
    ["It is 7.", "It is 42.", "It is 42.", "No idea.", "fail"],
    [f"Step {i}. " * i + f"So it is {40 + i % 4}." for i in range(1, 30)],
]
GOLDS = ["42", "7", "42"]


def plan(folder, answers=ANSWERS, name="verdicts.jsonl", samples="samples.jsonl"):
    cases = [
        (doc_id, trial, VerifierInput(f"Question {doc_id}?", GOLDS[doc_id], text))
        for doc_id, texts in enumerate(answers)
        for trial, text in enumerate(texts)
    ]
    trials = tuple(TrialCase(q, i, case_hash(case), lambda case=case: case) for q, i, case in cases)
    return JudgedFile("model", "task", Path(samples), trials, folder / name)


def verify(judge, *plans, batch_size=4, **more):
    work = Verification(judge, plans, batch_size=batch_size, **more)
    sizes = []
    tallies = work.run(sizes.append)
    assert sum(sizes) == work.distinct
    return tallies


# -- batches -----------------------------------------------------------------------------------


def test_cases_come_back_under_their_keys_in_batches_of_like_lengths():
    judge = FakeJudge()
    cases = [(i, VerifierInput("q", "42", "word " * (i * 7 % 50) + "42")) for i in range(50)]
    batches = list(judge_batches(judge, iter(cases), 4))
    assert [len(batch) for batch in batches] == [4] * 12 + [2]
    assert sorted(key for batch in batches for key, _ in batch) == list(range(50))
    asked = [verifier_prompt(cases[key][1]) for batch in batches for key, _ in batch]
    assert judge.prompts == asked
    lengths = [len(prompt) for prompt in judge.prompts]
    assert lengths == sorted(lengths, reverse=True)


def test_only_a_window_of_cases_is_read_ahead():
    read = []

    def cases():
        for i in range(1000):
            read.append(i)
            yield i, VerifierInput("q", "42", f"{i}")

    next(judge_batches(FakeJudge(), cases(), 2))
    assert len(read) == 32


def test_a_question_that_is_too_long_is_unjudged_and_says_why():
    judge = FakeJudge(limit=len(verifier_prompt(VerifierInput("q", "4", "x")).split()) + 12)
    cases = [
        ("long", VerifierInput("question " * 50, "4", "x")),
        ("ok", VerifierInput("q", "4", "4")),
    ]
    ((too_long, reason),), ((judged, scores),) = judge_batches(judge, cases, 8)
    assert (too_long, judged, max(scores)) == ("long", "ok", scores[0])
    assert "make a prompt of" in reason.reason


def test_the_baseline_comes_from_the_prompt_without_content():
    judge = FakeJudge()
    assert baseline_scores(judge) == BASELINE
    assert judge.prompts == [verifier_prompt(VerifierInput("N/A", "N/A", "N/A"))]
    judge.scores = lambda prompts: [Unjudged("NaN")]
    with refused("verifier", "failed", None, error=VerifierError):
        baseline_scores(judge)


# -- whole files -------------------------------------------------------------------------------


def test_every_trial_gets_its_verdict_and_equal_ones_are_judged_once(tmp_path):
    judge, task = FakeJudge(), plan(tmp_path)
    (tally,) = verify(judge, task)
    verdicts = read_verdicts(task.target)
    assert verdicts.header.verifier == judge.fingerprint
    assert verdicts.header.baseline == BASELINE
    assert verdicts.header.samples == "samples.jsonl"
    assert set(verdicts.trials) == {(trial.doc_id, trial.trial) for trial in task.trials}
    labels = dict.fromkeys("ABC", 0)
    sums = [0.0, 0.0, 0.0]
    for trial in task.trials:
        label_probabilities = opinion(verifier_prompt(trial.read()))
        verdict = verdicts.trials[trial.doc_id, trial.trial]
        assert verdict.text == trial.text
        if label_probabilities is None:
            assert (verdict.error, verdict.a) == ("no scores", None)
            continue
        assert verdict.scores == pytest.approx(
            [math.log(p) for p in label_probabilities], abs=1e-12
        )
        assert [verdict.a, verdict.b, verdict.c] == pytest.approx(
            expected(label_probabilities), abs=1e-12
        )
        labels["ABC"[max(range(3), key=lambda k: (verdict.a, verdict.b, verdict.c)[k])]] += 1
        sums = [s + p for s, p in zip(sums, (verdict.a, verdict.b, verdict.c), strict=True)]
    assert tally.labels == labels
    assert tally.means == pytest.approx([s / sum(labels.values()) for s in sums], abs=1e-12)
    assert tally.failures == {"no scores": 1}
    assert (tally.kept, tally.failed) == (0, 1)
    # the baseline, and what differs: two pairs are the same words to the same question
    assert len(judge.prompts) == len(set(judge.prompts)) == 1 + len(task.trials) - 2
    assert json.loads(json.dumps(tally.to_dict()))["labels"] == labels


@pytest.mark.parametrize("die_after", [1, 3])
def test_a_stopped_run_goes_on_and_ends_as_one_that_was_not(tmp_path, die_after):
    reference = plan(tmp_path, name="whole.jsonl")
    verify(FakeJudge(), reference)

    task = plan(tmp_path)
    stopped = FakeJudge(die_after=die_after)
    with pytest.raises(KeyboardInterrupt):
        verify(stopped, task)
    earlier = read_verdicts(task.target).trials
    assert len(earlier) >= 4 * (die_after - 1)
    resumed = FakeJudge()
    (tally,) = verify(resumed, task)
    assert tally.kept == len(earlier)
    assert not set(stopped.prompts) & set(resumed.prompts)
    assert read_verdicts(task.target).trials == read_verdicts(reference.target).trials
    assert read_verdicts(task.target).header == read_verdicts(reference.target).header

    again = FakeJudge()
    (tally,) = verify(again, task)
    # the trial that could not be judged is tried again, and nothing else
    assert [("fail" in prompt) for prompt in again.prompts] == [True]
    assert tally.kept == len(task.trials) - 1


def test_a_file_that_is_complete_needs_no_model(tmp_path):
    task = plan(tmp_path, [["It is 42.", "41"]])
    (before,) = verify(FakeJudge(), task)
    judge = FakeJudge(die_after=0)
    (tally,) = verify(judge, task)
    assert judge.batches == []
    assert tally == replace(before, kept=2)


def test_one_model_judges_many_files_and_what_they_share_once(tmp_path):
    tasks = [plan(tmp_path, name=f"{i}.jsonl", samples=f"samples_{i}.jsonl") for i in range(3)]
    judge = FakeJudge()
    verify(judge, *tasks)
    n = len({trial.text for trial in tasks[0].trials})
    assert len(judge.prompts) == 1 + n
    first = read_verdicts(tasks[0].target)
    for task in tasks[1:]:
        assert read_verdicts(task.target).trials == first.trials

    # and what an earlier run judged serves a new file
    another = plan(tmp_path, name="new.jsonl", samples="samples_new.jsonl", answers=ANSWERS[:1])
    judge = FakeJudge()
    (_, tally) = verify(judge, tasks[0], another)
    assert len(judge.prompts) == 2  # what failed, and the new file's baseline
    assert tally.kept == 0


# -- what is refused before a model is asked ------------------------------------------------------


def test_bad_files_are_refused_before_any_score(tmp_path):
    task = plan(tmp_path)
    verify(FakeJudge(), task)
    before = task.target.read_bytes()
    judge = FakeJudge(name="other")
    with pytest.raises(OtherVerifierError):
        verify(judge, task)
    with pytest.raises(OtherVerifierError):
        verify(FakeJudge(), replace(task, samples=Path("another.jsonl")))
    with pytest.raises(ChangedTrialError):
        verify(FakeJudge(), plan(tmp_path, [["It is 43."]]))
    with refused("question", "range", "Question 0?", error=PromptTooLongError):
        verify(FakeJudge(limit=20), plan(tmp_path, name="new.jsonl"))
    assert judge.batches == []
    assert task.target.read_bytes() == before
    assert not (tmp_path / "new.jsonl").exists()


def test_a_restart_that_dies_before_the_first_score_leaves_what_was_there(tmp_path):
    task = plan(tmp_path)
    verify(FakeJudge(), task)
    before = task.target.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        verify(FakeJudge(die_after=0), task, restart=True)
    assert task.target.read_bytes() == before
    judge = FakeJudge(name="other")
    (tally,) = verify(judge, task, restart=True)
    assert (tally.kept, read_verdicts(task.target).header.verifier["name"]) == (0, "other")
    assert len(judge.prompts) == 1 + len({trial.text for trial in task.trials})
