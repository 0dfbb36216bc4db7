"""The fingerprint of a server, secrets, and a store around the backend."""

from __future__ import annotations

import json
import logging

import pytest
from _support.errors import refused
from _support.openai_models import (
    completions,
    requests_of,
    tokenized,
)
from _support.scripted_server import error, serving, vllm_pages

from lm_eval_bayes.harness.models.openai.client import (
    TrialsFailedError,
)

pytestmark = pytest.mark.filterwarnings("default:.*:DeprecationWarning")


def test_the_fingerprint_holds_no_secret_and_nothing_of_speed():
    with serving(pages=vllm_pages()) as server:
        prints = []
        for concurrent, timeout in ((4, 300), (64, 9000)):
            model = completions(server, concurrent, timeout=timeout, auth_token="sk-other-secret")
            model.base_url += "?key=sk-third-secret"
            prints.append(model.fingerprint())
        versions = model.versions()
    assert prints[0] == prints[1]
    assert "secret" not in json.dumps(prints)
    assert prints[0] == {
        "backend": "local-completions",
        "pretrained": "hash",
        "endpoint": f"127.0.0.1:{server.server_address[1]}/v1/completions",
        "chat": False,
        "tokenized_requests": False,
        "served": {
            "id": "hash",
            "root": "org/hash",
            "max_model_len": 4096,
            "owned_by": "vllm",
        },
    }
    assert versions["server"] == "0.32.0"
    assert set(versions) == {"server", "lm_eval", "aiohttp"}


def test_the_tokenizer_is_part_of_it_where_it_is_used():
    with serving() as server:
        fingerprint = tokenized(server, revision="abc", endpoint="cluster").fingerprint()
        assert (fingerprint["tokenizer"], fingerprint["tokenizer_revision"]) == ("hash", "abc")
        assert fingerprint["tokenizer_backend"] == "huggingface"
        assert fingerprint["endpoint"] == "cluster"
        assert fingerprint["add_bos_token"] is False


def test_nothing_secret_is_logged(caplog):
    def script(number, body):
        return error(500, "the header Bearer sk-secret-of-the-tests broke me")

    with caplog.at_level(logging.DEBUG), serving(script) as server:
        sampling = completions(server, max_retries=2).sample(requests_of(1, 1))
        with refused(None, "failed", None, error=TrialsFailedError) as caught:
            list(sampling)
    ours = [r.getMessage() for r in caplog.records if r.name.startswith("lm_eval.bayes")]
    assert ours
    assert "sk-secret" not in " ".join(ours)
    assert "sk-secret" not in repr(caught.value.failed)
