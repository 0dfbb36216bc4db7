"""Registration of this package with the harness.

The harness gets from us the COMPONENTS below, as "module:object", which it imports when it is asked
for them, and a folder of task YAMLs. It has no discovery of plugins in any release from 0.4.12 on,
so a `.pth` file (a `.start` file from Python 3.15 on) calls `install()` of
`_boot/_lm_eval_bayes_boot.py` at every start of Python. It waits until the harness is imported and
calls `harness_imported` here whenever one of HOOKS ran:

- ``lm_eval.api.metrics``, ``lm_eval.filters``, ``lm_eval.models``: components are registered. Never
  earlier: the harness imports its own only while a registry is still empty.
- ``lm_eval.tasks``: our folder is read right after the built-in one, so the user's
  ``--include_path`` still wins, and `NAME_bayes` is found.
- ``lm_eval.evaluator``, ``lm_eval._cli.run``: `evaluate`, `simple_evaluate` and the command are
  wrapped; they pass through until something of ours is in use.

Everything that is imported for this is light: neither numpy nor scipy, and nothing of the harness.
A release outside the supported range gets one warning and is left alone. Nothing here raises into
the harness. ``LM_EVAL_BAYES_AUTOLOAD=0`` switches the start-up files off; ``python -m lm_eval_bayes
run …`` does without them.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from lm_eval_bayes._util.packages import HARNESS, version_of
from lm_eval_bayes.errors import LmEvalBayesError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.plugin import patches, sampled_tasks

log = get_logger(__name__)


#: Kind of component -> the module of the harness that must have run before it is registered.
AFTER = {
    "aggregation": "lm_eval.api.metrics",
    "metric": "lm_eval.api.metrics",
    "filter": "lm_eval.filters",
    "model": "lm_eval.models",
}

#: The modules of the harness that the start-up file waits for, in the order of their imports.
HOOKS = (*dict.fromkeys(AFTER.values()), "lm_eval.tasks", "lm_eval.evaluator", "lm_eval._cli.run")

_OURS = "lm_eval_bayes.harness"
AGGREGATIONS = f"{_OURS}.plugin.aggregations"
METRICS = f"{_OURS}.plugin.metrics"


class Component(NamedTuple):
    """A component that the harness finds by name; `target` is its "module:object"."""

    kind: str
    name: str
    target: str


_AGGREGATIONS = "bayes avg_at_n pass_at_k pass_hat_k g_pass_at_k mg_pass_at_k maj_at_k"

COMPONENTS = (
    *(Component("aggregation", n, f"{AGGREGATIONS}:{n}") for n in _AGGREGATIONS.split()),
    *(Component("metric", n, f"{METRICS}:{n}") for n in ("bayes", "credible_interval", "rubric")),
    Component("filter", "keep_all", f"{_OURS}.task.pipelines:KeepAllFilter"),
    Component("model", "biased_coin", f"{_OURS}.models.biased_coin.model:BiasedCoinLM"),
    Component("model", "trials", f"{_OURS}.models.trials:TrialsLM"),
    Component("model", "vllm-signals", f"{_OURS}.models.trials:VLLMSignalsLM"),
    Component("model", "hf-signals", f"{_OURS}.models.trials:HFSignalsLM"),
)

#: What is imported when something of this package is in use.
_IN_USE = (AGGREGATIONS, METRICS, f"{_OURS}.task.repeated_sampling")


def harness_imported(name: str) -> None:
    """Register what can be registered now that the harness's module `name` has run.

    Safe to call at any time and any number of times.
    """
    try:
        problem = _harness_problem()
        if problem is not None:
            _warn(f"the tasks of lm_eval_bayes are not available: {problem}")
            return
        _register_components(sys.modules.get("lm_eval.api.registry"), name)
        if _has_run("lm_eval.tasks", name):
            sampled_tasks.install()
        if _has_run("lm_eval.evaluator", name):
            patches.install(patches.EVALUATE, _evaluate)
            patches.install(patches.SIMPLE_EVALUATE, _simple_evaluate)
        if _has_run("lm_eval._cli.run", name):
            patches.install(patches.COMMAND, _command)
    except Exception as error:
        _warn(f"lm_eval_bayes is not fully registered: {error!r}")


@functools.cache
def _harness_problem() -> str | None:
    """Return why the installed harness is not supported, None if it is."""
    return HARNESS.problem(version_of(HARNESS.distribution))


def register_all() -> None:
    """Import the harness and register everything, without any start-up file.

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


def _has_run(name: str, just_run: str) -> bool:
    module = sys.modules.get(name)
    is_running = bool(getattr(getattr(module, "__spec__", None), "_initializing", False))
    return name == just_run or (module is not None and not is_running)


def _register_components(registry: Any, just_run: str) -> None:
    for component in COMPONENTS:
        kind, name, target = component
        if not _has_run(AFTER[kind], just_run):
            continue
        registered = getattr(registry, f"{kind}_registry")
        if name not in registered:
            registered.register(name, target=target)
            if kind == "metric":
                registry.higher_is_better_registry.register(name, target=True)
                registry.metric_agg_registry.register(name, target=f"{AGGREGATIONS}:bayes")
        elif not is_registered(component):
            _warn(
                f"another package has registered the {kind} `{name}`; "
                "that of lm_eval_bayes is not active"
            )


def is_registered(component: Component) -> bool:
    """Return whether the harness of this process finds a component of ours by its name."""
    registry = sys.modules["lm_eval.api.registry"]
    registered: Any = getattr(registry, f"{component.kind}_registry", {})
    entry = dict(registered.items()).get(component.name)
    # an object, or where to find one: "module:object", or an entry point
    path = entry if isinstance(entry, str) else getattr(entry, "value", None)
    return str(path or getattr(entry, "__module__", "")).startswith("lm_eval_bayes.")


@functools.cache
def _warn(message: str) -> None:
    log.warning("%s", message)


# -- evaluate, simple_evaluate and the command ---------------------------------------------------

#: The scores that the running command of the harness prints after its table; None without one.
_scores: list[str] | None = None


def _command(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def execute(args: Any) -> None:
        global _scores
        scores: list[str] = []
        _scores = scores
        try:
            original(args)
        finally:
            _scores = None
        sys.stdout.flush()  # the table
        for text in scores:
            print(text, file=sys.stderr)

    return execute


#: What `lm-eval-bayes run` calls in the place of `simple_evaluate`.
_replacement: Callable[..., Any] | None = None


@contextmanager
def in_place_of_simple_evaluate(function: Callable[..., Any]) -> Iterator[None]:
    """Let the harness's command line call a function in this block; it may call the original."""
    global _replacement
    _replacement = function
    try:
        yield
    finally:
        _replacement = None


def _simple_evaluate(original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def simple_evaluate(*args: Any, **kwargs: Any) -> Any:
        global _replacement
        arguments = signature.bind(*args, **kwargs).arguments
        if _replacement is not None:
            function, _replacement = _replacement, None
            return function(**arguments)
        results = original(*args, **kwargs)
        if results is not None and not sys.modules.keys().isdisjoint(_IN_USE):
            from lm_eval_bayes.harness.plugin import wrappers

            wrappers.check_results(results, arguments.get("evaluation_tracker"))
            if _scores:
                _scores[:] = wrappers.with_next_step(_scores, arguments)
        return results

    return simple_evaluate


def _evaluate(original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def evaluate(*args: Any, **kwargs: Any) -> Any:
        arguments = signature.bind(*args, **kwargs).arguments
        if sys.modules.keys().isdisjoint(_IN_USE) and not _names_trials(arguments["task_dict"]):
            return original(*args, **kwargs)
        from lm_eval_bayes.harness.plugin.wrappers import evaluate_with_trials

        results, scores = evaluate_with_trials(original, **arguments)
        if _scores is not None:
            _scores.extend(scores)
        return results

    return evaluate


def _names_trials(task_dict: Mapping[str, Any]) -> bool:
    """Return whether a task got `bayes_n`, which other tasks than ours ignore."""
    tasks = task_dict["tasks"].values() if "tasks" in task_dict else ()
    configs = [getattr(task, "config", None) for task in tasks]
    return any("bayes_n" in (getattr(config, "metadata", None) or {}) for config in configs)
