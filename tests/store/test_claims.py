"""Claims: one process for a block, taken over once its process is gone, whatever its clock says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest
from _support.forked_processes import fork, wait_for

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.store import claims as claims_module
from lm_eval_bayes.store.claims import Claims
from lm_eval_bayes.store.errors import StoreFileError


class Clock:
    """A clock that a test sets."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def elsewhere(monkeypatch):
    """Let processes not be known from /proc, as those of other computers are not."""
    monkeypatch.setattr(claims_module, "process_scope", lambda: None)


@pytest.fixture
def opened():
    """Open claims whose heartbeat is written by hand, and close them at the end."""
    made = []

    def open_claims(folder, lease_s=60.0, clock=None):
        claims = Claims(folder, lease_s, clock or Clock())
        claims.beat()
        claims.refresh()
        made.append(claims)
        return claims

    yield open_claims
    for claims in made:
        claims.close()


def test_one_process_gets_a_block(tmp_path, opened):
    first, second = opened(tmp_path), opened(tmp_path)
    assert first.claim(3)
    assert first.claim(3)
    assert not second.claim(3)  # which it did not know to be claimed
    second.refresh()
    assert not second.is_new(3)
    assert not second.is_expired(3)
    assert second.claim(4)
    assert (first.holds(3), second.holds(3), first.holds(4), second.holds(4)) == (
        True,
        False,
        False,
        True,
    )
    assert first.worker != second.worker


def test_an_expired_claim_is_taken_over_once(tmp_path, opened, elsewhere):
    dead, heir, other = (opened(tmp_path, clock=clock) for clock in (Clock(), Clock(), Clock()))
    assert dead.claim(0)
    for seconds in range(0, 61, 10):
        for claims in (heir, other):
            claims._clock.now = 1000.0 + seconds
            claims.beat()
            claims.refresh()
            assert claims.is_expired(0) == (seconds >= 60)
    assert heir.n_workers == 2
    assert heir.claim(0)
    assert not other.claim(0)
    other.refresh()
    assert not other.is_expired(0)  # the heir is alive
    assert heir.holds(0)
    assert not dead.holds(0)


def test_a_claim_of_a_new_block_takes_over_none_that_expired(tmp_path, opened, elsewhere):
    first, second = opened(tmp_path), opened(tmp_path)
    assert first.claim(0, only_new=True)
    assert not first.claim(0, only_new=True)
    first.close()
    assert second.is_new(0)
    second.refresh()
    assert not second.claim(0, only_new=True)
    assert second.claim(0)


def test_a_heartbeat_keeps_the_claims(tmp_path, opened, elsewhere):
    living, watcher = opened(tmp_path), opened(tmp_path)
    assert living.claim(0)
    for seconds in range(0, 600, 10):
        watcher._clock.now = 1000.0 + seconds
        if seconds % 50 == 0:
            living.beat()  # its own clock stands still: it is not compared
        watcher.refresh()
        assert not watcher.is_expired(0)


def test_time_in_which_nobody_looked_does_not_count(tmp_path, opened, elsewhere):
    living, watcher = opened(tmp_path), opened(tmp_path)
    assert living.claim(0)
    watcher.refresh()
    watcher._clock.now += 3600.0  # both were suspended
    watcher.refresh()
    assert not watcher.is_expired(0)
    for _ in range(2):
        watcher._clock.now += 15.0
        watcher.refresh()
    assert not watcher.is_expired(0)
    watcher._clock.now += 15.0
    watcher.refresh()
    assert watcher.is_expired(0)


def test_the_longer_lease_counts(tmp_path, opened, elsewhere):
    slow, hasty = opened(tmp_path, lease_s=600.0), opened(tmp_path, lease_s=6.0)
    assert slow.claim(0)
    for _ in range(59):
        hasty._clock.now += 10.0
        hasty.refresh()
    assert not hasty.is_expired(0)
    hasty._clock.now += 10.0
    hasty.refresh()
    assert hasty.is_expired(0)


def test_a_process_that_ends_frees_its_claims(tmp_path, opened, elsewhere):
    first, second = opened(tmp_path), opened(tmp_path)
    assert first.claim(0)
    first.close()
    second.refresh()
    assert second.is_expired(0)
    assert second.claim(0)


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_a_dead_process_of_this_computer_is_known_at_once(tmp_path, opened):
    code = (
        "import os, sys; from pathlib import Path; from lm_eval_bayes.store.claims import Claims\n"
        "c = Claims(Path(sys.argv[1])); c.beat(); c.claim(0); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 9
    claims = opened(tmp_path)
    assert claims.is_expired(0)
    assert claims.claim(0)


def test_a_stopped_process_sees_that_its_claims_are_lost(tmp_path, opened, elsewhere):
    stopped, heir = opened(tmp_path), opened(tmp_path)
    assert stopped.claim(0)
    assert stopped.claim(1)
    for _ in range(5):
        heir._clock.now += 15.0
        heir.refresh()
    assert heir.claim(0)
    stopped._clock.now += 75.0
    assert not stopped.holds(0)
    assert stopped.holds(1)
    # `holds` has written its heartbeat, so block 1 stays its own.
    heir.refresh()
    assert not heir.is_expired(1)
    assert not heir.claim(1)


def test_a_claim_that_is_not_written_yet_expires_by_itself(tmp_path, opened, elsewhere):
    claims = opened(tmp_path)
    (tmp_path / "claims" / "000000.0").touch()  # a system without hard links, and a kill
    claims.refresh()
    for _ in range(4):
        assert not claims.claim(0)
        claims._clock.now += 15.0
        claims.refresh()
    (tmp_path / "claims" / "000001.0").touch()
    claims.refresh()
    assert not claims.claim(1)
    assert claims.claim(0)


def test_an_answer_that_was_lost(tmp_path, opened, monkeypatch):
    """An NFS server created the link, but the client got "it exists" to its second request."""
    claims = opened(tmp_path)
    write = claims_module.write_atomic

    def exists(path, content, **options):
        write(path, content, **options)
        return False

    monkeypatch.setattr(claims_module, "write_atomic", exists)
    assert claims.claim(0)
    assert claims.holds(0)


def test_other_files_are_left_alone(tmp_path, opened):
    claims = opened(tmp_path)
    for name in ("note.txt", "000001", ".000002.0.1-ab.tmp", "000003.0.bak"):
        (tmp_path / "claims" / name).write_text("x")
    (tmp_path / "workers" / "x.json").write_text("no JSON")
    claims.refresh()
    assert all(claims.is_new(block) for block in range(4))


@pytest.mark.parametrize("content", [b"", b"\0" * 50, b"../../x", b"\xff\xfe", b"node-x-1"])
def test_a_claim_that_names_no_worker_expires(tmp_path, opened, elsewhere, content):
    claims = opened(tmp_path)
    (tmp_path / "claims" / "000000.7").write_bytes(content)
    (tmp_path / "claims" / "000001.0").mkdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "claims" / "000002.0")
    for _ in range(4):
        claims.refresh()
        assert not any(claims.claim(block) for block in range(2))
        claims._clock.now += 15.0
    claims.refresh()
    assert claims.claim(0)
    assert claims.claim(1)
    assert claims._held[0] == 8


@pytest.mark.parametrize("content", ["[" * 100_000, '{"lease_s": 1e999}', "[1]", "7", "", None])
def test_a_heartbeat_that_says_nothing_expires(tmp_path, opened, elsewhere, content):
    other, claims = opened(tmp_path), opened(tmp_path)
    assert other.claim(0)
    path = tmp_path / "workers" / f"{other.worker}.json"
    path.unlink()
    if content is None:
        path.mkdir()
    else:
        path.write_text(content)
    for _ in range(4):
        claims.refresh()
        assert not claims.is_expired(0)
        claims._clock.now += 15.0
    claims.refresh()
    assert claims.is_expired(0)
    if content is None:
        path.rmdir()


def test_a_process_whose_claims_are_removed_ends(tmp_path, opened):
    """Another one may have taken the work since."""
    claims = opened(tmp_path)
    assert claims.claim(0)
    claims.refresh()
    (tmp_path / "claims" / "000000.0").unlink()
    with pytest.raises(
        StoreFileError,
        match=r"000000\.0 was removed .* uses it; the trials .* are stored, and the same command",
    ):
        claims.refresh()


def test_a_process_that_lives_is_overruled(tmp_path, opened):
    hanging, heir = opened(tmp_path), opened(tmp_path)
    assert hanging.claim(0)
    assert hanging.claim(1)
    heir.refresh()
    assert heir.n_workers == 2
    assert heir.owner(0) == hanging.worker
    assert heir.owner(2) is None
    assert heir.overrule(hanging.worker)
    assert not heir.overrule(hanging.worker)
    heir.refresh()
    assert (heir.n_workers, heir.is_expired(0)) == (1, True)
    assert heir.claim(0)
    assert heir.overrule(hanging.worker, False)
    heir.refresh()
    assert (heir.n_workers, heir.is_expired(1)) == (2, False)
    assert (hanging.holds(0), hanging.holds(1)) == (False, True)


@pytest.mark.parametrize("lease", [0, 0.4, -1, float("nan"), float("inf"), "10", True, None])
def test_leases(tmp_path, lease):
    with pytest.raises(InvalidInputError, match=r"`lease_s` must be a number of seconds"):
        Claims(tmp_path, lease)


def test_the_heartbeat_goes_on_in_a_thread(tmp_path):
    with Claims(tmp_path, 0.6) as claims:
        path = tmp_path / "workers" / f"{claims.worker}.json"
        first = json.loads(path.read_text())
        beaten = threading.Event()
        for _ in range(200):
            if json.loads(path.read_text())["beat"] > first["beat"]:
                break
            beaten.wait(0.05)
        else:
            pytest.fail("no heartbeat in ten seconds")
        assert first["ended"] is False
    assert json.loads(path.read_text())["ended"] is True


@pytest.mark.skipif(os.name != "posix", reason="needs fork")
def test_many_processes_never_share_a_block(tmp_path, elsewhere):
    children = [fork(lambda number=number: _held(tmp_path, number)) for number in range(4)]
    assert wait_for(children) == [0] * 4
    held = [json.loads((tmp_path / f"{number}.json").read_text()) for number in range(4)]
    assert sorted(block for blocks in held for block in blocks) == list(range(60))


def _held(folder, number):
    claims = Claims(folder / "shared", 60.0)  # never closed, which would free its blocks
    claims.beat()
    held = [block for block in range(60) if claims.claim(block)]
    (folder / f"{number}.json").write_text(json.dumps(held))
