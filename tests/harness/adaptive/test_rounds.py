"""`lm-eval-bayes run`: N raised round by round on a store until the answer is known."""

from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from _support.errors import refused
from _support.harness_command import few_tasks
from _support.stopping_runs import TASK, rounds_of, started
from _support.toy import OneTask, plain_task

from lm_eval_bayes.cli.commands.run import StoppingOptions, run
from lm_eval_bayes.cli.ui.errors import INTERRUPTED
from lm_eval_bayes.errors import InvalidInputError, TaskConfigError
from lm_eval_bayes.harness.adaptive.rounds import baseline_runs, preflight
from lm_eval_bayes.harness.adaptive.stopping import Budget, Goal
from lm_eval_bayes.harness.models.biased_coin.model import CoinSampling
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.task_run import Provenance, TaskRun


def test_a_width_is_reached_and_not_before(tmp_path, capsys):
    results, _ = started(tmp_path, "w", metadata='{"bayes_k": 1}', width=0.2)
    rounds = rounds_of(results)
    widths = [r["looks"][0]["high"] - r["looks"][0]["low"] for r in rounds]
    assert widths[-1] <= 0.2 < min(widths[:-1])
    n = rounds[-1]["trials"]
    row = results["results"][TASK]
    assert row[f"hbayes@{n}_high,none"] - row[f"hbayes@{n}_low,none"] == pytest.approx(widths[-1])
    assert "the goal is reached" in capsys.readouterr().err


def test_stopping_in_rounds_changes_no_number(tmp_path):
    rounds, _ = started(tmp_path, "r", budget="12")
    once, _ = started(tmp_path, "o", budget="12", batch_trials=12)
    assert rounds["results"] == once["results"]
    assert [r["trials"] for r in rounds_of(rounds)] == [4, 8, 12]


def test_a_decision_against_a_finished_run(tmp_path):
    started(tmp_path, "weak", model_args="p=0.3", budget="16", batch_trials=16)
    results, _ = started(tmp_path, "strong", model_args="p=0.8", decide=str(tmp_path / "weak"))
    last = rounds_of(results)[-1]
    assert '"this run" is better' in last["looks"][0]["reason"]
    assert last["trials"] < 80
    assert last["looks"][0]["distinguishable"] is True


def test_trials_go_to_the_questions_that_carry_the_variance(tmp_path):
    goal = {"budget": "24", "batch_trials": 8, "allocate": "questions"}
    results, trials = started(tmp_path, "q", **goal)
    rounds = rounds_of(results)
    assert rounds[-1]["n_trials"] == 12 * rounds[-1]["trials"]
    lengths = [len(question["outcomes"]) for question in trials]
    assert len(set(lengths)) > 1
    assert sum(lengths) == rounds[-1]["n_trials"]
    # the more uncertain a question, the more trials it got
    shares = [abs(sum(t["outcomes"]) / len(t["outcomes"]) - 0.5) for t in trials]
    assert lengths[shares.index(max(shares))] <= lengths[shares.index(min(shares))]


def test_ctrl_c_writes_what_every_question_has(tmp_path, monkeypatch):
    after = 12 * 4 + 12 * 2 + 5
    sample, calls = CoinSampling.sample, []

    def interrupted(self, orders, measure):
        for pair in sample(self, orders, measure):
            if len(calls) == after:
                raise KeyboardInterrupt
            calls.append(1)
            yield pair

    monkeypatch.setattr(CoinSampling, "sample", interrupted)
    results, _ = started(tmp_path, "c", budget="12", code=INTERRUPTED)
    assert "hbayes@6,none" in results["results"][TASK]
    assert results["config"]["stopping"]["reason"] == "interrupted"
    # what came of the broken round is not lost
    monkeypatch.setattr(CoinSampling, "sample", sample)
    resumed, _ = started(tmp_path, "c", budget="8")
    assert resumed["config"]["trials"]["from_store"] >= after


def test_ctrl_c_after_sampling_leaves_the_trials_to_the_next_run(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(RepeatedSamplingTask, "apply_filters", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(ValueError, match="empty"):  # there is no results file
            started(tmp_path, "g", budget="4", code=INTERRUPTED)
    resumed, _ = started(tmp_path, "g", budget="4")
    assert resumed["config"]["trials"]["from_store"] == 12 * 4


def test_a_task_without_graded_trials_is_refused():
    arguments = {"tasks": ["toy"], "task_manager": OneTask(plain_task())}
    with refused("task", "unsupported", "toy", error=TaskConfigError):
        preflight(arguments, Goal(width=0.1))
    with refused("--predict_only", "conflict"):
        preflight({**arguments, "predict_only": True}, Goal(width=0.1))


@pytest.mark.parametrize(
    ("goal", "error"),
    [
        ({}, ("run", "missing")),
        ({"width": 0.1, "baseline": {}}, ("run", "conflict")),
        ({"width": 0.0}, ("width", "range", 0.0)),
        ({"width": 0.1, "batch_trials": 9, "max_trials": 8}, ("batch_trials", "range", 9)),
        ({"width": 0.1, "correction": "some"}, ("correction", "choice", "some")),
        ({"baseline": {}, "max_trials": 3, "batch_trials": 3}, ("max_trials", "range", 3)),
        (
            {"baseline": {}, "max_trials": 1, "batch_trials": 1, "correction": "anytime"},
            ("max_trials", "range", 1),
        ),
    ],
)
def test_a_goal_that_makes_no_sense_is_refused(goal, error):
    with refused(*error):
        Goal(**goal)


def trials_of(n_questions, n_trials=4, seed=0):
    rng = np.random.default_rng(seed)
    drawn = rng.random((n_questions, n_trials)) < rng.beta(2, 3, (n_questions, 1))
    return TaskRun.from_trials("", "many", drawn.astype(int), list(map(str, range(n_questions))))


def test_half_the_width_takes_four_times_the_trials():
    many = trials_of(1_000)
    interval = Goal(width=0.5).analyze(many, 4)
    look = Goal(width=(interval.high - interval.low) / 2).analyze(many, 4)
    assert look.further in (11, 12, 13)
    assert look.further_low <= look.further <= look.further_high


def test_a_budget_of_tokens_needs_a_backend_that_counts_them(tmp_path, monkeypatch):
    sample = CoinSampling.sample

    def uncounted(self, orders, measure):
        for request, trial in sample(self, orders, measure):
            yield request, replace(trial, completion_tokens=None)

    monkeypatch.setattr(CoinSampling, "sample", uncounted)
    with refused("--budget", "unsupported", "tokens", error=TaskConfigError):
        started(tmp_path, "t", budget="4ktokens")


@pytest.mark.parametrize("text", ["", "-3", "8 weeks", "1e99tokens", "nan"])
def test_a_budget_is_an_amount_of_something(text):
    with refused("budget", "format", text):
        Budget.parse(text)


@pytest.mark.parametrize("correction", ["none", "pocock"])
def test_no_goal_is_reached_after_one_trial(correction):
    best, worst = (
        {n: TaskRun.from_trials("", "t", [[right] * n] * 8, list("abcdefgh")) for n in (1, 2, 4)}
        for right in (1, 0)
    )
    width = Goal(width=0.9, batch_trials=1)
    assert [width.analyze(best[n], n).reached for n in (1, 2)] == [False, True]
    decision = Goal(baseline={"t": worst[4]}, batch_trials=1, correction=correction)
    assert [decision.analyze(best[n], n).reached for n in (1, 4)] == [False, True]


def test_rounds_end_at_the_most():
    assert Goal(width=0.1, batch_trials=4, max_trials=10).rounds == [4, 8, 10]
    assert Goal(budget=Budget.parse("6"), batch_trials=4).rounds == [4, 6]
    assert Goal(budget=Budget.parse("2"), batch_trials=4).rounds == [2]


def baseline(path):
    return baseline_runs(read_runs([path], argument="--decide").runs, str(path))


def test_a_baseline_must_be_a_run(tmp_path):
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(InvalidInputError) as caught:
            baseline(path)
        assert caught.value.argument == "--decide"


def test_a_baseline_without_its_last_line_has_a_question_less(tmp_path):
    started(tmp_path, "cut", budget="2", batch_trials=2)
    samples = next((tmp_path / "cut").rglob("samples_*.jsonl"))
    samples.write_text(samples.read_text()[:-40])
    assert baseline(tmp_path / "cut")[TASK].n_questions == 11
    with refused("--decide", "mismatch"):
        started(tmp_path, "new", decide=str(tmp_path / "cut"))


def test_use_cache_is_refused_before_anything_is_loaded(tmp_path):
    with refused("--use_cache", "conflict"):
        started(tmp_path, "u", "--use_cache", str(tmp_path / "x"), width=0.1)
    assert not (tmp_path / "u.sqlite").exists()


def test_a_store_must_be_named_or_follow_from_the_output(tmp_path):
    with few_tasks(), refused("--store", "missing", "neither of them"):
        run(
            ["--model", "biased_coin", "--model_args", "p=.5", "--tasks", TASK],
            StoppingOptions(width=0.1),
        )


@pytest.mark.parametrize("protocol", [None, "hariri-2026"])
def test_a_baseline_of_another_protocol_is_warned_of(tmp_path, caplog, monkeypatch, protocol):
    started(tmp_path, "weak", model_args="p=0.3", budget="4")
    if protocol is not None:
        monkeypatch.setattr(Provenance, "protocol", protocol)
    started(tmp_path, "new", model_args="p=0.8", decide=str(tmp_path / "weak"), max_trials=4)
    assert caplog.text.count("different protocols") == (protocol is not None)
