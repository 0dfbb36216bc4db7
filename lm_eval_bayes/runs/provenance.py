"""Where a run comes from: the settings that its results file has, and the name of its model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from lm_eval_bayes._util.text import one_line
from lm_eval_bayes._util.validation import as_real, check_pair
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.log_fields import lookup, mapping, mappings, number
from lm_eval_bayes.runs.model_arguments import Kind, identity, is_hashed, kind_of
from lm_eval_bayes.runs.task_run import Provenance
from lm_eval_bayes.runs.trials import PartialRun
from lm_eval_bayes.stats import check_weights

#: Names of settings that stand for another one.
_SAME = {
    **dict.fromkeys(("max_new_tokens", "max_tokens", "max_completion_tokens"), "max_gen_toks"),
    **dict.fromkeys(("stops", "stop"), "until"),
}

#: Values of settings that have no effect, so that it is the same to leave them out.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("top_p", "n", "repetition_penalty"), (1,)),
    **dict.fromkeys(("min_p", "presence_penalty", "frequency_penalty"), (0,)),
    "top_k": (0, -1),
    "until": ([],),
}


@dataclass(frozen=True, eq=False)
class LoggedTask:
    """A samples file with the results file beside it.

    Attributes
    ----------
    model : str
        The name of the model.
    task : str
        The name of the task.
    samples : Path
        The samples file.
    config : mapping
        The configuration of the task; empty where there is no results file.
    stamp : str
        The time in the names of the files.
    results : mapping
        The content of the results file; empty where there is none.
    backend : str
        The backend that generated the responses; "" where it is not recorded.
    model_args : mapping
        The arguments of the backend.
    names_model : bool
        Whether the lines name the model, as those that a store exported do.
    """

    model: str
    task: str
    samples: Path
    config: Mapping[str, Any]
    stamp: str = ""
    results: Mapping[str, Any] = field(default_factory=dict, repr=False)
    backend: str = ""
    model_args: Mapping[str, Any] = field(default_factory=dict)
    names_model: bool = False

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the task's configuration."""
        return mapping(self.config, "metadata")

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of repeated sampling; empty for a task without them."""
        return mapping(self.config, "metadata", "bayes")

    @property
    def weights(self) -> tuple[float, ...]:
        """The score of each graded category.

        Raises
        ------
        InvalidInputError
            If the task's configuration holds something else.
        """
        given = self.settings.get("weights") or (0.0, 1.0)
        try:
            return tuple(check_weights(given).tolist())
        except (InvalidInputError, TypeError):
            rule = f"tell the scores of the categories of task {self.task} in its results"
            raise InvalidInputError.of("RUN", "missing", rule, given) from None

    def bounds(self, metric: str) -> tuple[float, float] | None:
        """Return the lowest and the highest score of a metric; None where it gives categories.

        Raises
        ------
        InvalidInputError
            If the task's configuration holds something else.
        """
        given = lookup(self.metadata, "lm_eval_bayes", "bounds", metric)
        given = self._of_metric("bounds", metric) if given is None else given
        if given is None:
            return None
        rule = f"have two numbers, low < high, as bounds of the scores of task {self.task}"
        return check_pair("RUN", given, rule, lambda low, high: low < high)

    def threshold(self, metric: str) -> float | None:
        """Return the score from which on a trial passes; None without one."""
        return as_real(self._of_metric("threshold", metric))

    def _of_metric(self, setting: str, metric: str) -> Any:
        """Return a setting that may be a mapping from metrics but the first."""
        if not metric or metric in self.metrics[:1]:
            return self.settings.get(setting)
        given = self.metadata.get(f"bayes_{setting}")
        return given.get(metric) if isinstance(given, Mapping) else given

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of the task that have rows of repeated sampling, the first one first."""
        listed = self.settings.get("metrics") or [self.settings.get("metric")]
        if not isinstance(listed, list) or not any(listed):
            listed = [entry.get("metric") for entry in self.metric_list[:1]]
        return tuple(name for name in listed if isinstance(name, str))

    @property
    def metric_errors(self) -> Mapping[str, str]:
        """Why metrics have no numbers, by their names."""
        errors = mapping(self.metadata, "lm_eval_bayes", "errors")
        return {name: one_line(text) for name, text in errors.items()}

    @property
    def cluster_field(self) -> str | None:
        """The field of a document that names its cluster, by the metadata of the task."""
        field = self.metadata.get("cluster")
        return field if isinstance(field, str) and field else None

    @property
    def metric_list(self) -> list[Mapping[str, Any]]:
        """The metrics that the task lists."""
        return mappings(self.config.get("metric_list"))

    @property
    def version(self) -> str:
        """The version of the task, as text; "" where it is not recorded."""
        version = lookup(self.results, "versions", self.task)
        version = self.metadata.get("version") if version is None else version
        return "" if version is None else str(version)

    def n_questions(self, kind: str) -> int | None:
        """Return the number of questions, "original" of the task or "effective" of the run."""
        n = lookup(self.results, "n-samples", self.task, kind)
        return n if isinstance(n, int) else None


def provenance_of(task: LoggedTask, sent: Mapping[str, Any] | None) -> Provenance:
    """Return how the trials of a logged task were sampled.

    Parameters
    ----------
    task : LoggedTask
        The task.
    sent : mapping or None
        The generation settings that the samples log beside a prompt, which are those that the
        model got.
    """
    results, config = task.results, task.config
    versions = {name: results.get(f"{name}_version") for name in ("lm_eval", "transformers")}
    versions["task"] = task.version
    dataset, name = config.get("dataset_path"), config.get("dataset_name")
    return Provenance(
        backend=task.backend,
        model_args=task.model_args,
        generation_kwargs=dict(sent or mapping(config, "generation_kwargs")),
        metadata=task.metadata,
        date=number(results.get("date")),
        versions={k: v for k, v in versions.items() if isinstance(v, str) and v not in ("", "N/A")},
        seconds=number(results.get("total_evaluation_time_seconds")),
        dataset="/".join(text for text in (dataset, name) if isinstance(text, str) and text),
        revision=str(lookup(config, "dataset_kwargs", "revision") or ""),
        n_questions=task.n_questions("original"),
        config=config,
    )


def identifying_arguments(task: LoggedTask) -> dict[str, Any]:
    """Return what identifies the model besides its name and its generation settings."""
    given = {k: v for k, v in task.model_args.items() if kind_of(k) is not Kind.PLACE}
    arguments = {**({"backend": task.backend} if task.backend else {}), **identity(given)}
    # the harness records its flag, and a task of this package what it did
    recorded = {**task.results, **mapping(task.metadata, "lm_eval_bayes", "protocol")}
    shots = mapping(task.results, "n-shot").get(task.task, task.config.get("num_fewshot"))
    if shots:
        arguments["num_fewshot"] = shots
    of_examples = ("fewshot_as_multiturn",) if shots else ()
    for key in ("chat_template_sha", *of_examples):
        if recorded.get(key) not in (None, False):
            arguments[key.removesuffix("_sha")] = recorded[key]
    return arguments


def generation(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return generation settings under one name each, without those that have no effect.

    Examples
    --------
    >>> generation({"temperature": 0.6, "do_sample": True, "max_new_tokens": 9, "stops": []})
    {'temperature': 0.6, 'max_gen_toks': 9}
    >>> generation({"do_sample": False, "temperature": 0.0, "until": ["Q:"]})
    {'temperature': 0, 'until': ['Q:']}
    """
    settings: dict[str, Any] = {}
    for key, value in kwargs.items():
        name = _SAME.get(key, key)
        if name == "until" and isinstance(value, (str, list, tuple)):
            # the first of them that occurs ends a text
            value = [value] if isinstance(value, str) else sorted(map(str, value))
        if value is not None and name not in ("seed", "do_sample"):
            settings.setdefault(name, value)
    if kwargs.get("do_sample") is False or settings.get("temperature") == 0:
        settings["temperature"] = 0
    return {k: v for k, v in settings.items() if v not in _NEUTRAL.get(k, ())}


def greedy(kwargs: Mapping[str, Any]) -> bool:
    """Return whether generation settings are deterministic.

    The harness generates greedily by default.

    Examples
    --------
    >>> greedy({}), greedy({"do_sample": True, "temperature": 0.6}), greedy({"temperature": 0.0})
    (True, False, True)
    """
    return not kwargs.get("do_sample", bool(kwargs.get("temperature")))


def groups_of(results: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the tasks of every group, those of groups in groups too.

    Examples
    --------
    >>> groups_of({"group_subtasks": {"all": ["sums", "c"], "sums": ["a", "b"], "c": []}})
    {'all': ('a', 'b', 'c'), 'sums': ('a', 'b')}
    """
    groups = mapping(results, "group_subtasks").items()
    listed = {str(k): [*map(str, tasks)] for k, tasks in groups if tasks and type(tasks) is list}

    def tasks_of(name: str, visited: set[str]) -> Iterator[str]:
        if name not in visited and name not in listed:
            yield name
        parts = [] if name in visited else listed.get(name, [])
        visited.add(name)
        for part in parts:
            yield from tasks_of(part, visited)

    return {group: tuple(tasks_of(group, set())) for group in listed}


#: The settings in a name have at most this many characters.
_LONGEST = 60


def distinct_names(partials: Sequence[PartialRun]) -> tuple[list[str], list[str]]:
    """Give runs of one model name different names: by the settings that differ, else by a number.

    A model has the same name in all tasks where its settings are the same. Models that are named
    after files get the parts of their paths that differ.

    Parameters
    ----------
    partials : sequence of PartialRun
        One per run.

    Returns
    -------
    names : list of str
        One per run.
    warnings : list of str
        A sentence for every name with a number.
    """
    by_task: dict[tuple[str, str], list[PartialRun]] = {}
    for partial in partials:
        by_task.setdefault((partial.model, partial.task), []).append(partial)
    differing: dict[str, dict[str, None]] = {}
    for (model, _), group in by_task.items():
        keys = differing_keys([_settings(partial) for partial in group])
        differing.setdefault(model, {}).update(dict.fromkeys(keys))
    names, warnings = dict[tuple[str, str], None](), list[str]()
    for partial in partials:
        keys = list(differing[partial.model])
        base, number = _name(partial, keys, partials), 1
        name = base
        while (name, partial.task) in names:
            number += 1
            name = f"{base} ({number})"
        if number > 1:
            reason = f"it differs in {', '.join(keys)}" if keys else "it has a path of its own"
            warnings.append(f"{name} is the run in {partial.source}: {reason}")
        names[name, partial.task] = None
    return [name for name, _ in names], warnings


def _name(partial: PartialRun, keys: Sequence[str], partials: Sequence[PartialRun]) -> str:
    """Return the name of a run with the settings that differ from those of runs of its name."""
    model, settings = partial.model, _settings(partial)
    if "file" in keys and "file" in settings:
        files = [_settings(other).get("file", "") for other in partials if other.model == model]
        file = PurePath(str(settings.pop("file")))
        part = distinct_parts(map(str, files))[str(file)]
        model = part if model == file.name.partition(".")[0] else f"{model} ({part})"
    return with_settings(model, settings, keys)


def distinct_parts(paths: Iterable[str]) -> dict[str, str]:
    """Return of every path what is left without the folders and the name that all have in common.

    Examples
    --------
    >>> distinct_parts(["runs/a/trials.csv", "runs/b/trials.csv"])
    {'runs/a/trials.csv': 'a', 'runs/b/trials.csv': 'b'}
    """
    parts = {str(path): path.parts for path in map(PurePath, paths)}
    for at, rest in ((0, slice(1, None)), (-1, slice(None, -1))):
        while min(map(len, parts.values())) > 1 and len({p[at] for p in parts.values()}) == 1:
            parts = {path: names[rest] for path, names in parts.items()}
    return {path: "/".join(names) for path, names in parts.items()}


def _settings(partial: PartialRun) -> dict[str, Any]:
    return {**partial.arguments, **partial.settings}


def with_settings(model: str, settings: Mapping[str, Any], keys: Iterable[str]) -> str:
    """Return the name of a model with some of its settings, if they are not too long.

    Examples
    --------
    >>> with_settings("phi", {"temperature": 0.2, "top_p": 1}, ["temperature"])
    'phi (temperature=0.2)'
    """
    printed = [key for key in keys if key in settings and not is_hashed(settings[key])]
    text = ", ".join(f"{key}={_short(settings[key])}" for key in printed)
    return f"{model} ({text})" if text and len(text) <= _LONGEST else model


def _short(value: object) -> str:
    """Return a value as text, of a long path the end, of other long values the beginning."""
    text = str(value)
    if len(text) <= _LONGEST // 2:
        return text
    return "…" + text[-24:] if "/" in text else text[:8] + "…"


def differing_keys(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the settings that are not the same everywhere, in order.

    Examples
    --------
    >>> differing_keys([{"temperature": 0.6, "top_p": 1}, {"temperature": 0.2, "top_p": 1}])
    ['temperature']
    """
    names = dict.fromkeys(name for mapping in settings for name in mapping)
    first, missing = settings[0] if settings else {}, object()
    return [k for k in names if any(m.get(k, missing) != first.get(k, missing) for m in settings)]
