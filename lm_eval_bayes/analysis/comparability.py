"""Whether runs can be compared, question by question, and what their trials cannot tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy import special

from lm_eval_bayes._util.text import shorten_middle
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.provenance import greedy
from lm_eval_bayes.runs.task_run import GRADED, REGRADED, TaskRun
from lm_eval_bayes.stats import FloatArray, IntArray, ScoreOutcomes

#: Number of ids that an error names for each run.
_MAX_IDS_IN_ERROR = 3
#: Largest probability by which runs may agree in every outcome without being called copies.
_COINCIDENCE = 1e-6
#: What identical runs do.
ARE_COPIES = "agree in every outcome, as copies do"


def identical_runs(runs: Sequence[TaskRun]) -> tuple[tuple[str, ...], ...]:
    """Return the models of runs that agree in the outcome of every trial, group by group.

    Trials are compared in their order where both runs have it, otherwise their counts. Runs
    that agree by chance are not named: a group counts if so many runs with its shares of outcomes
    agree with a probability below one in a million, so that models that solve everything
    are no copies of each other. A question's shares are those of its trials and of one more trial
    with the shares of all questions.

    Parameters
    ----------
    runs : sequence of TaskRun
        Comparable with each other.

    Examples
    --------
    >>> trials = [[0, 1, 1, 0], [1, 1, 0, 0], [0, 1, 0, 1], [0, 0, 1, 1], [1, 0, 1, 0]]
    >>> ids = list("pqrst")
    >>> runs = [TaskRun.from_trials(name, "aime", trials, ids) for name in ("a", "b")]
    >>> identical_runs(runs)
    (('a', 'b'),)
    """
    has_trials = all(run.trials is not None or run.scored for run in runs)
    groups: dict[tuple[bytes, ...], list[TaskRun]] = {}
    for run in runs:
        outcomes = run.outcomes
        of_questions: Sequence[IntArray] | Sequence[FloatArray] = list(outcomes.counts)
        if isinstance(outcomes, ScoreOutcomes):
            of_questions = outcomes.scores
        elif has_trials and run.trials is not None:
            of_questions = [trials.astype(np.int64) for trials in run.trials]
        key = tuple(of_questions[row].tobytes() for row in aligned_rows(run, runs[0]).tolist())
        groups.setdefault(key, []).append(run)
    return tuple(
        tuple(run.model for run in group)
        for group in groups.values()
        if (len(group) - 1) * _log_coincidence(group[0], has_trials) < np.log(_COINCIDENCE)
    )


def _log_coincidence(run: TaskRun, by_trial: bool) -> float:
    """Return the log probability that another run with this one's shares agrees with it.

    Of scores those in 32 bins.
    """
    counts = run.outcomes.counts
    if isinstance(run.outcomes, ScoreOutcomes):
        edges = np.histogram_bin_edges(np.concatenate(run.outcomes.scores), 32)
        counts = np.stack([np.histogram(scores, edges)[0] for scores in run.outcomes.scores])
    n_trials = counts.sum(axis=1)
    pooled = (counts.sum(axis=0) + 0.5) / (n_trials.sum() + 0.5 * counts.shape[1])
    share = (counts + pooled) / (n_trials + 1.0)[:, None]
    log_probability = (counts * np.log(share)).sum()
    if not by_trial:
        arrangements = special.gammaln(n_trials + 1.0) - special.gammaln(counts + 1.0).sum(axis=1)
        log_probability += arrangements.sum()
    return float(log_probability)


def check_comparable(runs: Sequence[TaskRun]) -> None:
    """Raise unless the runs can be compared with each other.

    Raises
    ------
    InvalidInputError
        If there is no run, they are of several tasks, two models have the same name, metrics or
        filters differ, category weights differ, a run has no trial that counts, or the models
        answered different questions; the message names the first questions that differ.
    """
    check_one_task(runs)
    check_counted(runs)
    first = runs[0]
    for run in runs[1:]:
        check_same_metric(first, run)
        check_same_weights(first, run)
        check_same_questions(first, run)


def check_counted(runs: Sequence[TaskRun]) -> None:
    """Raise where a run has no trial that counts: its score would be that of the prior alone."""
    for run in runs:
        if not run.outcomes.n_trials.any():
            rule = "hold a trial with a score (--unscored wrong counts the others as wrong)"
            got = f"none of {run.model} on {run.task}"
            raise InvalidInputError.of("RUN", "empty", rule, got)


def check_one_task(runs: Sequence[TaskRun]) -> None:
    """Raise unless the runs are of one task and of models with different names.

    Raises
    ------
    InvalidInputError
        If there is no run, they are of several tasks, or two models have the same name.
    """
    if not runs:
        raise InvalidInputError.of("RUN", "empty", "be at least one", "none")
    tasks = list(dict.fromkeys(run.task for run in runs))
    if len(tasks) > 1:
        raise InvalidInputError.of("RUN", "mismatch", "be of one task", ", ".join(tasks))
    models = [run.model for run in runs]
    if len(set(models)) < len(models):
        raise InvalidInputError.of("RUN", "duplicate", "have different names", ", ".join(models))


def metric_difference(a: TaskRun, b: TaskRun) -> Literal["metric", "filter"] | None:
    """Return whether two runs differ in metric or in filter; None if in neither, or unknown."""
    if len({a.metric, b.metric} - {GRADED, REGRADED}) == 2:
        return "metric"
    regraded = REGRADED in (a.metric, b.metric)
    return "filter" if a.filter and b.filter and a.filter != b.filter and not regraded else None


def check_same_metric(a: TaskRun, b: TaskRun, argument: str = "RUN") -> None:
    """Raise if the outcomes of two runs are of different metrics or filters.

    Different metrics of one task are, for example, acc and acc_norm; different filters extract
    different answers.

    Raises
    ------
    InvalidInputError
        If metric or filter differ.
    """
    kind = metric_difference(a, b)
    if kind is None:
        return
    of_a, of_b = (a.metric, b.metric) if kind == "metric" else (a.filter, b.filter)
    rule = (
        f"have the same {kind}; {a.model} has {of_a} on {a.task} (--{kind} selects one that all "
        "runs have)"
    )
    raise InvalidInputError.of(argument, "mismatch", rule, f"{of_b} of {b.model}")


def check_same_weights(a: TaskRun, b: TaskRun, argument: str = "RUN") -> None:
    """Raise if two runs have different category weights, or one of them has scores.

    Raises
    ------
    InvalidInputError
        If they differ.
    """
    of_a, of_b = a.outcomes.weights.tolist(), b.outcomes.weights.tolist()
    if a.scored != b.scored:
        kinds = ["scores" if run.scored else "categories" for run in (a, b)]
        rule = f"have the same kind of outcomes on {a.task}: {a.model} has {kinds[0]}"
        raise InvalidInputError.of(argument, "mismatch", rule, f"{kinds[1]} of {b.model}")
    if of_a != of_b:
        noun = "bounds of scores" if a.scored else "category weights"
        rule = f"have the same {noun} on {a.task}: {a.model} has {of_a}"
        raise InvalidInputError.of(argument, "mismatch", rule, f"{of_b} for {b.model}")


def check_same_questions(a: TaskRun, b: TaskRun, argument: str = "RUN", remedy: str = "") -> None:
    """Raise if two runs have different questions; the message names the first of them.

    `remedy` ends the rule if the runs have some questions in common.

    Raises
    ------
    InvalidInputError
        If the sets of question ids differ.
    """
    differences = [_only_in(a, b), _only_in(b, a)]
    if any(differences):
        rule = f"have answered the same questions of {a.task}"
        if not set(a.question_ids).isdisjoint(b.question_ids):
            rule += remedy
        raise InvalidInputError.of(argument, "mismatch", rule, "; ".join(filter(None, differences)))


def _only_in(run: TaskRun, other: TaskRun) -> str | None:
    """Name the questions of `run` that `other` lacks; None if there are none."""
    other_ids = set(other.question_ids)
    missing = [question for question in run.question_ids if question not in other_ids]
    if not missing:
        return None
    n_more = len(missing) - _MAX_IDS_IN_ERROR
    more = f" and {n_more} more" if n_more > 0 else ""
    ids = ", ".join(shorten_middle(question, 20) for question in missing[:_MAX_IDS_IN_ERROR])
    return f"only {run.model} has {ids}{more}"


def question_rows(run: TaskRun) -> dict[str, int]:
    """Return the row of every question in a run's outcomes, by question id."""
    return {question: row for row, question in enumerate(run.question_ids)}


def aligned_rows(run: TaskRun, reference: TaskRun) -> IntArray:
    """Return the rows of a run's outcomes in the order of another run's questions, shape (M,)."""
    if run.question_ids == reference.question_ids:
        return np.arange(run.n_questions, dtype=np.int64)
    rows = question_rows(run)
    return np.array([rows[question] for question in reference.question_ids], dtype=np.int64)


def short_text(text: str, longest: int = 60) -> str:
    """Return a question's text on one line, truncated if it is long.

    Examples
    --------
    >>> short_text(" What is" + chr(10) + "7 + 5?")
    'What is 7 + 5?'
    >>> short_text("word " * 1000, 20)
    'word word word word…'
    """
    line = " ".join(text[: 8 * longest].split())
    return line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"


def repeat_note(run: TaskRun) -> str | None:
    """Return a warning if further trials would repeat the present ones, else None.

    An agent's trials differ also where the agent decodes greedily, since those of its simulated
    user and its tools do.
    """
    output_type, kwargs = run.provenance.config.get("output_type"), run.provenance.generation_kwargs
    likelihoods = output_type is not None and output_type != "generate_until"
    if not likelihoods and not (kwargs and greedy(kwargs)):
        return None
    if run.provenance.setup is not None or _trials_differ(run):
        return None
    reason = "compares likelihoods" if likelihoods else "decodes greedily"
    return (
        f"{run.model} {reason} on {run.task}: a further trial would repeat the first. More "
        "questions would help, or sampling at a temperature."
    )


def _trials_differ(run: TaskRun) -> bool:
    """Return whether a question has trials with different outcomes."""
    if isinstance(run.outcomes, ScoreOutcomes):
        return any(np.unique(scores).size > 1 for scores in run.outcomes.scores)
    return bool(((run.outcomes.counts > 0).sum(axis=1) > 1).any())
