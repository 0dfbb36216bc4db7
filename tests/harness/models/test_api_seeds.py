"""Every trial of a question reaches an API server with a seed of its own."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest
from _support.errors import refused
from _support.toy import evaluate, toy_config
from lm_eval.models import api_models, openai_completions

from lm_eval_bayes.errors import ModelConfigError, TaskConfigError
from lm_eval_bayes.harness.evaluation import new_instance
from lm_eval_bayes.harness.models import api_seeds
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask

pytestmark = pytest.mark.filterwarnings("default")


class Server:
    """Stands in for `requests.post`: answers with the seed, and remembers each payload."""

    def __init__(self, failures=0):
        self.payloads = []
        self.failures = failures

    def __call__(self, url, *, json, **kwargs):
        self.payloads.append(json)
        if len(self.payloads) <= self.failures:
            raise ConnectionError("try again")
        return Reply(json)


class Reply:
    ok = True

    def __init__(self, payload):
        self.payload = payload

    def raise_for_status(self):
        pass

    def json(self):
        text = f"seed {self.payload['seed']}"
        return {"choices": [{"index": 0, "text": text, "message": {"content": text}}]}


def run(monkeypatch, server, chat=False, metadata=None, **model_args):
    monkeypatch.setattr(api_models.requests, "post", server)
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # the harness's pauses
    cls = openai_completions.LocalChatCompletion if chat else openai_completions.LocalCompletionsAPI
    model = cls(model="m", base_url="http://127.0.0.1:1/v1", tokenizer_backend=None, **model_args)
    return model, evaluate(
        model, RepeatedSamplingTask(config=toy_config(metadata=metadata)), apply_chat_template=chat
    )


def seeds_by_prompt(server):
    seeds = defaultdict(list)
    for payload in server.payloads:
        prompt = payload.get("prompt") or json.dumps(payload["messages"])
        seeds[prompt].append(payload["seed"])
    return seeds


@pytest.mark.parametrize("n", [1, 4])
def test_a_variant_with_one_trial_has_its_own_seed(monkeypatch, n):
    server = Server()
    variants = [{"name": f"{i}", "doc_to_text": "?" * i + "{{question}}"} for i in range(4)]
    metadata = {"bayes_n": n, "bayes_setting": "day1", "bayes_check": False}
    run(monkeypatch, server, metadata=metadata | ({"bayes_prompts": variants} if n > 1 else {}))
    seeds = [payload["seed"] for payload in server.payloads]
    assert len(set(seeds)) == len(seeds) == 3 * n
    assert 1234 not in seeds


@pytest.mark.parametrize("chat", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_trial_has_its_own_seed_and_a_run_can_be_repeated(monkeypatch, chat):
    first, again = Server(), Server()
    model, results = run(monkeypatch, first, chat=chat)
    run(monkeypatch, again, chat=chat)
    seeds = seeds_by_prompt(first)
    assert len(seeds) == 3
    assert all(len(set(s)) == 4 for s in seeds.values())
    assert len({x for s in seeds.values() for x in s}) == 12
    assert all(len(set(s["resps"][0])) == 4 for s in results["samples"]["toy"])
    assert seeds_by_prompt(again) == seeds
    assert not {"_create_payload", "generate_until"} & vars(model).keys()


def test_variants_and_settings_have_other_seeds(monkeypatch):
    server, prompts = (
        Server(),
        [{"name": name, "doc_to_text": "{{question}}" + name} for name in "ab"],
    )
    run(monkeypatch, server, metadata={"bayes_prompts": prompts, "bayes_setting": "day2"})
    for prompt, seeds in seeds_by_prompt(server).items():
        setting = ["day2", prompt[-1]]
        assert seeds == [api_seeds.trial_seed(1234, i, prompt, setting) for i in range(2)]


def test_a_request_that_is_sent_again_has_no_other_trials_seed(monkeypatch):
    server = Server(failures=1)
    run(monkeypatch, server)
    failed, *answered = server.payloads
    assert answered[0]["prompt"] == failed["prompt"]
    assert len({payload["seed"] for payload in answered}) == len(answered) == 12


def test_requests_of_other_tasks_keep_the_harness_seed(monkeypatch):
    server = Server()
    monkeypatch.setattr(api_models.requests, "post", server)
    model = openai_completions.LocalCompletionsAPI(
        model="m", base_url="http://127.0.0.1:1/v1", tokenizer_backend=None
    )
    request = new_instance({}, ("hello", {"until": []}), task="other", repeats=2)
    with api_seeds.seeded_trials(model):
        assert "generate_until" in vars(model)
        model.generate_until([request, request])
    assert [p["seed"] for p in server.payloads] == [1234, 1234]


def test_batches_are_refused(monkeypatch):
    with refused("batch_size", "conflict", 4, error=ModelConfigError):
        run(monkeypatch, Server(), batch_size=4)


def test_a_prompt_that_would_be_cut_is_refused(monkeypatch):
    server = Server()
    monkeypatch.setattr(api_models.requests, "post", server)
    model = openai_completions.LocalCompletionsAPI(
        model="m", base_url="http://127.0.0.1:1/v1", tokenizer_backend=None, max_length=12
    )
    model.tokenized_requests = True
    monkeypatch.setattr(model, "tok_encode", lambda texts, **_: [list(t.encode()) for t in texts])
    with refused("max_gen_toks", "range", 8, error=TaskConfigError):
        evaluate(model, RepeatedSamplingTask(config=toy_config()))
    assert not server.payloads
