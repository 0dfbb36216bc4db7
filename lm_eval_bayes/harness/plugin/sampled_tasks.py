"""`NAME_bayes` for every task, group and tag that the harness knows: the same, sampled N times.

The harness looks a name up in the index of its :class:`TaskManager`. Where NAME_bayes is unknown
and NAME is known, an entry for it is added: the configuration of NAME with the class
:class:`RepeatedSamplingTask`. Prompt, few-shot examples, stop strings, filters and grader stay.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.files import task_configs_dir
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
    """Let the harness find our tasks, `NAME_bayes` and a task of its own under `include:`."""
    patches.install(patches.TASK_INDEX, _building_ours)
    patches.install(patches.TASK_NAMES, _matching_sampled)
    patches.install(patches.TASK_INCLUDE, _including_by_name)


class SampledIndex(dict[str, Any]):
    """The harness's index of tasks, in which `NAME_bayes` is found where NAME is."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or add_sampled(name, self)

    def __missing__(self, name: str) -> Any:
        if add_sampled(name, self):
            return self[name]
        raise KeyError(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the entry of a name, or `default`."""
        return self[name] if name in self else default  # noqa: SIM401  it is `get`


def _building_ours(build: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(build)

    @functools.wraps(build)
    def build_with_ours(*args: Any, **kwargs: Any) -> Any:
        import lm_eval.tasks

        bound = signature.bind(*args, **kwargs)
        built_in = Path(str(lm_eval.tasks.__file__)).parent
        bound.arguments["paths"] = with_our_tasks(
            bound.arguments["paths"], built_in, task_configs_dir()
        )
        return SampledIndex(build(*bound.args, **bound.kwargs))

    return build_with_ours


def with_our_tasks(paths: Iterable[Any], built_in: Path, folder: Path) -> list[Any]:
    """Insert `folder` after `built_in`, if `paths` has the second but not the first.

    Parameters
    ----------
    paths : iterable of path-like
        The folders that the harness is about to read; later ones override earlier ones.
    built_in, folder : pathlib.Path
        The harness's own task folder, and this package's.

    Examples
    --------
    >>> [str(p) for p in with_our_tasks([Path("/h/tasks"), "/user"], Path("/h/tasks"), Path("/o"))]
    ['/h/tasks', '/o', '/user']
    >>> with_our_tasks(["/user"], Path("/h/tasks"), Path("/o"))
    ['/user']
    """
    result = list(paths)
    resolved = [Path(p).expanduser().resolve() for p in result]
    if built_in.resolve() in resolved and folder.resolve() not in resolved:
        result.insert(resolved.index(built_in.resolve()) + 1, folder)
    return result


def _matching_sampled(original: Callable[..., list[str]]) -> Callable[..., list[str]]:
    @functools.wraps(original)
    def match_tasks(self: Any, task_list: list[str]) -> list[str]:
        matches = original(self, task_list)
        for name in task_list:
            if name.endswith(SUFFIX) and re.search(r"[*?[]", name):
                sampled = _sampled_of_pattern(name, self.all_tasks, self.task_index)
            else:
                sampled = [name] if name in self.task_index else []
            matches += [task for task in sampled if task not in matches]
        return matches

    return match_tasks


def _sampled_of_pattern(pattern: str, names: Iterable[str], index: dict[str, Any]) -> list[str]:
    changes = _Changes()
    bases = [name for name in names if fnmatchcase(name, pattern.removesuffix(SUFFIX))]
    sampled = [_sampled_name(name, index, changes) for name in bases]
    changes.log(pattern)
    return [name for name in sampled if name is not None]


@dataclass
class _Changes:
    """The tasks that are greedy, and those that cannot be sampled: reason -> names."""

    greedy: list[str] = field(default_factory=list)
    left_out: dict[str, list[str]] = field(default_factory=dict)

    def leave_out(self, name: str, error: TaskConfigError) -> None:
        """Note a task that cannot be sampled, once; of a group, its tasks are noted."""
        if error.argument == "task":
            return
        names = self.left_out.setdefault(f"{error.argument} {error.value}", [])
        names += [] if name in names else [name]

    def log(self, name: str) -> None:
        """Name them in one line each."""
        if self.greedy:
            tasks = plural(len(self.greedy), "greedy task")
            message = "%s: temperature is %g and top_p %g for %s of %s; --gen_kwargs changes that"
            settings = (SAMPLING["temperature"], SAMPLING["top_p"])
            log.warning(message, name, *settings, tasks, name.removesuffix(SUFFIX))
        for reason, names in self.left_out.items():
            message = "%s: left out, because they cannot be sampled repeatedly (%s): %s"
            log.warning(message, name, reason, ", ".join(names))


def add_sampled(name: object, index: dict[str, Any]) -> bool:
    """Add an entry for `NAME_bayes` to an index that knows NAME.

    Parameters
    ----------
    name : object
        The name that was asked for; only text that ends in ``_bayes`` can be added.
    index : dict of str to Entry
        The harness's index. Members of a group or tag are added as well; those that cannot be
        sampled are left out, with a warning.

    Returns
    -------
    bool
        Whether the index has the name now.

    Raises
    ------
    TaskConfigError
        If NAME, or every task in it, cannot be sampled repeatedly.
    """
    changes = _Changes()
    added = isinstance(name, str) and name.endswith(SUFFIX) and _add(name, index, changes)
    changes.log(str(name))
    return added


def _add(name: str, index: dict[str, Any], changes: _Changes) -> bool:
    """Add an entry unless there is one."""
    if dict.__contains__(index, name):
        return True
    base = dict.get(index, name.removesuffix(SUFFIX))
    if base is None:
        return False
    from lm_eval.tasks._index import Entry, Kind

    if base.kind is Kind.TAG:
        names = [_sampled_name(task, index, changes) for task in sorted(base.tags)]
        members = _some(names, base.name, changes)
        index[name] = Entry(name=name, kind=Kind.TAG, yaml_path=None, tags=set(members))
    elif base.kind is Kind.GROUP:
        config = _group_config(_full_config(base), str(base.name), index, changes)
        index[name] = Entry(name=name, kind=Kind.GROUP, yaml_path=None, cfg=config)
    else:
        _check(base.cfg or {}, name.removesuffix(SUFFIX))  # before its functions are imported
        own = _full_config(base)
        config = task_config(own, name.removesuffix(SUFFIX))
        if not _samples(own.get("generation_kwargs")):
            changes.greedy.append(str(base.name))
        index[name] = Entry(name=name, kind=Kind.PY_TASK, yaml_path=None, cfg=config)
    return True


def _sampled_name(name: str, index: dict[str, Any], changes: _Changes) -> str | None:
    """Return the name of the sampled task, which is the task itself if it samples already.

    None of one that cannot be sampled, or is unknown.
    """
    entry = dict.get(index, name)
    if entry is None:
        return None
    if _samples_itself(entry.cfg or {}):
        return name
    try:
        _add(name + SUFFIX, index, changes)
    except TaskConfigError as error:
        changes.leave_out(name, error)
        return None
    return name + SUFFIX


_SAMPLING_CLASSES = ("RepeatedSamplingTask", "RubricTask")


def _samples_itself(config: Mapping[str, Any]) -> bool:
    """Return whether a task has the class of this package, or one of its metrics."""
    from lm_eval_bayes.harness.plugin import metrics

    listed = config.get("metric_list") or ()
    names = [entry.get("metric") for entry in listed if isinstance(entry, Mapping)]
    of_class = str(config.get("class", "")).endswith(_SAMPLING_CLASSES)
    return of_class or any(name in metrics.OPTIONS for name in names)


def _some(members: Iterable[Any], group: str, changes: _Changes) -> list[Any]:
    """Return the members that can be sampled.

    Raises
    ------
    TaskConfigError
        If there is none.
    """
    sampled = [member for member in members if member is not None]
    if not sampled:
        reasons = "; ".join(
            f"{reason}: {', '.join(names)}" for reason, names in changes.left_out.items()
        )
        sentence = (
            f"{group}{SUFFIX}: no task of {group} can be sampled repeatedly, only generate_until "
            f"tasks that are YAML files ({reasons or 'it has none'})"
        )
        raise TaskConfigError(sentence, "unsupported", "task", group)
    return sampled


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

    _check(config, name)
    inherited = {key: value for key, value in config.items() if key not in _INHERITED_ONLY}
    repeats = config.get("repeats", 1)
    return {
        **inherited,
        "task": name + SUFFIX,
        "class": RepeatedSamplingTask,
        "output_type": "generate_until",
        "repeats": repeats if isinstance(repeats, int) and repeats > 1 else DEFAULT_TRIALS,
        "generation_kwargs": _sampled_generation(config.get("generation_kwargs")),
    }


def _check(config: Mapping[str, Any], name: str) -> None:
    """Raise an error for a task that cannot be sampled repeatedly."""
    output_type = config.get("output_type", "generate_until")
    if config.get("class") is not None:
        kind = str(getattr(config["class"], "__name__", config["class"])).rpartition(".")[2]
        if kind.endswith(_SAMPLING_CLASSES):
            sentence = (
                f"task {name}{SUFFIX}: {name} is sampled repeatedly already; bayes_n sets its N"
            )
            raise TaskConfigError(sentence, "duplicate", "task", name)
        sentence = (
            f"task {name}{SUFFIX}: {name} has a Python class of its own ({kind}), which this "
            "package cannot sample repeatedly; only tasks that are a YAML file can be"
        )
        raise TaskConfigError(sentence, "unsupported", "class", kind)
    if "include" in config:
        sentence = (
            f"task {name}{SUFFIX}: {name} stands in the YAML of a group, where the harness reads "
            "no `include:`"
        )
        raise TaskConfigError(sentence, "unsupported", "include", config["include"])
    if output_type != "generate_until":
        sentence = (
            f"task {name}{SUFFIX}: {name} has `output_type: {output_type}`, whose scores do not "
            "change from trial to trial; only generate_until tasks can be sampled repeatedly"
        )
        raise TaskConfigError(sentence, "unsupported", "output_type", output_type)


def _samples(generation: Mapping[str, Any] | None) -> bool:
    """Return whether generation settings are not greedy."""
    settings = generation or {}
    temperature = settings.get("temperature")
    return bool(settings.get("do_sample")) and (temperature is None or float(temperature) > 0)


def _sampled_generation(generation: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return generation settings that sample; those of a greedy task are changed."""
    settings = dict(generation or {})
    return settings if _samples(settings) else {**settings, **SAMPLING}


def _group_config(
    config: Mapping[str, Any], path: str, index: dict[str, Any], changes: _Changes
) -> dict[str, Any]:
    """Return the configuration of a group whose tasks are sampled repeatedly.

    The group shows the posterior of the mean over its tasks, with the weights of its own first
    metric. `path` names the group, with the groups around it.
    """
    from lm_eval_bayes.tasks import AVG_AT_N, BAYES_AT_N, HBAYES_AT_N

    given = config.get("task") or ()
    listed = config.get("aggregate_metric_list") or [{}]
    first = listed[0] if isinstance(listed, Sequence) else listed
    members = [_sampled_member(member, path, index, changes) for member in given]
    return {
        **{
            key: _sampled_generation(value) if key == "generation_kwargs" else value
            for key, value in config.items()
        },
        "group": str(config["group"]) + SUFFIX,
        "task": _some(members, path, changes),
        "aggregate_metric_list": [
            {"metric": row, "weight_by_size": first.get("weight_by_size", True)}
            for row in (HBAYES_AT_N, BAYES_AT_N, AVG_AT_N)
        ],
    }


def _sampled_member(member: Any, path: str, index: dict[str, Any], changes: _Changes) -> Any:
    """Return a member of a group, sampled: a name, or a name with what the group changes of it.

    None of one that cannot be sampled.
    """
    if isinstance(member, str):
        return _sampled_name(member, index, changes)
    key = "group" if "group" in member else "task"
    name = member.get(key)
    if name is None:
        return member  # which the harness refuses
    try:
        if name in index:
            sampled = _sampled_name(name, index, changes)
        elif key == "group":
            return _group_config(member, f"{path}::{name}", index, changes)
        else:  # a task inside the YAML of the group
            from lm_eval.tasks._index import Entry, Kind

            member = task_config(member, f"{path}::{name}")
            sampled = member["task"]
            index[sampled] = Entry(name=sampled, kind=Kind.PY_TASK, yaml_path=None, cfg=member)
    except TaskConfigError as error:
        changes.leave_out(f"{path}::{name}", error)
        return None
    overrides = dict(member)
    if "generation_kwargs" in overrides:
        overrides["generation_kwargs"] = _sampled_generation(overrides["generation_kwargs"])
    return None if sampled is None else {**overrides, key: sampled}


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
