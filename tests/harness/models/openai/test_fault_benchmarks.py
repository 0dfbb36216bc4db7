"""How much longer a run takes if every second answer of its server is a fault."""

from __future__ import annotations

import itertools
import time

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("lm_eval.models.openai_completions")

from _support.openai_models import completions, requests_of
from _support.scripted_server import Act, serving

from lm_eval_bayes.harness.models.openai import retrying

LATENCY_S, SLOTS, TRIALS = 0.1, 16, 480


@pytest.mark.benchmarks
@pytest.mark.filterwarnings("default:.*:DeprecationWarning")
def test_half_of_all_answers_are_faulty(monkeypatch):
    """480 trials take 2 × 480 × .1 / 16 = 6 s at best.

    With a back-off per request, 800 trials of .2 s took 271 s, and 20 s at best.
    """
    monkeypatch.setattr(retrying, "FIRST_PAUSE_S", 0.5)
    monkeypatch.setattr(retrying, "LONGEST_PAUSE_S", 30.0)
    monkeypatch.setattr(retrying, "LONGEST_AGAIN_S", 1.0)

    def script(number, body):
        fault = Act(500, {"error": "fault"}, delay_s=LATENCY_S)
        return fault if number % 2 else Act(delay_s=LATENCY_S)

    with serving(script) as server:
        began, answered = time.monotonic(), [0.0]
        model = completions(server, SLOTS, max_retries=30)
        for _ in model.sample(requests_of(20, TRIALS // 20)):
            answered.append(time.monotonic() - began)
    silence = max(b - a for a, b in itertools.pairwise(answered))
    print(f"{TRIALS} trials in {answered[-1]:.1f} s, longest silence {silence:.1f} s")
    assert len(answered) == TRIALS + 1
    assert answered[-1] < 4 * 2 * TRIALS * LATENCY_S / SLOTS
