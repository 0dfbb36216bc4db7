"""The schedule of `executor=ray`, without Ray: order, shares, deaths, and the time it takes."""

import heapq
import itertools
from collections import Counter

import numpy as np
import pytest
from _support.errors import refused
from _support.trial_requests import trial_request
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_eval_bayes.harness.evaluation import new_instance
from lm_eval_bayes.harness.models.interface import RequestStream
from lm_eval_bayes.harness.models.ray.schedule import DEADLY, Schedule, WorkerFailedError


def requests_of(questions, trials):
    requests = []
    for trial, question in itertools.product(range(trials), range(questions)):
        instance = new_instance({}, task="demo", doc_id=question)
        requests.append(trial_request(len(requests), "", f"q{question}", trial, 7, {}, instance))
    return requests


def schedule_of(questions, trials):
    return Schedule(requests_of(questions, trials))


def names(requests):
    """Return trial and question of requests by their numbers."""
    return [(r.trial, r.instance.doc_id) for r in requests.values()]


# -- order and shares -----------------------------------------------------------------------------


def test_requests_are_given_in_trial_order_as_slots_fall_free():
    schedule = schedule_of(questions=3, trials=20)
    schedule.join(0, slots=2)
    first = schedule.next_for(0, sharing=1)
    # two slots, and one that waits
    assert names(first) == [(0, 0), (0, 1), (0, 2)]
    assert schedule.next_for(0, sharing=1) == {}
    assert schedule.finish(0, 1) is first[1]
    assert names(schedule.next_for(0, sharing=1)) == [(1, 0)]
    assert schedule.running(0) == 3
    assert schedule.waiting == 56


def test_the_first_of_several_workers_leaves_the_others_their_share():
    schedule = schedule_of(questions=10, trials=8)
    schedule.join(0, slots=256)
    assert len(schedule.next_for(0, sharing=4)) == 20
    schedule.join(1, slots=256)
    assert len(schedule.next_for(1, sharing=4)) == 20
    # where the others never come, it goes on with its share of what is left
    assert schedule.next_for(0, sharing=4) == {}
    assert len(schedule.next_for(0, sharing=2)) == 20


def test_requests_are_read_only_when_they_are_given():
    requests = requests_of(questions=5, trials=40)
    stream = RequestStream(requests[:5], len(requests), iter(requests))
    schedule = Schedule(stream)
    schedule.join(0, slots=2)
    schedule.next_for(0, sharing=1)
    assert stream.given == 3
    stream.end(0.0)
    schedule.end()
    assert schedule.waiting == 0
    assert not schedule.is_done  # three are running
    assert schedule.leave(0) == 0  # and are dropped with their worker
    assert schedule.is_done


# -- workers that die -----------------------------------------------------------------------------


def test_requests_of_a_dead_worker_are_given_again_first_and_late_answers_are_ignored():
    schedule = schedule_of(questions=2, trials=30)
    schedule.join(0, slots=1)
    schedule.join(1, slots=1)
    lost = schedule.next_for(0, sharing=2)
    assert schedule.leave(0) == 2
    assert schedule.finish(0, 0) is None
    assert schedule.next_for(1, sharing=2) == lost
    assert schedule.finish(1, 0) is lost[0]
    assert schedule.finish(1, 0) is None


@pytest.mark.parametrize("slots", [1, 8, 256])
def test_a_request_with_which_workers_die_again_and_again_ends_the_run(slots):
    """Whatever is finished in between."""
    schedule = schedule_of(questions=40, trials=20)
    deadly, finished, deaths = (3, 17), set(), 0

    def run():
        nonlocal deaths
        schedule.join(0, slots)
        while True:
            given = schedule.next_for(0, sharing=1)
            for number, request in given.items():
                if (request.trial, request.instance.doc_id) != deadly:
                    schedule.finish(0, number)
                    finished.add(number)
            if schedule.running(0):
                deaths += 1
                schedule.leave(0)
                schedule.join(0, slots)

    with refused(None, "failed", None, error=WorkerFailedError) as caught:
        run()
    assert deaths == DEADLY
    assert "trial 3 of question 17 of task demo" in str(caught.value)
    assert 3 * 40 + 17 not in finished


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.sampled_from([1, 3, 16]))
def test_whatever_happens_every_request_is_finished_once(seed, n_workers, slots):
    """Workers die and come back at random; none dies too often with one request."""
    rng = np.random.default_rng(seed)
    requests = requests_of(questions=7, trials=9)
    schedule = Schedule(requests)
    finished: Counter = Counter()
    deaths: Counter = Counter()
    present: set[int] = set()
    while not schedule.is_done:
        worker = int(rng.integers(n_workers))
        if worker not in present:
            schedule.join(worker, slots)
            present.add(worker)
        schedule.next_for(worker, max(1, len(present)))
        running = dict(schedule._running[worker])
        if rng.random() < 0.1 and all(deaths[number] < DEADLY - 1 for number in running):
            deaths.update(running.keys())
            schedule.leave(worker)
            present.discard(worker)
            continue
        for number, request in running.items():
            if rng.random() < 0.5:
                assert schedule.finish(worker, number) is request
                finished[request.trial, request.instance.doc_id] += 1
    assert finished == Counter({(r.trial, r.instance.doc_id): 1 for r in requests})


# -- how long it takes, in virtual time -----------------------------------------------------------


def virtual_time(schedule, seconds_of, workers, slots):
    """Return when the last trial ends, if workers start those that they have in order."""
    now, events = 0.0, []
    waiting = {worker: [] for worker in range(workers)}
    busy = dict.fromkeys(range(workers), 0)
    for worker in range(workers):
        schedule.join(worker, slots)
    while True:
        for worker in sorted(range(workers), key=schedule.running):
            waiting[worker] += schedule.next_for(worker, workers).items()
            while waiting[worker] and busy[worker] < slots:
                number, request = waiting[worker].pop(0)
                busy[worker] += 1
                heapq.heappush(events, (now + seconds_of(request), number, worker))
        if not events:
            return now
        now, number, worker = heapq.heappop(events)
        busy[worker] -= 1
        schedule.finish(worker, number)


@pytest.mark.parametrize(("workers", "slots"), [(8, 1), (8, 8), (3, 16)])
@pytest.mark.parametrize("seed", range(2))
def test_log_normal_trials_end_within_a_tenth_of_the_ideal_time(workers, slots, seed):
    """Questions differ (σ = 1), and so do the trials of one (σ = 0.6)."""
    rng = np.random.default_rng(seed)
    questions, trials = 40, 60
    seconds = np.exp(rng.normal(0, 1, (1, questions)) + rng.normal(0, 0.6, (trials, questions)))

    def seconds_of(request):
        return float(seconds[request.trial, request.instance.doc_id])

    ideal = seconds.sum() / (workers * slots)
    came = virtual_time(schedule_of(questions, trials), seconds_of, workers, slots)
    assert ideal <= came * (1 + 1e-9)
    assert came <= max(1.1 * ideal, ideal / 1.1 + seconds.max())
    # never worse than what any order of starts guarantees (Graham 1966)
    assert came <= ideal + seconds.max() * (1 + 1 / slots)
