"""`lm-eval-bayes run` in one stream: which trials count, what is graded, and when it stops."""

import heapq
import itertools
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from _support.stopping_runs import TASK, rounds_of, started

from lm_eval_bayes.harness.adaptive import sampling
from lm_eval_bayes.harness.adaptive.rounds import Rounds
from lm_eval_bayes.harness.models.biased_coin.model import CoinSampling
from lm_eval_bayes.harness.models.interface import RequestStream
from lm_eval_bayes.harness.task.metrics import TrialGrader
from lm_eval_bayes.store.trial_store import TrialStore

SLOTS = 16
NOW = [0.0]

sample_at_once = CoinSampling.sample


def seconds_of(seed):
    """Return the log-normal latency of the trial of a seed; half of them are ten times as long."""
    is_long = np.random.default_rng([seed, 1]).random() < 0.5
    return np.random.default_rng(seed).lognormal(0.0, 1.1) * (10.0 if is_long else 1.0)


def sample_in_slots(self, requests, measure):
    """Sample as a server with a number of slots does, in virtual time."""
    now, running = NOW[0], []
    while True:
        while len(running) < SLOTS and (request := next(requests, None)) is not None:
            ((_, trial),) = sample_at_once(self, [request], frozenset())
            heapq.heappush(running, (now + seconds_of(request.seed), request.index, request, trial))
        if not running:
            return
        now, _, request, trial = heapq.heappop(running)
        NOW[0] = now
        yield request, trial


@pytest.fixture
def slots(monkeypatch):
    """Let the biased coin sample several trials at once."""
    monkeypatch.setattr(CoinSampling, "sample", sample_in_slots)
    monkeypatch.setattr(sampling, "WAIT_SHARE", 1e9)
    NOW[0] = 0.0


def stored(tmp_path, name):
    with TrialStore.open(tmp_path / f"{name}.sqlite", mode="read") as store:
        return store.info().trials


GOALS = [
    {"width": 0.2},
    pytest.param({"budget": "4ktokens"}, marks=pytest.mark.slow),
    pytest.param(
        {"width": 0.16, "allocate": "questions", "max_trials": 40}, marks=pytest.mark.slow
    ),
]


@pytest.mark.parametrize("goal", GOALS, ids=str)
def test_a_stream_counts_the_trials_of_rounds(tmp_path, slots, monkeypatch, goal):
    stream, samples = started(tmp_path, "stream", **goal)
    monkeypatch.setattr(CoinSampling, "sample", sample_at_once)
    rounds, same = started(tmp_path, "rounds", **goal)
    assert stream["results"] == rounds["results"]
    assert stream["configs"] == rounds["configs"]
    looks = [[r["looks"] for r in rounds_of(of)] for of in (stream, rounds)]
    assert looks[0] == looks[1]
    for name in ("resps", "outcomes"):
        assert [row[name] for row in samples] == [row[name] for row in same]


def test_a_budget_of_hours_ends_before_the_look_that_would_exceed_it(tmp_path, slots, monkeypatch):
    waits = []
    end = RequestStream.end

    def noted(self, wait_s):
        waits.append((wait_s, NOW[0]))
        end(self, wait_s)

    monkeypatch.setattr(RequestStream, "end", noted)
    monkeypatch.setattr(Rounds, "hours", lambda self: NOW[0] / 3600.0)
    results, samples = started(tmp_path, "h", budget="200s", batch_trials=2)
    rounds = rounds_of(results)
    seconds = [0.0, *(3600.0 * each["hours"] for each in rounds)]
    assert len(rounds) > 1
    for previous, at in itertools.pairwise(seconds[:-1]):
        assert at + (at - previous) <= 200.0
    assert seconds[-1] + (seconds[-1] - seconds[-2]) > 200.0
    ((wait_s, at),) = waits
    assert at == pytest.approx(seconds[-1])
    assert wait_s == pytest.approx(max(0.0, 200.0 - at))
    n = rounds[-1]["trials"]
    assert {len(row["outcomes"]) for row in samples} == {n}
    assert stored(tmp_path, "h") > 12 * n


def test_a_look_is_taken_as_soon_as_every_question_has_its_trials(tmp_path, slots, monkeypatch):
    came, looks = [], []

    def noted(self, requests, measure):
        for request, trial in sample_in_slots(self, requests, measure):
            came.append((request.prompt, request.trial))
            yield request, trial

    analyze = Rounds.analyze

    def looked(self, graded, trials):
        looks.append((trials, len(came)))
        analyze(self, graded, trials)

    monkeypatch.setattr(CoinSampling, "sample", noted)
    monkeypatch.setattr(Rounds, "analyze", looked)
    started(tmp_path, "l", budget="12", batch_trials=3)
    assert [trials for trials, _ in looks] == [3, 6, 9, 12]
    prompts = {prompt for prompt, _ in came}
    assert len(prompts) == 12
    for trials, count in looks:
        needed = {(prompt, trial) for prompt in prompts for trial in range(trials)}
        assert needed <= set(came[:count])
        assert not needed <= set(came[: count - 1])
    assert looks[0][1] > 12 * 3  # trials of later looks came before


def test_what_is_running_at_the_stop_is_stored_and_not_counted(tmp_path, slots, monkeypatch):
    results, samples = started(tmp_path, "s", width=0.2)
    n = rounds_of(results)[-1]["trials"]
    assert n < 80
    assert {len(row["outcomes"]) for row in samples} == {n}
    assert stored(tmp_path, "s") > 12 * n
    # a run that goes on counts them, and samples the rest alone
    asked = []

    def counted(self, requests, measure):
        for request, trial in sample_in_slots(self, requests, measure):
            asked.append(request.trial)
            yield request, trial

    before = stored(tmp_path, "s")
    monkeypatch.setattr(CoinSampling, "sample", counted)
    further, _ = started(tmp_path, "s", budget="48", batch_trials=24)
    assert stored(tmp_path, "s") == 12 * 48 == before + len(asked)
    assert rounds_of(further)[-1]["trials"] == 48
    assert further["config"]["trials"]["from_store"] == before


def test_each_response_is_graded_once(tmp_path, slots, monkeypatch):
    graded, grade = [], TrialGrader._grade

    def counted(self, grader, response, pipeline, doc_id, trial):
        if doc_id is not None:  # the coin has answers of its own graded
            graded.append((doc_id, trial))
        return grade(self, grader, response, pipeline, doc_id, trial)

    monkeypatch.setattr(TrialGrader, "_grade", counted)
    results, _ = started(tmp_path, "g", budget="12")
    assert [r["trials"] for r in rounds_of(results)] == [4, 8, 12]
    assert sorted(graded) == [(question, trial) for question in range(12) for trial in range(12)]


def test_a_stored_trial_that_cannot_be_read_is_sampled_again(tmp_path, slots):
    started(tmp_path, "d", budget="4")
    with closing(sqlite3.connect(tmp_path / "d.sqlite")) as connection, connection:
        connection.execute("UPDATE trials SET text = 'x' WHERE rowid = 7")
    results, _ = started(tmp_path, "d", budget="8")
    assert rounds_of(results)[-1]["trials"] == 8
    assert results["config"]["trials"]["from_store"] == 12 * 4 - 1


GROUP = """
group: two_demos
task:
  - demo_rubric_bayes
  - second_demo
aggregate_metric_list:
  - metric: !function lm_eval_bayes.tasks.HBAYES_AT_N
    weight_by_size: false
"""


def test_groups_and_rubrics_have_their_rows_at_the_n_of_the_last_look(tmp_path, slots):
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "first.yaml").write_text(
        f"include: {TASK}\ntask: demo_rubric_bayes\n"
        "class: !function lm_eval_bayes.tasks.RubricTask\n"
        "metadata: {rubric_schemata: format_aware}\n"
    )
    (folder / "second.yaml").write_text(f"include: {TASK}\ntask: second_demo\n")
    (folder / "group.yaml").write_text(GROUP)
    include = ("--include_path", str(folder))
    stream, _ = started(
        *(tmp_path, "stream", *include, "--limit", "4"), budget="8", task="two_demos"
    )
    n = rounds_of(stream)[-1]["trials"]
    assert n == 8
    assert f"hbayes@{n},none" in stream["groups"]["two_demos"]
    # lm_eval 0.5 names the group before its task
    (rows,) = [
        rows for name, rows in stream["results"].items() if name.endswith("demo_rubric_bayes")
    ]
    assert any("rubric_" in row and f"@{n}" in row for row in rows)
