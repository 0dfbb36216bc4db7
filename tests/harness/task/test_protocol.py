"""How questions are asked: prompts of protocols, the chat template, and what the results say."""

from __future__ import annotations

import json
from types import SimpleNamespace

import datasets
import pytest
from _support.errors import refused
from _support.toy import QUESTIONS, ScriptedLM, evaluate, toy_config
from lm_eval.api.task import ConfigurableTask
from lm_eval.models.openai_completions import LocalChatCompletion
from lm_eval.utils import hash_string

from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask

pytestmark = pytest.mark.filterwarnings("default")

TEMPLATE = "<user>{{ content }}<assistant>"
SENTENCE = "Please reason step by step, and put your final answer within \\boxed{}."
HARIRI = "{{ problem | trim }}\n\n" + SENTENCE
NO_INSTRUCTION = {"bayes_protocol": "matharena", "matharena_instruction": None}
ASKED = {
    "hariri-2026": "1 + 1 =\n\n" + SENTENCE,
    "hariri-2026-nemotron": "Solve the following math problem. Make sure to put the answer (and "
    "only the answer) inside \\boxed{}.\n\n1 + 1 =",
    "matharena": "Put your final answer within \\boxed{}.\n\n1 + 1 =",
}


class Answers(dict):
    def __missing__(self, prompt):
        return ["2", "4", "6", "x"]


class TemplateLM(ScriptedLM):
    """A model with a tokenizer that may have a chat template."""

    tokenizer_name = "toy"

    def __init__(self, template=TEMPLATE):
        super().__init__(Answers())
        self.tokenizer = SimpleNamespace(chat_template=template)
        self.chat_template_args = {"reasoning_effort": "high", "api_key": "k-1"}
        self.enable_thinking = False

    def apply_chat_template(self, chat_history, add_generation_prompt=True):
        return "".join(f"<{m['role']}>{m['content']}" for m in chat_history) + "<assistant>"

    def chat_template(self, chat_template=False):
        return self.tokenizer.chat_template

    @property
    def asked(self):
        """The first question's prompt."""
        return self.requests[0].args[0]


def contest(metadata=None, **changes):
    """A task as a contest's YAML describes it."""
    problems = [{"problem": q["question"], "answer": q["answer"]} for q in QUESTIONS]
    generation = {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "max_gen_toks": 32768}
    config = {
        "custom_dataset": lambda **_: {"test": datasets.Dataset.from_list(problems)},
        "doc_to_text": HARIRI,
        "generation_kwargs": {**generation, "until": []},
        "metadata": {
            "bayes_protocol": "hariri-2026",
            "matharena_instruction": "Put your final answer within \\boxed{}.",
            **(metadata or {}),
        },
        **changes,
    }
    return RepeatedSamplingTask(config=toy_config(**config))


def protocol_of(results):
    return results["configs"]["toy"]["metadata"]["lm_eval_bayes"]["protocol"]


@pytest.mark.parametrize("protocol", ASKED)
def test_each_protocol_has_its_prompt_in_the_models_chat_template(protocol):
    model = TemplateLM()
    recorded = protocol_of(evaluate(model, contest({"bayes_protocol": protocol})))
    assert model.asked == f"<user>{ASKED[protocol]}<assistant>"
    assert recorded == {
        "name": protocol.removesuffix("-nemotron"),
        "prompt": protocol,
        "differs_in": [],
        "chat_template": "tokenizer",
        "chat_template_sha": hash_string(TEMPLATE),
        "system_prompt": None,
        "reasoning": {"reasoning_effort": "high", "enable_thinking": False},
        "harness_task": None,
    }
    json.dumps(recorded)


@pytest.mark.parametrize(
    ("mode", "template", "flag", "applied"),
    [
        ("auto", TEMPLATE, False, True),
        ("auto", None, False, False),
        ("auto", None, True, True),
        ("always", TEMPLATE, False, True),
        ("never", TEMPLATE, True, False),
        ("never", None, False, False),
    ],
)
def test_the_setting_decides_about_the_chat_template(mode, template, flag, applied, caplog):
    model = TemplateLM(template)
    task = contest({"bayes_chat_template": mode})
    recorded = protocol_of(evaluate(model, task, apply_chat_template=flag))
    assert model.asked.startswith("<user>") == applied
    assert bool(recorded["chat_template"]) == applied
    assert recorded["name"] == ("hariri-2026" if applied else "custom")
    assert recorded["differs_in"] == ([] if applied else ["chat_template"])
    assert "--apply_chat_template" not in caplog.text


def test_a_model_that_cannot_be_asked_so_is_refused_before_sampling(monkeypatch):
    model = TemplateLM(template=None)
    with refused("bayes_chat_template", "conflict", "always"):
        evaluate(model, contest({"bayes_chat_template": "always"}))
    assert not model.requests
    server = LocalChatCompletion(base_url="http://127.0.0.1:9/v1/chat/completions", model="m")
    with refused("bayes_chat_template", "conflict", "never"):
        evaluate(server, contest({"bayes_chat_template": "never"}))
    asked = []
    monkeypatch.setattr(
        LocalChatCompletion,
        "generate_until",
        lambda self, requests, **_: asked.extend(requests) or ["2"] * len(requests),
    )
    recorded = protocol_of(evaluate(server, contest(), gen_kwargs="reasoning_effort=high"))
    assert asked[0].args[1]["reasoning_effort"] == "high"
    assert recorded["reasoning"] == {"reasoning_effort": "high"}
    assert json.loads(asked[0].args[0].prompt) == [
        {"role": "user", "content": ASKED["hariri-2026"]}
    ]
    assert (recorded["name"], recorded["chat_template"]) == ("hariri-2026", "server")
    assert recorded["chat_template_sha"] is None


@pytest.mark.parametrize(
    ("changes", "options", "differs_in"),
    [
        ({}, {"gen_kwargs": "max_gen_toks=512,top_p=1.0"}, ["max_gen_toks", "top_p"]),
        ({}, {"gen_kwargs": "top_k=20"}, ["top_k"]),
        ({}, {"system_instruction": "Be brief."}, ["system_prompt"]),
        ({"doc_to_text": "{{problem}}"}, {}, ["prompt"]),
        ({"doc_to_text": "{{problem}}", "metadata": NO_INSTRUCTION}, {}, ["prompt"]),
        ({"metadata": {"bayes_protocol": "matharena"}}, {"gen_kwargs": "temperature=1.0"}, []),
    ],
)
def test_what_is_not_the_protocols_is_named(changes, options, differs_in):
    recorded = protocol_of(evaluate(TemplateLM(), contest(**changes), **options))
    assert recorded["differs_in"] == differs_in
    assert (recorded["name"] == "custom") == bool(differs_in)
    assert recorded["system_prompt"] == options.get("system_instruction")


def listing_bayes(config):
    """A task of the harness's own class that lists the metric."""
    entry = {"metric": "bayes", "aggregation": "bayes", "higher_is_better": True}
    return ConfigurableTask(config={**config, "metric_list": [*config["metric_list"], entry]})


@pytest.mark.parametrize("task_class", [RepeatedSamplingTask, listing_bayes])
def test_other_tasks_follow_the_flag_of_the_harness(task_class, caplog):
    for flag in (False, True):
        model = TemplateLM()
        task = task_class(config=toy_config(metadata={"sampled_from": "toy.yaml"}))
        caplog.clear()
        recorded = protocol_of(evaluate(model, task, apply_chat_template=flag))
        assert model.asked == ("<user>1 + 1 =<assistant>" if flag else "1 + 1 =")
        assert (recorded["name"], recorded["harness_task"]) == ("custom", "toy")
        assert recorded["chat_template"] == ("tokenizer" if flag else False)
        assert caplog.text.count("--apply_chat_template") == (not flag)


def test_matharena_needs_the_instruction_of_the_contest():
    with refused("matharena_instruction", "missing-key", error=TaskConfigError):
        contest(NO_INSTRUCTION)
    with refused("bayes_protocol", "choice", "paper"):
        contest({"bayes_protocol": "paper"})
    with refused("bayes_chat_template", "choice", True):
        contest({"bayes_chat_template": True})
