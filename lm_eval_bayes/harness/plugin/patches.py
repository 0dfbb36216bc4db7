"""Every attribute of other packages that this package replaces at run time, in one table.

A row of :data:`PATCHES` says what is replaced, why no other way is open, what is checked first,
when the original is back, and which test covers it. The replacement itself is written where it
belongs and handed to :func:`install` (which stays) or :func:`applied` (which ends with a block).
This module imports nothing else of the harness room but its logger, so any part of it may use it.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lm_eval_bayes.harness import get_logger

log = get_logger(__name__)

#: The attribute of a replacement that holds its :class:`_Original`.
_MARK = "__lm_eval_bayes_patch__"

#: Returns why an attribute cannot be replaced, None if it can; of an owner and the attribute.
Guard = Callable[[Any, str], "str | None"]

#: Makes the replacement of an original.
Wrap = Callable[[Any], Callable[..., Any]]


@dataclass(frozen=True)
class Patch:
    """One attribute that is replaced.

    Attributes
    ----------
    target : str
        ``module:attribute`` or ``module:Class.attribute``. Some rows replace the attribute on one
        instance of the class, or of the module that the call site names.
    why : str
        What it is for, and why the harness offers no other way.
    guard : callable
        The check of the target before it is replaced; its result is None or the problem found.
    undo : str
        When the original is back.
    test : str
        The pytest node that covers the row.
    """

    target: str
    why: str
    guard: Guard
    undo: str
    test: str


@dataclass(frozen=True)
class _Original:
    """What a replacement stands for."""

    name: str
    raw: Any
    own: bool
    replacement: Any


def _callable(owner: Any, attribute: str) -> str | None:
    return None if callable(getattr(owner, attribute, None)) else "is missing or not callable"


def _takes(*parameters: str) -> Guard:
    """Return a guard for a function that must have these parameters."""

    def guard(owner: Any, attribute: str) -> str | None:
        function = getattr(owner, attribute, None)
        try:
            present = inspect.signature(function).parameters  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return "is missing or not a function"
        missing = [name for name in parameters if name not in present]
        return f"takes no `{missing[0]}`" if missing else None

    return guard


def _builds_api_requests(owner: Any, attribute: str) -> str | None:
    needed = ("generate_until", "_create_payload", "model_call", "tok_encode")
    missing = [name for name in needed if not callable(getattr(owner, name, None))]
    return f"has no method `{missing[0]}`" if missing else None


def _static_method(owner: Any, attribute: str) -> str | None:
    static = isinstance(vars(owner).get(attribute), staticmethod)
    return None if static else "is not a static method"


TASK_INDEX = "task folder"
TASK_NAMES = "names of sampled tasks"
TASK_ENTRY = "sampled tasks"
TASK_INCLUDE = "include by name"
TASK_INIT = "drop-in tasks"
TASK_REQUESTS = "drop-in requests"
TASK_FILTERS = "drop-in responses"
EVALUATE = "evaluation context"
METADATA = "metadata beside a task manager"
INITIALIZING = "logged model arguments"
GROUP_ROWS = "means over tasks"
MAKE_TABLE = "rows of the table"
WANDB_TABLE = "W&B table"
TRACKIO_TRACES = "Trackio traces"
SIMPLE_EVALUATE = "rounds"
EXCEPTHOOK = "error messages"
API_GENERATE = "API trials"
API_PAYLOAD = "API seeds"
API_CALL = "API retries"
VLLM_ENGINE = "lazy vLLM engine"
VLLM_CORE = "vLLM engine process"
SYMPY_EVAL = "sympy evaluation"

_PLUGIN = "tests/harness/plugin/test_patches.py::"
_SEEDS = "tests/harness/models/test_api_seeds.py::"
_ENGINE = "tests/harness/models/vllm/test_engine_processes.py::"

PATCHES: dict[str, Patch] = {
    TASK_INDEX: Patch(
        "lm_eval.tasks._index:TaskIndex.build",
        "Adds this package's task folder; 0.4.12 and 0.4.13 have no entry point for tasks.",
        _takes("paths"),
        "never: the process keeps the folder",
        _PLUGIN + "test_the_task_folder_follows_the_built_in_one",
    ),
    TASK_NAMES: Patch(
        "lm_eval.tasks.manager:TaskManager.match_tasks",
        "Finds `NAME_bayes` on the command line; the harness compares with its list of names.",
        _takes("task_list"),
        "never: names that the harness finds are not changed",
        "tests/harness/plugin/test_sampled_tasks.py::test_the_command_line_finds_a_sampled_task",
    ),
    TASK_ENTRY: Patch(
        "lm_eval.tasks.manager:TaskManager._entry",
        "Finds `NAME_bayes` in `simple_evaluate(tasks=[...])` and `TaskManager.load`.",
        _takes("name"),
        "never: names that the harness finds are not changed",
        "tests/harness/plugin/test_sampled_tasks.py::test_a_task_is_sampled_by_its_name",
    ),
    TASK_INCLUDE: Patch(
        "lm_eval.tasks._yaml_loader:load_yaml",
        "Reads `include: NAME` of a YAML where no file of that name exists; the harness takes "
        "paths only.",
        _takes("path"),
        "never: files that exist are read as before",
        "tests/harness/plugin/test_sampled_tasks.py::test_include_takes_the_name_of_a_task",
    ),
    TASK_INIT: Patch(
        "lm_eval.api.task:ConfigurableTask.__init__",
        "Checks tasks that list `metric: bayes` before sampling; the harness calls a metric only "
        "after everything is sampled.",
        _takes("config"),
        "never: tasks without the metric are not changed",
        "tests/harness/plugin/test_drop_in.py::test_it_gives_the_same_rows_as_the_class",
    ),
    TASK_REQUESTS: Patch(
        "lm_eval.api.task:ConfigurableTask.build_all_requests",
        "Makes the requests of one such task N-fold; its class is the user's.",
        _takes("samples", "cache_requests"),
        "with the task object, the only one that is changed",
        "tests/harness/plugin/test_drop_in.py::test_sampling_settings_are_checked_before_sampling",
    ),
    TASK_FILTERS: Patch(
        "lm_eval.api.task:ConfigurableTask.apply_filters",
        "Cuts the padding of several ranks and makes the responses of one such task loggable.",
        _callable,
        "with the task object, the only one that is changed",
        "tests/harness/plugin/test_drop_in.py::test_a_lone_surrogate_is_logged",
    ),
    EVALUATE: Patch(
        "lm_eval.evaluator:evaluate",
        "Tells tasks which model answers; the harness gives a task no access to the model.",
        _takes("lm", "task_dict"),
        "never: each call sets and resets a context variable",
        _PLUGIN + "test_a_task_sees_the_model_of_its_own_evaluation",
    ),
    METADATA: Patch(
        "lm_eval.evaluator:simple_evaluate",
        "Warns that settings in `metadata=` do not count where a `task_manager=` is given, which "
        "the harness drops without a word; raises where the first metric has no number.",
        _takes("metadata", "task_manager"),
        "never: nothing but the warning and the error is added",
        "tests/harness/task/test_ways_to_set.py::test_metadata_beside_a_task_manager_is_warned_of",
    ),
    INITIALIZING: Patch(
        "lm_eval.evaluator:eval_logger.info",
        "Logs the arguments of this package's models without the passwords in them; the harness "
        "logs them before the model can refuse them.",
        _callable,
        "never: messages about other models are not changed",
        _PLUGIN + "test_the_log_of_a_models_arguments_has_no_password",
    ),
    GROUP_ROWS: Patch(
        "lm_eval.api.group:Group.aggregate",
        "Computes `hbayes@N` of a group from the trials of its tasks; the harness has no other "
        "aggregation than the mean of the tasks' rows.",
        _takes("task_metrics"),
        "with the group object, the only one that is changed; only groups with tasks of this "
        "package are",
        "tests/harness/task/test_group_rows.py::test_a_group_has_the_mean_over_its_tasks",
    ),
    MAKE_TABLE: Patch(
        "lm_eval.utils:make_table",
        "Prints the rows that `bayes_rows` names; the harness prints every row, sorted by name.",
        _takes("result_dict", "column"),
        "never: tables without tasks of this package are not changed",
        "tests/harness/plugin/test_results_table.py::test_the_table_of_a_run_is_short",
    ),
    WANDB_TABLE: Patch(
        "lm_eval.loggers.wandb_logger:WandbLogger._generate_dataset",
        "Makes a row of each trial; the harness expects one response and every metric a sample.",
        _takes("data", "config"),
        "never: samples of other tasks are not changed",
        "tests/harness/plugin/test_sample_loggers.py::test_wandb_gets_a_row_for_each_trial",
    ),
    TRACKIO_TRACES: Patch(
        "lm_eval.loggers.trackio_logger:TrackioLogger.log_eval_samples",
        "Makes a trace of each trial; the harness puts the list of all responses into one message.",
        _takes("samples"),
        "never: samples of other tasks are not changed",
        "tests/harness/plugin/test_sample_loggers.py::test_trackio_gets_a_trace_for_each_trial",
    ),
    SIMPLE_EVALUATE: Patch(
        "lm_eval:simple_evaluate",
        "`lm-eval-bayes run` evaluates in rounds below the harness's own command line.",
        _takes("model", "tasks", "task_manager"),
        "at the end of the command",
        _PLUGIN + "test_rounds_take_the_place_of_one_evaluation_and_leave_it",
    ),
    EXCEPTHOOK: Patch(
        "sys:excepthook",
        "Prints this package's errors as one line; the harness lets them pass as tracebacks.",
        _callable,
        "never: other exceptions go to the original hook",
        _PLUGIN + "test_errors_of_this_package_are_one_line",
    ),
    API_GENERATE: Patch(
        "lm_eval.models.api_models:TemplateAPI.generate_until",
        "Sees which requests are trials; the harness puts one seed into all of them.",
        _builds_api_requests,
        "at the end of the evaluation; only the evaluated model is changed",
        _SEEDS + "test_every_trial_has_its_own_seed_and_a_run_can_be_repeated",
    ),
    API_PAYLOAD: Patch(
        "lm_eval.models.api_models:TemplateAPI._create_payload",
        "Puts a seed of its own into the request of each trial.",
        _callable,
        "at the end of the model's generate_until",
        _SEEDS + "test_every_trial_has_its_own_seed_and_a_run_can_be_repeated",
    ),
    API_CALL: Patch(
        "lm_eval.models.api_models:TemplateAPI.model_call",
        "Gives a request that is sent again the seed that it had.",
        _callable,
        "at the end of the model's generate_until",
        _SEEDS + "test_every_trial_has_its_own_seed_and_a_run_can_be_repeated",
    ),
    VLLM_ENGINE: Patch(
        "lm_eval.models.vllm_causallms:LLM",
        "Builds the engine when it is first needed; the harness builds it in `VLLM.__init__`.",
        _callable,
        "at the end of `VLLM.__init__`",
        _PLUGIN + "test_the_engine_is_built_when_it_is_needed",
    ),
    VLLM_CORE: Patch(
        "vllm.v1.engine.core:EngineCoreProc.run_engine_core",
        "Ends the engine's process with its parent; vLLM leaves it running after a kill.",
        _static_method,
        "when the engine is built",
        _ENGINE + "test_vllms_processes_are_bound_while_an_engine_is_built",
    ),
    SYMPY_EVAL: Patch(
        "sympy.parsing.sympy_parser:eval_expr",
        "Refuses to evaluate model output that is no number. Done by `grading/equivalence.py` in "
        "the grading process, which imports nothing of this package.",
        _takes("code", "local_dict", "global_dict"),
        "with the grading process",
        "tests/harness/grading/test_grading_workers.py"
        "::test_only_plain_numbers_reach_the_evaluator_of_sympy",
    ),
}


def _place(name: str, owner: Any) -> tuple[Any, str]:
    """Return the object that holds a row's target, and the attribute's name."""
    module, _, path = PATCHES[name].target.partition(":")
    *classes, attribute = path.split(".")
    if owner is None:
        owner = importlib.import_module(module)
        for part in classes:
            owner = getattr(owner, part)
    return owner, attribute


def problem_of(name: str, owner: Any = None) -> str | None:
    """Return why a row's target cannot be replaced, None if it can.

    Parameters
    ----------
    name : str
        The row.
    owner : object, optional
        The instance or module whose attribute is replaced, where it is not the target's own.
    """
    patch = PATCHES[name]
    try:
        problem = patch.guard(*_place(name, owner))
    except (ImportError, AttributeError) as error:
        problem = f"does not exist ({error})"
    return None if problem is None else f"{patch.target} {problem}"


def install(name: str, wrap: Wrap, owner: Any = None) -> str | None:
    """Replace a row's target; do nothing if it is replaced already.

    Parameters
    ----------
    name : str
        The row.
    wrap : callable
        Makes the replacement, a function, of the original.
    owner : object, optional
        As in :func:`problem_of`.

    Returns
    -------
    str or None
        Why nothing was replaced, None if the replacement is in place.
    """
    if is_installed(name, owner):
        return None
    problem = problem_of(name, owner)
    if problem is not None:
        return problem
    holder, attribute = _place(name, owner)
    raw = inspect.getattr_static(holder, attribute, None)
    if not inspect.isclass(holder):
        raw = getattr(holder, attribute)  # a bound method, or what a module makes on demand
    is_method = isinstance(raw, (staticmethod, classmethod))
    replacement = wrap(raw.__func__ if is_method else raw)
    setattr(replacement, _MARK, _Original(name, raw, attribute in vars(holder), replacement))
    setattr(holder, attribute, type(raw)(replacement) if is_method else replacement)
    return None


def _mark_of(name: str, owner: Any) -> tuple[Any, _Original | None]:
    """Return the function that stands at a row's target, and its mark if it is a replacement."""
    holder, attribute = _place(name, owner)
    current = inspect.getattr_static(holder, attribute, None)
    current = getattr(current, "__func__", current)
    mark = getattr(current, _MARK, None)
    return current, mark if isinstance(mark, _Original) and mark.name == name else None


def is_installed(name: str, owner: Any = None) -> bool:
    """Return whether a row's target is replaced, also where others have wrapped it since."""
    try:
        return _mark_of(name, owner)[1] is not None
    except (ImportError, AttributeError):
        return False


def original(name: str) -> Any:
    """Return the function at a row's target as it was, replaced in this process or not."""
    current, mark = _mark_of(name, None)
    return current if mark is None else getattr(mark.raw, "__func__", mark.raw)


def undo(name: str, owner: Any = None) -> bool:
    """Put a row's original back.

    Returns
    -------
    bool
        Whether the original is in place now; False where another package has wrapped the
        replacement since, which is then left alone.
    """
    current, mark = _mark_of(name, owner)
    if mark is None:
        return True
    if current is not mark.replacement:
        log.debug("%s was wrapped by another package and is left as it is", PATCHES[name].target)
        return False
    holder, attribute = _place(name, owner)
    if mark.own:
        setattr(holder, attribute, mark.raw)
    else:
        delattr(holder, attribute)
    return True


@contextmanager
def applied(name: str, wrap: Wrap, owner: Any = None) -> Iterator[str | None]:
    """Replace a row's target for the length of a block.

    Yields
    ------
    str or None
        Why nothing was replaced, None if the replacement is in place. A target that was replaced
        before the block stays so after it.
    """
    nested = is_installed(name, owner)
    problem = install(name, wrap, owner)
    try:
        yield problem
    finally:
        if problem is None and not nested:
            undo(name, owner)
