"""`lm-eval-bayes study rubric`: what it prints, what it writes, how it ends."""

from __future__ import annotations

import json
import os
from functools import partial

import pytest
from _support.command_line import answer, called, refusal
from _support.harness_command import lm_eval_command
from _support.saved_runs import STAMP, TASK, question, write_run

import lm_eval_bayes as leb
from lm_eval_bayes.rubric.schemata import SCHEMATA
from lm_eval_bayes.rubric.thresholds import Thresholds

#: A name that would colour a terminal, be taken as markup or mathematics, and break a line.
HOSTILE = "mod$x_1$el \x1b[31m[bold]x[/bold]\n\u202e:smiley:"
#: Needs no model that records anything of prompts.
WITHOUT_PROMPTS = [name for name in SCHEMATA if "verifier" not in name and name[:3] != "ood"]


lmeb = partial(called, "study rubric")


def trial(right, boxed=True, tokens=16, bpt=1.0, cut=False, verdict=None, **more):
    return {
        "text": "It is \\boxed{4}." if boxed else "It is 4.",
        "outcome": int(right),
        "completion_tokens": tokens,
        "finish_reason": "length" if cut else "stop",
        "completion_bpt": bpt,
        **({} if verdict is None else {"verdict": verdict}),
        **more,
    }


#: Per question (right and boxed, right, wrong and boxed, wrong, cut off).
GOOD = [(4, 2, 1, 0, 1), (6, 0, 1, 1, 0)]
POOR = [(1, 1, 1, 4, 1), (0, 1, 2, 3, 2)]


def questions(counts, verdict=None, **more):
    result = []
    for number, (best, plain, wrong, bare, cut) in enumerate(counts):
        kinds = [(True, True)] * best + [(True, False)] * plain
        kinds += [(False, True)] * wrong + [(False, False)] * bare
        trials = [
            trial(right, boxed, tokens=8 + 4 * i, bpt=0.5 + i / 8, verdict=verdict, **more)
            for i, (right, boxed) in enumerate(kinds)
        ]
        trials += [trial(False, False, 64, 4.0, cut=True, verdict=verdict, **more)] * cut
        result.append(question(trials, number))
    return result


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "good", "good", questions(GOOD))


@pytest.fixture(scope="module")
def poor(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "poor", "poor", questions(POOR))


def learned(counts, weights):
    """Posterior mean and sd of the kernel."""
    posterior = leb.hbayes_at_n(leb.Outcomes.from_counts(counts, weights=weights))
    return posterior.mu, posterior.sigma


def of(content, model, schema):
    """Return one score out of the JSON."""
    rows = {row["name"]: row for row in content["tasks"][0]["schemata"]}
    return next(score for score in rows[schema]["scores"] if score["model"] == model)


def by_category(counts):
    """Return the counts of the categories of format_aware."""
    return [(cut, bare, wrong, plain, best) for best, plain, wrong, bare, cut in counts]


# -- numbers -------------------------------------------------------------------------------------


def test_the_table(good, poor):
    code, printed, _ = lmeb(good, poor)
    assert code == 0
    rows = {line.split()[0]: " ".join(line.split()) for line in printed.splitlines() if line}
    assert [name for name in rows if name in SCHEMATA] == WITHOUT_PROMPTS
    for rank, counts in enumerate((GOOD, POOR), 1):
        mu, _ = learned(by_category(counts), (0, 0, 1 / 3, 2 / 3, 1))
        assert f" {mu:.3f} ({rank})" in rows["format_aware"]


def test_other_weights(good, poor):
    content = answer("study rubric", good, poor, "--weights", "format_aware=0, 0, 1/4,.5,1")
    result = of(content, "good", "format_aware")
    mu, sigma = learned(by_category(GOOD), (0, 0, 0.25, 0.5, 1))
    assert (result["mu"], result["sigma"]) == pytest.approx((mu, sigma), rel=1e-12)
    assert list(result["categories"].values()) == [1, 1, 2, 2, 10, 0]
    assert (result["missing"], result["trials"], result["rank"]) == (0, 16, 1)
    (task,) = content["tasks"]
    assert [left["schema"] for left in task["left_out"]] == [
        *("ood_robustness", "verifier_only", "verifier_probe")
    ]
    assert len(task["thresholds"]["pooled_over"]) == 2


def test_missing_trials_are_shown_and_warned_of(tmp_path, good):
    result = questions(POOR)
    # without an end of generation a trial may have been cut off, whatever its grade
    for item in result[0]["trials"][:3]:
        item["finish_reason"] = None
    folder = write_run(tmp_path / "gaps", "gaps", result)
    content = answer("study rubric", good, folder, "--schema", "exact_match")
    assert of(content, "gaps", "exact_match")["missing"] == 3
    _, printed, error = lmeb(good, folder, "--schema", "exact_match", "--verbose")
    assert "3 of 16" in printed
    assert "gaps missing 3 of 16" in error
    (row,) = (row for row in lmeb(good, folder)[1].splitlines() if row.startswith("exact_match"))
    assert row.count("*") == 1


def test_several_tasks_make_several_tables(tmp_path, good, poor):
    other = write_run(tmp_path / "other", "good", questions(POOR), task="other_task")
    content = answer("study rubric", good, other, poor, "--schema", "exact_match")
    assert [task["task"] for task in content["tasks"]] == [TASK, "other_task"]


def test_names_are_shown_as_text(tmp_path, good):
    hostile = write_run(tmp_path / "x", HOSTILE, questions(POOR))
    runs = (good, hostile, "--schema", "exact_match")
    for width in ("400", "30"):
        code, printed, _ = lmeb(*runs, width=width)
        assert code == 0
        assert "\x1b" not in printed
        assert "\u202e" not in printed
        assert "mod$x_1$el \\x1b[31m[bold]x[/bold]\\n\\u202e:smiley:" in printed
    _, printed, _ = lmeb(*runs, "--json")
    assert printed.isascii()
    assert of(json.loads(printed), HOSTILE, "exact_match")["rank"] == 2


# -- thresholds ----------------------------------------------------------------------------------


def test_freezing_and_using_thresholds(tmp_path, good, poor):
    file = tmp_path / "frozen.json"
    schemata = ("--schema", "exact_match", "--schema", "efficiency_adjusted")
    first = answer("study rubric", good, *schemata, "--freeze", file)
    # a model joins: with the frozen thresholds the first one's scores stay as they are
    second = answer("study rubric", good, poor, *schemata, "--thresholds", file)
    assert second["thresholds_file"] == "frozen.json"
    (task,) = second["tasks"]
    assert task["thresholds"]["pooled_over"] == [f"good (samples_{TASK}_{STAMP}.jsonl)"]
    third = answer("study rubric", good, poor, *schemata)
    of_first, of_second, of_third = (
        of(content, "good", "efficiency_adjusted")["mu"] for content in (first, second, third)
    )
    assert of_first == of_second != of_third
    frozen = Thresholds.from_json(file.read_text())
    assert frozen.hash in lmeb(good, *schemata, "--freeze", tmp_path / "again.json")[2]


def test_a_file_is_not_written_over(tmp_path, good, poor):
    file = tmp_path / "new" / "frozen.json"
    runs = ("study rubric", good, "--schema", "exact_match")
    answer(*runs, "--freeze", file)
    content = file.read_text()
    assert refusal(*runs, poor, "--freeze", file) == ("--freeze", "path")
    assert file.read_text() == content


# -- verdicts ------------------------------------------------------------------------------------


# -- a real run ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_real_run_of_the_harness(tmp_path):
    """The coin ends every response with a stop, so that exact_match is the plain score."""
    model_args = f"backend=biased_coin,store={tmp_path / 's.sqlite'},beta=2:3,boxed=0.7"
    words = ("--model", "trials", "--model_args", model_args, "--tasks", "demo_arithmetic_bayes")
    lm_eval_command(*words, "--limit", 10, "--log_samples", "--output_path", tmp_path / "out")
    content = answer("study rubric", tmp_path / "out")
    (samples,) = (tmp_path / "out").rglob("samples_*.jsonl")
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    right = sum(sum(row["outcomes"]) for row in rows)
    boxed = sum(
        "\\boxed{" in text and grade == 1
        for row in rows
        for text, grade in zip(row["resps"][0], row["outcomes"], strict=True)
    )
    (model,) = {run["model"] for run in content["tasks"][0]["runs"]}
    result = of(content, model, "strict_compliance")
    assert list(result["categories"].values()) == [0, 80 - boxed, boxed, 0]
    result = of(content, model, "exact_match")
    assert list(result["categories"].values()) == [0, 80 - right, right, 0]
    counts = [(0, 8 - sum(row["outcomes"]), sum(row["outcomes"])) for row in rows]
    mu, sigma = learned(counts, (0, 0, 1))
    assert (result["mu"], result["sigma"]) == pytest.approx((mu, sigma), rel=1e-12)


OWN = {
    "name": "terse",
    "categories": [
        {"name": "wrong", "when": "wrong", "weight": 0.0},
        {"name": "long", "when": "correct and completion_tokens >= 16", "weight": 0.5},
        {"name": "short", "when": "correct and completion_tokens < 16", "weight": 1.0},
    ],
    "why": "mine",
}


def with_own(tmp_path, name, counts, own=OWN):
    bayes = {"n": 8, "weights": [0.0, 1.0], "rubrics": {"own": [own]}}
    config = {"metadata": {"version": 1.0, "bayes": bayes}}
    return write_run(tmp_path / name, name, questions(counts), config=config)


def test_a_rubric_that_the_task_had_of_its_own_is_shown_and_can_be_named(tmp_path):
    runs = [with_own(tmp_path, "good", GOOD), with_own(tmp_path, "poor", POOR)]
    printed = lmeb(*runs, "--schema", "terse")[1]
    assert "terse: weights 0, 0.5, 1" in printed.splitlines()
    content = answer("study rubric", runs[0], "--schema", "terse", "--weights", "terse=0,1,1")
    # the first two trials of each question have 8 and 12 tokens, and are right
    categories = of(content, "good", "terse")["categories"]
    assert categories == {"wrong": 4, "long": 8, "short": 4, "missing": 0}


def test_own_rubrics_of_one_name_must_be_the_same(tmp_path):
    other = {
        **OWN,
        "categories": [*OWN["categories"][:2], {**OWN["categories"][2], "when": "correct"}],
    }
    runs = [with_own(tmp_path, "good", GOOD), with_own(tmp_path, "poor", POOR, other)]
    assert refusal("study rubric", *runs)[1] == "mismatch"


def test_what_is_no_regular_file_is_refused(good, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for option in ("--freeze", "--thresholds"):
        assert refusal("study rubric", good, option, pipe) == (option, "path")
