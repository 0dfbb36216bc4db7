"""kill -9 at random moments, several writers at once, readers meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from _support.paths import REPOSITORY, SUPPORT
from _support.writers import text_of

from lm_eval_bayes.store.prune import verify
from lm_eval_bayes.store.trial_store import TrialStore

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs fork and SIGKILL")

SCRIPT = "_support.writers"
PATHS = os.pathsep.join([str(REPOSITORY), str(SUPPORT.parent)])


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", SCRIPT, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": PATHS},
    )


def finish(process):
    printed, errors = process.communicate(timeout=1800)
    assert process.returncode == 0, errors
    assert errors == ""
    return json.loads(printed)


def check_numbers(plainly, path):
    """Return the trials on file, each of which has the text it must have, and no other."""
    trials = plainly(path)
    numbers = [row_id[3] for row_id in trials]
    assert all(trials[row_id] == (row_id[3], text_of(row_id[3])) for row_id in trials)
    assert len(set(numbers)) == len(numbers)
    return set(numbers)


@pytest.mark.slow
def test_fifty_kills_lose_no_acknowledged_trial(path, tmp_path, plainly, keys_of):
    record = tmp_path / "acknowledged"
    codes = finish(start("killed", path, record, 50, 1))
    assert codes == [-9] * 50
    acknowledged = [int(line) for line in record.read_text().split()]
    assert len(acknowledged) == len(set(acknowledged)) >= 25
    with TrialStore.open(path, mode="read") as store:
        (key,) = keys_of(store)
        assert set(acknowledged) <= set(store.trials(key))
    assert verify(path).ok
    numbers = check_numbers(plainly, path)
    assert set(acknowledged) <= numbers
    # Trials are added in order, so a hole would be a lost commit; a kill between commit and
    # acknowledgement leaves at most one batch of three that nobody was told of.
    assert numbers == set(range(len(numbers)))
    assert len(numbers - set(acknowledged)) <= 3 * 50


def test_kills_while_a_store_is_created(tmp_path):
    outcome = finish(start("created", tmp_path, 8, 2))
    assert all(sound in (True, None) for _, sound, _ in outcome)
    assert all(trials == 1 for _, _, trials in outcome)
    # What the kills left behind is hidden and small, and bears no store's name.
    left = [path for path in tmp_path.iterdir() if not path.name.endswith(".sqlite")]
    assert all(path.name.startswith(".") for path in left)


def test_writers_at_once(path, plainly):
    writers, trials, shared = 6, 15, 20
    assert finish(start("together", path, writers, trials, shared)) == [0] * writers
    assert check_numbers(plainly, path) == set(range(shared + writers * trials))
    assert verify(path).ok
    assert not [other for other in path.parent.iterdir() if other != path]


def test_reading_while_others_write(path, plainly, tmp_path, keys_of):
    end = tmp_path / "end"
    process = start("until", path, 2, end)
    seen = []
    while process.poll() is None and len(set(seen)) < 3:
        if path.exists():
            with TrialStore.open(path, mode="read") as store:
                for key in keys_of(store):
                    trials = store.trials(key)
                    assert all(trial.text == text_of(i) for i, trial in trials.items())
                    seen.append(len(trials))
            assert len(seen) % 4 or verify(path).ok
    end.touch()
    assert finish(process) == [0, 0]
    assert seen == sorted(seen)
    assert len(check_numbers(plainly, path)) >= seen[-1] > 0
