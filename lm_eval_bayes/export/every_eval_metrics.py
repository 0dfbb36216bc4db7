"""The results of one record of Every Eval Ever: a metric, its number and how sure it is."""

from __future__ import annotations

import math
from typing import Any

from lm_eval_bayes._util.text import one_line, replace_surrogates
from lm_eval_bayes.analysis.summary import TaskSummary
from lm_eval_bayes.export.benchmarks import KNOWN, dataset_of
from lm_eval_bayes.export.metric_names import Metric, metric_of
from lm_eval_bayes.export.settings import LONGEST, generation_settings, hub_id
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats.intervals import Interval, Scope
from lm_eval_bayes.stats.results import Posterior


def result_id(run: TaskRun, metric: str) -> str:
    """Return what instance-level records call a result of a run."""
    return f"{metric}:{one_line(run.filter)}" if run.filter not in ("", "none") else metric


def evaluation_name(run: TaskRun) -> str:
    """Return what both kinds of records call a run's task."""
    plain = run.filter in ("", "none")
    return one_line(run.task if plain else f"{run.task}/{run.filter}")


def ended(run: TaskRun) -> dict[str, str]:
    """Return when a run ended, where it is known."""
    date = run.made.date
    return (
        {} if date is None or not math.isfinite(date) else {"evaluation_timestamp": str(int(date))}
    )


def results_of(summary: TaskSummary, scope: Scope | None = None) -> list[dict[str, Any]]:
    """Return one result for every metric: the posteriors first, then the estimators.

    hbayes@N is there in one scope, or in both.
    """
    run, n = summary.run, summary.n
    shared: dict[str, Any] = {
        "evaluation_name": evaluation_name(run),
        "source_data": _source(run),
        **ended(run),
    }
    generation = _generation(run)
    if generation:
        shared["generation_config"] = generation
    learned, between = summary.learned, summary.intervals
    found = [
        _posterior(summary, f"hbayes@{n}{ending}", learned[about], between[about])
        for about, ending in _ENDINGS.items()
        if scope in (None, about)
    ]
    found.append(_posterior(summary, f"bayes@{n}", summary.paper, between["paper"]))
    if summary.average is not None:
        error = {"value": summary.average.sigma, "method": _AVERAGE_ERROR}
        found.append(_result(summary, f"avg@{n}", summary.average.value, standard_error=error))
    for name, number in summary.rows.items():
        if math.isfinite(number):
            found.append(_result(summary, name, number))
    return [{**one, **shared} for one in found]


#: What the rows of a posterior end with, by what it is about.
_ENDINGS: dict[Scope, str] = {"benchmark": "", "population": "_population"}

_AVERAGE_ERROR = (
    "posterior standard deviation under a uniform prior, on the scale of the mean of the trials "
    "[arXiv 2510.04265, eq. 20]"
)


def _posterior(
    summary: TaskSummary, name: str, posterior: Posterior, interval: Interval
) -> dict[str, Any]:
    prior = "uniform prior" if posterior.learned is None else "prior learned across the questions"
    about = "these questions" if interval.scope == "benchmark" else "questions like these"
    return _result(
        summary,
        name,
        posterior.mu,
        standard_error={
            "value": posterior.sigma,
            "method": f"posterior standard deviation, {prior}",
        },
        confidence_interval={
            "lower": interval.low,
            "upper": interval.high,
            "confidence_level": interval.level,
            "method": f"Bayesian credible interval ({interval.method}), {prior}, about {about}",
        },
    )


def _result(summary: TaskSummary, name: str, score: float, **uncertainty: Any) -> dict[str, Any]:
    run = summary.run
    weights = run.outcomes.weights
    low, high = (0.0, 1.0) if name in summary.rows else (float(weights.min()), float(weights.max()))
    about: Metric = metric_of(name, summary.n_range, run.binary)
    details = {"trials": str(run.n_trials), "trials_per_question": summary.n}
    if not run.binary:
        details["category_weights"] = ", ".join(f"{w:g}" for w in weights)
    if run.metric != "graded trials":
        details["counted"] = one_line(run.metric, 100)
    return {
        "evaluation_result_id": result_id(run, name),
        "metric_config": {
            "evaluation_description": about.description,
            "metric_id": about.id,
            "metric_name": name,
            "metric_kind": about.kind,
            "metric_unit": "proportion" if (low, high) == (0.0, 1.0) else "points",
            "metric_parameters": dict(about.parameters),
            "lower_is_better": False,
            "score_type": "continuous",
            "min_score": low,
            "max_score": high,
        },
        "score_details": {
            # rounding may lead a hair's breadth out of the range, which a reader may refuse
            "score": min(max(score, low), high),
            "details": details,
            "uncertainty": {**uncertainty, "num_samples": run.n_questions},
        },
    }


def _generation(run: TaskRun) -> dict[str, Any]:
    """Return the settings that the schema names, and the others as text."""
    args: dict[str, Any] = {}
    rest = dict(generation_settings(run))
    given = run.made.generation_kwargs
    for name in ("temperature", "top_p", "top_k"):
        value = given.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            args[name] = value
            rest.pop(name, None)
    for name in LONGEST:
        value = given.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            args["max_tokens"] = value
            rest.pop(name, None)
            break
    template = run.made.config.get("doc_to_text")
    if isinstance(template, str) and template:
        args["prompt_template"] = replace_surrogates(template[:10_000])
    shots = run.made.config.get("num_fewshot")
    if isinstance(shots, int):
        rest["num_fewshot"] = str(shots)
    found: dict[str, Any] = {}
    if args:
        found["generation_args"] = args
    if rest:
        found["additional_details"] = rest
    return found


def _source(run: TaskRun) -> dict[str, Any]:
    dataset, configuration = dataset_of(run)
    known = KNOWN.get(run.task)
    if not dataset and known is not None:
        dataset = known.dataset
    found: dict[str, Any] = {"dataset_name": one_line(run.task), "source_type": "other"}
    details = {"questions": str(run.n_questions)}
    if (run.made.n_questions or 0) > run.n_questions:
        details["questions_of_the_task"] = str(run.made.n_questions)
    if hub_id(dataset) is None:
        return {**found, "additional_details": details}
    if run.made.revision:
        details["revision"] = one_line(run.made.revision, 100)
    if configuration:
        details["config"] = one_line(configuration, 100)
    split = run.made.config.get("test_split") or run.made.config.get("validation_split")
    found |= {"source_type": "hf_dataset", "hf_repo": dataset}
    if isinstance(split, str):
        found["hf_split"] = one_line(split, 100)
    ids = [one_line(one) for one in run.question_ids]
    return {
        **found,
        "samples_number": run.n_questions,
        "sample_ids": ids,
        "additional_details": details,
    }
