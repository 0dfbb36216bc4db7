"""When `lm-eval-bayes run` stops: before its time is up, and never after one trial."""

from __future__ import annotations

import json
import time

import pytest

pytest.importorskip("lm_eval", reason="the harness is not installed")

from _support.harness_command import few_tasks, gateway
from typer.testing import CliRunner

from lm_eval_bayes.cli.main import app

pytestmark = pytest.mark.filterwarnings("default")

TASK = "demo_arithmetic_bayes"
QUESTIONS = 8


@pytest.fixture
def rounds(tmp_path):
    """Run `lm-eval-bayes run`; return its rounds and why it stopped."""

    def run(*arguments, model=("--model", "gateway"), name="run"):
        folder = tmp_path / name
        words = ["run", *arguments, *model, "--tasks", TASK, "--limit", QUESTIONS]
        words += ["--output_path", folder, "--log_samples"]
        with few_tasks():
            result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code == 0, result.output
        (results,) = folder.rglob("results_*.json")
        stopping = json.loads(results.read_text(encoding="utf-8"))["config"]["stopping"]
        return stopping["rounds"], stopping["reason"]

    return run


# -- the time that a run may take ----------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch):
    """A clock that advances by what a test adds to it, in minutes, besides the real time."""
    minutes = [0.0]
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() + 60.0 * minutes[0])
    return minutes


@pytest.mark.parametrize(
    ("minutes_a_round", "n_rounds"),
    [
        (150.0, 3),  # 150, 300, 450; a fourth would end after 600
        (600.0, 1),  # the first is always made
    ],
)
def test_a_run_stops_before_its_time_is_spent(rounds, clock, minutes_a_round, n_rounds):
    trials_a_round = 2

    def say(prompt, trial):
        clock[0] += minutes_a_round / (QUESTIONS * trials_a_round)
        return "\\boxed{1}"

    with gateway(say):
        done, reason = rounds("--budget", "8h", "--batch-trials", trials_a_round)
    assert [finished["trials"] for finished in done] == [
        trials_a_round * (i + 1) for i in range(n_rounds)
    ]
    hours = [minutes_a_round * (i + 1) / 60 for i in range(n_rounds)]
    assert [finished["hours"] for finished in done] == pytest.approx(hours, abs=0.05)
    assert "budget" in reason


# -- the first round -----------------------------------------------------------------------------


def test_a_width_is_not_reached_after_one_trial(rounds):
    with gateway(lambda prompt, trial: "\\boxed{1}"):
        done, _ = rounds("--width", "0.9", "--batch-trials", 1)
    widths = [finished["looks"][0]["high"] - finished["looks"][0]["low"] for finished in done]
    assert max(widths) <= 0.9  # narrow enough from the first round on
    assert [finished["trials"] for finished in done] == [1, 2]


@pytest.mark.parametrize("correction", ["none", pytest.param("pocock", marks=pytest.mark.slow)])
def test_no_decision_is_made_after_one_trial(rounds, tmp_path, correction):
    weak, strong = (("--model", "biased_coin", "--model_args", f"p={p}") for p in (0.01, 0.99))
    rounds("--budget", "4", model=weak, name="weak")
    done, reason = rounds(
        *("--decide", tmp_path / "weak", "--batch-trials", 1, "--correction", correction),
        model=strong,
        name="strong",
    )
    assert done[0]["trials"] == 1
    assert len(done) > 1
    assert "goal" in reason
