"""The results of a record of Every Eval Ever: metrics, their values and uncertainties."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from lm_eval_bayes._util.text import one_line, replace_surrogates, scope_label
from lm_eval_bayes.analysis.settings import settings_to_dict
from lm_eval_bayes.analysis.summary import TaskSummary
from lm_eval_bayes.export.run_metadata import (
    MAX_TOKENS_NAMES,
    benchmark_of,
    dataset_of,
    generation_settings,
    hub_id,
    is_filtered,
    published_label,
)
from lm_eval_bayes.runs.task_run import GRADED, TaskRun
from lm_eval_bayes.stats import Interval, Posterior, Scope


def result_id(run: TaskRun, metric: str) -> str:
    """Return the id of a result, to which instance-level records refer."""
    return f"{metric}:{one_line(run.filter)}" if is_filtered(run) else metric


def evaluation_name(run: TaskRun) -> str:
    """Return the evaluation name of a run in both kinds of records."""
    return one_line(f"{run.task}/{run.filter}" if is_filtered(run) else run.task)


def ended(run: TaskRun) -> dict[str, str]:
    """Return the time when a run ended, if known."""
    date = run.provenance.date
    if date is None or not math.isfinite(date):
        return {}
    return {"evaluation_timestamp": str(int(date))}


def results_of(
    summary: TaskSummary, scope: Scope | None = None, warnings: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return one result per metric: the posteriors first, then the estimators.

    hbayes@N has a result for `scope`, or for both scopes. `warnings` are part of the details of
    every result.
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
    learned, intervals = summary.learned, summary.intervals
    posteriors = {
        f"hbayes@{n}{suffix}": (learned[of], intervals[of])
        for of, suffix in _SCOPE_SUFFIXES.items()
        if scope in (None, of)
    }
    if summary.paper is not None:
        posteriors[f"bayes@{n}"] = summary.paper, intervals["paper"]
    results = [_posterior_result(summary, name, *of) for name, of in posteriors.items()]
    if summary.average is not None:
        method = _SCORE_ERROR if run.scored else _AVERAGE_ERROR
        sigma = summary.average.sigma
        has_sd = sigma is not None and math.isfinite(sigma)
        error = {"standard_error": {"value": sigma, "method": method}} if has_sd else {}
        results.append(_result(summary, f"avg@{n}", summary.average.value, **error))
    results += [
        _result(summary, name, number)
        for name, number in summary.rows.items()
        if math.isfinite(number)
    ]
    results += [
        _posterior_result(summary, name, posterior, posterior.interval())
        for name, posterior in summary.family.items()
    ]
    if warnings:
        for result in results:
            result["score_details"]["details"]["warnings"] = "; ".join(warnings)
    # the ids of the questions stand in the first result, not in all of fifty
    source = {k: v for k, v in shared["source_data"].items() if k != "sample_ids"}
    first, *others = results
    return [{**first, **shared}] + [{**other, **shared, "source_data": source} for other in others]


#: Suffixes of the names of hbayes@N, by scope.
_SCOPE_SUFFIXES: dict[Scope, str] = {"benchmark": "", "population": "_population"}

_AVERAGE_ERROR = (
    "posterior standard deviation under a uniform prior, on the scale of the mean of the trials "
    "[arXiv 2510.04265, eq. 20]"
)

_SCORE_ERROR = (
    "standard error of the mean for these questions, with the variance of scores around their "
    "question's mean, pooled over questions"
)


def _posterior_result(
    summary: TaskSummary, name: str, posterior: Posterior, interval: Interval
) -> dict[str, Any]:
    prior = "uniform prior" if posterior.learned is None else "prior learned across the questions"
    about = scope_label(interval.scope)
    sd = {"value": posterior.sigma, "method": f"posterior standard deviation, {prior}"}
    ends = {
        "lower": interval.low,
        "upper": interval.high,
        "confidence_level": interval.level,
        "method": f"Bayesian credible interval ({interval.method}), {prior}, about {about}",
    }
    return _result(summary, name, posterior.mu, standard_error=sd, confidence_interval=ends)


def _result(summary: TaskSummary, name: str, score: float, **uncertainty: Any) -> dict[str, Any]:
    run = summary.run
    of_family = _ROW.fullmatch(name) is not None
    low, high = (0.0, 1.0) if of_family else run.outcomes.bounds
    details = {"trials": str(run.n_trials), "trials_per_question": summary.n}
    if run.scored and of_family:
        details["threshold"] = f"{run.threshold:g}"
    elif not run.scored and not run.binary:
        details["category_weights"] = ", ".join(f"{w:g}" for w in run.outcomes.weights)
    over_settings = settings_to_dict(summary.over_settings[0])
    if over_settings is not None and name.startswith("hbayes@"):
        labels = [published_label(run.settings, s) for s in range(len(run.settings))]
        details["settings"] = json.dumps({**over_settings, "labels": labels})
    if run.metric != GRADED:
        details["counted"] = one_line(run.metric, 100)
    return {
        "evaluation_result_id": result_id(run, name),
        "metric_config": {
            **metric_of(name, summary.n_range, run.binary),
            "metric_name": name,
            "metric_unit": "proportion" if (low, high) == (0.0, 1.0) else "points",
            "lower_is_better": False,
            "score_type": "continuous",
            "min_score": low,
            "max_score": high,
        },
        "score_details": {
            # rounding errors may leave the range, which readers of the schema may reject
            "score": min(max(score, low), high),
            "details": details,
            "uncertainty": {**uncertainty, "num_samples": run.n_questions},
        },
    }


def _generation(run: TaskRun) -> dict[str, Any]:
    """Return the generation settings: those of the schema by its names, others as text."""
    kwargs = run.provenance.generation_kwargs
    args = {k: kwargs[k] for k in ("temperature", "top_p", "top_k") if _is_number(kwargs.get(k))}
    rest = {k: text for k, text in generation_settings(run).items() if k not in args}
    for name in MAX_TOKENS_NAMES:
        value = kwargs.get(name)
        if _is_number(value) and isinstance(value, int) and value > 0:
            args["max_tokens"] = value
            del rest[name]
            break
    template = run.provenance.config.get("doc_to_text")
    if isinstance(template, str) and template:
        args["prompt_template"] = replace_surrogates(template[:10_000])
    shots = run.provenance.config.get("num_fewshot")
    if isinstance(shots, int):
        rest["num_fewshot"] = str(shots)
    if run.provenance.protocol:
        rest["protocol"] = run.provenance.protocol
    settings = {"generation_args": args, "additional_details": rest}
    return {name: values for name, values in settings.items() if values}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _source(run: TaskRun) -> dict[str, Any]:
    recorded, configuration = dataset_of(run)
    dataset = recorded or benchmark_of(run).dataset
    source: dict[str, Any] = {
        "dataset_name": one_line(dataset or run.task),
        "source_type": "other",
    }
    details = {"questions": str(run.n_questions)}
    if (run.provenance.n_questions or 0) > run.n_questions:
        details["questions_of_the_task"] = str(run.provenance.n_questions)
    if hub_id(dataset) is not None:
        version = {"revision": run.provenance.revision, "config": configuration}
        details |= {name: one_line(text, 100) for name, text in version.items() if text}
        source |= {"source_type": "hf_dataset", "hf_repo": dataset}
        config = run.provenance.config
        split = config.get("test_split") or config.get("validation_split")
        if isinstance(split, str):
            source["hf_split"] = one_line(split, 100)
        source["samples_number"] = run.n_questions
        source["sample_ids"] = [one_line(question) for question in run.question_ids]
    return {**source, "additional_details": details}


# -- names and descriptions of metrics -----------------------------------------------------------


#: Id and description of the rows of a summary, by the beginnings of their names.
_METRICS: dict[str, tuple[str, str]] = {
    "avg@": ("avg_at_n", "Mean score of the trials over all questions, with equal weights"),
    "bayes@": (
        "bayes_at_n",
        "Posterior mean of the score, under a uniform prior for every question [arXiv 2510.04265]",
    ),
    "hbayes@": (
        "hbayes_at_n",
        "Posterior mean of the score, under a prior learned across the questions",
    ),
    "pass@": (
        "pass_at_k",
        "Probability that at least one of k trials is right [arXiv 2107.03374]",
    ),
    "pass^": ("pass_hat_k", "Probability that all of k trials are right [arXiv 2406.12045]"),
    "g-pass@": (
        "g_pass_at_k",
        "Probability that at least the share tau of k trials is right [arXiv 2412.13147]",
    ),
    "mg-pass@": (
        "mg_pass_at_k",
        "Mean of G-Pass@k over thresholds from one half to one [arXiv 2412.13147]",
    ),
    "maj@": ("maj_at_k", "Probability that the most frequent answer of k trials is right"),
}
#: A row of the pass family; with an h it is a posterior.
_ROW = re.compile(r"(h?)(pass@|pass\^|g-pass@|mg-pass@|maj@)(\d+)(?:_([0-9.e-]+))?")
_PREFIX = "lm-eval-bayes"


def metric_of(name: str, n_range: tuple[int, int], binary: bool = True) -> dict[str, Any]:
    """Return the id, kind, description and parameters of a row of a summary.

    The id, by which results are joined, has the prefix "lm-eval-bayes." unless the metric is also
    that of others.

    Parameters
    ----------
    name : str
        The row, such as "pass@4" or "hbayes@8_population".
    n_range : tuple of int
        The fewest and the most trials of a question.
    binary : bool
        Whether a trial is right or wrong and nothing else.

    Examples
    --------
    >>> metric_of("g-pass@4_0.5", (8, 8))["metric_parameters"]
    {'k': 4, 'n': 8, 'tau': 0.5}
    >>> metric_of("avg@6 to 8", (6, 8))["metric_parameters"]
    {'n': 6, 'n_max': 8}
    >>> metric_of("avg@8", (8, 8))["metric_id"]
    'accuracy'
    >>> metric_of("hbayes@8_population", (8, 8))["metric_parameters"]["scope"]
    'population'
    """
    n_min, n_max = n_range
    parameters: dict[str, Any] = {"n": n_min} if n_max == n_min else {"n": n_min, "n_max": n_max}
    kind = "accuracy" if binary else "rubric_score"
    match = _ROW.fullmatch(name)
    if match is not None:
        posterior, stem, k, tau = match.groups()
        id, description = _METRICS[stem]
        if posterior:
            id = f"h{id}"
            description += ", posterior mean under a prior learned across the questions"
        kind = "accuracy" if stem == "maj@" else "pass_rate"
        parameters = {"k": int(k), **parameters, **({} if tau is None else {"tau": float(tau)})}
    else:
        stem = name.partition("@")[0]
        id, description = _METRICS[f"{stem}@"]
        if stem != "avg":
            scope = "population" if name.endswith("_population") else "benchmark"
            parameters |= {"prior": "learned" if stem == "hbayes" else "uniform", "scope": scope}
            description += f", about {scope_label(scope)}"
            id += "_population" * (scope == "population")
        elif binary:
            id = "accuracy"
    return {
        "evaluation_description": f"{description}.",
        # others use these ids with the same meaning
        "metric_id": id if id in ("pass_at_k", "accuracy") else f"{_PREFIX}.{id}",
        "metric_kind": kind,
        "metric_parameters": parameters,
    }
