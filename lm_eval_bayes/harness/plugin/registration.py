"""Registration of this package with the harness.

The harness gets from us the COMPONENTS below, by name, and a folder of task YAMLs.

**Harness 0.4.12 and 0.4.13** look for no plugins. So a `.pth` file (a `.start` file from
Python 3.15 on) calls `install()` of `_boot/_lm_eval_bayes_boot.py` at every start of Python. It
waits until the harness is imported and calls `harness_imported` here whenever one of HOOKS ran:

- ``lm_eval.api.metrics``: our aggregation and our metric are registered. Never earlier: the
  harness imports its own only while the registry is still empty.
- ``lm_eval.filters``: our filter is registered.
- ``lm_eval.models``: our model is registered as the harness's own are, by name and place; it
  is imported when it is requested.
- ``lm_eval.tasks``: our folder is read right after the built-in one, so the user's
  ``--include_path`` still wins; and tasks that list ``metric: bayes`` are checked when built.
- ``lm_eval.evaluator``: its `evaluate` is wrapped, so that tasks see the model that answers.

**A harness that discovers plugins**, as its main branch does by its plugin guide, finds COMPONENTS
by the entry points in pyproject.toml and is left alone with them. It finds no tasks, so the folder
is added as above. This was tried on a release with such a discovery put in.

**A release outside the supported range** (`_util/packages.py`) gets one warning and is left alone.

**A harness that we cannot extend** gets one warning, with the ``--include_path`` to use.

Nothing here raises into the harness. ``LM_EVAL_BAYES_AUTOLOAD=0`` switches the start-up files
off; ``python -m lm_eval_bayes run …`` does without them.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from lm_eval_bayes._util.files import task_configs_dir
from lm_eval_bayes._util.interrupts import imports_are_completed
from lm_eval_bayes._util.packages import HARNESS, version_of
from lm_eval_bayes.errors import LmEvalBayesError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.plugin import patches

log = get_logger(__name__)


#: Kind of component -> the module of the harness that must have run before it is registered.
AFTER = {
    "aggregation": "lm_eval.api.metrics",
    "metric": "lm_eval.api.metrics",
    "filter": "lm_eval.filters",
    "model": "lm_eval.models",
}

#: The modules of the harness that the start-up file waits for, in the order of their imports.
HOOKS = (*dict.fromkeys(AFTER.values()), "lm_eval.tasks", "lm_eval.evaluator")


class Component(NamedTuple):
    """A component that the harness finds by name."""

    kind: str
    name: str
    module: str
    attribute: str


OURS = "lm_eval_bayes.harness"
COMPONENTS = (
    Component("aggregation", "bayes", f"{OURS}.plugin.bayes_metric", "aggregate_bayes"),
    Component("metric", "bayes", f"{OURS}.plugin.bayes_metric", "bayes"),
    Component("filter", "keep_all", f"{OURS}.task.pipelines", "KeepAllFilter"),
    Component("model", "biased_coin", f"{OURS}.models.biased_coin.model", "BiasedCoinLM"),
    Component("model", "trials", f"{OURS}.models.trials", "TrialsLM"),
    Component("model", "vllm-signals", f"{OURS}.models.trials", "VLLMSignalsLM"),
    Component("model", "hf-signals", f"{OURS}.models.trials", "HFSignalsLM"),
)

_warned: set[str] = set()


def harness_imported(name: str) -> None:
    """Register what can be registered now that the harness's module `name` has run.

    Safe to call at any time and any number of times. Ctrl-C is raised when it is done: within an
    import it might become an ImportError, and the command go on without this package.
    """
    with imports_are_completed():
        _register_after(name)


def _register_after(name: str) -> None:
    try:
        problem = _harness_problem()
        if problem is not None:
            _warn("harness", f"the tasks of lm_eval_bayes are not available: {problem}")
            return
        registry = sys.modules.get("lm_eval.api.registry")
        if not hasattr(registry, "load_plugins"):
            _register_components(registry, name)
        if _has_run("lm_eval.tasks", name):
            from lm_eval_bayes.harness.plugin import sampled_tasks, wrappers

            _add_tasks()
            sampled_tasks.install()
            wrappers.install()
        if _has_run("lm_eval.evaluator", name):
            from lm_eval_bayes.harness.plugin import wrappers

            wrappers.install_evaluate()
    except Exception as error:
        _warn("harness", f"lm_eval_bayes is not fully registered: {error!r}")


@functools.cache
def _harness_problem() -> str | None:
    """Return why the installed harness is not supported, None if it is."""
    return HARNESS.problem(version_of(HARNESS.distribution))


def register_all() -> None:
    """Import the harness and register everything, without any start-up file.

    Unlike the start-up files, this also registers what the harness's own discovery would,
    which finds installed packages only.

    Raises
    ------
    LmEvalBayesError
        If the installed harness is not supported.
    """
    problem = _harness_problem()
    if problem is not None:
        raise LmEvalBayesError(problem, "unsupported", "lm_eval")
    for name in HOOKS:
        importlib.import_module(name)
    harness_imported("lm_eval.evaluator")
    _register_components(sys.modules["lm_eval.api.registry"], "lm_eval.tasks")


def run_harness() -> None:
    """Run the harness's own command line after registering by hand."""
    try:
        register_all()
        from lm_eval.__main__ import cli_evaluate
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "lm_eval":
            raise
        sys.exit(f"lm_eval_bayes needs the harness (pip install '{HARNESS}'): {error}")
    except LmEvalBayesError as error:
        sys.exit(f"lm-eval-bayes: {error}")
    cli_evaluate()


def _has_run(name: str, just_run: str = "") -> bool:
    module = sys.modules.get(name)
    return name == just_run or (module is not None and not _initialising(module))


def _initialising(module: ModuleType | None) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _register_components(registry: Any, just_run: str) -> None:
    for component in COMPONENTS:
        if not _has_run(AFTER[component.kind], just_run):
            continue
        registered: Any = getattr(registry, f"{component.kind}_registry", None)
        if not hasattr(registered, "_objs"):
            _warn_unknown_harness(f"a registry of {component.kind}s")
        elif component.name not in registered:
            _register(component, registered, registry)
        elif not is_ours(registered._objs[component.name]):
            _warn(
                component.kind + component.name,
                f"another package has registered the {component.kind} `{component.name}`; "
                "that of lm_eval_bayes is not active",
            )


def _register(component: Component, registered: Any, registry: Any) -> None:
    module = sys.modules.get(component.module)
    if _initialising(module):
        return  # it registers itself further down
    before = {r: set(r) for r in _registries(registry)}
    try:
        if component.kind == "model":
            # As the harness registers its own models: imported when requested.
            registered.register(component.name, target=f"{component.module}:{component.attribute}")
        elif module is None:
            importlib.import_module(component.module)
        else:
            importlib.reload(module)  # the registry is newer than our module
        if component.name not in registered:
            raise LookupError(f"{component.module} registers no {component.kind} of this name")
    except Exception as error:
        # A second try must find no alias of the first one, or the harness refuses it.
        for r, names in before.items():
            for alias in set(r) - names:
                if alias == component.name or is_ours(r._objs[alias]):
                    r._objs.pop(alias, None)
        if _initialising(sys.modules.get("lm_eval.api.task")):
            log.debug("%s: later, the harness is still being imported (%r)", component, error)
            return
        _warn(
            component.kind + component.name,
            f"lm_eval_bayes could not register its {component.kind} `{component.name}`: {error!r}",
        )


def _registries(registry: Any) -> list[Any]:
    named = [r for name, r in vars(registry).items() if name.endswith("_registry")]
    return [r for r in named if hasattr(r, "_objs")]


def is_ours(target: Any) -> bool:
    """Return whether a registry's entry (an object, or where to find one) is of this package."""
    # 0.5 keeps the function of a metric in an object, which it makes when it is first used
    later = getattr(target, "_factory", None)
    if later is not None:
        target = inspect.getclosurevars(later).nonlocals.get("fn", target)
    target = getattr(target, "fn", target)
    path = target if isinstance(target, str) else getattr(target, "value", None)
    if not isinstance(path, str):
        path = getattr(target, "__module__", None) or ""
    return path.startswith("lm_eval_bayes.")


def _add_tasks() -> None:
    folder = task_configs_dir()
    built_in = Path(str(sys.modules["lm_eval.tasks"].__file__)).parent

    def wrap(build: Any) -> Any:
        signature = inspect.signature(build)

        @functools.wraps(build)
        def build_with_ours(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.arguments["paths"] = with_our_tasks(bound.arguments["paths"], built_in, folder)
            return build(*bound.args, **bound.kwargs)

        return build_with_ours

    problem = patches.install(patches.TASK_INDEX, wrap)
    finds_folders = hasattr(sys.modules.get("lm_eval.tasks.manager"), "discover_plugin_task_paths")
    if problem is not None and not finds_folders:
        _warn_unknown_harness("TaskIndex.build")


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


def _warn_unknown_harness(what: str) -> None:
    version = getattr(sys.modules.get("lm_eval"), "__version__", "of unknown version")
    _warn(
        "unknown harness",
        f"lm_eval_bayes cannot extend this lm-evaluation-harness ({version}), which has no {what}; "
        f"to find its tasks, pass --include_path {task_configs_dir()}",
    )


def _warn(about: str, message: str) -> None:
    if about not in _warned:
        _warned.add(about)
        log.warning("%s", message)
