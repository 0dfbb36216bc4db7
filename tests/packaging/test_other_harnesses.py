"""A harness that discovers plugins by itself, and one that cannot be extended our way.

The first is the released harness with the discovery of the unreleased main branch put in: its
plugin guide says how an entry point becomes a placeholder, when it is loaded and what its module
must have registered by then.
"""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint

import pytest
from _support.paths import REPOSITORY

from lm_eval_bayes.harness.plugin.registration import COMPONENTS

MAIN_BRANCH = """
import importlib.metadata as md, sys
import lm_eval.api.registry as registry

GROUPS = {
    "lm_eval.metrics": registry.metric_registry,
    "lm_eval.aggregations": registry.aggregation_registry,
    "lm_eval.filters": registry.filter_registry,
    "lm_eval.models": registry.model_registry,
}
done = set()

def load_plugins(group, into):
    if group not in done:
        done.add(group)
        for point in md.entry_points(group=group):
            if point.name not in into:  # built-in components always win
                into.register(point.name, target=point)

def register(self, *aliases, target=None, released=registry.Registry.register):
    def decorator(thing):
        for alias in aliases:
            placeholder = self._objs.get(alias)
            if getattr(placeholder, "value", None) == f"{thing.__module__}:{thing.__name__}":
                self._objs[alias] = thing  # the placeholder gives way to the real thing
        return released(self, *aliases)(thing)
    return decorator if target is None else released(self, *aliases, target=target)

registry.Registry.register = register
registry.load_plugins = load_plugins

def discover():
    for group, into in GROUPS.items():
        load_plugins(group, into)
"""


def entry_points() -> dict[str, dict[str, str]]:
    """The entry points that pyproject.toml declares, by group."""
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    groups: dict[str, dict[str, str]] = {}
    for group, body in re.findall(
        r'^\[project\.entry-points\."([\w.]+)"\]\n((?:[\w-]+ = ".*"\n)+)', text, flags=re.MULTILINE
    ):
        groups[group] = dict(re.findall(r'([\w-]+) = "(.*)"', body))
    return groups


@pytest.fixture
def installed_metadata(tmp_path):
    """A folder with the metadata that an installer writes for this package."""
    folder = tmp_path / "metadata"
    info = folder / "lm_eval_bayes-0.0.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lm-eval-bayes\nVersion: 0.0.0\n")
    lines = []
    for group, points in entry_points().items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


def test_the_entry_points_are_the_components():
    declared = entry_points()
    assert declared.pop("lm_eval.tasks") == {"lm_eval_bayes": "lm_eval_bayes.task_configs"}
    expected: dict[str, dict[str, str]] = {}
    for c in COMPONENTS:
        expected.setdefault(f"lm_eval.{c.kind}s", {})[c.name] = f"{c.module}:{c.attribute}"
    assert declared == expected


@pytest.mark.parametrize(
    "value",
    [
        value
        for group, points in entry_points().items()
        for value in points.values()
        if group != "lm_eval.tasks"  # names a folder
    ],
)
def test_an_entry_point_names_what_it_loads(value):
    thing = EntryPoint(name="any", group="any", value=value).load()
    assert f"{thing.__module__}:{thing.__name__}" == value


@pytest.mark.slow
def test_the_main_branch_is_left_to_its_own_discovery(python, site_folder, installed_metadata):
    code = f"""
import sys; sys.path.insert(0, {str(installed_metadata)!r})
{MAIN_BRANCH}
import lm_eval.tasks, lm_eval.models
assert not any("bayes" in into or "biased_coin" in into for into in GROUPS.values())
assert "lm_eval_bayes.harness.plugin.bayes_metric" not in sys.modules

discover()
assert registry.get_metric("bayes").__module__ == "lm_eval_bayes.harness.plugin.bayes_metric"
assert registry.get_aggregation("bayes").__module__ == "lm_eval_bayes.harness.plugin.bayes_metric"
assert registry.get_filter("keep_all").__name__ == "KeepAllFilter"
assert registry.get_model("biased_coin").__name__ == "BiasedCoinLM"
assert callable(registry.get_metric("exact_match"))

# `higher_is_better` and the default aggregation come from the decorator alone
assert registry.is_higher_better("bayes") is True
aggregation = registry.get_metric_aggregation("bayes")
assert aggregation.__module__ == "lm_eval_bayes.harness.plugin.bayes_metric"
assert not hasattr(registry.metric_registry._objs["bayes"], "value"), "still a placeholder"

# the tasks are found too
from lm_eval.tasks._index import TaskIndex
roots = []
TaskIndex._iter_yaml_files = lambda root: roots.append(root.name) or []
lm_eval.tasks.TaskManager()
assert roots == ["tasks", "task_configs"]
"""
    result = python(code, start=site_folder)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ("del TaskIndex.build", "TaskIndex.build"),
        ("del registry.filter_registry", "a registry of filters"),
    ],
)
def test_a_harness_that_cannot_be_extended_gets_one_warning(python, change, missing):
    code = f"""
    import lm_eval.tasks, lm_eval.filters, lm_eval.models
    from lm_eval.api import registry
    from lm_eval.tasks._index import TaskIndex
    {change}
    from lm_eval_bayes._util.files import task_configs_dir
    from lm_eval_bayes.harness.plugin import registration
    for name in registration.HOOKS * 2:
        registration.harness_imported(name)
    print(f"--include_path {{task_configs_dir()}}")
    """
    result = python(code, LM_EVAL_BAYES_AUTOLOAD="0")
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("cannot extend this lm-evaluation-harness") == 1
    assert f"has no {missing}" in result.stderr
    assert result.stdout.strip() in result.stderr


@pytest.mark.slow
def test_a_harness_that_finds_task_folders_by_itself_gets_no_warning(python):
    code = """
    import lm_eval.tasks.manager as manager
    del manager.TaskIndex.build
    manager.discover_plugin_task_paths = lambda: []
    from lm_eval_bayes.harness.plugin import registration
    registration.harness_imported("lm_eval.tasks")
    """
    result = python(code, LM_EVAL_BAYES_AUTOLOAD="0")
    assert (result.returncode, result.stderr) == (0, "")
