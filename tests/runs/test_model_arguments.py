"""The table of model arguments: what is recorded of them, what is printed, what names a model."""

from __future__ import annotations

import pytest

from lm_eval_bayes.runs.model_arguments import (
    NAMES,
    NOT_SHOWN,
    PUBLISHED,
    Kind,
    identity,
    kind_of,
    model_name,
    redacted,
    secret_texts,
    shown,
)
from lm_eval_bayes.runs.provenance import with_settings

ARGUMENTS = {
    "pretrained": "org/model",
    "dtype": "bfloat16",
    "chat_template_args": {"thinking": True, "api_key": "k-1"},
    "device": "cuda:0",
    "tensor_parallel_size": 2,
    "base_url": "https://me:pw-1@host:8000/v1?key=q-1#f-1",
    "api_key": "k-2",
    "my_access_token": "k-3",
    "depth": 12,
}
SECRETS = ("pw-1", "q-1", "f-1", "k-1", "k-2", "k-3")


def test_identity_is_what_changes_the_distribution():
    recorded = identity(ARGUMENTS)
    assert recorded.pop("depth") == {"hash": identity({"depth": 12.0})["depth"]["hash"]}
    assert recorded == {
        "pretrained": "org/model",
        "dtype": "bfloat16",
        "chat_template_args": {"thinking": True},
        "base_url": "https://host:8000/v1",
    }
    assert not any(secret in str(identity(ARGUMENTS)) for secret in SECRETS)


def test_what_is_printed_holds_neither_secrets_nor_unknown_values():
    printed = shown(ARGUMENTS)
    assert printed == {
        "pretrained": "org/model",
        "dtype": "bfloat16",
        "chat_template_args": {"thinking": True},
        "device": "cuda:0",
        "tensor_parallel_size": 2,
        "base_url": "https://host:8000/v1",
        "api_key": NOT_SHOWN,
        "my_access_token": NOT_SHOWN,
        "depth": NOT_SHOWN,
    }
    assert shown(printed) == printed


def test_a_value_that_was_cut_in_two_is_no_name_of_an_argument():
    # an older harness writes arguments as one text, whose commas may stand in a value
    assert shown({'"X-Key": "abc': "def", "dtype": "auto"}) == {"dtype": "auto"}


@pytest.mark.parametrize(
    ("address", "plain"),
    [
        ("http://me:p@w@host/v1", "http://host/v1"),
        ("http://host?key=a@b/c", "http://host"),
        ("http://host/v1#secret", "http://host/v1"),
        ("hf://datasets/org/name@main", "hf://datasets/org/name@main"),
        ("see http://me:pw@host/a and ftp://x:y@z", "see http://host/a and ftp://z"),
    ],
)
def test_addresses_lose_what_gives_access(address, plain):
    assert redacted(address) == plain


@pytest.mark.parametrize(
    "name",
    [
        *("api_key", "apikey", "openai-api-key", "X-Api-Key", "key", "private_key_file"),
        *("my_token", "session.token", "client_secret", "password", "db_passwd", "pwd"),
        *("Authorization", "proxy_auth", "bearer", "cookie", "headers", "aws_credentials"),
    ],
)
def test_names_of_secrets(name):
    assert kind_of(name, "text") is Kind.SECRET
    assert kind_of(name, {"a": "b"}) is Kind.SECRET


@pytest.mark.parametrize(
    "value",
    [
        *("hf_abcdefghijklmnopqrst", "sk-abcdefghijklmnopqrst", "ghp_abcdefghijklmnopqrst"),
        "Bearer abcdefghijkl==",
    ],
)
def test_values_that_look_like_keys_are_replaced_wherever_they_stand(value):
    assert redacted({"a": [f"x {value} y"]}) == {"a": [f"x {NOT_SHOWN} y"]}


def test_a_model_may_be_called_like_a_key():
    name = "acme/sk-large-instruct-model-v2"
    assert identity({"pretrained": name}) == {"pretrained": name}
    assert model_name({"pretrained": name}, "hf") == name


def test_what_is_published_is_known_and_no_place():
    assert {kind_of(name) for name in PUBLISHED} <= {Kind.IDENTITY, Kind.SPEED}
    assert not set(PUBLISHED) & set(NAMES)


@pytest.mark.parametrize(
    ("arguments", "backend", "name"),
    [
        ({"pretrained": "org/a", "model": "b"}, "hf", "org/a"),
        ({"model": "b", "api_key": "k"}, "openai-completions", "b"),
        ({"path": "/data/nemo/model.nemo"}, "nemo_lm", "model.nemo"),
        ({"pretrained": "https://me:pw@host/a?sig=x"}, "hf", "https://host/a"),
        ({"base_url": "http://me:pw@host:1/v1?key=k"}, "gguf", "gguf host:1"),
        ({"base_url": "me:pw@host:1"}, "gguf", "gguf host:1"),
        ({"base_url": "http://host:port"}, "gguf", "gguf"),
        ({"depth": 3, "login": "me"}, "gateway", "gateway"),
        ({}, "", "model"),
        ({"p": 0.5, "seed": 7, "api_key": "k"}, "biased_coin", "biased_coin p=0.5 seed=7"),
        # fingerprints in a store
        ({"backend": "gateway", "arguments": {"pretrained": "org/a"}}, "gateway", "org/a"),
        ({"engine": {"enable_lora": True}, "pretrained": "org/a"}, "vllm", "org/a"),
        ({"law": {"a": 2, "b": 3, "kind": "beta"}}, "biased_coin", "biased_coin beta=2:3"),
    ],
)
def test_a_model_s_name_comes_from_what_names_it(arguments, backend, name):
    assert model_name(arguments, backend) == name


def test_an_unknown_argument_is_not_in_a_name_that_settings_tell_apart():
    settings = {**identity({"depth": 3, "dtype": "auto"}), "temperature": 0.2}
    name = with_settings("m", settings, ["depth", "dtype", "temperature"])
    assert name == "m (dtype=auto, temperature=0.2)"
    assert with_settings("m", settings, ["depth"]) == "m"


def test_texts_that_a_server_may_quote():
    texts = secret_texts(
        "http://me:pass%21word@host/v1?key=query-value&n=1",
        {"Authorization": "Bearer header-value"},
        "key-value",
        None,
    )
    assert set(texts) == {"pass%21word", "pass!word", "query-value", "header-value", "key-value"}
