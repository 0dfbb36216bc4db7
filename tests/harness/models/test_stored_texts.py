"""Texts that stay in the store: same rows and samples, and memory that does not grow with them."""

import io
import json
import pickle
import weakref
from array import array
from types import SimpleNamespace

import pytest
from _support import toy
from _support.errors import refused
from _support.harness_command import gateway
from lm_eval.loggers import EvaluationTracker

from lm_eval_bayes.harness.models import stored_texts, trial_stream
from lm_eval_bayes.harness.models.interface import Completion
from lm_eval_bayes.harness.models.stored_texts import (
    QuestionTexts,
    StoredText,
    StoredTexts,
    completions,
    responses_in_turn,
)
from lm_eval_bayes.harness.models.trials import TrialsLM
from lm_eval_bayes.harness.rubrics.rubric_task import RubricTask
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask
from lm_eval_bayes.harness.task.requests import Responses
from lm_eval_bayes.store.errors import StoreError
from lm_eval_bayes.store.trial import Trial, TrialKey

KEY = TrialKey("m", "p", "s")

LAST = {"function": "regex", "regex_pattern": r"(\d+)", "group_select": -1}
PIPELINES = [
    {"name": "last", "filter": [LAST]},
    {"name": "upper", "filter": [{"function": "uppercase"}]},
]


class OwnTask(RepeatedSamplingTask):
    """A class of a user, who may read responses anywhere."""


def coin(folder, p=0.5):
    return TrialsLM(backend="biased_coin", store=str(folder / "coin.sqlite"), p=p)


def task(kind=RepeatedSamplingTask, pipelines=PIPELINES[:1], **changes):
    metadata = {"version": 1.0, "bayes_k": [1], "think_end_token": "answer"}
    return kind(config=toy.toy_config(filter_list=pipelines, **{"metadata": metadata, **changes}))


def both(folder, kind=RepeatedSamplingTask):
    """Return the results of texts that stay in the store, and of texts in memory."""
    model = coin(folder)
    toy.evaluate(model, task(kind, PIPELINES), log_samples=False)  # samples
    stored = toy.evaluate(model, task(kind, PIPELINES))  # reads
    assert model.get_model_info()["trials"]["from_store"] == 12
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RepeatedSamplingTask, "reads_stored_texts", False)
        return stored, toy.evaluate(model, task(kind, PIPELINES))


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    return both(tmp_path_factory.mktemp("coin"))


def written(folder, samples):
    """Return the lines of the file of samples that the harness writes."""
    tracker = EvaluationTracker(output_path=str(folder))
    tracker.general_config_tracker.model_name_sanitized = "coin"
    tracker.save_results_aggregated(results={}, samples=samples)
    tracker.save_results_samples(task_name="toy", samples=samples["toy"])
    (file,) = folder.rglob("samples_toy_*.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_empty_responses_of_a_store_are_counted(tmp_path, caplog):
    for _ in ("sampled", "read"):
        caplog.clear()
        with gateway(lambda prompt, trial: "" if trial % 4 == 1 else "2"):
            lm = TrialsLM(backend="gateway", pretrained="m", store=str(tmp_path / "g.sqlite"))
            toy.evaluate(lm, task())
        assert caplog.text.count("toy: 3 of 12 responses are empty") == 1


def compare(stored, expected):
    samples = stored["samples"]["toy"]
    assert isinstance(samples, stored_texts.StoredSamples)
    raw = list.__getitem__(samples, 0)
    assert all(isinstance(text, StoredText) for text in raw["resps"][0])
    assert [dict(s) for s in samples] == [dict(s) for s in expected["samples"]["toy"]]
    assert samples[2] == expected["samples"]["toy"][2]
    assert stored["results"] == expected["results"]
    texts = {s["filter"]: s["filtered_resps"][0] for s in samples}
    assert all(type(text) is str for of_filter in texts.values() for text in of_filter)
    assert len(texts) == len(PIPELINES)


def test_rows_and_samples_are_those_of_texts_in_memory(evaluated):
    compare(*evaluated)


@pytest.mark.slow
def test_rows_and_samples_of_rubrics_are_those_of_texts_in_memory(tmp_path):
    compare(*both(tmp_path, RubricTask))


def test_the_file_of_samples_has_the_texts(tmp_path, evaluated):
    stored, memory = (results["samples"] for results in evaluated)
    copied = {"toy": [dict(sample) for sample in memory["toy"]]}  # the harness changes them
    lines = written(tmp_path / "stored", stored)
    assert lines == written(tmp_path / "memory", copied)
    assert len(lines) == 3 * len(PIPELINES)


def _dumped(samples, **options):
    file = io.StringIO()
    json.dump(samples, file, **options)
    return file.getvalue()


def test_json_of_samples_has_the_texts(evaluated):
    stored, expected = (results["samples"] for results in evaluated)
    for write in (json.dumps, _dumped):
        for options in ({}, {"indent": 1}, {"sort_keys": True}, {"default": str}):
            assert write(stored, **options) == write(expected, **options)
            assert write(stored["toy"][1:3], **options) == write(expected["toy"][1:3], **options)
    assert "answer is" in json.loads(json.dumps(stored))["toy"][0]["resps"][0][0]


@pytest.mark.slow
@pytest.mark.parametrize("log_samples", [True, False])
def test_few_texts_are_in_memory_at_a_time(tmp_path, monkeypatch, log_samples):
    n = 200
    monkeypatch.setattr(trial_stream, "BATCH", 50)
    config = {"repeats": n, "metadata": {"version": 1.0, "bayes_k": [1]}}
    model = coin(tmp_path)
    toy.evaluate(model, task(**config), log_samples=False)
    alive, most = {}, []
    create = Completion.__new__

    def counted(cls, *arguments):
        response = create(cls, *arguments)
        key = id(response)
        alive[key] = weakref.ref(response, lambda _: alive.pop(key))
        most.append(len(alive))
        return response

    monkeypatch.setattr(Completion, "__new__", counted)
    results = toy.evaluate(model, task(**config), log_samples=log_samples)
    assert len(most) >= 2 * 3 * n  # looked through once, and read to be graded
    # those of a question, before and after its filter, and those that are kept to be written
    assert n <= max(most) <= 3 * n + 50
    assert len(alive) <= n
    assert ("samples" in results) == log_samples


def test_classes_of_users_and_tasks_of_the_harness_get_strings(tmp_path):
    for asked in (task(OwnTask), toy.plain_task(filter_list=None, repeats=1)):
        samples = toy.evaluate(coin(tmp_path), asked)["samples"]["toy"]
        assert type(samples) is list
        assert all(isinstance(text, Completion) for text in samples[0]["resps"][0])


def test_equal_answers_are_still_warned_of(tmp_path, caplog):
    model = coin(tmp_path, p=1.0)
    type(model).respond = lambda self, question, trial: "the answer is 2"
    toy.evaluate(model, task())
    assert "all 4 answers to every question are identical" in caplog.text


def test_a_lone_surrogate_does_not_lose_the_file_of_samples(tmp_path):
    model = coin(tmp_path)
    type(model).respond = lambda self, question, trial: f"{trial} \ud800 2"
    lines = written(tmp_path / "out", toy.evaluate(model, task())["samples"])
    assert lines[0]["resps"] == [[f"{trial} ? 2" for trial in range(4)]]
    assert len(lines) == 3


def test_a_trial_that_is_gone_is_an_error_that_names_it(tmp_path):
    model = coin(tmp_path)
    samples = toy.evaluate(model, task())["samples"]["toy"]
    response = list.__getitem__(samples, 0)["resps"][0][1]
    with model.trial_store.file.writing() as connection:
        connection.execute("DELETE FROM outcomes")
        connection.execute("DELETE FROM trials WHERE trial = 1")
    with refused("store", "damaged", error=StoreError):
        completions([response])


class Sink:
    """Trials whose texts a store would have."""

    def __init__(self, texts):
        self.name = "a store"
        self.trials = [Trial(KEY, number, text) for number, text in enumerate(texts)]

    def trials_of(self, wanted):
        return {key: {n: self.trials[n] for n in numbers} for key, numbers in wanted.items()}


def question_of(sink, finish):
    return QuestionTexts(sink, KEY, lambda trial: Completion(finish(trial.text), trial=trial), {})


def test_responses_are_read_as_they_were():
    texts = ["  it is 2 ", "it is 4", "", "IT IS 6"]
    responses = ["it is 2", "it is 4", "", "it is 6"]
    sink = Sink(texts)
    question = question_of(sink, lambda text: text.strip().lower())
    assert [question.add(sink.trials[number]) for number in (3, 1, 0)] == [
        responses[number] for number in (3, 1, 0)
    ]
    assert (question.numbers, question.n_empty, question.identical) == ({0, 1, 3}, 0, False)
    question.add(sink.trials[2])
    assert (question.numbers, question.n_empty) == ({0, 1, 2, 3}, 1)
    stored = StoredTexts(question, range(4))
    assert [str(text) for text in stored] == responses
    assert [str(text) for text in stored[1:3]] == responses[1:3]
    assert str(stored[-1]) == responses[-1]
    assert [str(text) for text in completions(list(stored))] == responses
    assert pickle.loads(pickle.dumps(stored)) == responses
    assert pickle.loads(pickle.dumps(stored[0])) == responses[0]


def test_further_requests_begin_anew_or_do_not_count():
    first, second = SimpleNamespace(), SimpleNamespace()
    by_id = {id(first): ["a", "b"], id(second): ["c"]}
    requests = [first, second, first, second]
    assert responses_in_turn(requests, by_id) == ["a", "c", "b", "c"]
    assert responses_in_turn(requests, by_id, further="") == ["a", "c", "b", ""]


def test_filtered_texts_are_logged_as_they_were():
    texts = [f"Let me see. {'so ' * 40}it is {n} " for n in range(4)]
    sink = Sink(texts)
    question = question_of(sink, str)
    stored = StoredTexts(question, range(4))
    instance = SimpleNamespace(resps=stored)
    filtered = [texts[0], texts[1][12:], texts[2].upper(), "3", None, ["a", "b"]]
    logged = Responses((), instance, "all")
    logged.set_filtered(filtered, texts)
    assert [type(value) is str for value in logged] == [False, False, True, True, False, False]
    sample = {"resps": [stored], "filtered_resps": [logged], "signals": None}
    sample["lengths"] = array("q", [1, 2])
    written = stored_texts.with_texts(sample)
    assert written.pop("signals")["trial"] == [0, 1, 2, 3]
    assert written == {"resps": [texts], "filtered_resps": [filtered], "lengths": [1, 2]}
