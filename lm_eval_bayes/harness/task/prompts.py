"""Variants of a task's prompt, `bayes_prompts`: trial i of question α has variant (i + α) mod K.

Each variant of a question is a request of its own, so that the harness, the models and the store
see prompts as always. Once they are answered, a question is one request again, with its responses
in the order of the trials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from lm_eval_bayes._util.files import task_configs_dir
from lm_eval_bayes._util.plain import Record
from lm_eval_bayes._util.text import error_line, one_line
from lm_eval_bayes.errors import Rule, TaskConfigError
from lm_eval_bayes.harness.evaluation import RepeatedInstance, new_instance

if TYPE_CHECKING:
    from lm_eval_bayes.harness.task.settings import Settings

#: The name of the variants of the contests' prompt that come with this package, and their file.
CONTEST, _CONTEST_FILE = "contest", "contest_math/_contest_prompts_yaml"

#: What the label of a setting is, in words.
LABEL = "a text of one line with up to 60 characters"


@dataclass(frozen=True)
class Variant(Record):
    """A variant of a prompt; what is None is the task's own.

    Attributes
    ----------
    name : str
        The label of its trials' setting.
    system_instruction, doc_to_text : str or None
        The system prompt, and the template of the question, as in the harness.
    """

    name: str
    system_instruction: str | None = None
    doc_to_text: str | None = None


def is_label(value: object) -> bool:
    """Return whether a value can be the label of a setting: a line of up to 60 characters.

    Examples
    --------
    >>> is_label("day 1"), is_label(" "), is_label("a\\nb"), is_label(1)
    (True, False, False, False)
    """
    return isinstance(value, str) and value.strip() == one_line(value, 60) == value != ""


def variants_of(metadata: Mapping[str, Any], task: str) -> tuple[Variant, ...]:
    """Return the checked variants of a task's metadata, none where it has no `bayes_prompts`.

    The path of a template is relative to the folder of the task's YAML, or to the working folder.

    Raises
    ------
    TaskConfigError
        If one breaks its rule; the message names the task, the variant and the key.
    """
    given = metadata.get("bayes_prompts")
    if given is None:
        return ()
    if given == CONTEST:
        given = yaml.safe_load((task_configs_dir() / _CONTEST_FILE).read_text(encoding="utf-8"))
    if not isinstance(given, list) or not given:
        raise _error(task, "format", f"be {CONTEST}, or a list of variants", given)
    folder = Path(str(metadata.get("sampled_from") or metadata.get("config_source") or "")).parent
    variants = [_variant(entry, f"{task}, variant {i}", folder) for i, entry in enumerate(given)]
    names = [variant.name for variant in variants]
    texts = [(variant.system_instruction, variant.doc_to_text) for variant in variants]
    counts = [
        names.count(name) * texts.count(text) for name, text in zip(names, texts, strict=True)
    ]
    if max(counts) > 1:
        repeated = names[counts.index(max(counts))]
        raise _error(task, "duplicate", "have variants of different names and texts", repeated)
    return tuple(variants)


def _error(where: str, rule_id: Rule, rule: str, got: object) -> TaskConfigError:
    sentence = f"task {where}: `bayes_prompts` must {rule}; got {got!r:.80}"
    return TaskConfigError(sentence, rule_id, "bayes_prompts", got)


def _variant(entry: object, where: str, folder: Path) -> Variant:
    keys = ("name", "system_instruction", "doc_to_text", "file")
    unknown = [k for k in entry if k not in keys] if isinstance(entry, Mapping) else [entry]
    if unknown or not isinstance(entry, Mapping):
        raise _error(where, "unknown-key", f"have the keys {', '.join(keys)}", unknown[0])
    given = {key: entry[key] for key in keys if entry.get(key) is not None}
    name, path = given.pop("name", None), given.pop("file", None)
    if not is_label(name):
        raise _error(where, "format", f"have a `name` that is {LABEL}", name)
    where = f"{where} ({name})"
    if path is not None and "doc_to_text" in given:
        raise _error(where, "conflict", "have a `file` or a `doc_to_text`, not both", path)
    if path is not None:
        try:
            file = next(f for f in (folder / path, Path(path)) if f.is_file())
            given["doc_to_text"] = file.read_text(encoding="utf-8")
        except (StopIteration, TypeError, OSError, UnicodeDecodeError):
            raise _error(where, "path", "have a `file` with a template", path) from None
    if not given or not all(isinstance(text, str) and text.strip() for text in given.values()):
        raise _error(where, "format", f"have texts for {' or '.join(keys[1:])}", given)
    return Variant(str(name), **given)


# -- requests -------------------------------------------------------------------------------------


def build_variants(
    build: Callable[..., None],
    task: Any,
    settings: Settings,
    arguments: Mapping[str, Any],
    first: int,
) -> list[Any]:
    """Return the requests of a task, one for each question and variant of its prompt.

    Parameters
    ----------
    build : callable
        The harness's `build_all_requests`.
    task : ConfigurableTask
        The task.
    settings : Settings
        Its settings.
    arguments : mapping
        Those of `build_all_requests`.
    first : int
        The number of the first trial.

    Raises
    ------
    TaskConfigError
        If a variant cannot be rendered.
    """
    variants, requests = settings.prompts or (Variant(""),), []
    for number, variant in enumerate(variants):
        if variant.doc_to_text and task.config.use_prompt is not None:
            rule = "have no template where the task has a `use_prompt`"
            raise _error(
                f"{task.config.task} ({variant.name})", "conflict", rule, task.config.use_prompt
            )
        system = variant.system_instruction or arguments.get("system_instruction")
        try:
            with _with_text(task, variant.doc_to_text):
                build(**{**arguments, "system_instruction": system})
        except Exception as error:
            if not settings.prompts:
                raise
            rule = f"make prompts of all questions ({error_line(error)})"
            where = f"{task.config.task}, variant {number} ({variant.name})"
            raise _error(where, "failed", rule, variant.doc_to_text) from error
        setting = tuple(filter(None, (settings.setting, variant.name)))
        for old in task._instances:
            offset = (number - task.question_number(old.doc_id) - first) % len(variants)
            end = first + settings.trials_of(old.doc_id)
            if trials := range(first + offset, end, len(variants)):
                n = len(trials)
                labels = setting[-1:] * n
                kind = partial(RepeatedInstance, trials=trials, setting=setting, labels=labels)
                request = new_instance(old.doc, old.args, repeats=n, original=old, kind=kind)
                requests.append(request)
    return requests


@contextmanager
def _with_text(task: Any, doc_to_text: str | None) -> Iterator[None]:
    """Let a task ask with another template, and with the same examples as before."""
    own, sampler = task.config.doc_to_text, getattr(task, "sampler", None)
    configs = [c for c in (task.config, task.fewshot_cfg) if c.doc_to_text == own]
    state = sampler and sampler.rnd.getstate()
    for config in configs:
        config.doc_to_text = doc_to_text or own
    try:
        yield
    finally:
        for config in configs:
            config.doc_to_text = own
        if sampler:
            sampler.rnd.setstate(state)


def joined(requests: Sequence[Any], settings: Settings, first: int) -> list[Any]:
    """Return one request for each question, with its responses in the order of the trials."""
    by_question: dict[int, list[Any]] = {}
    for request in requests:
        by_question.setdefault(request.doc_id, []).append(request)
    for doc_id, variants in by_question.items():
        variants.sort(key=lambda variant: variant.trials.start)
        answered = {
            number: answer
            for variant in variants  # a rank may have answered its last request more often
            for number, *answer in zip(variant.trials, variant.resps, variant.labels, strict=False)
        }
        in_turn = [answered[n] for n in range(first, first + settings.trials_of(doc_id))]
        variants[0].resps, variants[0].labels = map(list, zip(*in_turn, strict=True))
    return [variants[0] for variants in by_question.values()]
