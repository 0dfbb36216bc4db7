"""The harness's task index without its own thousands of tasks, which take many seconds to read."""

from __future__ import annotations

import lm_eval.tasks

from lm_eval_bayes._util.files import task_configs_dir

CONFIGS = task_configs_dir()


def only_ours(monkeypatch):
    """Have every task manager know this package's tasks, and those of `--include_path`."""
    whole = lm_eval.tasks.TaskManager

    def few(include_path=None, **named):
        paths = include_path if isinstance(include_path, list) else [include_path]
        known = [str(CONFIGS), *(str(path) for path in paths if path)]
        return whole(include_path=known, include_defaults=False, **named)

    monkeypatch.setattr(lm_eval.tasks, "TaskManager", few)
