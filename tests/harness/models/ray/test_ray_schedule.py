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

from lm_eval_bayes.harness.instances import new_instance
from lm_eval_bayes.harness.models.interface import RequestStream
from lm_eval_bayes.harness.models.ray.schedule import (
    DeadlyRequestError,
    ExpectedLengths,
    Schedule,
)
from lm_eval_bayes.store.trial import Trial, TrialKey


def key_of(question):
    return TrialKey(
        "blake2b-128:" + "1" * 32, f"blake2b-128:{question:032x}", "blake2b-128:" + "3" * 32
    )


def requests_of(questions, trials):
    requests = []
    for trial, question in itertools.product(range(trials), range(questions)):
        instance = new_instance({}, task="demo", doc_id=question)
        request = trial_request(len(requests), "", f"q{question}", trial, 7, {}, instance)
        object.__setattr__(request, "key", key_of(question))
        requests.append(request)
    return requests


def schedule_of(questions, trials):
    requests = requests_of(questions, trials)
    return Schedule(requests, len(requests), ExpectedLengths())


def trial_of(request, seconds=1.0):
    return Trial(request.key, request.trial, "x", generated_s=seconds)


def names(scheduled):
    return [(s.request.trial, s.request.instance.doc_id) for s in scheduled]


def finish(schedule, worker, scheduled, seconds=1.0):
    return schedule.finish(worker, scheduled.number, trial_of(scheduled.request, seconds))


# -- order and shares -----------------------------------------------------------------------------


def test_requests_are_given_in_trial_order_as_slots_fall_free():
    schedule = schedule_of(questions=3, trials=20)
    schedule.join(0, slots=2)
    first = schedule.next_for(0, sharing=1)
    # two slots, and one that waits
    assert names(first) == [(0, 0), (0, 1), (0, 2)]
    assert schedule.next_for(0, sharing=1) == []
    assert finish(schedule, 0, first[1]) is first[1].request
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
    assert schedule.next_for(0, sharing=4) == []
    assert len(schedule.next_for(0, sharing=2)) == 20


def test_requests_are_read_only_when_they_are_given():
    requests = requests_of(questions=5, trials=40)
    stream = RequestStream(requests[:5], len(requests), iter(requests))
    schedule = Schedule(stream, len(requests), ExpectedLengths())
    schedule.join(0, slots=2)
    schedule.next_for(0, sharing=1)
    assert stream.given == 3
    stream.end(0.0)
    schedule.end()
    assert schedule.waiting == 0
    assert not schedule.is_done  # three are running
    assert schedule.leave(0) == 0  # and are dropped with their worker
    assert schedule.is_done


def test_the_longest_expected_of_a_trial_number_start_first_at_the_end():
    lengths = ExpectedLengths()
    for question, seconds in ((0, 1.0), (1, 9.0), (2, 4.0)):
        lengths.add(Trial(key_of(question), 0, "x", generated_s=seconds))
    requests = requests_of(questions=4, trials=2)
    schedule = Schedule(requests, len(requests), lengths)
    schedule.join(0, slots=4)
    # question 3 has no trial yet and is expected to take the mean of all, 14 / 3 seconds
    assert names(schedule.next_for(0, sharing=1)) == [(0, 1), (0, 3), (0, 2), (0, 0), (1, 1)]


def test_expected_lengths_are_means_by_question_in_seconds_tokens_or_characters():
    lengths = ExpectedLengths()
    assert lengths.of(key_of(0)) == 0.0
    lengths.add(Trial(key_of(0), 0, "abc", generated_s=2.0, completion_tokens=50))
    lengths.add(Trial(key_of(0), 1, "abc", generated_s=4.0))
    lengths.add(Trial(key_of(1), 0, "abc", completion_tokens=12))
    lengths.add(Trial(key_of(2), 0, "abcde"))
    assert [lengths.of(key_of(q)) for q in range(4)] == [3.0, 12.0, 5.0, 23.0 / 4]


# -- workers that die -----------------------------------------------------------------------------


def test_requests_of_a_dead_worker_are_given_again_first_and_late_answers_are_ignored():
    schedule = schedule_of(questions=2, trials=30)
    schedule.join(0, slots=1)
    schedule.join(1, slots=1)
    lost = schedule.next_for(0, sharing=2)
    assert schedule.leave(0) == 2
    assert finish(schedule, 0, lost[0]) is None
    assert names(schedule.next_for(1, sharing=2)) == names(lost)
    assert finish(schedule, 1, lost[0]) is lost[0].request
    assert finish(schedule, 1, lost[0]) is None


@pytest.mark.parametrize(("slots", "expected"), [(1, 3), (8, 3), (64, 4), (256, 4)])
def test_a_request_that_kills_its_worker_is_found_and_named(slots, expected):
    """Whatever runs beside it: the error names this one."""
    schedule = schedule_of(questions=40, trials=20)
    deadly, finished, deaths = (3, 17), set(), 0

    def run():
        nonlocal deaths
        schedule.join(0, slots)
        while True:
            if deadly in names(schedule.next_for(0, sharing=1)):
                deaths += 1
                schedule.leave(0)
                schedule.join(0, slots)
                continue
            for scheduled in list(schedule._running[0].values()):
                finish(schedule, 0, scheduled)
                finished.add(names([scheduled])[0])

    with refused(None, "failed", None, error=DeadlyRequestError):
        run()
    assert deaths == expected
    assert deadly not in finished


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.sampled_from([1, 3, 16]))
def test_whatever_happens_every_request_is_finished_once(seed, n_workers, slots):
    """Workers die and come back at random; none dies three times with one request."""
    rng = np.random.default_rng(seed)
    requests = requests_of(questions=7, trials=9)
    schedule = Schedule(requests, len(requests), ExpectedLengths())
    finished: Counter = Counter()
    deaths: Counter = Counter()
    present: set[int] = set()
    while not schedule.is_done:
        worker = int(rng.integers(n_workers))
        if worker not in present:
            schedule.join(worker, slots)
            present.add(worker)
        schedule.next_for(worker, max(1, len(present)))
        running = list(schedule._running[worker].values())
        if rng.random() < 0.1 and all(deaths[s.number] < 2 for s in running):
            deaths.update(s.number for s in running)
            schedule.leave(worker)
            present.discard(worker)
            continue
        for scheduled in running:
            if rng.random() < 0.5:
                finish(schedule, worker, scheduled, float(rng.random()))
                finished[names([scheduled])[0]] += 1
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
            waiting[worker] += schedule.next_for(worker, workers)
            while waiting[worker] and busy[worker] < slots:
                scheduled = waiting[worker].pop(0)
                busy[worker] += 1
                end = now + seconds_of(scheduled.request)
                heapq.heappush(events, (end, scheduled.number, worker, scheduled))
        if not events:
            return now
        now, _, worker, scheduled = heapq.heappop(events)
        busy[worker] -= 1
        finish(schedule, worker, scheduled, seconds_of(scheduled.request))


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


def test_lengths_that_become_known_at_the_end_still_count():
    schedule = schedule_of(questions=3, trials=4)
    schedule.join(0, slots=3)
    for scheduled in schedule.next_for(0, sharing=1)[:3]:
        finish(schedule, 0, scheduled, seconds=float(scheduled.request.instance.doc_id))
    assert names(schedule.next_for(0, sharing=1)) == [(1, 2), (1, 1), (2, 2)]
