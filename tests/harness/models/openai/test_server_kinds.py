"""What vLLM, SGLang, llama.cpp and llama-cpp-python take, send and refuse, by their documents.

The answers of llama.cpp were recorded from its server, build 11549 (test_llama_server.py runs it).
"""

from __future__ import annotations

import logging

import pytest
from _support.errors import refused
from _support.openai_models import completions, edit_every, requests_of
from _support.scripted_server import Act, serving, vllm_pages

from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.harness.models.openai.client import (
    ServerError,
    read_prompt_bits,
    read_trial,
)

pytestmark = pytest.mark.filterwarnings("default:.*:DeprecationWarning")

GGUF = "/models/SmolLM2-135M-Instruct.Q4_1.gguf"
SIZES = {"n_vocab": 49152, "n_embd": 576, "n_params": 134515008, "size": 96576768}


def llamacpp_pages(n_ctx=1024, **sizes):
    """Return what llama.cpp's server says of itself."""
    meta = {"vocab_type": 2, "n_ctx": n_ctx, "n_ctx_train": 8192, "ftype": "Q4_1"}
    card = {"id": GGUF, "aliases": [GGUF], "tags": [], "object": "model", "created": 1795531704}
    card |= {"owned_by": "llamacpp", "meta": {**meta, **SIZES, **sizes}}
    return {"/v1/models": {"models": [], "object": "list", "data": [card]}}


def token(text, logprob):
    return {"id": 1, "token": text, "bytes": [1], "logprob": logprob, "top_logprobs": []}


@pytest.mark.parametrize(
    "page", [b"[" * 100_000, b'{"data": []}' + b" " * 64 * 2**20], ids=["nested", "large"]
)
def test_a_list_of_models_that_cannot_be_read_is_an_error(page):
    with serving(pages={"/v1/models": page}) as server, refused(None, "failed", error=ServerError):
        completions(server).fingerprint()


#: llama.cpp's answer to a request with `echo`, which it does not know: logprobs of "," alone.
ECHO_OF_LLAMACPP = {
    "choices": [{"text": ",", "logprobs": {"content": [token(",", -0.06621775776147842)]}}],
    "usage": {"completion_tokens": 1, "prompt_tokens": 4, "total_tokens": 5},
}


def test_llamacpp_sends_no_logprobs_of_the_prompt():
    assert read_prompt_bits(ECHO_OF_LLAMACPP, chat=False) is None
    one_token = {**ECHO_OF_LLAMACPP, "usage": {"completion_tokens": 1, "prompt_tokens": 1}}
    assert read_prompt_bits(one_token, chat=False) is None


def test_an_echo_of_one_and_of_several_tokens_is_read():
    def echo(values, prompt_tokens):
        choice = {"text": "x", "logprobs": {"token_logprobs": values, "tokens": ["t"]}}
        return {"choices": [choice], "usage": {"prompt_tokens": prompt_tokens}}

    ln2 = 0.6931471805599453
    assert read_prompt_bits(echo([None, -2 * ln2, -4 * ln2, -ln2], 3), False) == pytest.approx(3.0)
    assert read_prompt_bits(echo([-ln2, -2 * ln2, -9 * ln2], 2), False) == pytest.approx(1.5)
    assert read_prompt_bits(echo([None, -ln2], 1), False) is None  # it has no probability


def test_llamacpp_is_told_its_own_names_and_its_context_is_known(caplog):
    with caplog.at_level(logging.INFO), serving(pages=llamacpp_pages()) as server:
        model = completions(server)
        assert model.fingerprint()["served"] == {"id": GGUF, "owned_by": "llamacpp", "meta": SIZES}
        assert model.cannot_record == ("prompt_bpt",)
        assert model.checks_context
        trials = [t for _, t in model.sample(requests_of(2, 1), frozenset(["What is 0 + 2?"]))]
        assert len(trials) == len(server.requests) == 2  # no request measures a prompt
        with refused("max_gen_toks", "range", 2000, error=TaskConfigError):
            model.sample(requests_of(1, 1, max_gen_toks=2000))
    for body in server.requests:
        assert (body["repeat_penalty"], body["top_k"], body["min_p"]) == (1.0, -1, 0.0)
    with serving(pages=vllm_pages()) as server:
        list(completions(server).sample(requests_of(1, 1)))
    assert "repeat_penalty" not in server.requests[0]


def test_the_context_of_ray_serve_is_known():
    """Ray Serve LLM 2.60 reports a deployment with max_model_len=2048 so."""
    metadata = {"model_id": "smollm2", "max_request_context_length": 2048}
    card = {"id": "smollm2", "object": "model", "owned_by": "org", "metadata": metadata}
    pages = {"/v1/models": {"object": "list", "data": [card]}}
    with serving(pages=pages) as server, refused("max_gen_toks", "range", error=TaskConfigError):
        completions(server).sample(requests_of(1, 1, max_gen_toks=4000))


def test_llama_cpp_python_takes_0_for_all_tokens_and_has_no_logprobs(caplog):
    """It refuses top_k=-1, and answers logprobs with HTTP 500 unless started with logits_all."""

    def script(number, body):
        if body["top_k"] < 0:
            where = {"type": "greater_than_equal", "loc": ["body", "top_k"], "input": -1}
            problem = {**where, "msg": "Input should be greater than or equal to 0"}
            return Act(422, {"detail": [problem]})
        if body.get("logprobs") is not None:
            message = "logprobs is not supported for models created with logits_all=False"
            return Act(500, {"error": {"message": message, "type": "internal_server_error"}})
        return None

    with serving(script) as server:
        got = list(completions(server, concurrent=1).sample(requests_of(3, 2)))
    assert len(got) == 6
    assert len(server.requests) == 6 + 3  # top_k, logprobs=1, logprobs=0
    assert server.requests[-1]["top_k"] == 0
    assert "refuses `top_k`" not in caplog.text
    assert caplog.text.count("the server refuses `logprobs`") == 1


def test_the_missing_signals_are_said_once(caplog):
    def edit(answer):
        answer["choices"][0].pop("logprobs")
        answer["choices"][0].pop("finish_reason")
        answer.pop("usage")

    with serving(edit_every(edit)) as server:
        trials = [trial for _, trial in completions(server).sample(requests_of(3, 2))]
    assert [(t.finish_reason, t.completion_tokens) for t in trials] == [(None, None)] * 6
    (note,) = [r.getMessage() for r in caplog.records if "finish_reason" in r.getMessage()]
    assert all(name in note for name in ("prompt_tokens", "completion_tokens", "completion_bpt"))


def test_sglang_says_what_ended_an_answer():
    """SGLang sends `matched_stop`: a token's number, or the stop string; chats have reasoning."""
    (request,) = requests_of(1, 1)
    choice = {"index": 0, "text": " 2", "finish_reason": "stop", "matched_stop": "Question:"}
    choice["logprobs"] = {"tokens": [" 2"], "token_logprobs": [-0.5], "text_offset": [0]}
    usage = {"prompt_tokens": 5, "total_tokens": 7, "completion_tokens": 2}
    body = {"choices": [choice], "usage": usage}
    trial = read_trial(request, body, chat=False)
    assert (trial.finish_reason, trial.stop_reason) == ("stop", "Question:")
    assert (trial.prompt_tokens, trial.completion_tokens) == (5, 2)
    assert trial.signals["completion_bpt"] == pytest.approx(0.5 / 0.6931471805599453)
    message = {"role": "assistant", "content": "2", "reasoning_content": "1 + 1"}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "matched_stop": 151645}
    of_chat = read_trial(request, {**body, "choices": [choice]}, chat=True)
    assert (of_chat.text, of_chat.stop_reason) == ("2", 151645)
    assert of_chat.signals["reasoning_content"] == "1 + 1"


SGLANG_PAGES = {
    "/v1/models": {
        "object": "list",
        "data": [
            {"id": "smollm2", "object": "model", "created": 1795718305, "owned_by": "sglang"}
            | {"root": "smollm2", "parent": None, "max_model_len": 8192}
        ],
    },
    "/server_info": {"version": "0.5.23", "dtype": "bfloat16", "random_seed": 42},
}


@pytest.mark.parametrize(("temperature", "is_recorded"), [(1.0, True), (0.6, False)])
def test_log_probabilities_of_sglang_are_those_of_temperature_1(temperature, is_recorded, caplog):
    """SGLang 0.5.23 gave -0.017 at temperature 0.5 for a token of -0.443 at 1."""
    with serving(pages=SGLANG_PAGES) as server:
        model = completions(server)
        assert model.versions()["server"] == "0.5.23"
        trials = [t for _, t in model.sample(requests_of(1, 2, temperature=temperature))]
    assert [("completion_bpt" in trial.signals) for trial in trials] == [is_recorded] * 2
    assert [("logprobs" in body) for body in server.requests] == [is_recorded] * 2
    assert ("completion_bpt is not recorded" in caplog.text) is not is_recorded
