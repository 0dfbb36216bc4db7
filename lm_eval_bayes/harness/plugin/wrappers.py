"""What this package wraps in the harness: the building of tasks, `evaluate`, the excepthook.

The harness calls a metric only after everything is sampled, and under some settings never. So a
task that lists `- metric: bayes` without our class is checked when it is built; tasks that do not
list it are not changed. `evaluate` makes its model known to the tasks. Errors of this package,
and a missing extra, are printed as one sentence instead of a traceback.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from traceback import walk_tb
from types import TracebackType
from typing import Any

from lm_eval_bayes import __version__
from lm_eval_bayes._util.addresses import plain_address
from lm_eval_bayes._util.packages import pip_install_extra
from lm_eval_bayes.errors import InvalidInputError, LmEvalBayesError, Rule, TaskConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.evaluation import error_of_run, evaluating
from lm_eval_bayes.harness.models.api_seeds import seeded_trials
from lm_eval_bayes.harness.models.stored_texts import read_later
from lm_eval_bayes.harness.plugin import patches, sample_loggers
from lm_eval_bayes.harness.plugin.installed import BACKENDS
from lm_eval_bayes.harness.plugin.interruption import stopped
from lm_eval_bayes.harness.task import answers, pipelines, questions
from lm_eval_bayes.harness.task.final_results import check_group, finish
from lm_eval_bayes.harness.task.requests import (
    build_requests,
    mark_pipelines,
    receive_responses,
)
from lm_eval_bayes.harness.task.result_rows import SHARES
from lm_eval_bayes.harness.task.settings import Settings
from lm_eval_bayes.runs.model_arguments import NOT_SHOWN, names_a_secret, redacted

log = get_logger(__name__)

#: Which extra brings a module that a backend of the harness imports.
EXTRAS = {name: backend.extra for backend in BACKENDS if backend.extra for name in backend.needs}
EXTRAS["peft"] = "hf"

#: The models of this package that take addresses or keys.
_RECORDING = re.compile("trials|vllm-signals|hf-signals")
_INITIALIZING = re.compile(rf"Initializing ({_RECORDING.pattern}) model")

# -- tasks --------------------------------------------------------------------------------------


def install() -> None:
    """Check every task that lists `bayes` as soon as the harness has built it.

    Any task of this package also has the harness's `evaluate` wrapped, for a process without
    start-up file.
    """
    install_excepthook()
    problem = patches.install(patches.TASK_INIT, _checked)
    if problem is not None:
        log.warning("%s: tasks that list `metric: bayes` cannot be evaluated", problem)


def _checked(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        repeated = _has_our_class(self)
        if repeated or _lists_bayes(self):
            install_evaluate()
            if not repeated:
                _prepare(self)
        else:
            _check_aggregations(self)

    return __init__


def _check_aggregations(task: Any) -> None:
    """Raise an error for `aggregation: bayes` under a metric that gives no rows to it."""
    for entry in task.config.metric_list or ():
        if isinstance(entry, Mapping) and entry.get("aggregation") == "bayes":
            sentence = (
                f"task {task.config.task}: `aggregation: bayes` must stand under `metric: bayes`; "
                f"got `metric: {entry.get('metric')}` (write `aggregation: mean` there, and behind "
                "it an entry `metric: bayes`, `aggregation: bayes`, which takes its grades)"
            )
            raise TaskConfigError(sentence, "conflict", "aggregation", entry.get("metric"))


def _has_our_class(task: Any) -> bool:
    from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask

    return isinstance(task, RepeatedSamplingTask)


def _lists_bayes(task: Any) -> bool:
    return "bayes" in getattr(task, "_metric_fn_list", ())


def _prepare(task: Any) -> None:
    from lm_eval.api.task import ConfigurableTask

    from lm_eval_bayes.harness.plugin.bayes_metric import (
        USE_THE_CLASS,
        aggregate_bayes,
        settings_of,
    )

    name, config = str(task.config.task), task.config

    def check(holds: bool, argument: str, rule: Rule, requirement: str) -> None:
        if not holds:
            sentence = f"task {name}: metric bayes must {requirement}"
            raise TaskConfigError(sentence, rule, argument)

    check(
        task.OUTPUT_TYPE == "generate_until",
        "output_type",
        "unsupported",
        f"have `output_type: generate_until`; got {task.OUTPUT_TYPE}",
    )
    own = type(task).process_results is not ConfigurableTask.process_results
    if own or callable(config.process_results):
        sentence = (
            f"task {name}: its `process_results` bypasses metric_list, so metric bayes would "
            f"never be computed; {USE_THE_CLASS}"
        )
        raise TaskConfigError(sentence, "conflict", "process_results")
    check(
        not task.multiple_target,
        "doc_to_target",
        "unsupported",
        f"have one gold answer a question, and this task's target is a list; {USE_THE_CLASS}",
    )
    check(
        task._aggregation_list["bayes"] is aggregate_bayes,
        "aggregation",
        "choice",
        "have `aggregation: bayes`",
    )
    options = task._metric_fn_kwargs["bayes"]
    settings = settings_of(options, config.repeats)
    config.filter_list = pipelines.keep_all_responses(config.filter_list, name)
    task._filters = pipelines.built(config.filter_list)
    doc = task.task_docs[0]
    for pipeline in task._filters if settings.check else ():
        out = pipelines.probe_output(pipeline, settings.n, doc, ["0"], name)
        pipelines.check_keeps_all(pipeline, out, settings.n, name)
    task._higher_is_better |= dict.fromkeys(SHARES, False)
    options["task_grading"] = _task_grading(task, settings)
    yaml_kwargs = dict(config.generation_kwargs or {})

    def repeated(build_all_requests: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(build_all_requests)
        def build(**kwargs: Any) -> None:
            build_requests(build_all_requests, task, settings, yaml_kwargs, kwargs)

        return build

    def received(apply_filters: Callable[[], None]) -> Callable[[], None]:
        @functools.wraps(apply_filters)
        def filters() -> None:
            receive_responses(task._instances, settings, name)
            apply_filters()
            mark_pipelines(task._instances)

        return filters

    for row, wrap in ((patches.TASK_REQUESTS, repeated), (patches.TASK_FILTERS, received)):
        problem = patches.install(row, wrap, owner=task)
        if problem is not None:
            raise TaskConfigError(f"task {name}: {problem}; {USE_THE_CLASS}", "failed")


def _task_grading(task: Any, settings: Settings) -> Any:
    """Return what the metric `bayes` has to know of a task.

    Another metric that the task lists grades each response. It is taken from the list, where it
    would get all responses as one.
    """
    from lm_eval.api.registry import get_metric

    from lm_eval_bayes.harness.plugin.bayes_metric import TaskGrading

    name, options = str(task.config.task), task._metric_fn_kwargs["bayes"]
    others = [metric for metric in task._metric_fn_list if metric != "bayes"]
    runs_code = bool(getattr(task, "UNSAFE_CODE", False))
    if runs_code and not others:
        sentence = (
            f"task {name}: metric bayes must stand beside the task's own metric in `metric_list`, "
            "which runs the programs"
        )
        raise TaskConfigError(sentence, "missing", "metric_list")
    if not others:
        metric, function = "exact_match", get_metric("exact_match")
        own = {key: value for key, value in options.items() if key in answers.EXACT_MATCH_OPTIONS}
        if "grader" not in options and not own:
            log.warning(
                "task %s: metric bayes grades by exact_match without options: name a grader, or "
                "keep the task's own metric, with its options, before bayes in metric_list",
                name,
            )
    else:
        metric, own = others[0], task._metric_fn_kwargs[others[0]]
        function = task._metric_fn_list[metric]
        if len(others) > 1:
            message = "task %s: metric bayes grades by %s; left out: %s"
            log.warning(message, name, metric, ", ".join(others[1:]))
    for other in others:
        del task._metric_fn_list[other]
    sources = {
        pipeline.name: answers.answer_source(
            pipeline,
            task.task_docs[0],
            runs_code=runs_code,
            matches_exactly=metric == "exact_match",
        )
        for pipeline in task._filters
    }
    return TaskGrading(
        name,
        settings,
        metric,
        function,
        own,
        sources,
        {key: answers.fallbacks(task.config.filter_list, key) for key in sources},
    )


# -- evaluate -----------------------------------------------------------------------------------


def install_evaluate() -> None:
    """Wrap the harness's `evaluate`; warn if it has another signature."""
    sample_loggers.install()
    patches.install(patches.METADATA, _with_warning_and_error)
    patches.install(patches.INITIALIZING, _without_secrets)
    problem = patches.install(patches.EVALUATE, _in_context)
    if problem is not None:
        log.warning(
            "%s: tasks cannot see their model, so every trial on an API backend may carry the same "
            "seed, and groups have no rows of this package",
            problem,
        )


def _without_secrets(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap the `info` of the evaluator's logger, which lists the arguments of a model.

    Addresses of the arguments of this package's models lose user name, password and query, and
    arguments with the name of a secret their value. Everything else is logged as it was.
    """

    @functools.wraps(original)
    def info(message: Any, *args: Any, stacklevel: int = 1, **kwargs: Any) -> None:
        text = str(message)
        if _INITIALIZING.match(text):
            message = _printable_message(text)
        elif (
            text.startswith("Initializing %s model") and args and _RECORDING.fullmatch(str(args[0]))
        ):
            args = (args[0], *map(_printable_arguments, args[1:]))
        original(message, *args, stacklevel=stacklevel + 1, **kwargs)

    return info


def _printable_message(text: str) -> str:
    """Return the message in which the arguments are a part of the text, broken into lines."""
    beginning, separator, listed = text.partition(" with arguments: ")
    try:
        arguments = ast.literal_eval(re.sub(r"\s+", " ", listed))
    except (ValueError, SyntaxError):
        return str(redacted(text))
    return f"{beginning}{separator}{_printable_arguments(arguments)}"


def _printable_arguments(arguments: Any) -> Any:
    if not isinstance(arguments, Mapping):
        return redacted(arguments)
    return {
        name: NOT_SHOWN if names_a_secret(str(name), value) else _printable_argument(name, value)
        for name, value in arguments.items()
    }


def _printable_argument(name: object, value: Any) -> Any:
    if name == "base_url" and isinstance(value, str):  # without a scheme, which is refused later
        parts = [part if "://" in part else plain_address(part) for part in value.split(";")]
        value = ";".join(parts)
    return redacted(value)


def _with_warning_and_error(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `simple_evaluate`, see the table of patches."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def simple_evaluate(*args: Any, **kwargs: Any) -> Any:
        arguments = signature.bind(*args, **kwargs).arguments
        manager, metadata = arguments.get("task_manager"), arguments.get("metadata")
        if manager is not None and isinstance(metadata, Mapping):
            used = getattr(manager, "metadata", None) or {}
            unused = [
                key
                for key, value in metadata.items()
                if str(key).startswith(("bayes_", "rubric_")) and used.get(key) != value
            ]
            if unused:
                log.warning(
                    "simple_evaluate uses the metadata of the given task_manager; %s of "
                    "`metadata=` is not used: pass it to TaskManager(metadata=…)",
                    ", ".join(unused),
                )
        results = original(*args, **kwargs)
        if error := error_of_run(results or {}):
            raise _saved(error, results, arguments.get("evaluation_tracker"))
        return results

    return simple_evaluate


def _saved(error: str, results: dict[str, Any], tracker: Any) -> TaskConfigError:
    """Save a run in which a metric has no number, and return the error that ends it.

    It is saved and printed as by the harness's command, which passes its tracker.
    """
    samples = results.get("samples") or {}
    if tracker is not None:
        from lm_eval.utils import make_table

        aggregated = {name: value for name, value in results.items() if name != "samples"}
        tracker.save_results_aggregated(aggregated, samples)
        for task, of_task in samples.items():
            tracker.save_results_samples(task, of_task)
        print(make_table(aggregated))
        if tracker.output_path and samples:
            error += (
                "; nothing is lost: `lm-eval-bayes summary "
                f"{tracker.output_path} --bounds LOW:HIGH` counts the saved scores"
            )
    failed = TaskConfigError(error, "failed")
    failed.results = results
    return failed


def _in_context(original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def evaluate(*args: Any, **kwargs: Any) -> Any:
        arguments = signature.bind(*args, **kwargs).arguments
        tasks = tasks_by_name(arguments["task_dict"])
        by_own_name = {_own_name(task, name): task for name, task in tasks.items()}
        _check_tasks_named(by_own_name)
        _warn_of_unused_settings(tasks)
        groups = _groups(arguments["task_dict"])
        for group in groups:
            check_group(group)
        with (
            evaluating(arguments["lm"], by_own_name, named_tasks=tasks) as evaluation,
            seeded_trials(evaluation.model),
        ):
            results = original(*args, **kwargs)
            if results is not None:  # None on all ranks but the first
                if results.get("samples"):
                    results["samples"] = read_later(results["samples"])
                _add_provenance(results, tasks, finish(results, tasks, groups))
        return results

    return evaluate


def _add_provenance(
    results: Mapping[str, Any], tasks: Mapping[str, Any], recorded: Mapping[str, Any]
) -> None:
    """Put this package's version and the identity of the questions into the tasks' metadata.

    Beside them stands what is recorded of a task's metrics, see `finish`.
    """
    for name, task in tasks.items():
        config = results.get("configs", {}).get(name)
        if config is not None and _samples_repeatedly(task):
            config["metadata"] = {
                **(config.get("metadata") or {}),
                "lm_eval_bayes": {
                    "version": __version__,
                    **questions.identity(task),
                    "protocol": getattr(task, "protocol", None),
                    **recorded.get(name, {}),
                },
            }


def _own_name(task: Any, name: str) -> str:
    """Return the name in a task's requests, which `task_dict` may call otherwise."""
    return str(getattr(getattr(task, "config", None), "task", None) or name)


def _metadata_of(task: Any) -> Mapping[str, Any]:
    return getattr(getattr(task, "config", None), "metadata", None) or {}


def _warn_of_unused_settings(tasks: Mapping[str, Any]) -> None:
    """Warn where `bayes_n` is given to tasks that are not sampled repeatedly."""
    unused = [
        name
        for name, task in tasks.items()
        if "bayes_n" in _metadata_of(task) and not _samples_repeatedly(task)
    ]
    if unused:
        log.warning(
            "bayes_n has no effect on %s, which %s not sampled repeatedly; %s_bayes is",
            *(", ".join(unused), "is" if len(unused) == 1 else "are", unused[0]),
        )


def _check_tasks_named(tasks: Mapping[str, Any]) -> None:
    """Raise an error where `bayes_n` gives an N to a task that is not evaluated."""
    for task in tasks.values():
        given = _metadata_of(task).get("bayes_n")
        if isinstance(given, Mapping) and _has_our_class(task):
            unknown = sorted(set(given) - set(tasks))
            if unknown:
                rule = f"name tasks of the run ({', '.join(tasks)})"
                raise InvalidInputError.of("bayes_n", "choice", rule, unknown[0])


def tasks_by_name(task_dict: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the tasks of what `TaskManager.load` returns, or of a mapping with groups as keys."""
    tasks: dict[str, Any] = {}
    for name, value in task_dict.get("tasks", task_dict).items():
        if isinstance(value, Mapping):
            tasks |= tasks_by_name(value)
        elif hasattr(value, "process_results"):
            tasks[str(name)] = value
    return tasks


def _groups(task_dict: Mapping[str, Any]) -> list[Any]:
    groups: Iterable[Any] = task_dict["groups"].values() if "groups" in task_dict else task_dict
    return [group for group in groups if hasattr(group, "get_all_tasks")]


def _samples_repeatedly(task: Any) -> bool:
    return _has_our_class(task) or _lists_bayes(task)


# -- errors -------------------------------------------------------------------------------------


def install_excepthook() -> None:
    """Show an uncaught error of this package as one line; leave every other error as it was.

    Ctrl-C of a command with a trial store is one line too.

    A missing backend and a metric of the hub that cannot be fetched, such as `code_eval`, count as
    one only on a command line that names a task of this package.
    """
    patches.install(patches.EXCEPTHOOK, _one_line)


def _one_line(previous: Callable[..., None]) -> Callable[..., None]:
    def hook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        if issubclass(kind, LmEvalBayesError):
            sys.stderr.write(f"lm-eval-bayes: {error}\n")
        elif issubclass(kind, KeyboardInterrupt) and (sentence := stopped(sys.argv)) is not None:
            sys.stderr.write(f"\nlm-eval-bayes: {sentence}\n")
        elif isinstance(error, ModuleNotFoundError) and error.name in EXTRAS and _names_a_task():
            sys.stderr.write(
                f"lm-eval-bayes: the model's backend needs the package `{error.name}`, which is "
                f"not installed; run {pip_install_extra(EXTRAS[error.name])}\n"
            )
        elif (metric := _metric_not_fetched(traceback)) is not None and _names_a_task():
            sys.stderr.write(
                f"lm-eval-bayes: the task's metric {metric} cannot be fetched from the hub "
                f"({kind.__name__}); run once with a network, copy that HF_HOME folder here and "
                "set HF_HOME\n"
            )
        else:
            previous(kind, error, traceback)

    return hook


def _metric_not_fetched(trace: TracebackType | None) -> str | None:
    """Return the metric that the package `evaluate` failed to find; None for other errors."""
    for frame, _ in walk_tb(trace):
        if frame.f_code.co_name == "load" and frame.f_globals.get("__name__") == "evaluate.loading":
            return str(frame.f_locals.get("path"))
    return None


def _names_a_task() -> bool:
    return any("_bayes" in word for word in sys.argv[1:])
