"""The examples in the docstrings run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import lm_eval_bayes

# Models of optional backends and the worker and command modules are imported by other tests.
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(lm_eval_bayes.__path__, "lm_eval_bayes.")
    if module.name != "lm_eval_bayes.__main__" and "._boot" not in module.name
)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0
