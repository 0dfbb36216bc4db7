"""Forty short arithmetic problems that are part of the package, for a first run offline."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import datasets


def load(**_: Any) -> dict[str, datasets.Dataset]:
    """Return the demo questions, as the harness's `custom_dataset` wants them.

    The harness calls this with the task's metadata, which includes the model's
    arguments; none of it changes the questions.

    Returns
    -------
    dict
        One split, ``test``: 40 rows with ``id`` (text), ``problem`` (text), ``answer``
        (an integer, as text) and ``level`` (1 for the easiest to 5, eight rows
        each). A fifth field, ``check``, is the problem as an arithmetic expression, from
        which the tests compute the answer again.

    Examples
    --------
    >>> questions = load()["test"]
    >>> len(questions), questions[0]["problem"], questions[0]["answer"]
    (40, 'What is 7 + 5?', '12')
    """
    lines = files("lm_eval_bayes.harness.task").joinpath("demo_arithmetic.jsonl")
    rows = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    return {"test": datasets.Dataset.from_list(rows)}
