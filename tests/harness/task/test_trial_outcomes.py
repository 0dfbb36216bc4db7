"""What the task class graded goes into the store that keeps the trials."""

from __future__ import annotations

import copy
import json
import logging
import pickle
from types import SimpleNamespace

import pytest
from _support import toy
from lm_eval.utils import hash_string

from lm_eval_bayes.harness.models.interface import Completion, signals_of, stored_trial
from lm_eval_bayes.harness.models.trials import TrialsLM
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask
from lm_eval_bayes.harness.task.requests import Responses, loggable, store_outcomes
from lm_eval_bayes.harness.task.result_rows import GradedResponses
from lm_eval_bayes.harness.task.settings import Settings
from lm_eval_bayes.store.errors import StoreFullError
from lm_eval_bayes.store.trial import Trial, TrialKey
from lm_eval_bayes.store.trial_store import TrialStore

KEY = TrialKey(model="m", prompt="p", sampling="s")


def coin_task(**changes):
    """The toy task, whose gold is what a coin writes when it writes no box."""
    steps = [{"function": "regex", "regex_pattern": r"(\d+)"}]
    pipelines = [
        {"name": "last", "filter": [{**steps[0], "group_select": -1}]},
        {"name": "first", "filter": [{**steps[0], "group_select": 0}]},
    ]
    return RepeatedSamplingTask(config=toy.toy_config(filter_list=pipelines, **changes))


@pytest.fixture
def coin(tmp_path):
    return TrialsLM(backend="biased_coin", store=str(tmp_path / "coin.sqlite"), p=0.5)


def run(coin, **options):
    task = coin_task(**options.pop("config", {}))
    return toy.evaluate(coin, task, log_samples=True, **options)["samples"]["toy"]


def test_the_store_has_what_the_samples_have(coin):
    samples = run(coin)
    tasks = coin.trial_store.outcomes_of("toy")
    assert [(t.version, t.filter, t.categories) for t in tasks] == [
        ("1.0", "last", 2),
        ("1.0", "first", 2),
    ]
    for task in tasks:
        logged = sorted(
            (s for s in samples if s["filter"] == task.filter), key=lambda s: s["doc_id"]
        )
        assert len(logged) == 3
        for sample, question in zip(logged, task.questions, strict=True):
            assert (question.doc_id, question.doc_hash) == (sample["doc_id"], sample["doc_hash"])
            assert [t.outcome for t in question.trials] == sample["outcomes"]
            assert [t.answer for t in question.trials] == sample["answers"]
            assert [t.trial for t in question.trials] == sample["signals"]["trial"] == [0, 1, 2, 3]
            text = coin.trial_store.prompt(question.trials[0].key.prompt)
            assert hash_string(text) == sample["prompt_hash"]


def test_a_resumed_run_stores_nothing_anew_and_an_extended_one_its_further_trials(coin):
    run(coin)
    before = coin.trial_store.outcomes_of()
    run(coin)
    assert coin.trial_store.outcomes_of() == before
    run(coin, config={"repeats": 6})
    after = coin.trial_store.outcomes_of()
    assert [len(q.trials) for q in after[0].questions] == [6, 6, 6]
    assert [q.trials[:4] for q in after[0].questions] == [q.trials for q in before[0].questions]


def test_chosen_questions_keep_their_numbers(coin):
    run(coin, samples={"toy": [2, 0]})
    (first, _) = coin.trial_store.outcomes_of()
    assert [question.doc_id for question in first.questions] == [0, 2]
    prompts = [coin.trial_store.prompt(q.trials[0].key.prompt) for q in first.questions]
    assert prompts == ["1 + 1 =", "3 + 3 ="]


def test_a_store_that_fails_does_not_end_the_run(coin, monkeypatch, caplog):
    def full(self, tasks):
        raise StoreFullError("no room")

    monkeypatch.setattr(TrialStore, "add_outcomes", full)
    with caplog.at_level(logging.WARNING):
        samples = run(coin)
    assert len(samples) == 6
    assert caplog.text.count("not stored (StoreFullError: no room)") == 1


def graded_by_hand(raw, grades, doc):
    responses = Responses(list(raw), SimpleNamespace(doc=doc, resps=raw, doc_id=0), "none")
    graded = GradedResponses.of(grades, Settings.from_metadata({}, len(raw)))
    task = SimpleNamespace(config=SimpleNamespace(task="t"), VERSION="1", question_number=int)
    store_outcomes(task, responses, graded)


def test_responses_without_a_stored_trial_are_left_out():
    added = []
    sink = SimpleNamespace(add_outcomes=added.append)
    raw = [Completion("a", {}, Trial(KEY, 3, "a"), sink), "b", Completion("c", {})]
    graded_by_hand(raw, [(1, "a", None), (0, None, "x"), (1, "c", None)], {"q": "é"})
    ((question,),) = [task.questions for task in added]
    assert [(t.trial, t.outcome) for t in question.trials] == [(3, 1)]
    text = json.dumps({"q": "é"}, indent=2, ensure_ascii=False)
    assert question.doc_hash == hash_string(text)


@pytest.mark.parametrize("doc", [{"q": "\ud800"}, {("a", "b"): "q"}])
def test_a_document_that_cannot_be_hashed_is_said(doc, caplog):
    added = []
    raw = [Completion("a", {}, Trial(KEY, 0, "a"), SimpleNamespace(add_outcomes=added.append))]
    with caplog.at_level(logging.WARNING):
        graded_by_hand(raw, [(1, "a", None)], doc)
    assert added == []
    assert "a question's outcomes cannot be stored" in caplog.text


def test_a_trial_goes_where_the_text_goes_and_its_sink_into_no_pickle():
    trial = Trial(KEY, 3, "raw", seed=7)
    completion = Completion("  a b\nc  ", {"prompt_bpt": 0.5}, trial, object())
    parts = [
        completion.strip(),
        completion[2:],
        completion.split("b")[0],
        completion.partition("b")[2],
        completion.splitlines()[0],
        completion + "!",
        copy.deepcopy([completion])[0],
    ]
    for part in parts:
        assert stored_trial(part) == (completion.sink, completion.trial)
        assert signals_of(part) == signals_of(completion)
    signals = signals_of(completion)
    assert (signals["trial"], signals["seed"], signals["prompt_bpt"]) == (3, 7, 0.5)
    back = pickle.loads(pickle.dumps(completion))
    assert (back, signals_of(back), stored_trial(back)) == (completion, signals, None)


def test_a_lone_surrogate_does_not_cost_the_trial():
    odd = Completion("a\ud800", {}, Trial(KEY, 3, "a\ud800"), object())
    assert loggable(odd) == "a?"
    assert stored_trial(loggable(odd)) == stored_trial(odd)
    assert loggable("a\ud800") == "a?"


def test_the_coin_tells_the_truth_about_all_questions_however_many_are_stored(tmp_path):
    store = str(tmp_path / "c.sqlite")
    first = TrialsLM(backend="biased_coin", store=store, beta="2:3")
    toy.evaluate(first, coin_task(), limit=1)
    assert first.get_model_info()["biased_coin"]["questions"] == {"toy": 1}
    truths = []
    for _ in range(2):  # some trials are stored, then all
        lm = TrialsLM(backend="biased_coin", store=store, beta="2:3")
        toy.evaluate(lm, coin_task())
        truths.append(lm.get_model_info()["biased_coin"])
    assert truths[0]["questions"] == {"toy": 3}
    assert truths[0] == truths[1]
