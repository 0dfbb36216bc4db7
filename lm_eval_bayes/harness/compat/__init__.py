"""What differs between the harness's releases 0.4 and 0.5, under one set of names.

Everything else of this package uses the harness as 0.4 has it. `release_0_4` hands on its own
names; `release_0_5` puts the tasks and scorers of the preview 0.5.0.dev1 behind them.

- ``ConfigurableTask``: the class that `RepeatedSamplingTask` extends.
- ``new_instance``: make a request.
- ``sample_size``: the number of questions that ``--limit`` leaves.
- ``task_index``: the index of a `TaskManager`.
- ``name_in_results``: the name of a task in the results, with its group in 0.5.
- ``lists_bayes``, ``METRIC_FORM``: whether a task lists ``metric: bayes``, and whether it can.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

from lm_eval.api.instance import Instance

if importlib.util.find_spec("lm_eval.scorers") is None:
    from lm_eval_bayes.harness.compat.release_0_4 import METRIC_FORM as METRIC_FORM
    from lm_eval_bayes.harness.compat.release_0_4 import ConfigurableTask as ConfigurableTask
    from lm_eval_bayes.harness.compat.release_0_4 import instance_fields as instance_fields
    from lm_eval_bayes.harness.compat.release_0_4 import lists_bayes as lists_bayes
    from lm_eval_bayes.harness.compat.release_0_4 import name_in_results as name_in_results
    from lm_eval_bayes.harness.compat.release_0_4 import sample_size as sample_size
    from lm_eval_bayes.harness.compat.release_0_4 import task_index as task_index
else:
    from lm_eval_bayes.harness.compat.release_0_5 import METRIC_FORM as METRIC_FORM
    from lm_eval_bayes.harness.compat.release_0_5 import ConfigurableTask as ConfigurableTask
    from lm_eval_bayes.harness.compat.release_0_5 import instance_fields as instance_fields
    from lm_eval_bayes.harness.compat.release_0_5 import lists_bayes as lists_bayes
    from lm_eval_bayes.harness.compat.release_0_5 import name_in_results as name_in_results
    from lm_eval_bayes.harness.compat.release_0_5 import sample_size as sample_size
    from lm_eval_bayes.harness.compat.release_0_5 import task_index as task_index


def new_instance(
    doc: Any,
    arguments: tuple[Any, ...] = ("", {}),
    *,
    task: str = "",
    doc_id: int = 0,
    repeats: int = 1,
    resps: Sequence[Any] = (),
    original: Any = None,
    kind: type[Any] = Instance,
) -> Any:
    """Return a `generate_until` request.

    Parameters
    ----------
    doc : object
        The question.
    arguments : tuple
        Prompt and generation settings.
    task : str
        The name of the task.
    doc_id : int
        The number of the question.
    repeats : int
        How often the harness sends it.
    resps : sequence
        Its responses, for what is already answered.
    original : Instance, optional
        The request that it takes the place of, with its task and number.
    kind : type
        Its class.
    """
    return kind(
        request_type="generate_until",
        doc=doc,
        arguments=arguments,
        resps=list(resps),
        **instance_fields(task, doc_id, repeats, original),
    )
