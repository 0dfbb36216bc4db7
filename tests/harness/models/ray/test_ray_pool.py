"""`executor=ray` with workers in threads: the trials, deaths, errors, cancelling; without Ray."""

import contextlib
import itertools
import threading
from types import SimpleNamespace

import pytest
from _support.errors import refused
from _support.stored_trials import stored_trials
from _support.thread_cluster import ThreadCluster
from _support.trial_requests import sums
from _support.waiting import wait_until

from lm_eval_bayes.errors import InvalidInputError, ModelConfigError, TaskConfigError
from lm_eval_bayes.harness.models.ray import sampling
from lm_eval_bayes.harness.models.ray.schedule import WorkerFailedError
from lm_eval_bayes.harness.models.ray.worker import TrialWorker
from lm_eval_bayes.harness.models.trials import TrialsLM

QUESTIONS = 12


def instances(trials, questions=QUESTIONS):
    return sums(trials, questions)


@pytest.fixture
def cluster(monkeypatch):
    """Let executor=ray use threads; return the clusters that were made."""
    clusters = []

    def use(**options):
        def make(workers):
            clusters.append(ThreadCluster(**options))
            return clusters[-1]

        monkeypatch.setattr(sampling, "RayCluster", make)
        return clusters

    monkeypatch.setattr(sampling, "import_ray", lambda: None)
    use()
    yield use
    for made in clusters:
        for worker in list(made.alive):
            made.kill(worker)


def coin(tmp_path, name="ray", **arguments):
    given = {"beta": "2:3", "executor": "ray", "workers": 3, **arguments}
    if given["executor"] is None:
        del given["executor"], given["workers"]
    return TrialsLM(backend="biased_coin", store=str(tmp_path / f"{name}.sqlite"), **given)


class FragileWorker(TrialWorker):
    """Dies whenever its `dies` says so of a request."""

    dies = staticmethod(lambda request: False)

    def sample(self, session, requests, questions=None):
        if any(map(self.dies, requests)):
            self.cluster.crash(self)
            return []
        return super().sample(session, requests, questions)


def test_the_trials_are_those_of_one_process(cluster, tmp_path):
    alone = coin(tmp_path, "alone", executor=None)
    expected = alone.generate_until(instances(5), disable_tqdm=True)
    lm = coin(tmp_path)
    assert lm.generate_until(instances(5), disable_tqdm=True) == expected
    assert stored_trials(tmp_path / "ray.sqlite") == stored_trials(tmp_path / "alone.sqlite")
    assert lm.model_key == alone.model_key
    assert lm.get_model_info()["biased_coin"] == alone.get_model_info()["biased_coin"]


def test_a_second_call_samples_what_is_missing_with_the_same_workers(cluster, tmp_path):
    clusters = cluster()
    lm = coin(tmp_path)
    lm.generate_until(instances(2), disable_tqdm=True)
    workers = list(clusters[0].alive)
    lm.generate_until(instances(4), disable_tqdm=True)
    assert len(clusters) == 1
    assert clusters[0].alive == workers
    assert len(workers) == 3
    assert len(stored_trials(tmp_path / "ray.sqlite")) == 4 * QUESTIONS


def test_workers_that_die_lose_and_double_nothing(cluster, tmp_path, monkeypatch):
    """Every seventh request kills its worker, the first time that it is given."""
    # by chance one place may get several of them before it returns a trial
    monkeypatch.setattr("lm_eval_bayes.harness.models.ray.sampling.DEATHS_IN_A_ROW", 100)
    seen, deaths = set(), []

    def dies(request):
        first = request.number not in seen
        seen.add(request.number)
        if first and request.number % 7 == 3:
            deaths.append(request.number)
            return True
        return False

    kind = type("Dying", (FragileWorker,), {"dies": staticmethod(dies)})
    cluster(kind=kind)
    lm = coin(tmp_path)
    texts = lm.generate_until(instances(6), disable_tqdm=True)
    alone = coin(tmp_path, "alone", executor=None)
    assert texts == alone.generate_until(instances(6), disable_tqdm=True)
    assert len(deaths) >= 8
    assert stored_trials(tmp_path / "ray.sqlite") == stored_trials(tmp_path / "alone.sqlite")
    assert lm.get_model_info()["trials"]["generated"] == 6 * QUESTIONS


def test_the_trials_of_a_worker_that_does_not_answer_go_to_others(
    cluster, tmp_path, monkeypatch, caplog
):
    """The first worker with a request hangs, as a process that is stopped does."""
    for name, value in {"_HANGS_S": 0.6, "DEATHS_IN_A_ROW": 100}.items():
        monkeypatch.setattr(f"lm_eval_bayes.harness.models.ray.sampling.{name}", value)
    monkeypatch.setattr("lm_eval_bayes.harness.models.ray.worker.PATIENCE_S", 0.02)
    hanging, over = [], threading.Event()

    class HangingWorker(TrialWorker):
        def sample(self, session, requests, questions=None):
            if not hanging:
                hanging.append(self)
            if self in hanging:
                over.wait()
            return super().sample(session, requests, questions)

    clusters = cluster(kind=HangingWorker)
    try:
        lm = coin(tmp_path)
        texts = lm.generate_until(instances(6), disable_tqdm=True)
    finally:
        over.set()
    assert hanging[0] in clusters[0].killed
    assert "(no answer for 0.6 s)" in caplog.text
    alone = coin(tmp_path, "alone", executor=None)
    assert texts == alone.generate_until(instances(6), disable_tqdm=True)
    assert stored_trials(tmp_path / "ray.sqlite") == stored_trials(tmp_path / "alone.sqlite")


def test_time_in_which_the_driver_was_stopped_is_no_silence(cluster, tmp_path, monkeypatch):
    """Clocks that jump by an hour at every look make no worker a hanging one."""
    clock = itertools.count(0.0, 3600.0)
    pool = "lm_eval_bayes.harness.models.ray.sampling"
    monkeypatch.setattr(f"{pool}.time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    clusters = cluster()
    lm = coin(tmp_path, seconds=0.005)
    lm.generate_until(instances(6), disable_tqdm=True)
    assert clusters[0].killed == []


def test_a_worker_that_dies_again_and_again_ends_the_run(cluster, tmp_path):
    class Stillborn(TrialWorker):
        def sample(self, session, requests, questions=None):
            self.cluster.crash(self)

    clusters = cluster(kind=Stillborn)
    lm = coin(tmp_path, workers=1)
    with refused(None, "failed", None, error=WorkerFailedError):
        lm.generate_until(instances(2), disable_tqdm=True)
    assert len(clusters[0].killed) >= 5
    assert clusters[0].alive == []
    assert clusters[0].closed


def failing(error, method="sample"):
    class Failing(TrialWorker):
        def __init__(self, setup):
            super().__init__(setup)

            def fail(*args):
                raise error

            if method == "build":
                self._problem = error
            else:
                self._model.sample = fail

    return Failing


@pytest.mark.parametrize(
    ("error", "method", "expected", "broken"),
    [
        (OSError("no such\nfile"), "build", WorkerFailedError, (None, "failed")),
        (ModelConfigError("no p", "range", "p"), "build", ModelConfigError, ("p", "range")),
        (TaskConfigError("no n", "conflict", "n"), "sample", TaskConfigError, ("n", "conflict")),
        (RuntimeError("bad luck"), "sample", WorkerFailedError, (None, "failed")),
    ],
)
def test_errors_of_workers_end_the_run(cluster, tmp_path, error, method, expected, broken):
    clusters = cluster(kind=failing(error, method))
    lm = coin(tmp_path, workers=1)
    with refused(*broken, error=expected) as caught:
        lm.generate_until(instances(40, questions=2), disable_tqdm=True)
    assert str(error).split()[-1] in str(caught.value)
    assert clusters[0].alive == []


def test_a_worker_with_another_model_is_refused(cluster, tmp_path):
    class Other(TrialWorker):
        def __init__(self, setup):
            super().__init__(setup)
            self._description.fingerprint["boxed"] = 0.5

    cluster(kind=Other)
    with refused("boxed", "mismatch", 0.5, error=ModelConfigError):
        coin(tmp_path).generate_until(instances(2), disable_tqdm=True)


def test_a_cluster_of_its_own_without_room_is_an_error(cluster, tmp_path):
    cluster(nodes=[{"CPU": 4.0}])
    lm = coin(tmp_path, gpus_per_worker=1)
    with refused("gpus_per_worker", "range", error=ModelConfigError):
        lm.generate_until(instances(2), disable_tqdm=True)


def test_an_interrupted_run_ends_the_workers_and_is_resumed(cluster, tmp_path):
    clusters = cluster()
    lm = coin(tmp_path, seconds=0.02)
    sample = lm.sample

    def interrupted_at_the_sixth(requests, measure):
        sampled = sample(requests, measure)
        yield from itertools.islice(sampled, 5)
        sampled.throw(KeyboardInterrupt)

    lm.sample = interrupted_at_the_sixth
    with pytest.raises(KeyboardInterrupt):
        lm.generate_until(instances(8), disable_tqdm=True)
    lm.sample = sample
    assert clusters[0].closed
    assert clusters[0].alive == []
    kept = stored_trials(tmp_path / "ray.sqlite")
    assert 5 <= len(kept) < 8 * QUESTIONS
    assert len(lm.generate_until(instances(8), disable_tqdm=True)) == 8 * QUESTIONS
    complete = stored_trials(tmp_path / "ray.sqlite")
    assert len(complete) == 8 * QUESTIONS
    assert {k: complete[k] for k in kept} == kept


def test_closing_the_iterator_cancels_the_session_and_keeps_the_workers(cluster, tmp_path):
    clusters = cluster()
    lm = coin(tmp_path, seconds=0.2)
    streamed = lm.streamed_trials(instances(1))
    with contextlib.closing(streamed.sample([8] * QUESTIONS)) as sampled:
        next(sampled)
    alive = list(clusters[0].alive)
    assert len(alive) == 3
    sessions = [worker._session for worker in alive if worker._session is not None]
    # nobody waits for what a worker is told at the end
    wait_until(lambda: all(session.is_over for session in sessions))
    assert len(stored_trials(tmp_path / "ray.sqlite")) < 8 * QUESTIONS


def test_a_stream_ends_early_and_running_trials_are_kept(cluster, tmp_path):
    lm = coin(tmp_path, seconds=0.01)
    streamed = lm.streamed_trials(instances(1))
    arrivals = []
    for arrival in streamed.sample([200] * QUESTIONS):
        arrivals.append(arrival)
        if len(arrivals) == 20:
            streamed.end(30.0)
    assert 20 <= len(arrivals) < 200 * QUESTIONS / 4
    assert len(stored_trials(tmp_path / "ray.sqlite")) == len(arrivals)


# -- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "broken"),
    [
        ({"workers": 0}, ("workers", "range", 0)),
        ({"workers": None}, ("workers", "range", None)),
        ({"executor": "dask"}, ("executor", "choice", "dask")),
        ({"executor": None, "gpus_per_worker": 2}, ("gpus_per_worker", "conflict", 2)),
    ],
)
def test_arguments_that_cannot_be(cluster, tmp_path, arguments, broken):
    with refused(*broken, error=(ModelConfigError, InvalidInputError)):
        coin(tmp_path, **arguments)


def test_what_does_not_go_together(cluster, tmp_path, monkeypatch):
    with refused("backend", "choice", "dummy", error=ModelConfigError):
        TrialsLM(backend="dummy", store=str(tmp_path / "a.sqlite"), executor="ray", workers=2)
    with refused("output_type", "unsupported", "loglikelihood", error=ModelConfigError):
        coin(tmp_path).loglikelihood([])
    monkeypatch.setenv("WORLD_SIZE", "2")
    with refused("WORLD_SIZE", "conflict", "2", error=ModelConfigError):
        coin(tmp_path)
