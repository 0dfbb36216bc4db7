"""A YAML file with `!function`, as in the harness's task files: a function beside the file."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from lm_eval_bayes.errors import TaskConfigError


def load_yaml(path: Path) -> Any:
    """Load a file.

    Parameters
    ----------
    path : Path
        A YAML file. ``!function module.name`` is the function `name` of module.py beside it,
        else of an installed module.

    Raises
    ------
    TaskConfigError
        If it cannot be read, or a function is not there.
    """

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_constructor(
        "!function", lambda loader, node: _function(str(node.value), path.parent)
    )
    try:
        # a safe loader but for !function, which names the user's own code
        return yaml.load(path.read_text(encoding="utf-8"), Loader=Loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        message = " ".join(str(error).split())
        raise TaskConfigError(f"the rubric {path.name} cannot be read: {message}") from None


def _function(spec: str, folder: Path) -> Callable[..., Any]:
    module, _, name = spec.rpartition(".")
    beside = folder.joinpath(*module.split(".")).with_suffix(".py") if module else None
    try:
        module_object = (
            _from_file(beside, module)
            if beside is not None and beside.is_file()
            else importlib.import_module(module)
        )
        function = getattr(module_object, name)
    except (ImportError, AttributeError, ValueError, SyntaxError) as error:
        raise TaskConfigError(f"`!function {spec}` cannot be found: {error}") from None
    if not callable(function):
        raise TaskConfigError(f"`!function {spec}` is no function; it is {function!r:.60}")
    return function


def _from_file(path: Path, module: str) -> Any:
    unique = f"_lm_eval_bayes_rubric_{abs(hash(str(path.resolve())))}_{module.replace('.', '_')}"
    if unique in sys.modules:
        return sys.modules[unique]
    spec = importlib.util.spec_from_file_location(unique, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no module")
    module_object = importlib.util.module_from_spec(spec)
    sys.modules[unique] = module_object
    try:
        spec.loader.exec_module(module_object)
    except BaseException:
        del sys.modules[unique]
        raise
    return module_object
