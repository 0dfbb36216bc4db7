"""What trials were graded as: stored, replaced, read, merged, verified, exported, pruned."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
from _support.errors import refused

from lm_eval_bayes.store.errors import StoreDamagedError, TrialConflictError
from lm_eval_bayes.store.merge import merge
from lm_eval_bayes.store.outcomes import GradedQuestion, GradedTask, GradedTrial
from lm_eval_bayes.store.prune import verify
from lm_eval_bayes.store.trial import TrialKey
from lm_eval_bayes.store.trial_store import TrialStore

ODD = "NUL \x00, surrogate \ud83d, 😀"


def graded(key, outcomes, doc_id=0, doc_hash="aa", answers=None, **changes):
    """One question of one task, its trials graded as told; None leaves a trial out."""
    answers = answers or [str(outcome) for outcome in outcomes]
    trials = tuple(
        GradedTrial(key, i, outcome, answers[i])
        for i, outcome in enumerate(outcomes)
        if outcome is not None
    )
    question = GradedQuestion(doc_id, doc_hash, trials)
    task = GradedTask("aime", "1.0", "none", 2, (question,))
    return replace(task, **changes)


def outcomes_in(path, task=None):
    with TrialStore.open(path, mode="read") as store:
        return store.outcomes_of(task)


def numbers(tasks):
    return [[trial.outcome for trial in q.trials] for task in tasks for q in task.questions]


@pytest.fixture
def shard(tmp_path, describe, make_trial):
    """A function that makes a closed store of one question, with graded trials."""

    def make(name, outcomes, texts="{i}", first=0, **more):
        path = tmp_path / name
        with TrialStore.open(path) as store:
            key = describe(store)
            span = range(first, first + len(outcomes))
            store.add([make_trial(key, i, texts.format(i=i)) for i in span])
            store.add_outcomes([graded(key, [None] * first + list(outcomes), **more)])
        return path

    return make


def test_what_was_graded_comes_back(store, key, describe, path):
    other = describe(store, ODD)
    failed = GradedTrial(other, 3, 0, None, ODD)
    tasks = (
        GradedTask(
            "aime",
            "1.0",
            "none",
            3,
            (
                GradedQuestion(0, "aa", (GradedTrial(key, 0, 2, ODD), GradedTrial(key, 1, 0))),
                GradedQuestion(7, "bb", (failed,)),
            ),
        ),
    )
    store.add_outcomes(tasks)
    assert store.outcomes_of() == store.outcomes_of("aime") == tasks
    assert store.outcomes_of("other") == ()
    assert tasks[0].series == ((key.model, key.sampling),)
    assert tasks[0].of(key.model, key.sampling) == tasks[0]
    plain = json.loads(json.dumps(tasks[0].to_dict()))
    assert plain["questions"][1]["trials"][0]["error"] == ODD
    assert verify(path).ok
    assert verify(path).records["outcomes"] == 3


def test_questions_come_in_order_and_models_apart(store, describe):
    keys = [describe(store, "x", {"pretrained": name}) for name in "ab"]
    for doc_id in (10, 9, 100, 0):
        for key in keys:
            store.add_outcomes([graded(key, [1, 0, 1], doc_id, f"{doc_id:064x}")])
    (task,) = store.outcomes_of()
    assert [question.doc_id for question in task.questions] == [0, 9, 10, 100]
    assert len(task.series) == 2
    for question in task.questions:
        assert len(question.trials) == 6
        for model in {key.model for key in keys}:
            trials = [t for t in question.trials if t.key.model == model]
            assert [(t.trial, t.outcome) for t in trials] == [(0, 1), (1, 0), (2, 1)]
    of_model = task.of(keys[0].model, keys[0].sampling)
    assert {trial.key for question in of_model.questions for trial in question.trials} == {keys[0]}
    assert task.of(keys[0].model, "another").questions == ()


@pytest.mark.parametrize(
    "later",
    [
        {"outcomes": [1, 1, 0]},
        {"outcomes": [1, 0, 1], "answers": ["7", "8", "9"]},
        {"outcomes": [1, 1, 0], "doc_hash": "bb"},
        {"outcomes": [2, 1, 0], "categories": 3},
    ],
    ids=["outcomes", "answers", "document", "categories"],
)
def test_a_later_grading_takes_the_place_of_the_earlier(store, key, path, later):
    store.add_outcomes([graded(key, [1, 0, 1])])
    wanted = graded(key, **later)
    store.add_outcomes([wanted])
    assert store.outcomes_of() == (wanted,)
    assert store.info().outcomes == 3
    assert [task.questions for task in store.info().tasks] == [1]
    assert verify(path).ok


def test_only_the_trials_that_were_graded_again_are_replaced(store, key):
    store.add_outcomes([graded(key, [1, 0, 1, 1])])
    store.add_outcomes([graded(key, [None, None, 0, 0], doc_hash="bb")])
    (task,) = store.outcomes_of()
    assert [(q.doc_hash, [t.trial for t in q.trials]) for q in task.questions] == [
        ("aa", [0, 1]),
        ("bb", [2, 3]),
    ]


@pytest.mark.parametrize("other", [{"task": "hmmt"}, {"version": "2.0"}, {"filter": "strict"}])
def test_other_tasks_versions_and_filters_stand_beside(store, key, other):
    store.add_outcomes([graded(key, [1, 0])])
    store.add_outcomes([graded(key, [0, 0], **other)])
    assert sorted(numbers(store.outcomes_of())) == [[0, 0], [1, 0]]
    assert [task.outcomes for task in store.info().tasks] == [2, 2]
    assert store.info().outcomes == 4


def test_a_question_that_stands_twice_in_the_data(store, key):
    store.add_outcomes([graded(key, [1, 0], doc_id=0), graded(key, [1, 0], doc_id=5)])
    (task,) = store.outcomes_of()
    assert [(q.doc_id, q.doc_hash) for q in task.questions] == [(0, "aa"), (5, "aa")]


def test_all_or_nothing(store, key):
    unknown = TrialKey(model=key.model, prompt="blake2b-128:00", sampling=key.sampling)
    with refused("prompt", "choice", "blake2b-128:00"):
        store.add_outcomes([graded(key, [1, 1]), graded(unknown, [1], doc_id=1)])
    assert store.outcomes_of() == ()
    store.add_outcomes([])
    store.add_outcomes([graded(key, [])])
    assert store.info().tasks == ()


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({"outcomes": [2]}, ("outcome", "range", 2)),
        ({"outcomes": [-1]}, ("outcome", "range", -1)),
        ({"outcomes": [1], "categories": 1}, ("categories", "range", 1)),
        ({"outcomes": [1], "doc_id": -1}, ("doc_id", "range", -1)),
        ({"outcomes": [1], "task": "a\ud800"}, ("task", "format", "a\ud800")),
    ],
)
def test_arguments(store, key, change, broken):
    with refused(*broken):
        store.add_outcomes([graded(key, **change)])
    assert store.outcomes_of() == ()


# -- merge ------------------------------------------------------------------------------------


def test_slices_become_one_run(shard, path):
    parts = [shard("a.sqlite", [1, 0]), shard("b.sqlite", [1, 1], first=2)]
    report = merge(parts, path)
    assert (report.added, report.outcomes, report.notes) == (4, 4, ())
    assert numbers(outcomes_in(path)) == [[1, 0, 1, 1]]
    assert verify(path).ok
    again = merge(parts, path)
    assert (again.outcomes, again.notes) == (0, ())


@pytest.mark.parametrize(
    "other", [{}, {"doc_hash": "bb"}, {"categories": 3}], ids=["outcome", "document", "categories"]
)
def test_a_trial_that_was_graded_otherwise_stays_as_it_is_and_is_noted(shard, path, other):
    parts = [shard("a.sqlite", [1, 0]), shard("b.sqlite", [0, 0], **other)]
    report = merge(parts, path)
    wrong = "1 outcome" if not other else "2 outcomes"
    assert report.outcomes == 2
    (note,) = report.notes
    assert note.startswith(f"{parts[1]}: {wrong} of task aime")
    assert outcomes_in(path) == outcomes_in(parts[0])


def test_outcomes_of_trials_that_were_not_merged_stay_behind(shard, path):
    # The second store's trials have other texts, and what they were graded as is of those texts.
    parts = [shard("a.sqlite", [1]), shard("b.sqlite", [0, 0], texts="otherwise {i}")]
    with refused(None, "mismatch", None, error=TrialConflictError):
        merge(parts, path)
    with closing(sqlite3.connect(parts[0])) as connection:
        connection.execute("DELETE FROM outcomes")
        connection.commit()
    report = merge(parts, path, keep_first=True)
    assert (report.n_conflicts, report.outcomes) == (1, 1)
    (note,) = report.notes
    assert note.startswith(
        f"{parts[1]}: 1 outcome of task aime not merged, because the trials differ"
    )
    (question,) = outcomes_in(path)[0].questions
    assert [(trial.trial, trial.outcome) for trial in question.trials] == [(1, 0)]


@pytest.mark.parametrize(
    "damage",
    ["UPDATE outcomes SET outcome = 1 - outcome", "UPDATE questions SET doc_hash = 'cc'"],
)
def test_damaged_outcomes_are_not_merged(shard, path, damage):
    part = shard("a.sqlite", [1, 0])
    with closing(sqlite3.connect(part)) as connection:
        connection.execute(damage)
        connection.commit()
    with refused(None, "damaged", None, error=StoreDamagedError):
        merge([part], path)
    assert not path.exists()


# -- verify, export, prune ---------------------------------------------------------------------


CHANGES = (
    *("outcome = 0", "answer = x'39'", "error = x'39'", "graded = graded + 1"),
    *("trial = 9", "hash = 'md5:00'", "question = 9"),
)
CHANGES_OF_A_QUESTION = (
    *("task = 'hmmt'", "version = '2'", "filter = 'strict'", "doc_id = 4", "categories = 4"),
    "doc_hash = 'cc'",
)


def test_every_change_by_hand_is_found(shard):
    path = shard("a.sqlite", [1, 0])
    assert verify(path).ok
    content = path.read_bytes()
    for statement in (
        *(f"UPDATE outcomes SET {change} WHERE trial = 0" for change in CHANGES),
        *(f"UPDATE questions SET {change}" for change in CHANGES_OF_A_QUESTION),
        "DELETE FROM questions",
    ):
        path.write_bytes(content)
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute(statement).rowcount > 0
            connection.commit()
        assert not verify(path).ok, statement


def test_outcomes_go_with_their_trials(store, key, describe, make_trial, path):
    other = describe(store, "two")
    for doc_id, graded_key in enumerate((key, other)):
        store.add([make_trial(graded_key, i) for i in range(4)])
        store.add_outcomes([graded(graded_key, [1, 0, 1, 0], doc_id)])
    dry = store.prune(trials_from=3)
    assert (dry.trials, dry.outcomes) == (2, 2)
    assert store.info().outcomes == 8
    done = store.prune(prompt=other.prompt, dry_run=False)
    assert (done.trials, done.outcomes, done.prompts) == (4, 4, 1)
    assert numbers(store.outcomes_of()) == [[1, 0, 1, 0]]
    assert store.info().tasks[0].questions == 1
    assert verify(path).ok
    store.prune(trials_from=0, dry_run=False)
    assert store.info().tasks == ()
    assert verify(path).ok


def test_outcomes_of_another_ranks_trials_keep_what_they_need(store, key, describe, path):
    # Only graded here: the trial lies in another rank's store.
    other = describe(store, "two")
    store.add_outcomes([graded(key, [1, 0]), graded(other, [1, 0], doc_id=1)])
    report = store.prune(prompt=key.prompt, dry_run=False)
    assert (report.trials, report.outcomes, report.prompts) == (0, 2, 1)
    assert store.prompt(other.prompt) == "two"
    assert verify(path).ok
    assert verify(path).records["outcomes"] == 2
