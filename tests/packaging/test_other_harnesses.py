"""What pyproject.toml declares, and a harness that cannot be extended our way."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint

import pytest
from _support.paths import REPOSITORY

from lm_eval_bayes.harness.plugin.registration import COMPONENTS


def entry_points() -> dict[str, dict[str, str]]:
    """The entry points that pyproject.toml declares, by group."""
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    groups: dict[str, dict[str, str]] = {}
    for group, body in re.findall(
        r'^\[project\.entry-points\."([\w.]+)"\]\n((?:[\w-]+ = ".*"\n)+)', text, flags=re.MULTILINE
    ):
        groups[group] = dict(re.findall(r'([\w-]+) = "(.*)"', body))
    return groups


def test_the_entry_points_are_the_components():
    declared = entry_points()
    assert declared.pop("lm_eval.tasks") == {"lm_eval_bayes": "lm_eval_bayes.task_configs"}
    expected: dict[str, dict[str, str]] = {}
    for c in COMPONENTS:
        expected.setdefault(f"lm_eval.{c.kind}s", {})[c.name] = c.target
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
@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ("del TaskIndex.build", "lm_eval.tasks._index:TaskIndex.build is missing"),
        ("TaskManager.match_tasks = lambda self: []", "TaskManager.match_tasks takes no `task_"),
        ("del registry.filter_registry", "filter_registry"),
    ],
)
def test_a_harness_that_cannot_be_extended_is_told_so_once(python, change, missing):
    code = f"""
    import lm_eval.tasks, lm_eval.filters, lm_eval.models
    from lm_eval.api import registry
    from lm_eval.tasks import TaskManager
    from lm_eval.tasks._index import TaskIndex
    {change}
    from lm_eval_bayes.harness.plugin import registration
    for name in registration.HOOKS * 2:
        registration.harness_imported(name)
    """
    result = python(code, LM_EVAL_BAYES_AUTOLOAD="0")
    assert result.returncode == 0, result.stderr
    assert result.stderr.count(missing) == len(result.stderr.splitlines()) == 1
