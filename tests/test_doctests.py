"""The examples in the docstrings run."""

from __future__ import annotations

import doctest
import importlib

import pytest
from _support.paths import REPOSITORY

MODULES = sorted(
    ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
    for path in (REPOSITORY / "lm_eval_bayes").rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    result = doctest.testmod(importlib.import_module(name))
    assert (result.failed, result.attempted > 0) == (0, True)
