"""Stores of every schema that was ever released are read, upgraded and merged."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from _support.paths import REPOSITORY

from lm_eval_bayes.store import migrations
from lm_eval_bayes.store.errors import NewerSchemaError, StoreDamagedError, StoreFileError
from lm_eval_bayes.store.export import export_jsonl
from lm_eval_bayes.store.merge import merge
from lm_eval_bayes.store.outcomes import GradedQuestion, GradedTask, GradedTrial
from lm_eval_bayes.store.questions import Cluster
from lm_eval_bayes.store.trial_store import TrialStore
from lm_eval_bayes.store.verify import verify

FOLDER = Path(__file__).parent / "old_schemas"
SCHEMATA = sorted(int(path.stem.removeprefix("schema_")) for path in FOLDER.glob("schema_*.sql"))
ODD = "NUL \x00, surrogate \ud83d, 😀"


def old_store(path, schema):
    script = (FOLDER / f"schema_{schema}.sql").read_text(encoding="utf-8")
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    return path


def table_names(path):
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY 1, 2")
        return rows.fetchall()


def check_content(store):
    info = store.info()
    assert (info.trials, info.prompts, len(info.models), len(info.samplings)) == (8, 2, 2, 2)
    assert {model["pretrained"] for model in info.models.values()} == {"some/model", "other/model"}
    for key in info.counts:
        bare, full = store.trials(key).values()
        assert (bare.text, bare.seed, bare.versions) == ("42", None, {})
        assert (full.text, full.seed, full.stop_reason) == (ODD, -7, 128_009)
        assert full.signals == {"bits": 1.5, "lowest": float("-inf")}
        assert full.versions == {"vllm": "0.32.0"}
        assert store.prompt(key.prompt) in ("What is 6 times 7?", ODD)
    return info


def check_outcomes(store, schema):
    (task,) = store.outcomes_of() if schema >= migrations.OUTCOMES_SCHEMA else (None,)
    if task is None:
        assert store.outcomes_of() == ()
        return
    assert (task.task, task.version, task.filter, task.categories) == ("aime", "1.0", "none", 2)
    assert [(q.doc_id, len(q.trials)) for q in task.questions] == [(0, 4), (1, 4)]
    right, failed = task.questions[1].trials[:2]
    assert (right.trial, right.outcome, right.answer, right.error) == (0, 1, "42", None)
    assert (failed.trial, failed.outcome, failed.answer, failed.error) == (1, 0, None, ODD)
    assert store.prompt(right.key.prompt) == ODD
    texts = ("What is 6 times 7?", ODD) if schema >= migrations.CLUSTERS_SCHEMA else ()
    assert [q.cluster for q in task.questions if q.cluster] == [
        Cluster("contest", text) for text in texts
    ]


def test_there_is_a_fixture_of_every_schema():
    numbers = [step.number for step in migrations.MIGRATIONS]
    assert numbers == SCHEMATA
    assert numbers == list(range(1, migrations.SCHEMA + 1))


@pytest.mark.parametrize("schema", SCHEMATA)
def test_an_old_store_is_upgraded_when_it_is_opened_for_writing(path, schema, tmp_path):
    old_store(path, schema)
    with TrialStore.open(path) as store:
        info = check_content(store)
        check_outcomes(store, schema)
        assert store.schema == info.schema == migrations.SCHEMA
        key = next(iter(info.counts))
        new = store.prompt_signals(key.model, [key.prompt]) == {}
        assert store.add_prompt_signals(key.model, key.prompt, {"bits": 0.5}) is new
        assert new is (schema < migrations.PROMPT_SIGNALS_SCHEMA)
        graded = GradedQuestion(7, "ab", (GradedTrial(key, 0, 2),), Cluster("topic", "sums"))
        assert store.add_outcomes([GradedTask("other", "2", "none", 3, (graded,))]) == 1
        assert store.outcomes_of("other")[0].questions == (graded,)
    assert verify(path).ok
    TrialStore.open(tmp_path / "fresh.sqlite").close()
    assert table_names(path) == table_names(tmp_path / "fresh.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        numbers = connection.execute("SELECT number FROM migrations ORDER BY 1").fetchall()
        assert numbers == [(number,) for number in SCHEMATA]


@pytest.mark.parametrize("schema", SCHEMATA)
def test_an_old_store_is_read_as_it_is(path, schema, tmp_path):
    old_store(path, schema)
    before = path.read_bytes()
    with TrialStore.open(path, mode="read") as store:
        assert check_content(store).schema == schema
        check_outcomes(store, schema)
        key = next(iter(store.info().counts))
        assert store.prompt_signals(key.model, [key.prompt]) == (
            {key.prompt: {"bits": 0.5}} if schema >= migrations.PROMPT_SIGNALS_SCHEMA else {}
        )
        assert export_jsonl(store, tmp_path / "a.jsonl").trials == 8
    assert verify(path).ok
    assert verify(path).schema == schema
    assert path.read_bytes() == before


@pytest.mark.parametrize("schema", SCHEMATA)
def test_an_old_store_is_merged(path, schema):
    old_store(path.with_name("old.sqlite"), schema)
    assert merge([path.with_name("old.sqlite")], path).added == 8
    with TrialStore.open(path, mode="read") as store:
        assert check_content(store).schema == migrations.SCHEMA
        check_outcomes(store, schema)


def test_a_newer_store_is_refused_and_left_alone(path, filled):
    filled()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE future (x)")
        connection.execute(f"PRAGMA user_version = {migrations.SCHEMA + 1}")
    before = path.read_bytes()
    sentence = (
        f"has schema {migrations.SCHEMA + 1} and this release of lm-eval-bayes reads schemas up "
        f"to {migrations.SCHEMA}: upgrade lm-eval-bayes; nothing was changed"
    )
    for way in (
        lambda: TrialStore.open(path),
        lambda: TrialStore.open(path, mode="read"),
        lambda: verify(path),
        lambda: merge([path], path.with_name("b.sqlite")),
    ):
        with pytest.raises(NewerSchemaError, match=sentence):
            way()
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_a_store_that_a_newer_release_takes_over_while_it_is_open(store, key, make_trial, path):
    store.add([make_trial(key)])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {migrations.SCHEMA + 1}")
    with pytest.raises(NewerSchemaError, match="upgrade lm-eval-bayes"):
        store.add([make_trial(key, 1)])


@pytest.mark.parametrize("version", [0, 1])
def test_a_header_that_contradicts_the_bookkeeping(path, filled, version):
    filled()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(StoreDamagedError, match=f"its header says schema {version}, its list"):
        TrialStore.open(path)
    assert not verify(path).ok


def test_a_step_that_fails_leaves_the_old_schema(path, monkeypatch):
    old_store(path, 1)
    tables = table_names(path)
    broken = migrations.Migration(2, "broken", ("CREATE TABLE half (x)", "CREATE TABLE models (x)"))
    monkeypatch.setattr(migrations, "MIGRATIONS", (migrations.MIGRATIONS[0], broken))
    with pytest.raises(StoreFileError, match="cannot be opened for writing: table models already"):
        TrialStore.open(path)
    assert table_names(path) == tables
    monkeypatch.undo()
    with TrialStore.open(path) as store:
        assert check_content(store).schema == migrations.SCHEMA


DIES = """
import os, signal, sys
from lm_eval_bayes.store import migrations
from lm_eval_bayes.store.trial_store import TrialStore
first, second, *_ = migrations.MIGRATIONS
class Dying:
    def __iter__(self):
        yield from second.statements[:2]
        os.kill(os.getpid(), signal.SIGKILL)
migrations.MIGRATIONS = (first, migrations.Migration(2, "dying", Dying()))
TrialStore.open(sys.argv[1])
"""


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_process_killed_during_a_step_leaves_the_old_schema(path):
    old_store(path, 1)
    repository = REPOSITORY
    done = subprocess.run(
        [sys.executable, "-c", DIES, str(path)],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(repository)},
    )
    assert done.returncode == -9, done.stderr
    with TrialStore.open(path, mode="read") as store:
        assert check_content(store).schema == 1
    with TrialStore.open(path) as store:
        assert check_content(store).schema == migrations.SCHEMA
    assert verify(path).ok
