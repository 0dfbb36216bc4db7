"""The worker's side of `executor=ray`: sessions of an engine with a stream, and of batches."""

from dataclasses import replace

import pytest
from _support import fake_vllm
from _support.errors import refused
from _support.fake_vllm import KWARGS, EngineArgs, FakeTrials, answer
from _support.trial_requests import trial_request
from _support.waiting import PATIENCE_S

from lm_eval_bayes.errors import ModelConfigError, TaskConfigError
from lm_eval_bayes.harness.models.ray.schedule import WorkerRequest, question_of
from lm_eval_bayes.harness.models.ray.worker import TrialWorker
from lm_eval_bayes.harness.models.vllm.engine import EngineFailedError

PROMPTS = ("one two three", "four five")
QUESTIONS = [question_of(trial_request(0, p, p, 0, 0, KWARGS)) for p in PROMPTS]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    fake_vllm.install(monkeypatch)
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    return str(tmp_path)


def worker_of(model):
    """Return a worker around a model that is built."""
    worker = object.__new__(TrialWorker)
    worker._model, worker._versions = model, {"engine": "1"}
    worker._session = worker._thread = None
    return worker


def request_for(number, question=0, measures=False):
    return WorkerRequest(number, question, trial=number, seed=10 * number, measures=measures)


def taken(worker, session, count):
    """Return so many finished trials, by the numbers of their requests."""
    trials = {}
    while len(trials) < count:
        trials |= dict(worker.sample(session, []))
    return trials


def test_an_engine_gets_requests_while_it_runs_and_after_it_was_idle(folder):
    worker = worker_of(FakeTrials(pretrained=folder, max_num_seqs=4))
    trials = dict(worker.sample(7, [request_for(n, n % 2) for n in range(6)], QUESTIONS))
    trials |= taken(worker, 7, 6 - len(trials))
    trials |= worker.sample(7, [request_for(n) for n in range(6, 9)])
    trials |= taken(worker, 7, 9 - len(trials))
    assert {number: trial.text for number, trial in trials.items()} == {
        n: answer(10 * n)[0] for n in range(9)
    }
    assert {trial.seed for trial in trials.values()} == {10 * n for n in range(9)}
    assert all(trial.versions == {"engine": "1"} for trial in trials.values())
    worker.cancel(7)
    worker._thread.join(PATIENCE_S)
    assert not worker._thread.is_alive()


def test_prompts_are_measured_with_the_requests_that_say_so(folder):
    worker = worker_of(FakeTrials(pretrained=folder))
    first = [request_for(0), request_for(1, measures=True), request_for(2)]
    trials = dict(worker.sample(1, first, QUESTIONS))
    trials |= taken(worker, 1, 3 - len(trials))
    further = [request_for(3), request_for(4, 1), request_for(5, 1, measures=True)]
    trials |= worker.sample(1, further)
    trials |= taken(worker, 1, 6 - len(trials))
    measured = sorted(n for n, trial in trials.items() if "prompt_bpt" in trial.signals)
    assert measured == [1, 5]
    worker.cancel(1)


def test_requests_of_an_earlier_session_are_ignored(folder):
    worker = worker_of(FakeTrials(pretrained=folder))
    worker.sample(1, [], QUESTIONS)
    worker.sample(2, [], QUESTIONS)
    assert worker.sample(1, [request_for(0)]) == []
    assert dict(worker.sample(2, [request_for(1)])).keys() == {1}
    worker.cancel(1)  # not the present one
    assert dict(worker.sample(2, [request_for(3)])).keys() == {3}
    worker.cancel(2)


def test_what_the_backend_raises_comes_after_the_trials_before_it(folder):
    worker = worker_of(FakeTrials(pretrained=folder, max_num_seqs=1))
    worker._model.model.built().llm_engine.fail_at = 1
    with refused(None, "failed", error=EngineFailedError):
        worker.sample(1, [request_for(0)], QUESTIONS)
    questions = [replace(QUESTIONS[0], kwargs={**KWARGS, "n": 2})]
    with refused("n", "conflict", 2, error=TaskConfigError):
        worker.sample(2, [request_for(0)], questions)


# -- the driver -----------------------------------------------------------------------------------


class Driver(FakeTrials):
    samples_elsewhere = True


def test_the_driver_of_vllm_builds_no_engine(folder):
    lm = Driver(pretrained=folder)
    assert fake_vllm.LLM.built == []
    assert lm.fingerprint() == FakeTrials(pretrained=folder).fingerprint()
    assert not lm.weights_loaded


def test_without_a_configuration_the_driver_says_so(folder, monkeypatch):
    monkeypatch.setattr(EngineArgs, "broken", True)
    with refused("pretrained", "unsupported", error=ModelConfigError):
        Driver(pretrained=folder)
    assert fake_vllm.LLM.built == []
