"""The screen of two models (`compare`): their difference on these questions and on others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lm_eval_bayes._util.text import (
    NO_VALUE,
    first_names,
    format_range,
    format_score,
    plural,
    probability_statement,
    questions_in_words,
)
from lm_eval_bayes.cli.screens.bars import Axis
from lm_eval_bayes.cli.screens.layout import (
    Column,
    Form,
    free_width,
    names,
    say_columns,
    say_sentence,
)
from lm_eval_bayes.cli.ui.output import say, say_prose, warn_after, warn_notes

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.comparison import RunComparison, TaskComparison
    from lm_eval_bayes.runs.task_run import TaskRun
    from lm_eval_bayes.stats import (
        Comparison,
        PassCurveComparison,
        Scope,
        TrialsForecast,
    )

#: Questions with the largest differences that are shown, unless all of them are asked for.
_MOST_QUESTIONS = 3
_WHERE: Mapping[Scope, str] = {
    "benchmark": "these questions",
    "population": "other questions",
}


def show_pair(
    results: Mapping[Scope, RunComparison],
    models: tuple[str, str],
    form: Form,
    forecast: TrialsForecast | None = None,
) -> None:
    """Print the comparison of two models.

    Parameters
    ----------
    results : mapping of scope to RunComparison
        In one or both scopes.
    models : tuple of str
        The names of A and B.
    form : Form
        The form of the screen.
    forecast : TrialsForecast, optional
        The trials after which the models may be distinguishable, where they are not yet.
    """
    first = next(iter(results.values()))
    say_sentence(_answer(results, models), form)
    if first.overall is None:
        (task,) = first.tasks
        ranges = dict.fromkeys(format_range(run.outcomes.trials_range) for run in (task.a, task.b))
        a, b = format_score(task.comparison.a.mu), format_score(task.comparison.b.mu)
        trials = " and ".join(ranges)
        say_sentence(
            f"A {models[0]}  {a}     B {models[1]}  {b}     {trials} "
            f"{'trial' if trials == '1' else 'trials'} each",
            form,
        )
    else:
        say_sentence(f"A {models[0]}     B {models[1]}", form)
    say()
    _show_differences(results, form)
    for task in first.tasks:
        if task.questions and first.overall is None:
            say()
            _show_questions(task, form)
        if task.curves is not None:
            say()
            _show_curves(task, task.curves, form)
    for task in first.tasks:
        for sentence in questions_left_out(task.comparison):
            say_sentence(f"left out: {sentence}", form)
    for side, tasks in (("A", first.only_a), ("B", first.only_b)):
        if tasks:
            say_sentence(f"left out: {first_names(tasks)}, which only {side} has", form)
    if forecast is not None:
        from lm_eval_bayes.analysis.plan import apart_sentence

        say_sentence(apart_sentence(forecast), form)


def _answer(results: Mapping[Scope, RunComparison], models: tuple[str, str]) -> str:
    """Return whether the models are distinguishable, and on which questions."""
    from lm_eval_bayes.analysis.comparability import ARE_COPIES
    from lm_eval_bayes.stats import CONFIDENCE

    summaries = {s: result.overall or result.tasks[0].comparison for s, result in results.items()}
    are = {s: (result.overall or result.tasks[0]).distinguishable for s, result in results.items()}
    scope, result = next(iter(results.items()))
    where = f"on {questions_in_words(scope, result.tasks[0].comparison.n_questions)}"
    if result.overall is not None:
        where = f"in the mean of {len(result.tasks)} tasks"
    summary = summaries[scope]
    equal = ""
    if summary.rope is not None and summary.p_rope is not None and summary.p_rope >= CONFIDENCE:
        low, high = summary.rope
        equal = f" They differ by {low:g} to {high:g} with probability {summary.p_rope:.3f}."
    if not are[scope]:
        both, level = " and ".join(models), format_score(abs(summary.posterior.mu)) == "0.000"
        if result.copies:
            return f"{both} {ARE_COPIES}."
        level_and = "level and " * level
        return f"{both} are {level_and}not distinguishable {where}.{equal}"
    better, worse = models if summary.p_a_greater >= 0.5 else models[::-1]
    if scope == "benchmark" and are.get("population"):
        where += ", and on others of the kind"
    return f"{better} is better than {worse}: they are distinguishable {where}.{equal}"


def _show_differences(results: Mapping[Scope, RunComparison], form: Form) -> None:
    first = next(iter(results.values()))
    rows = []
    for scope, result in results.items():
        of_scope = result.overall or result.tasks[0].comparison
        rows.append((_WHERE[scope], of_scope.posterior.mu, of_scope.interval))
    if first.overall is not None:
        for task in first.tasks:
            rows.append((task.task, task.comparison.difference, task.comparison.interval))
    spec = first.spec
    columns = [
        names("A - B on", [where for where, _, _ in rows]),
        Column("", [form.score(difference, sign=True) for _, difference, _ in rows]),
        Column(
            f"{100 * spec.level:g}% interval",
            [form.interval(interval, sign=True) for _, _, interval in rows],
            left=True,
        ),
    ]
    ends = [(interval.low, interval.high) for _, _, interval in rows]
    axis = Axis.of(ends, free_width(columns, form), form.drawn, zero=True)
    bars = [axis.bar(row[1], interval) for row, interval in zip(rows, ends, strict=True)]
    say_columns([*columns, Column(axis.heading(), bars, left=True)], form)


def _show_questions(task: TaskComparison, form: Form) -> None:
    from lm_eval_bayes.analysis.comparability import question_rows, short_text

    shown = task.questions if form.verbose else task.questions[:_MOST_QUESTIONS]
    rows = question_rows(task.a)
    ids = [task.a.question_name(rows[question.question_id]) for question in shown]
    texts = [short_text(question.text) for question in shown]
    columns = [
        names("largest differences", ids),
        Column("A", [_trials(q.a, q.mean_a, task.a) for q in shown], left=True),
        Column("B", [_trials(q.b, q.mean_b, task.b) for q in shown], left=True),
    ]
    if any(texts):
        columns.append(names("question", texts))
    say_columns(columns, form)


def _trials(counts: Sequence[int], mean: float, run: TaskRun) -> str:
    if run.scored:
        return f"{format_score(mean)} ({counts[0]})"
    return f"{counts[1]}/{sum(counts)}" if run.binary else " ".join(map(str, counts))


def _show_curves(task: TaskComparison, curves: PassCurveComparison, form: Form) -> None:
    better = dict.fromkeys(curves.better, "A") | dict.fromkeys(curves.worse, "B")
    a, b, difference, low, high = (
        values.tolist()
        for values in (curves.a, curves.b, curves.difference, curves.low, curves.high)
    )
    ends = list(zip(low, high, strict=True))
    columns = [
        Column("Pass@k  k", [str(k) for k in curves.ks.tolist()]),
        Column("A", [format_score(value) for value in a]),
        Column("B", [format_score(value) for value in b]),
        Column("A - B", [form.score(value, sign=True) for value in difference]),
        Column(
            f"{100 * curves.level:g}% band",
            [f"{form.score(x, sign=True)} to {form.score(y, sign=True)}" for x, y in ends],
            left=True,
        ),
        Column("better", [better.get(k, NO_VALUE) for k in curves.ks.tolist()]),
    ]
    axis = Axis.of(ends, free_width(columns, form), form.drawn, zero=True)
    bars = [axis.bar(value, interval) for value, interval in zip(difference, ends, strict=True)]
    say_columns([*columns, Column(axis.heading(), bars, left=True)], form)


# -- what is shown with --verbose, in JSON and by warnings ----------------------------------------


def show_details(comparison: RunComparison) -> None:
    """Print P(A > B), task by task and for the mean, and that of practical equivalence."""
    results = {task.task: task.comparison for task in comparison.tasks}
    means = {} if comparison.overall is None else {"mean over tasks": comparison.overall}
    for where, result in {**results, **means}.items():
        statements = [probability_statement("P(A > B)", result.p_a_greater)]
        if result.rope is not None and result.p_rope is not None:
            event = f"P({result.rope[0]:g} <= A - B <= {result.rope[1]:g})"
            statements.append(probability_statement(event, result.p_rope))
        say_prose(f"{where}: {', '.join(statements)}, under a flat prior on the difference")


def warn_about(comparison: RunComparison) -> None:
    """Warn of what a comparison rests on, and of what else differs between the runs."""
    posteriors = [(task.task, task.comparison.posterior.note) for task in comparison.tasks]
    warn_notes((task, (), note) for task, note in posteriors if note is not None)
    for task in comparison.tasks:
        for warning in task.differs:
            warn_after(f"warning: {warning}")


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


def questions_left_out(c: Comparison) -> list[str]:
    """Return how many questions only one side has."""
    sides = (("A", c.left_out_a), ("B", c.left_out_b))
    return [f"{plural(n, 'question')} that only {side} has" for side, n in sides if n]
