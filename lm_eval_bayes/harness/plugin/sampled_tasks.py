"""`NAME_bayes` for every task, group and tag that the harness knows: the same, sampled N times.

The harness looks a name up in the index of its :class:`TaskManager`. Where NAME_bayes is unknown
and NAME is known, an entry for it is added: the configuration of NAME with the class
:class:`RepeatedSamplingTask`. Prompt, few-shot examples, stop strings, filters and grader stay.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.text import plural
from lm_eval_bayes.errors import InvalidInputError, TaskConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.plugin import patches

log = get_logger(__name__)

SUFFIX = "_bayes"

#: Trials per question of a task that has no `repeats` of its own.
DEFAULT_TRIALS = 16

#: How a task is sampled whose own settings are greedy [Hariri 2026, §4].
SAMPLING = {"do_sample": True, "temperature": 0.6, "top_p": 0.95}

_INHERITED_ONLY = ("tag", "group", "task_list")


def install() -> None:
    """Let the harness find `NAME_bayes` and a task of its own under `include:`."""
    for name, wrap in (
        (patches.TASK_NAMES, _matching_sampled),
        (patches.TASK_ENTRY, _entry_or_sampled),
        (patches.TASK_INCLUDE, _including_by_name),
    ):
        problem = patches.install(name, wrap)
        if problem is not None:
            log.debug("%s: names such as gsm8k_cot_bayes are not found", problem)


def _matching_sampled(original: Callable[..., list[str]]) -> Callable[..., list[str]]:
    @functools.wraps(original)
    def match_tasks(self: Any, task_list: list[str]) -> list[str]:
        index = self.task_index
        sampled = [name for name in task_list if name not in index and add_sampled(name, index)]
        matches = original(self, task_list)
        return [*matches, *(name for name in sampled if name not in matches)]

    return match_tasks


def _entry_or_sampled(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _entry(self: Any, name: str) -> Any:
        entry = original(self, name)
        if entry is None and add_sampled(name, self.task_index):
            entry = original(self, name)
        return entry

    return _entry


def add_sampled(name: object, index: MutableMapping[str, Any]) -> bool:
    """Add an entry for `NAME_bayes` to an index that knows NAME.

    Parameters
    ----------
    name : object
        The name that was asked for; only text that ends in ``_bayes`` can be added.
    index : mutable mapping of str to Entry
        The harness's index. Members of a group or tag are added as well.

    Returns
    -------
    bool
        Whether the index has the name now.

    Raises
    ------
    TaskConfigError
        If NAME, or a task in it, cannot be sampled repeatedly.
    """
    greedy: list[str] = []
    added = isinstance(name, str) and name.endswith(SUFFIX) and _add(name, index, greedy)
    if greedy:
        base = str(name).removesuffix(SUFFIX)
        which = f"{base} is" if greedy == [base] else f"{plural(len(greedy), 'task')} of {base} are"
        log.warning(
            "%s: %s greedy, so temperature is %g and top_p %g; --gen_kwargs changes that",
            *(name, which, SAMPLING["temperature"], SAMPLING["top_p"]),
        )
    return added


def _add(name: str, index: MutableMapping[str, Any], greedy: list[str]) -> bool:
    """Add an entry unless there is one, and list its tasks that are greedy."""
    if name in index:
        return True
    base = index.get(name.removesuffix(SUFFIX))
    if base is None:
        return False
    from lm_eval.tasks._index import Entry, Kind

    if base.kind is Kind.TAG:
        members = {
            _sampled_name(task, index, greedy) for task in sorted(base.tags) if task in index
        }
        index[name] = Entry(name=name, kind=Kind.TAG, yaml_path=None, tags=members)
    elif base.kind is Kind.GROUP:
        config = group_config(_full_config(base), index, greedy)
        index[name] = Entry(name=name, kind=Kind.GROUP, yaml_path=None, cfg=config)
    else:
        own = _full_config(base)
        config = task_config(own, name.removesuffix(SUFFIX))
        if not _samples(own.get("generation_kwargs")):
            greedy.append(str(base.name))
        index[name] = Entry(name=name, kind=Kind.PY_TASK, yaml_path=None, cfg=config)
    return True


def _sampled_name(name: str, index: MutableMapping[str, Any], greedy: list[str]) -> str:
    """Return the name of the sampled task, which is the task itself if it samples already."""
    if _is_sampled(index[name]):
        return name
    _add(name + SUFFIX, index, greedy)
    return name + SUFFIX


def _is_sampled(entry: Any) -> bool:
    text = str((entry.cfg or {}).get("class", ""))
    return text.endswith(("RepeatedSamplingTask", "RubricTask"))


def _full_config(entry: Any) -> dict[str, Any]:
    from lm_eval.tasks._yaml_loader import load_yaml

    if entry.yaml_path is not None:
        config = deepcopy(load_yaml(entry.yaml_path, resolve_func=True))
        metadata = config.get("metadata")
        config["metadata"] = dict(metadata) if isinstance(metadata, Mapping) else {}
        config["metadata"]["sampled_from"] = str(entry.yaml_path)
        return config
    return deepcopy(entry.cfg or {})


def task_config(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the configuration of a task that samples another one repeatedly.

    Parameters
    ----------
    config : mapping
        The task's configuration, with its includes.
    name : str
        The task's name.

    Returns
    -------
    dict
        The configuration of ``NAME_bayes``.

    Raises
    ------
    TaskConfigError
        If the task is of another kind than `generate_until`, or has a Python class of its own.
    """
    from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask

    output_type = config.get("output_type", "generate_until")
    if config.get("class") is not None:
        if getattr(config["class"], "__module__", "").startswith("lm_eval_bayes."):
            sentence = (
                f"task {name}{SUFFIX}: {name} is sampled repeatedly already; bayes_n sets its N"
            )
            raise TaskConfigError(sentence, "duplicate", "task", name)
        kind = getattr(config["class"], "__name__", config["class"])
        sentence = (
            f"task {name}{SUFFIX}: {name} has a Python class of its own ({kind}), which this "
            "package cannot sample repeatedly; only tasks that are a YAML file can be"
        )
        raise TaskConfigError(sentence, "unsupported", "class", kind)
    if output_type != "generate_until":
        sentence = (
            f"task {name}{SUFFIX}: {name} has `output_type: {output_type}`, whose scores do not "
            "change from trial to trial; only generate_until tasks can be sampled repeatedly"
        )
        raise TaskConfigError(sentence, "unsupported", "output_type", output_type)
    inherited = {key: value for key, value in config.items() if key not in _INHERITED_ONLY}
    repeats = config.get("repeats", 1)
    return {
        **inherited,
        "task": name + SUFFIX,
        "class": RepeatedSamplingTask,
        "output_type": output_type,
        "repeats": repeats if isinstance(repeats, int) and repeats > 1 else DEFAULT_TRIALS,
        "generation_kwargs": _sampled_generation(config.get("generation_kwargs")),
    }


def _samples(generation: Mapping[str, Any] | None) -> bool:
    """Return whether generation settings are not greedy."""
    settings = generation or {}
    temperature = settings.get("temperature")
    return bool(settings.get("do_sample")) and (temperature is None or float(temperature) > 0)


def _sampled_generation(generation: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return generation settings that sample; those of a greedy task are changed."""
    settings = dict(generation or {})
    return settings if _samples(settings) else {**settings, **SAMPLING}


def group_config(
    config: Mapping[str, Any], index: MutableMapping[str, Any], greedy: list[str]
) -> dict[str, Any]:
    """Return the configuration of a group whose tasks are sampled repeatedly.

    The group shows the posterior of the mean over its tasks, with the weights of its own first
    metric. Its tasks that are greedy are added to `greedy`.
    """
    from lm_eval_bayes.tasks import AVG_AT_N, BAYES_AT_N, HBAYES_AT_N

    members = [
        _sampled_member(member, str(config["group"]), index, greedy)
        for member in config.get("task") or ()
    ]
    listed = config.get("aggregate_metric_list") or [{}]
    first = listed[0] if isinstance(listed, Sequence) else listed
    weight_by_size = first.get("weight_by_size", True)
    filters = sorted(_filters_of(members, index)) or ["none"]
    overrides = {
        key: _sampled_generation(value) if key == "generation_kwargs" else value
        for key, value in config.items()
    }
    return {
        **overrides,
        "group": str(config["group"]) + SUFFIX,
        "task": members,
        "aggregate_metric_list": [
            {"metric": row, "weight_by_size": weight_by_size, "filter_list": filters}
            for row in (HBAYES_AT_N, BAYES_AT_N, AVG_AT_N)
        ],
    }


def _sampled_member(
    member: Any, group: str, index: MutableMapping[str, Any], greedy: list[str]
) -> Any:
    if isinstance(member, str):
        return _sampled_name(member, index, greedy) if member in index else member
    if not isinstance(member, Mapping):
        return member
    if "group" in member and member["group"] not in index:
        return group_config(member, index, greedy)
    key = "group" if "group" in member else "task"
    if member.get(key) not in index:
        sentence = (
            f"group {group}{SUFFIX}: {group} has the {key} {member.get(key, 'without a name')} "
            "inside the YAML of a group; only tasks that are a YAML file can be sampled repeatedly"
        )
        raise TaskConfigError(sentence, "unsupported", key, member.get(key))
    overrides = dict(member)
    if "generation_kwargs" in overrides:
        overrides["generation_kwargs"] = _sampled_generation(overrides["generation_kwargs"])
    return {**overrides, key: _sampled_name(member[key], index, greedy)}


def _filters_of(members: Sequence[Any], index: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the filter pipelines of the tasks of a group."""
    seen: set[str] = set()
    waiting = list(members)
    while waiting:
        member = waiting.pop()
        if isinstance(member, Mapping):
            inner = member.get("task")
            waiting += inner if isinstance(inner, list) else []
            member = member.get("group" if "group" in member else "task")
        entry = index.get(member) if isinstance(member, str) else None
        if entry is None:
            continue
        waiting += sorted(entry.tags) if entry.kind.name == "TAG" else []
        config = entry.cfg or {}
        if isinstance(config.get("task"), list):
            waiting += config["task"]
            continue
        pipelines = config.get("filter_list") or [{"name": "none", "filter": []}]
        # those that vote are left out of the sampled tasks
        names = {p["name"] for p in pipelines if "majority_vote" not in str(p["filter"])}
        yield from names - seen
        seen |= names


# -- `include: NAME` ------------------------------------------------------------------------------


def _including_by_name(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_yaml(path: str | Path, **options: Any) -> Any:
        file = Path(path)
        if not file.suffix and not file.expanduser().exists():
            # a task of the including file's folder comes before the harness's own of that name
            read = options.get("_seen") or ()
            others = [f for f in sorted(file.parent.glob("*.yaml")) if f.resolve() not in read]
            named = _by_task(others).get(file.name) or _task_files().get(file.name)
            if named is not None:
                return original(named, **options)
        return original(path, **options)

    return load_yaml


@functools.cache
def _task_files() -> dict[str, Path]:
    """Return the YAML files of the harness and of this package by the names of their tasks."""
    import lm_eval.tasks

    from lm_eval_bayes._util.files import task_configs_dir

    harness = Path(str(lm_eval.tasks.__file__)).parent
    folders = (harness, task_configs_dir())
    return _by_task([file for folder in folders for file in sorted(folder.rglob("*.yaml"))])


def _by_task(yaml_files: Sequence[Path]) -> dict[str, Path]:
    """Return YAML files by the names of their tasks; the first of a name counts."""
    files: dict[str, Path] = {}
    task = re.compile(rb"^[\"']?task[\"']?:[ \t]*[\"']?([\w.+-]+)", re.MULTILINE)
    for file in yaml_files:
        match = task.search(file.read_bytes())
        if match is not None:
            files.setdefault(match[1].decode("ascii", "replace"), file)
    return files


# -- a YAML to edit -------------------------------------------------------------------------------


def wrapper_yaml(task: str) -> str:
    """Return the YAML of a task that samples another one repeatedly.

    Parameters
    ----------
    task : str
        The name of a task, or the path of its YAML.

    Raises
    ------
    InvalidInputError
        If there is no such task.
    TaskConfigError
        If it cannot be sampled repeatedly.
    """
    import yaml
    from lm_eval.tasks._yaml_loader import load_yaml

    is_path = task.endswith((".yaml", ".yml"))
    file = Path(task).expanduser() if is_path else _task_files().get(task)
    if file is None or not file.is_file():
        rule = "be one task (no group) that is a YAML of the harness, or its path"
        raise InvalidInputError.of("TASK", "path", rule, task)
    config = load_yaml(file, resolve_func=True)
    base = str(config.get("task", file.stem))
    if isinstance(config.get("task"), list):
        raise InvalidInputError.of("TASK", "unsupported", "be one task, not a group", task)
    sampled = task_config(config, base)
    fields = {
        "include": str(file.resolve()) if is_path else task,
        "task": base + SUFFIX,
        "repeats": sampled["repeats"],
        "generation_kwargs": sampled["generation_kwargs"],
    }
    lines = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True).splitlines()
    lines.insert(2, "class: !function lm_eval_bayes.tasks.RepeatedSamplingTask")
    return "\n".join([f"# {base}, sampled repeatedly: N is `repeats`.", *lines, ""])
