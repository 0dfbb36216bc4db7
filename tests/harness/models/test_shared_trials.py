"""`trials=auto`: processes share the trials of a run; kills lose and double nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from _support import toy
from _support.paths import REPOSITORY, SUPPORT

from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness.instances import new_instance
from lm_eval_bayes.harness.models import shared_trials
from lm_eval_bayes.harness.models.trials import TrialsLM
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask
from lm_eval_bayes.runs.model_arguments import kind_of
from lm_eval_bayes.store.claims import Claims
from lm_eval_bayes.store.errors import StoreFileError
from lm_eval_bayes.store.merge import merge
from lm_eval_bayes.store.trial_store import TrialStore
from lm_eval_bayes.store.verify import verify

DOC = {"problem": "What is 7 + 5?", "answer": "12"}


def coin(folder, name="a", *, exchanges=True, **arguments):
    claims = {"claims": str(folder / "claims")} if exchanges else {}
    settings = {"backend": "biased_coin", "p": 0.5, "trials": "auto", "lease": 0.5}
    store = str(folder / f"{name}.sqlite")
    return TrialsLM(**{**settings, "store": store, **claims, **arguments})


def ask(lm, n=6, questions=3, temperature=1.0):
    """Return the responses; the trials of each question follow each other."""
    requests = [
        new_instance(DOC, (f"{i}: 7 + 5 = ?", {"temperature": temperature}), task="t", repeats=n)
        for i in range(questions)
    ]
    return lm.generate_until([r for r in requests for _ in range(n)], disable_tqdm=True)


def counts(lm):
    info = lm.get_model_info()["trials"]
    return info["generated"], info["from_store"]


def plain(folder, **arguments):
    """Return the responses of a run that shares nothing."""
    lm = TrialsLM(backend="biased_coin", p=0.5, store=str(folder / "plain.sqlite"), **arguments)
    return ask(lm)


@pytest.mark.parametrize("exchanges", [False, True])
def test_one_process_alone_samples_what_any_run_samples(tmp_path, exchanges):
    lm = coin(tmp_path, exchanges=exchanges)
    assert ask(lm) == plain(tmp_path)
    assert counts(lm) == (18, 0)
    assert ask(coin(tmp_path, exchanges=exchanges)) == plain(tmp_path)


def test_the_folder_of_claims_lies_beside_the_store(tmp_path):
    ask(coin(tmp_path, exchanges=False))
    (model,) = (tmp_path / "a.sqlite.claims").iterdir()
    assert [path.name.split("-")[0] for path in model.iterdir()] == ["work"]


@pytest.mark.parametrize("exchanges", [False, True])
def test_tasks_of_this_package_share_their_trials(tmp_path, exchanges):
    """Their texts may stay in the store otherwise, which must not pass the claims by."""
    first, second = (coin(tmp_path, name, exchanges=exchanges) for name in ("a", "b"))
    results = [
        toy.evaluate(lm, RepeatedSamplingTask(config=toy.toy_config())) for lm in (first, second)
    ]
    folder = tmp_path / ("claims" if exchanges else "a.sqlite.claims")
    assert len(list(folder.rglob("claims/*"))) == 12
    assert counts(first) == (12, 0)
    assert counts(second) == ((0, 12) if exchanges else (12, 0))  # stores of their own
    assert results[0]["results"] == results[1]["results"]


def test_another_store_gets_the_trials_without_sampling(tmp_path):
    ask(coin(tmp_path, "a"))
    other = coin(tmp_path, "b")
    assert ask(other) == plain(tmp_path)
    assert counts(other) == (0, 18)
    report = merge([tmp_path / "a.sqlite", tmp_path / "b.sqlite"], tmp_path / "all.sqlite")
    assert report.conflicts == ()
    with TrialStore.open(tmp_path / "all.sqlite", mode="read") as store:
        assert sum(store.trial_counts().values()) == 18


def test_what_ended_between_a_look_and_a_claim_is_not_sampled_again(tmp_path, monkeypatch):
    """Another thread may look between the question whether a block is new and its claim."""
    other = coin(tmp_path, "b")
    monkeypatch.setattr(type(other), "streams", True)  # it claims as slots fall free
    claim = Claims.claim

    def after_a_look(claims, block, **options):
        monkeypatch.setattr(Claims, "claim", claim)
        ask(coin(tmp_path, "a"))  # all trials, in the log of a process that has ended
        claims.refresh()
        return claims.claim(block, **options)

    monkeypatch.setattr(Claims, "claim", after_a_look)
    assert ask(other) == plain(tmp_path)
    assert Claims.claim is claim
    assert counts(other) == (0, 18)


def test_trials_that_were_stored_before_are_given_to_others(tmp_path):
    ask(coin(tmp_path, "a", exchanges=False))
    again = coin(tmp_path, "a")
    ask(again)
    other = coin(tmp_path, "b")
    ask(other)
    assert (counts(again), counts(other)) == ((0, 18), (0, 18))


@pytest.mark.parametrize(
    ("changes", "asked"),
    [({}, {"n": 8}), ({"seed": 7}, {}), ({}, {"temperature": 0.5}), ({"p": 0.25}, {})],
    ids=["N", "seed", "temperature", "model"],
)
def test_other_work_is_not_mixed_with_this(tmp_path, changes, asked):
    """Claims of one run that are held do not delay another."""
    first = coin(tmp_path, "a")
    held = _hold_everything(first)
    other = coin(tmp_path, "b", **changes)
    expected = TrialsLM(
        **{"backend": "biased_coin", "p": 0.5, "store": str(tmp_path / "c.sqlite"), **changes}
    )
    assert ask(other, **asked) == ask(expected, **asked)
    assert counts(other)[0] == 3 * asked.get("n", 6)
    held.close()
    assert ask(coin(tmp_path, "a")) == plain(tmp_path)


def test_a_raised_number_of_trials_goes_on_with_those_of_others(tmp_path):
    ask(coin(tmp_path, "a"))
    other = coin(tmp_path, "b")
    ask(other, n=8)
    assert counts(other) == (6, 18)


def test_what_another_process_holds_is_waited_for(tmp_path, monkeypatch, caplog):
    """The other process stores its trials while this one waits; none is sampled twice."""
    held = _hold_everything(coin(tmp_path, "a"))
    theirs = TrialsLM(backend="biased_coin", p=0.5, store=str(tmp_path / "a.sqlite"))
    waiting = coin(tmp_path, "a", exchanges=False, claims=None)
    waited = []

    def sleep(seconds):
        waited.append(seconds)
        if len(waited) == 3:
            ask(theirs)

    monkeypatch.setattr(shared_trials.time, "sleep", sleep)
    caplog.set_level("INFO", "lm_eval")
    (tmp_path / "claims").rename(tmp_path / "a.sqlite.claims")
    assert ask(waiting) == plain(tmp_path)
    assert counts(waiting) == (0, 18)
    assert len(waited) == 3
    assert "waiting for 18 trials of 1 other process" in caplog.text
    held.close()


class Time:
    """A clock that moves when somebody sleeps."""

    def __init__(self, at_s=()):
        self.now, self._calls = 1000.0, dict(at_s)

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += 5.0
        for moment in [m for m in self._calls if self.now >= 1000.0 + m]:
            self._calls.pop(moment)()


def test_the_log_says_who_is_waited_for_at_growing_intervals(tmp_path, monkeypatch, caplog):
    held = _hold_everything(coin(tmp_path, "a", lease=60))
    theirs = coin(tmp_path, "b", trials=None, claims=None, lease=None)
    clock = Time({250: lambda: ask(theirs, n=1), 1800: lambda: ask(theirs)})
    monkeypatch.setattr(shared_trials, "time", clock)
    (tmp_path / "claims").rename(tmp_path / "b.sqlite.claims")
    caplog.set_level("INFO", "lm_eval")
    waiting = coin(tmp_path, "b", exchanges=False, lease=60)
    assert ask(waiting) == plain(tmp_path)
    held.close()
    host, pid, _ = held.worker.rsplit("-", 2)
    who = f"of process {pid} on {host} (no trial of it for"
    said = [r.getMessage() for r in caplog.records if r.name.endswith("shared_trials")]
    assert said[0] == "every trial is claimed: waiting for 18 trials of 1 other process"
    first, second, third, fourth = said[1:]
    assert first.startswith(f"waiting for 18 trials, for 1 min so far: 18 {who} 1 min);")
    assert second.startswith(f"waiting for 18 trials, for 3 min so far: 18 {who} 3 min);")
    assert third.startswith(f"waiting for 15 trials, for 7 min so far: 15 {who} 2 min 50 s);")
    assert fourth.startswith(f"waiting for 15 trials, for 15 min so far: 15 {who} 10 min")


@pytest.mark.parametrize("exchanges", [False, True])
def test_the_work_of_a_process_that_has_stalled_is_done_by_others(
    tmp_path, monkeypatch, caplog, exchanges
):
    held = _hold_everything(coin(tmp_path, "a", lease=60))
    clock = Time()
    monkeypatch.setattr(shared_trials, "time", clock)
    if not exchanges:
        (tmp_path / "claims").rename(tmp_path / "b.sqlite.claims")
    waiting = coin(tmp_path, "b", exchanges=exchanges, stalled_after=900, lease=60)
    assert ask(waiting) == plain(tmp_path)
    assert counts(waiting) == (18, 0)
    assert 1900.0 <= clock.now < 1920.0
    _, pid, _ = held.worker.rsplit("-", 2)
    assert re.search(
        rf"no trial of process {pid} on .* came for 15 min \(stalled_after=900\): others sample its"
        " 18 trials",
        caplog.text,
    )
    if exchanges:
        assert not any(held.holds(block) for block in range(18))  # what it finishes is dropped
    held.close()


def test_time_in_which_a_process_did_not_look_is_no_stall(tmp_path, monkeypatch):
    """It was stopped itself, maybe together with the others."""
    held = _hold_everything(coin(tmp_path, "a"))
    clock, pauses = Time(), [600.0] * 5

    def sleep(seconds):
        clock.now += pauses.pop() if pauses else 10.0

    clock.sleep = sleep
    monkeypatch.setattr(shared_trials, "time", clock)
    waiting = coin(tmp_path, "b", stalled_after=100)
    assert ask(waiting) == plain(tmp_path)
    assert 4100.0 <= clock.now <= 4120.0  # five stops of 600 s, and 100 s that were watched
    held.close()


def _hold_everything(lm):
    """Claim all blocks of the run that `ask` asks for, as a process that has not sampled yet."""
    made = []

    class Holding(Claims):
        def __enter__(self):
            made.append(self)
            self.beat()
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_trials, "Claims", Holding)
        with pytest.raises(KeyboardInterrupt):
            ask(lm)
    (claims,) = made
    claims._thread.start()
    assert all(claims.claim(block) for block in range(18))
    return claims


def test_the_work_of_a_process_that_ended_is_done_by_others(tmp_path):
    _hold_everything(coin(tmp_path, "a")).close()
    other = coin(tmp_path, "b")
    assert ask(other) == plain(tmp_path)
    assert counts(other) == (18, 0)


def test_a_trial_whose_block_was_taken_over_is_dropped(tmp_path, monkeypatch, caplog):
    """A process that was stopped finds the trials of its heir in place of its own."""
    stopped = coin(tmp_path, "a")
    holds, ends = Claims.holds, []

    def taken_over(self, block):
        if not ends:  # while this process was stopped, another one has done everything
            ends.append(1)
            self.close()
            ask(coin(tmp_path, "b"))
        return holds(self, block)

    monkeypatch.setattr(Claims, "holds", taken_over)
    assert ask(stopped) == plain(tmp_path)
    generated, received = counts(stopped)
    assert generated + received > 18
    assert received == 18
    assert (
        "taken over trials of this process, because it was stopped for longer than lease=0.5"
        in (caplog.text)
    )
    report = merge([tmp_path / "a.sqlite", tmp_path / "b.sqlite"], tmp_path / "all.sqlite")
    assert report.conflicts == ()


def test_a_damaged_line_is_named_and_its_trial_sampled(tmp_path, caplog):
    ask(coin(tmp_path, "a"))
    (log,) = tmp_path.glob("claims/*/trials/*.jsonl")
    content = bytearray(log.read_bytes())
    content[100] ^= 1
    log.write_bytes(bytes(content))
    other = coin(tmp_path, "b")
    assert ask(other) == plain(tmp_path)
    assert counts(other) == (1, 17)
    assert "1 damaged line is left out" in caplog.text


def test_a_damaged_trial_is_sampled_again(tmp_path):
    ask(coin(tmp_path, exchanges=False))
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as connection, connection:
        connection.execute("UPDATE trials SET seed = seed + 1 WHERE trial = 2")
    lm = coin(tmp_path, exchanges=False)
    assert ask(lm) == plain(tmp_path)
    assert counts(lm) == (3, 15)
    assert verify(tmp_path / "a.sqlite").ok


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"trials": "automatic"}, r"`trials` must be auto, or a:b .* got 'automatic'"),
        ({"trials": "0:4", "claims": "x"}, r"`claims` needs trials=auto; got trials=0:4"),
        ({"trials": None, "lease": 3}, r"`lease` needs trials=auto; got trials=None"),
        ({"lease": 0.1}, r"`lease` must be a number of seconds of at least 0\.5; got 0\.1"),
        ({"claims": ""}, r"`claims` must be the path of a folder; got ''"),
        ({"claims": 3}, r"`claims` must be the path of a folder; got 3"),
        ({"trials": None, "stalled_after": 9}, "`stalled_after` needs trials=auto; got trials="),
        ({"stalled_after": "x"}, r"`stalled_after` must be a number of seconds .* got 'x'"),
        ({"claims": __file__}, r"`claims` must be a folder; '.*test_shared_trials\.py' is a file"),
        ({"claims": "/proc/nothing"}, r"`claims` must be a folder that can be written; got '/proc"),
    ],
)
def test_arguments(tmp_path, arguments, sentence):
    settings = {"backend": "biased_coin", "p": 0.5, "trials": "auto"}
    with pytest.raises((ModelConfigError, ValueError), match=sentence):
        TrialsLM(**{**settings, "store": str(tmp_path / "a.sqlite"), **arguments})


def test_a_folder_that_cannot_be_written_is_refused_before_the_model_is_loaded(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(shared_trials.os, "access", lambda path, mode: False)
    with pytest.raises(ModelConfigError, match=r"`claims` must be a folder that can be written; g"):
        coin(tmp_path)


def test_a_store_on_a_network_file_system_needs_a_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_trials, "network_file_system", lambda path: "nfs4")
    with pytest.raises(ModelConfigError, match=r"needs `claims` here: .* \(nfs4\), where one"):
        coin(tmp_path, exchanges=False)
    ask(coin(tmp_path))


def test_how_trials_are_shared_is_no_part_of_a_model():
    for name in ("trials", "claims", "lease", "stalled_after"):
        assert kind_of(name).value == "speed"


def test_several_ranks_are_refused():
    with pytest.raises(ModelConfigError, match="trials=auto divides the trials itself; got 2 ra"):
        shared_trials.Sharing.check_ranks(2)
    with pytest.raises(ModelConfigError, match=r"data_parallel_size=1, .* \(start 4 processes, o"):
        shared_trials.Sharing.check_ranks(1, 4)


def test_a_folder_that_is_gone_is_an_error_of_one_sentence(tmp_path, monkeypatch):
    lm = coin(tmp_path)
    claim = Claims.claim

    def gone(self, block):
        shutil.rmtree(tmp_path / "claims")
        return claim(self, block)

    monkeypatch.setattr(Claims, "claim", gone)
    with pytest.raises(StoreFileError, match=r"the folder of claims .* cannot be used: No such f"):
        ask(lm)


PATHS = os.pathsep.join([str(REPOSITORY), str(SUPPORT.parent)])
QUESTIONS, N, SLOTS = 40, 10, 8


def scene(folder: Path, **arguments):
    pytest.importorskip("aiohttp")
    done = subprocess.run(
        [sys.executable, "-m", "_support.shared_runs", str(folder), json.dumps(arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": PATHS, "LOGLEVEL": "ERROR"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs fork and SIGKILL")
@pytest.mark.parametrize("own_stores", [False, True], ids=["one store", "a store each"])
@pytest.mark.parametrize(
    ("kills", "signum", "elsewhere"),
    [
        (0, signal.SIGKILL, False),
        (1, signal.SIGTERM, False),
        (8, signal.SIGKILL, False),
        (2, signal.SIGKILL, True),
        (1, signal.SIGSTOP, False),
    ],
    ids=["no kill", "SIGTERM", "8 kills", "2 kills on other computers", "stopped"],
)
def test_two_processes_share_the_requests(tmp_path, own_stores, kills, signum, elsewhere):
    report = scene(
        tmp_path,
        n=N,
        own_stores=own_stores,
        kills=kills,
        seed=11 + kills,
        signum=int(signum),
        elsewhere=elsewhere,
    )
    assert report["ends"] == [0, 0]
    assert report["codes"] == ([] if signum == signal.SIGSTOP else [-signum] * kills)
    asked = [tuple(pair) for pair in report["asked"]]
    assert len(set(asked)) == QUESTIONS * N  # nothing is lost
    # Nothing is asked again but what was running at a kill, and answers that had come and were not
    # stored yet, which a busy computer has more of. A process that goes on after a stop asks for
    # what is left of its blocks, before it sees that others have taken them.
    assert len(asked) <= QUESTIONS * N + 2 * SLOTS * kills
    first, second = (json.loads((tmp_path / f"job{i}.json").read_text()) for i in range(2))
    assert first == second
    assert [len(texts) for texts in first] == [N] * QUESTIONS
    assert all(len(set(texts)) == N for texts in first)  # the server answers each seed otherwise
    stores = sorted(tmp_path.glob("*.sqlite"))
    assert len(stores) == (2 if own_stores else 1)
    report = merge(stores, tmp_path / "all.sqlite")
    assert report.conflicts == ()
    with TrialStore.open(tmp_path / "all.sqlite", mode="read") as store:
        assert sum(store.trial_counts().values()) == QUESTIONS * N
    assert verify(tmp_path / "all.sqlite").ok
