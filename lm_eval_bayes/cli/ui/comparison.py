"""What `compare` prints: the differences of two models, the verdicts, and the questions."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lm_eval_bayes._util.text import (
    NO_VALUE,
    format_interval,
    format_mean_sd,
    format_range,
    format_score,
    interval_label,
    plural,
    probability_statement,
    scope_label,
    shorten_middle,
)
from lm_eval_bayes.cli.ui.output import (
    say,
    say_prose,
    say_records,
    say_table,
    sentence_name,
    warn,
    warn_notes,
)

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.comparison import MeanDifference, RunComparison, TaskComparison
    from lm_eval_bayes.runs.task_run import TaskRun
    from lm_eval_bayes.stats import (
        Comparison,
        IntervalSpec,
        PassCurveComparison,
        SingleTrialComparison,
    )


def sources_of(runs: Sequence[TaskRun]) -> list[str]:
    """Return the files that runs are from."""
    return list(dict.fromkeys(source for run in runs for source in run.sources))


def comparison_record(
    comparison: RunComparison, runs_a: Sequence[TaskRun], runs_b: Sequence[TaskRun], align: str
) -> dict[str, Any]:
    """Return a comparison as it is printed as JSON."""
    return {
        "a": {"model": runs_a[0].model, "sources": sources_of(runs_a)},
        "b": {"model": runs_b[0].model, "sources": sources_of(runs_b)},
        "align": align,
        "p_a_less": 1.0 - comparison.p_a_greater,
        **comparison.to_dict(),
    }


def show_comparison(
    comparison: RunComparison,
    runs_a: Sequence[TaskRun],
    runs_b: Sequence[TaskRun],
    spec: IntervalSpec,
    plan: Sequence[str],
) -> None:
    """Print a comparison.

    Parameters
    ----------
    comparison : RunComparison
        The comparison.
    runs_a, runs_b : sequence of TaskRun
        The runs of either model.
    spec : IntervalSpec
        The settings of the intervals.
    plan : sequence of str
        The command that forecasts further trials, which is named where they may decide.
    """
    for side, runs in (("A", runs_a), ("B", runs_b)):
        sources = sources_of(runs)
        origin = f", from {sources[0]}" if sources else ""
        if len(sources) > 1:
            origin += f" and {plural(len(sources) - 1, 'more source')}"
        say_prose(f"{side} is {sentence_name(runs[0].model)}{origin}")
    for task in comparison.tasks:
        say()
        _show_task(task, spec)
    if comparison.overall is not None:
        say()
        _show_overall(comparison.overall, spec)
    for side, tasks in (("A", comparison.only_a), ("B", comparison.only_b)):
        if tasks:
            say_prose(f"left out: {', '.join(tasks)}, which only {side} has")
    if _more_trials_may_decide(comparison):
        scope = ["--scope", "population"] if spec.scope == "population" else []
        say(f"for the number of trials that may decide: {shlex.join([*plan, *scope])}")
    posteriors = [(task.task, task.comparison.posterior.note) for task in comparison.tasks]
    warn_notes((task, (), note) for task, note in posteriors if note is not None)
    for task in comparison.tasks:
        for warning in task.differs:
            warn(f"warning: {warning}")


def _more_trials_may_decide(comparison: RunComparison) -> bool:
    """Whether the comparison is undecided, and further trials would not repeat the saved ones."""
    from lm_eval_bayes.analysis.independence import repeat_note
    from lm_eval_bayes.stats import CONFIDENCE

    if any(repeat_note(run) for task in comparison.tasks for run in (task.a, task.b)):
        return False
    if (comparison.overall or comparison.tasks[0]).distinguishable:
        return False
    result = comparison.overall or comparison.tasks[0].comparison
    return result.p_rope is None or result.p_rope < CONFIDENCE


def questions_left_out(c: Comparison) -> list[str]:
    """Return how many questions only one side has."""
    sides = (("A", c.left_out_a), ("B", c.left_out_b))
    return [f"{plural(n, 'question')} that only {side} has" for side, n in sides if n]


def _show_task(task: TaskComparison, spec: IntervalSpec) -> None:
    c = task.comparison
    n_a, n_b = (format_range(run.outcomes.trials_range) for run in (task.a, task.b))
    n = f"N = {n_a}" if n_a == n_b else f"N = {n_a} for A and {n_b} for B"
    if task.a.counted != "graded trials":
        n += f", {task.a.counted}"
    protocols = dict.fromkeys(run.provenance.protocol for run in (task.a, task.b))
    n += "".join(f", protocol {protocol}" for protocol in protocols if protocol)
    scope = scope_label(c.scope, c.n_clusters)
    title = f"{task.task}: {plural(c.n_questions, 'question')}, {n}, for {scope}"
    paired = ", paired" if c.scope == "population" else ""
    avg_a, avg_b = task.avg_a, task.avg_b
    difference = None if avg_a is None or avg_b is None else avg_a - avg_b
    posteriors = [
        ("A", avg_a, c.a.mu, c.a.sigma, c.interval_a),
        ("B", avg_b, c.b.mu, c.b.sigma, c.interval_b),
        (f"A - B{paired}", difference, c.difference, c.sd, c.interval),
    ]
    rows = [
        (name, format_score(average), format_mean_sd(mu, sigma), format_interval(interval))
        for name, average, mu, sigma, interval in posteriors
    ]
    header = ("", "avg@N", "hbayes@N", interval_label(spec.level, spec.method))
    say_table(title, header, rows)
    if paired:
        say_prose(
            "paired: the mean of the questions' observed differences, without a prior on them"
        )
    for sentence in questions_left_out(c):
        say_prose(f"left out: {sentence}")
    _show_verdict(c, task.verdict)
    if task.paired is not None:
        _show_single_trial_model(task.paired, spec)
    if task.questions:
        say()
        _show_questions(task)
    if task.curves is not None:
        say()
        _show_curves(task.task, task.curves)


def _show_single_trial_model(paired: SingleTrialComparison, spec: IntervalSpec) -> None:
    say_prose(
        f"one trial per question, paired (Bowyer et al. 2025): A - B = "
        f"{format_mean_sd(paired.difference, paired.sd)}, "
        f"{interval_label(spec.level, 'exact')} {format_interval(paired.interval)}, "
        f"{probability_statement('P(A > B)', paired.p_a_greater)}, "
        f"odds ratio {paired.odds_ratio:.3g} "
        f"({paired.odds_ratio_interval.low:.3g} to {paired.odds_ratio_interval.high:.3g})"
    )
    if paired.table is not None:
        both, only_a, only_b, neither = paired.table
        say_prose(
            f"right: both {both:,}, only A {only_a:,}, only B {only_b:,}, neither {neither:,}"
        )


def _show_verdict(result: Comparison | MeanDifference, verdict: str) -> None:
    from lm_eval_bayes.analysis.comparison import FLAT_PRIOR

    statements = [
        probability_statement("P(A > B)", result.p_a_greater),
        probability_statement("P(A < B)", 1.0 - result.p_a_greater),
    ]
    if result.rope is not None and result.p_rope is not None:
        event = f"P({result.rope[0]:g} <= A - B <= {result.rope[1]:g})"
        statements.append(probability_statement(event, result.p_rope))
    say_prose(", ".join(statements))
    say_prose(f"verdict, {FLAT_PRIOR}: {verdict}")


def _show_questions(task: TaskComparison) -> None:
    from lm_eval_bayes.analysis.comparability import short_text

    cells = "right of N" if task.a.binary else "trials by category"
    if task.a.scored:
        cells = "mean score (N)"
    say_records(
        f"questions with the largest differences, {cells}",
        task.questions,
        {
            "question": lambda question: shorten_middle(question.question_id, 20),
            "A": lambda question: _trials(question.a, question.mean_a, task.a),
            "B": lambda question: _trials(question.b, question.mean_b, task.b),
            "A - B": lambda question: format_mean_sd(question.difference, question.sd),
            "text": lambda question: short_text(question.text),
        },
    )


def _trials(counts: Sequence[int], mean: float, run: TaskRun) -> str:
    if run.scored:
        return f"{format_score(mean)} ({counts[0]})"
    return f"{counts[1]}/{sum(counts)}" if run.binary else " ".join(map(str, counts))


def _show_curves(task: str, curves: PassCurveComparison) -> None:
    better = dict.fromkeys(curves.better, "A") | dict.fromkeys(curves.worse, "B")
    columns = (curves.a, curves.b, curves.difference, curves.low, curves.high)
    a, b, difference, low, high = ([format_score(x) for x in c.tolist()] for c in columns)
    rows = [
        (k, a[i], b[i], difference[i], f"{low[i]} to {high[i]}", better.get(k, NO_VALUE))
        for i, k in enumerate(curves.ks.tolist())
    ]
    band = f"simultaneous {100 * curves.level:g}% band"
    say_table("Pass@k", ("k", "A", "B", "A - B", band, "better"), rows)
    turn = curves.turn
    if turn is not None and turn.high is not None:
        models = "from A to B" if turn.direction == "gain to loss" else "from B to A"
        at_k = f"at k = {turn.low}"
        if turn.low < turn.high:
            at_k = f"between k = {turn.low} and {turn.high}"
        say_prose(f"the better model changes {models} {at_k}")
    if curves.note is not None:
        warn(f"note: {task}, Pass@k: {curves.note}")


def _show_overall(overall: MeanDifference, spec: IntervalSpec) -> None:
    posterior = overall.posterior
    scope = scope_label(posterior.scope)
    title = f"mean of {len(overall.tasks)} tasks with equal weights, for {scope}"
    mean_sd = format_mean_sd(posterior.mu, posterior.sigma)
    head = ("hbayes@N", "mean ± sd", interval_label(spec.level, spec.method))
    say_table(title, head, [("A - B", mean_sd, format_interval(overall.interval))])
    _show_verdict(overall, overall.verdict)
