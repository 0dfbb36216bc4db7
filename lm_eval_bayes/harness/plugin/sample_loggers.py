"""Weights & Biases and Trackio: one row a trial instead of one row a question.

The harness's loggers expect samples with one response and the value of each listed metric. A sample
of this package holds the N responses to a question. So the loggers get one sample for each trial;
the logged JSON artifact keeps the samples as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.plugin import patches

log = get_logger(__name__)

#: What a sample holds for each trial, and the name of one trial's value.
_PER_TRIAL = {"outcomes": "outcome", "answers": "answer", "lengths": "length"}


def install() -> None:
    """Give the loggers one sample a trial, where this harness has them."""
    for name, wrap in (
        (patches.WANDB_TABLE, _table_of_trials),
        (patches.TRACKIO_TRACES, _traces_of_trials),
    ):
        problem = patches.install(name, wrap)
        if problem is not None:
            log.debug("%s: it gets one row a question", problem)


def trials_of_sample(sample: Mapping[str, Any], metrics: Sequence[str]) -> list[dict[str, Any]]:
    """Return one sample for each trial of a sample of this package; another one as it is.

    Parameters
    ----------
    sample : mapping
        An entry of the harness's ``results["samples"][task]``.
    metrics : sequence of str
        The metrics that the task lists, that of `outcomes` first. Each trial has its value under
        these names.

    Returns
    -------
    list of dict
        With ``doc_id`` as ``QUESTION/TRIAL`` and the trial's own response, answer, category and
        signals.

    Examples
    --------
    >>> sample = {"doc_id": 3, "resps": [["12", "13"]], "filtered_resps": [["12", "13"]]}
    >>> sample |= {"metrics": ["exact_match"], "exact_match": [1.0, 0.0], "outcomes": [1, 0]}
    >>> trials = trials_of_sample(sample, ["exact_match"])
    >>> [(trial["doc_id"], trial["resps"], trial["exact_match"]) for trial in trials]
    [('3/0', [['12']], 1.0), ('3/1', [['13']], 0.0)]
    """
    outcomes, responses = sample.get("outcomes") or sample.get("scores"), sample.get("resps")
    if not outcomes or not responses or len(responses[0]) != len(outcomes):
        return [dict(sample)]
    filtered = sample.get("filtered_resps") or responses
    rows = set(sample.get("metrics") or ())
    common = {
        key: value
        for key, value in sample.items()
        if key not in rows and key not in _PER_TRIAL and key != "signals"
    }
    grades = {name: sample.get(name) for name in metrics}
    trials = []
    for trial in range(len(outcomes)):
        own = {
            name: sample[key][trial]
            for key, name in _PER_TRIAL.items()
            if len(sample.get(key) or ()) == len(outcomes)
        }
        signals = {
            name: values[trial]
            for name, values in (sample.get("signals") or {}).items()
            if len(values) == len(outcomes)
        }
        trials.append(
            {
                **common,
                **{name: column[trial] if column else None for name, column in grades.items()},
                **own,
                **signals,
                "metrics": [*metrics, *own, *signals],
                "doc_id": f"{sample.get('doc_id')}/{trial}",
                "resps": [[responses[0][trial]]],
                "filtered_resps": [_of_trial(filtered, trial, len(outcomes))],
            }
        )
    return trials


def _of_trial(filtered: Sequence[Any], trial: int, n: int) -> Any:
    """Return the filtered response of a trial, or what the filter made of all of them."""
    first = filtered[0]
    return first[trial] if isinstance(first, (list, tuple)) and len(first) == n else first


def _listed_metrics(config: Mapping[str, Any]) -> list[str]:
    """Return the metrics of a task's `metric_list`, that of the outcomes first."""
    names = [entry["metric"] for entry in config.get("metric_list") or () if "metric" in entry]
    settings = (config.get("metadata") or {}).get("bayes") or {}
    return sorted(names, key=lambda name: name != settings.get("metric"))


def _table_of_trials(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _generate_dataset(
        self: Any, data: Sequence[Mapping[str, Any]], config: Mapping[str, Any]
    ) -> Any:
        metrics = _listed_metrics(config)
        trials = [trial for sample in data for trial in trials_of_sample(sample, metrics)]
        table = original(self, trials, config)
        if any("outcomes" in sample for sample in data):
            table["answer"] = [trial.get("answer") for trial in trials]
        return table

    return _generate_dataset


def _traces_of_trials(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def log_eval_samples(self: Any, samples: Mapping[str, Sequence[Mapping[str, Any]]]) -> Any:
        expanded = {}
        for task, of_task in samples.items():
            metrics = _listed_metrics(self.task_configs.get(task) or {})
            expanded[task] = [
                trial for sample in of_task for trial in trials_of_sample(sample, metrics)
            ]
        return original(self, expanded)

    return log_eval_samples
