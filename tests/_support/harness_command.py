"""The harness's own command, run inside the tests' process, and a model that a test writes.

The harness reads its own thousands of tasks for many seconds; here it knows this package's and
those of a test.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lm_eval.tasks
import pytest
from lm_eval._cli.harness import HarnessCLI
from lm_eval.api.model import LM
from lm_eval.api.registry import MODEL_REGISTRY, register_model

from lm_eval_bayes._util.files import task_configs_dir

CONFIGS = task_configs_dir()


@contextmanager
def few_tasks(*folders: Path) -> Iterator[None]:
    """Let every task manager know only this package's tasks, and those in some folders.

    The folders are `folders` and those of `--include_path`.
    """
    manager = lm_eval.tasks.TaskManager

    def make(include_path: Any = None, **options: Any) -> Any:
        included = include_path if isinstance(include_path, list) else [include_path]
        paths = [str(path) for path in (CONFIGS, *folders, *included) if path]
        return manager(**{**options, "include_path": paths, "include_defaults": False})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lm_eval.tasks, "TaskManager", make)
        yield


def lm_eval_command(*arguments: object, folders: Sequence[Path] = ()) -> None:
    """Run `lm_eval run` with these arguments, and the tasks in some folders."""
    words = ["lm_eval", "run", *map(str, arguments)]
    with few_tasks(*folders), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", words)
        parsed = HarnessCLI().parse_args()
        parsed.func(parsed)


class GatewayLM(LM):
    """A backend that this package does not know; `say` answers, and its arguments have any names.

    Attributes
    ----------
    prompts : list of str
        The prompts, one entry a response, of all instances.
    say : callable
        Takes a prompt and how often this instance answered it before.
    """

    prompts: list[str] = []  # noqa: RUF012
    say: Callable[[str, int], str]

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        self.times: Counter[str] = Counter()

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        texts = []
        for request in requests:
            prompt = request.args[0]
            self.prompts.append(prompt)
            texts.append(type(self).say(prompt, self.times[prompt]))
            self.times[prompt] += 1
        return texts

    def loglikelihood(self, requests: Any, disable_tqdm: bool = False) -> Any:
        raise AssertionError("only generation is supported")

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> Any:
        raise AssertionError("only generation is supported")


@contextmanager
def gateway(say: Callable[[str, int], str]) -> Iterator[type[GatewayLM]]:
    """Let `--model gateway` answer by `say`; yield its class."""
    if "gateway" not in MODEL_REGISTRY:
        register_model("gateway")(GatewayLM)
    GatewayLM.prompts.clear()
    GatewayLM.say = staticmethod(say)
    yield GatewayLM
