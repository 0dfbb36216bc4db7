"""Every attribute of other packages that this package replaces at run time, in one table.

A row says what is replaced, why no other way is open, what is checked first,
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
from typing import Any, NamedTuple

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
    otherwise : str
        What is missing where the guard does not hold.
    undo : str
        When the original is back.
    test : str
        The pytest node that covers the row.
    """

    target: str
    why: str
    guard: Guard
    otherwise: str
    undo: str
    test: str

    def place(self, owner: Any = None) -> tuple[Any, str]:
        """Return the object that holds the target, unless one is given, and the attribute."""
        module, _, path = self.target.partition(":")
        *classes, attribute = path.split(".")
        if owner is None:
            owner = importlib.import_module(module)
            for part in classes:
                owner = getattr(owner, part)
        return owner, attribute


class _Original(NamedTuple):
    """What a replacement stands for; `own` is whether its holder itself had the attribute."""

    target: str
    raw: Any
    own: bool
    replacement: Any


def _takes(*parameters: str) -> Guard:
    """Return a guard for a function or class that must have these parameters."""

    def guard(owner: Any, attribute: str) -> str | None:
        function = getattr(owner, attribute, None)
        try:
            present = inspect.signature(function).parameters  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return "is missing or not a function"
        missing = [name for name in parameters if name not in present]
        return f"takes no `{missing[0]}`" if missing else None

    return guard


def _static_method(owner: Any, attribute: str) -> str | None:
    static = isinstance(vars(owner).get(attribute), staticmethod)
    return None if static else "is not a static method"


_PLUGIN = "tests/harness/plugin/test_patches.py::"
_NAMES = "tests/harness/plugin/test_sampled_tasks.py::"
_SEEDS = "tests/harness/models/test_api_seeds.py::"
_ENGINE = "tests/harness/models/vllm/test_engine_processes.py::"

_SAME_SEED = "every trial of a question on an API backend may carry one seed"

TASK_INDEX = Patch(
    "lm_eval.tasks._index:TaskIndex.build",
    "Adds this package's task folder and finds `NAME_bayes`; the harness has no entry point "
    "for tasks.",
    _takes("paths"),
    "the tasks of this package and names such as gsm8k_cot_bayes are not found",
    "never: what the harness finds is not changed",
    _PLUGIN + "test_the_task_folder_follows_the_built_in_one",
)
TASK_NAMES = Patch(
    "lm_eval.tasks.manager:TaskManager.match_tasks",
    "Finds `NAME_bayes` on the command line; the harness compares with its list of names.",
    _takes("task_list"),
    "the command line finds no names such as gsm8k_cot_bayes",
    "never: names that the harness finds are not changed",
    _NAMES + "test_the_command_line_finds_a_sampled_task",
)
TASK_INCLUDE = Patch(
    "lm_eval.tasks._yaml_loader:load_yaml",
    "Reads `include: NAME` of a YAML where no file of that name exists; the harness takes "
    "paths only.",
    _takes("path"),
    "`include:` takes no name of a task",
    "never: files that exist are read as before",
    _NAMES + "test_include_takes_the_name_of_a_task",
)
EVALUATE = Patch(
    "lm_eval.evaluator:evaluate",
    "Tells tasks which model answers, which the harness does not, and prepares YAMLs that list "
    "metrics or aggregations of this package.",
    _takes("lm", "task_dict"),
    f"{_SAME_SEED}, groups have no rows of this package, and its aggregations no Stderr",
    "never: runs without tasks of this package pass through",
    _PLUGIN + "test_a_task_sees_the_model_of_its_own_evaluation",
)
SIMPLE_EVALUATE = Patch(
    "lm_eval.evaluator:simple_evaluate",
    "Raises where the first metric of a task has no number, and lets `lm-eval-bayes run` "
    "evaluate in rounds below the harness's own command line.",
    _takes("model", "tasks", "task_manager"),
    "runs whose first metric has no number end without an error",
    "never: runs without tasks of this package pass through",
    _PLUGIN + "test_rounds_take_the_place_of_one_evaluation_and_leave_it",
)
COMMAND = Patch(
    "lm_eval._cli.run:Run._execute",
    "Prints the scores in sentences after the table; the harness calls nothing then.",
    _takes("args"),
    "no sentence follows the table",
    "never: runs without tasks of this package pass through",
    _PLUGIN + "test_the_scores_follow_the_table_of_the_command",
)
API_GENERATE = Patch(
    "lm_eval.models.api_models:TemplateAPI.generate_until",
    "Sees which requests are trials; the harness puts one seed into all of them.",
    _takes("requests"),
    _SAME_SEED,
    "at the end of the evaluation; only the evaluated model is changed",
    _SEEDS + "test_every_trial_has_its_own_seed_and_a_run_can_be_repeated",
)
API_PAYLOAD = Patch(
    "lm_eval.models.api_models:TemplateAPI._create_payload",
    "Puts a seed of its own into the request of each trial.",
    _takes("messages", "generate"),
    _SAME_SEED,
    "at the end of the model's generate_until",
    _SEEDS + "test_every_trial_has_its_own_seed_and_a_run_can_be_repeated",
)
VLLM_ENGINE = Patch(
    "lm_eval.models.vllm_causallms:LLM",
    "Builds the engine when it is first needed; the harness builds it in `VLLM.__init__`.",
    _takes(),
    "the engine is built before the tasks are checked",
    "at the end of `VLLM.__init__`",
    _PLUGIN + "test_the_engine_is_built_when_it_is_needed",
)
VLLM_CORE = Patch(
    "vllm.v1.engine.core:EngineCoreProc.run_engine_core",
    "Ends the engine's process with its parent; vLLM leaves it running after a kill.",
    _static_method,
    "a killed run may leave its processes",
    "when the engine is built",
    _ENGINE + "test_vllms_processes_are_bound_while_an_engine_is_built",
)
SYMPY_EVAL = Patch(
    "sympy.parsing.sympy_parser:eval_expr",
    "Refuses to evaluate model output that is no number. Done by `grading/equivalence.py` in "
    "the grading process, which imports nothing of this package.",
    _takes("code", "local_dict", "global_dict"),
    "answers are compared as text",
    "with the grading process",
    "tests/harness/grading/test_grading_workers.py"
    "::test_only_plain_numbers_reach_the_evaluator_of_sympy",
)

#: All rows.
PATCHES = (
    *(TASK_INDEX, TASK_NAMES, TASK_INCLUDE, EVALUATE, SIMPLE_EVALUATE, COMMAND),
    *(API_GENERATE, API_PAYLOAD, VLLM_ENGINE, VLLM_CORE, SYMPY_EVAL),
)

#: Targets whose guards do not hold, of which that was said.
_reported: set[str] = set()


def problem_of(patch: Patch, owner: Any = None) -> str | None:
    """Return why a row's target cannot be replaced, None if it can.

    Parameters
    ----------
    patch : Patch
        The row.
    owner : object, optional
        The instance or module whose attribute is replaced, where it is not the target's own.
    """
    try:
        problem = patch.guard(*patch.place(owner))
    except (ImportError, AttributeError) as error:
        problem = f"does not exist ({error})"
    return None if problem is None else f"{patch.target} {problem}"


def install(patch: Patch, wrap: Wrap, owner: Any = None) -> str | None:
    """Replace a row's target; do nothing if it is replaced already.

    A guard that does not hold is warned of once, with the target and what is missing then.

    Parameters
    ----------
    patch : Patch
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
    if is_installed(patch, owner):
        return None
    problem = problem_of(patch, owner)
    if problem is not None:
        if patch.target not in _reported:
            _reported.add(patch.target)
            log.warning("%s; %s", problem, patch.otherwise)
        return problem
    holder, attribute = patch.place(owner)
    raw = inspect.getattr_static(holder, attribute, None)
    if not inspect.isclass(holder):
        raw = getattr(holder, attribute)  # a bound method, or what a module makes on demand
    is_method = isinstance(raw, (staticmethod, classmethod))
    replacement = wrap(raw.__func__ if is_method else raw)
    mark = _Original(patch.target, raw, attribute in vars(holder), replacement)
    setattr(replacement, _MARK, mark)
    setattr(holder, attribute, type(raw)(replacement) if is_method else replacement)
    return None


def _mark_of(patch: Patch, owner: Any) -> tuple[Any, _Original | None]:
    """Return the function that stands at a row's target, and its mark if it is a replacement."""
    current = inspect.getattr_static(*patch.place(owner), None)
    current = getattr(current, "__func__", current)
    mark = getattr(current, _MARK, None)
    return current, mark if mark is not None and mark.target == patch.target else None


def is_installed(patch: Patch, owner: Any = None) -> bool:
    """Return whether a row's target is replaced, also where others have wrapped it since."""
    try:
        return _mark_of(patch, owner)[1] is not None
    except (ImportError, AttributeError):
        return False


def original(patch: Patch) -> Any:
    """Return the function at a row's target as it was, replaced in this process or not."""
    current, mark = _mark_of(patch, None)
    return current if mark is None else getattr(mark.raw, "__func__", mark.raw)


def undo(patch: Patch, owner: Any = None) -> bool:
    """Put a row's original back.

    Returns
    -------
    bool
        Whether the original is in place now; False where another package has wrapped the
        replacement since, which is then left alone.
    """
    current, mark = _mark_of(patch, owner)
    if mark is None:
        return True
    if current is not mark.replacement:
        return False
    holder, attribute = patch.place(owner)
    if mark.own:
        setattr(holder, attribute, mark.raw)
    else:
        delattr(holder, attribute)
    return True


@contextmanager
def applied(patch: Patch, wrap: Wrap, owner: Any = None) -> Iterator[str | None]:
    """Replace a row's target for the length of a block.

    Yields
    ------
    str or None
        Why nothing was replaced, None if the replacement is in place. A target that was replaced
        before the block stays so after it.
    """
    nested = is_installed(patch, owner)
    problem = install(patch, wrap, owner)
    try:
        yield problem
    finally:
        if problem is None and not nested:
            undo(patch, owner)
