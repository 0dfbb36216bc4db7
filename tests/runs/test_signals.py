"""A saved run becomes a table of signals: from texts, grades, the model's log and verdicts."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from _support.errors import refused
from _support.saved_runs import STAMP, TASK, VERIFIER, question, write_run

from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.verdicts import ChangedTrialError, VerdictsError

SAMPLES, VERDICTS = (f"{kind}_{TASK}_{STAMP}.jsonl" for kind in ("samples", "verdicts"))
LOOP = "Wait, let me check again. " * 20


def trial(text="It is \\boxed{4}.", outcome=1, tokens=16, reason="stop", **more):
    return {
        "text": text,
        "outcome": outcome,
        "completion_tokens": tokens,
        "finish_reason": reason,
        **more,
    }


@pytest.fixture
def read(tmp_path):
    """Write a run, change the rows of its samples if told, and read it."""

    def of(questions, change=None, **options):
        folder = write_run(
            tmp_path / f"run{len(list(tmp_path.iterdir()))}", "m", questions, **options
        )
        if change is not None:
            path = folder / SAMPLES
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            for row in rows:
                change(row)
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return signals_of(folder)

    return of


def signals_of(folder, **options):
    """Read the only run in a folder, and its signals."""
    (run,) = read_runs([folder], signals="all", **options).runs
    assert run.signal_table.n_questions == run.n_questions
    return run


def column(run, name):
    return [None if math.isnan(v) else float(v) for v in run.signal_table.column(name)]


def test_signals_by_hand(read):
    first = question(
        [
            trial(completion_bpt=1.5, prompt_bpt=3.25),
            trial("It is 4.", 1, 48, completion_bpt=None, prompt_bpt=3.25),
            trial(LOOP, 0, 64, "length", completion_bpt=0.25, prompt_bpt=3.25),
        ],
        2,
    )
    second = question([trial("\\boxed{5}", None, None, None, completion_bpt=2.0)], 3)
    run = read([first, second])
    assert (run.model, run.task, run.file_names) == ("m", TASK, SAMPLES)
    assert run.label == f"m ({SAMPLES})"
    assert run.signal_table.question.tolist() == [0, 0, 0, 1]
    assert column(run, "is_correct") == [1, 1, 0, None]
    assert column(run, "has_box") == [1, 0, 0, 1]
    assert column(run, "text_loop") == [0, 0, 1, 0]
    assert column(run, "token_ratio") == [0.25, 0.75, 1.0, None]
    assert column(run, "repeated_pattern") == [0, 0, 1, None]
    assert column(run, "completion_bpt") == [1.5, None, 0.25, 2.0]
    assert column(run, "prompt_bpt") == [3.25, 3.25, 3.25, None]
    assert not run.signal_table.has("verifier_a")
    assert (run.verifier, run.n_judged) == (None, 0)


@pytest.mark.parametrize(
    ("sent", "configured", "ratio"),
    [
        ({"max_tokens": 128}, {"max_gen_toks": 64}, 0.125),
        ({"temperature": 1.0}, {"max_gen_toks": 64}, 0.25),
    ],
)
def test_where_the_limit_of_a_completion_comes_from(read, sent, configured, ratio):
    def change(row):
        row["arguments"]["gen_args_0"]["arg_1"] = sent

    run = read([question([trial()])], change, config={"generation_kwargs": configured})
    assert column(run, "token_ratio") == [ratio]


def test_a_box_counts_after_the_models_own_end_of_thinking(read):
    text = "\\boxed{3}? [END] It is 4."
    metadata = {"bayes": {"weights": [0.0, 1.0]}}
    assert column(read([question([trial(text)])], config={"metadata": metadata}), "has_box") == [1]
    thinking = {"metadata": {**metadata, "think_end_token": "[END]"}}
    assert column(read([question([trial(text)])], config=thinking), "has_box") == [0]


@pytest.mark.parametrize("weights", [[0.0, 0.5, 1.0], [1.0, 0.0]])
def test_other_grades_than_right_and_wrong_are_not_called_correct(read, weights):
    run = read([question([trial()])], config={"metadata": {"bayes": {"weights": weights}}})
    assert not run.signal_table.has("is_correct")
    assert column(run, "outcome") == [1]


def test_what_a_rubric_task_logged_is_taken_as_it_is(read):
    def change(row):
        logged = {"outcome": [1], "has_box": [0], "text_loop": [0], "is_correct": [1]}
        row["signals"] |= {**logged, "rubric_own": [2], "stop_reason": ["x"]}

    run = read([question([trial("\\boxed{4}")])], change)
    assert column(run, "has_box") == [0], "the text that was logged may be cut off"
    assert column(run, "rubric_own") == [2]
    assert column(run, "stop_reason") == [None]


# -- verdicts ------------------------------------------------------------------------------------


def test_verdicts_stand_beside_their_trials(read):
    trials = [trial(verdict=(0.7, 0.2, 0.1)), trial(), trial(verdict=(0.0, 0.25, 0.75))]
    run = read([question([trial()], 1), question(trials, 2)])
    assert column(run, "verifier_a") == [None, 0.7, None, 0.0]
    assert column(run, "verifier_b") == [None, 0.2, None, 0.25]
    assert column(run, "verifier_c") == [None, 0.1, None, 0.75]
    assert (dict(run.verifier), run.n_judged) == (VERIFIER, 2)
    without = signals_of(Path(run.sources[0]).parent, verdicts=False)
    assert (without.verifier, without.n_judged) == (None, 0)
    assert not without.signal_table.has("verifier_c")
    assert column(without, "has_box") == column(run, "has_box")


def test_verdicts_on_other_texts_are_refused(read, tmp_path):
    def change(row):
        row["resps"][0][0] = "It is \\boxed{5}."

    path = str(tmp_path / "run0" / VERDICTS)
    with refused(path, "mismatch", (0, 0), error=ChangedTrialError):
        read([question([trial(verdict=(1.0, 0.0, 0.0))])], change)


def test_verdicts_on_other_samples_are_refused(tmp_path):
    folder = write_run(tmp_path / "run", "m", [question([trial(verdict=(1.0, 0.0, 0.0))])])
    path = folder / VERDICTS
    path.write_text(path.read_text().replace(SAMPLES, "samples_other.jsonl"))
    with refused("RUN", "missing"):
        signals_of(folder)
    path.write_text("hello\n")
    with refused(str(path), "damaged", error=VerdictsError):
        signals_of(folder)


# -- bad rows ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"resps": [["a", 5]]}, "mismatch"),
        ({"resps": [["a", "b"]]}, "damaged"),
        ({"signals": {"prompt_bpt": 2.0}}, "damaged"),
        ({"signals": {"outcome": [1], "has_box": [1], "text_loop": [0], "x": [1, 2]}}, "damaged"),
    ],
)
def test_a_row_that_does_not_hang_together_is_refused(read, change, rule):
    with refused("RUN", rule):
        read([question([trial()])], lambda row: row.update(change))


def test_a_value_that_no_signal_can_have_is_refused(read):
    with refused("RUN", "range"):
        read([question([trial(completion_bpt=-0.5)])])


def test_a_verifier_only_speaks_through_its_own_file(read):
    def claim(row):
        row["signals"] |= {f"verifier_{label}": [0.9] for label in "abc"}

    run = read([question([trial()])], claim)
    assert (run.n_judged, run.verifier) == (0, None)
    assert not run.signal_table.has("verifier_c")
