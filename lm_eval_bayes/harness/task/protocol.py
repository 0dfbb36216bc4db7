"""How the questions of a task are asked: prompt, chat template, reasoning settings.

The prompts are those of [Hariri 2026, F.2] and of MathArena's competition files
(github.com/eth-sri/matharena at e9276603, `configs/competitions`, joined as in `runner.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lm_eval.utils import hash_string

from lm_eval_bayes.errors import InvalidInputError, TaskConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.evaluation import current_evaluation
from lm_eval_bayes.harness.task.result_rows import warn_once
from lm_eval_bayes.harness.task.settings import Settings
from lm_eval_bayes.runs.log_fields import protocol_label
from lm_eval_bayes.runs.model_arguments import redacted
from lm_eval_bayes.runs.provenance import generation

log = get_logger(__name__)

#: The prompts by protocol; MathArena's instruction is that of the contest.
_PROMPTS = {
    "hariri-2026": "{{ problem | trim }}\n\nPlease reason step by step, and put your final answer "
    "within \\boxed{}.",
    "hariri-2026-nemotron": "Solve the following math problem. Make sure to put the answer (and "
    "only the answer) inside \\boxed{}.\n\n{{ problem | trim }}",
    "matharena": "{instruction}\n\n{{ problem }}",
}

#: The sampling of [Hariri 2026, F.3]; MathArena has settings for each model.
_HARIRI_SAMPLING = {"temperature": 0.6, "top_p": 0.95, "max_gen_toks": 32768}

#: Generation settings that a server hands to its chat template.
_REASONING = ("reasoning_effort", "chat_template_kwargs")


def prompt_of(task: object, prompt: Any, metadata: Mapping[str, Any]) -> Any:
    """Return the prompt of a task under the protocol of its metadata, `bayes_protocol`.

    Parameters
    ----------
    task : object
        The name of the task.
    prompt : object
        Its `doc_to_text`. One that is none of a protocol, such as the user's own, stays.
    metadata : mapping
        Its metadata.

    Raises
    ------
    TaskConfigError
        If the contest has no instruction of MathArena.
    """
    protocol, instruction = map(metadata.get, ("bayes_protocol", "matharena_instruction"))
    if protocol is None or prompt not in _PROMPTS.values():
        return prompt
    if protocol == "matharena" and not isinstance(instruction, str):
        sentence = (
            f"task {task}: bayes_protocol matharena needs MathArena's instruction of the contest, "
            "`matharena_instruction` in the metadata"
        )
        raise TaskConfigError(sentence, "missing-key", "matharena_instruction", instruction)
    return _prompt(protocol, instruction)


def _prompt(protocol: str, instruction: object) -> str:
    return _PROMPTS[protocol].replace("{instruction}", str(instruction))


def chat_template_by(model: Any) -> str | None:
    """Return who puts a prompt into the chat template: "server", "tokenizer", None without one."""
    for kind in type(model).__mro__:  # the harness's chat endpoints, and subclasses of them
        if kind.__module__.startswith("lm_eval.models.") and "Chat" in kind.__name__:
            return "server"
    # not the attribute: a tokenizer that is a property may be loaded, or fail, when it is looked at
    template = getattr(vars(model).get("tokenizer"), "chat_template", None)
    # a server of completions that gets text takes it as it is
    return "tokenizer" if template and getattr(model, "tokenized_requests", True) else None


def with_chat_template(settings: Settings, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Decide whether prompts are put into the chat template of the model of the evaluation.

    Parameters
    ----------
    settings : Settings
        With `chat_template`; None follows the harness's flag.
    arguments : mapping
        Those of the harness's `build_all_requests`, with its flag.

    Returns
    -------
    dict
        The arguments with the decision.

    Raises
    ------
    InvalidInputError
        If the model cannot be asked as the setting says.
    """
    evaluation, mode = current_evaluation(), settings.chat_template
    if evaluation is None:
        return dict(arguments)
    model, applied = evaluation.model, bool(arguments.get("apply_chat_template"))
    by = chat_template_by(model)
    if mode == "always" and by is None:
        rule = "be auto or never for a model without a chat template"
        raise InvalidInputError.of("bayes_chat_template", "conflict", rule, mode)
    if mode == "never" and by == "server":
        rule = "be auto or always for a server that takes messages"
        raise InvalidInputError.of("bayes_chat_template", "conflict", rule, mode)
    if mode is None and by == "tokenizer" and not applied and not model.rank:
        warn_once(
            "the model's tokenizer has a chat template, and the prompts are sent without it: a "
            "chat model needs --apply_chat_template, with which [Hariri 2026, F.2] runs every model"
        )
    if mode is not None:
        applied = mode != "never" and (applied or by is not None)
    template = model.apply_chat_template if applied else None
    return {**arguments, "apply_chat_template": applied, "chat_template": template}


def protocol_of(task: Any, settings: Settings, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a task's questions are asked, for the results.

    Parameters
    ----------
    task : ConfigurableTask
        The task, with the generation settings of its requests.
    settings : Settings
        Its settings.
    arguments : mapping
        Those of :func:`with_chat_template`.

    Returns
    -------
    dict
        ``name``: "hariri-2026", "matharena" or "custom"; ``prompt``: the protocol whose prompt
        it is, else None; ``differs_in``: what is not the protocol's; ``chat_template``: whether
        it is applied, and by whom; ``chat_template_sha``, ``system_prompt``, ``reasoning``;
        ``harness_task``: the task of the harness that is sampled, if it is one.
    """
    config, evaluation = task.config, current_evaluation()
    metadata, kwargs = config.metadata or {}, dict(config.generation_kwargs or {})
    model: Any = None if evaluation is None else evaluation.model
    applied = bool(arguments.get("apply_chat_template"))
    by = chat_template_by(model) if applied and model is not None else None
    template = model.chat_template(True) if by == "tokenizer" else None
    thinking = getattr(model, "enable_thinking", None)
    reasoning = {
        **(getattr(model, "chat_template_args", None) or {}),
        **({} if thinking is None else {"enable_thinking": thinking}),
        **{key: kwargs.pop(key) for key in _REASONING if key in kwargs},
    }
    protocol, instruction = settings.protocol, metadata.get("matharena_instruction")
    prompt = protocol and _prompt(protocol, instruction)
    base = (protocol or "custom").removesuffix("-nemotron")
    sampling = generation(kwargs) if base == "hariri-2026" else _HARIRI_SAMPLING
    departures = {
        "prompt": bool(settings.prompts) or config.doc_to_text != prompt,
        "chat_template": not applied,
        "system_prompt": bool(arguments.get("system_instruction")),
        "num_fewshot": bool(config.num_fewshot),
        **{
            key: sampling.get(key) != _HARIRI_SAMPLING.get(key)
            for key in sorted({*sampling, *_HARIRI_SAMPLING})
        },
    }
    differing = [key for key, differs in departures.items() if differs and protocol]
    sampled = "sampled_from" in metadata
    recorded = {
        "name": "custom" if differing else base,
        "prompt": protocol,
        "differs_in": differing,
        "chat_template": by or applied,
        "chat_template_sha": hash_string(template) if template else None,
        "system_prompt": arguments.get("system_instruction"),
        "reasoning": redacted(reasoning),
        "harness_task": str(config.task).removesuffix("_bayes") if sampled else None,
    }
    if protocol is not None:
        log.info("task %s: protocol %s", config.task, protocol_label(recorded))
    return recorded
