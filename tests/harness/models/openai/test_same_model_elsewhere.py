"""One model on other hosts: its stored trials are found; other models are kept apart."""

from __future__ import annotations

import pytest
from _support.errors import refused
from _support.openai_models import chat, completions, recorded, requests_of
from _support.scripted_server import serving, vllm_pages

from lm_eval_bayes._util.hashing import model_hash
from lm_eval_bayes.harness.models.openai.client import ServerError
from lm_eval_bayes.harness.models.trial_sink import source_of
from lm_eval_bayes.runs.model_arguments import keyed
from lm_eval_bayes.store.trial_store import TrialStore

pytestmark = pytest.mark.filterwarnings("default")

VLLM = {"id": "m", "root": "org/m", "owned_by": "vllm", "max_model_len": 4096}
FILE = {"id": "m.gguf", "owned_by": "llamacpp"}


def fingerprint(host, served, **more):
    own = {"backend": "local-completions", "pretrained": "m", "chat": False}
    return {**own, "endpoint": f"{host}/v1/completions", "served": served, **more}


def keys(*fingerprints):
    return {model_hash(keyed(one)[0]) for one in fingerprints}


def test_the_host_is_recorded_and_not_keyed():
    a, b = fingerprint("a:8000", VLLM), fingerprint("b:8000", VLLM)
    assert len(keys(a, b)) == 1
    assert source_of(a) == {"endpoint": "a:8000/v1/completions"}
    assert len(keys(a, fingerprint("a:8000", {**VLLM, "root": "org/other"}))) == 2


def test_what_tells_models_apart_is_keyed():
    # servers that report nothing, by their address; a name that the user gave, always
    assert len(keys(fingerprint("a:8000", None), fingerprint("b:8000", None))) == 2
    named = [{**fingerprint("a:8000", VLLM), "endpoint": name} for name in ("fp8", "bf16")]
    assert len(keys(*named)) == 2
    # files of one name and other sizes
    sizes = [fingerprint("a:1", {**FILE, "meta": {"n_params": n}}) for n in (7, 8)]
    assert len(keys(*sizes)) == 2


def test_a_run_goes_on_with_another_server(tmp_path):
    store = tmp_path / "trials.sqlite"
    with serving(pages=vllm_pages()) as first:
        texts, info = recorded(first, store)
        assert (info["generated"], info["seeded"]) == (12, True)
    with serving(pages=vllm_pages()) as second:
        again, info = recorded(second, store)
        assert again == texts
        assert info["from_store"] == 12
        assert second.requests == []
    with TrialStore.open(store, mode="read") as stored:
        (model,) = stored.models(sources=False).values()
        assert "endpoint" not in model
        (described,) = stored.models().values()
    assert described["endpoint"] == f"127.0.0.1:{first.server_address[1]}/v1/completions"


def test_a_server_that_is_down_finds_the_trials_of_its_model(tmp_path):
    with serving(pages=vllm_pages()) as server:
        up, of_chat = completions(server).fingerprint(), chat(server).fingerprint()
    with TrialStore.open(tmp_path / "s.sqlite") as store:
        for described in (of_chat, up):
            store.describe_model(keyed(described)[0], source_of(described))
        stored = list(store.models().values())
    down = completions(server)
    assert keyed(down.fingerprint_among(stored))[0] == keyed(up)[0]
    assert down.fingerprint_among([of_chat]) is None


def test_a_server_that_comes_up_with_another_model_than_the_stored_one_is_refused():
    with serving(pages=vllm_pages()) as server:
        stored = completions(server).fingerprint()
    with serving(pages=vllm_pages(root="org/another")) as server:
        model = completions(server)
        model._expected = stored["served"]  # as after a start while it was down
        with refused(None, "failed", None, error=ServerError):
            model.prepare(requests_of(2, 2))
        assert server.requests == []
