"""`lm-eval-bayes compare`: the posterior of the difference between two models."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from lm_eval_bayes._util.text import (
    NO_VALUE,
    first_names,
    format_range,
    format_score,
    one_line,
    plural,
    probability_statement,
)
from lm_eval_bayes.cli.screens.layout import (
    Column,
    Form,
    names,
    say_bars,
    say_columns,
    say_counted,
    say_next,
    say_sentence,
)
from lm_eval_bayes.cli.screens.one_run import LONGEST_LABEL, MOST_SETTINGS
from lm_eval_bayes.cli.ui.options import (
    MORE,
    IntervalOptions,
    Json,
    option,
    parse_integers,
    prints_tables,
)
from lm_eval_bayes.cli.ui.output import say, say_json, warn, warn_after, warn_notes
from lm_eval_bayes.cli.ui.prior import PriorOptions, say_effects
from lm_eval_bayes.cli.ui.reading import ReadingOptions
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.comparison import RunComparison, TaskComparison
    from lm_eval_bayes.runs.task_run import SavedRuns, TaskRun
    from lm_eval_bayes.stats import (
        Comparison,
        PassCurveComparison,
        Scope,
        TrialsForecast,
    )

#: What happens to questions that only one model answered.
Alignment: TypeAlias = Literal["strict", "intersection"]
Align = Annotated[
    Alignment,
    option(
        None,
        "strict: a question that one model lacks is an error, and a task that A lacks fails a "
        "gate. intersection: both are left out, and this is shown.",
    ),
]
RunA = Annotated[
    Path,
    typer.Argument(
        metavar="A",
        help="The run of model A, or of both models: see `lm-eval-bayes doctor --formats`.",
    ),
]
RunB = Annotated[
    Path | None,
    typer.Argument(
        metavar="B", help="The run of model B. If it is left out, A must hold two models."
    ),
]
ModelA = Annotated[str | None, option("NAME", "The model A, if the run has several.", "-a")]
ModelB = Annotated[str | None, option("NAME", "The model B, if the run has several.", "-b")]


@prints_tables
def command(
    a: RunA,
    b: RunB = None,
    *,
    model_a: ModelA = None,
    model_b: ModelB = None,
    rope: Annotated[
        float | None,
        option(
            "R", "Region of practical equivalence, from -R to R: show its probability.", panel=MORE
        ),
    ] = None,
    k: Annotated[
        str | None, option("K,K,...", "Also compare Pass@k curves, simultaneously over these k.")
    ] = None,
    questions: Annotated[
        int, option("N", "How many of the questions that differ most to list.")
    ] = 5,
    align: Align = "strict",
    priors: PriorOptions,
    reading: ReadingOptions,
    intervals: IntervalOptions,
    as_json: Json = False,
) -> None:
    """Compare two models on the same questions.

    Two models are distinguishable where the 95% interval of their difference excludes 0, as `rank`
    of these two says: of many models choose a pair before looking, or use `rank`. With --rope, they
    are practically equal from a probability of 95% on. --verbose shows P(A > B), which has a flat
    prior on the difference and is too certain between close models.

    On these questions the posteriors of hbayes@N are independent. On other questions of the kind
    the models are paired by question, so that its difficulty cancels, and in settings like these by
    setting.

    With --prior the posteriors also use the trials of earlier runs of the same questions: give
    them to a side as A=RUN or B=RUN.

    Several tasks are compared one by one, and on their mean with equal weights.

    \b
    Examples:
      lm-eval-bayes compare runs/new runs/old
      lm-eval-bayes compare board.csv -a o1 -b gpt-4o
      lm-eval-bayes compare runs/rl runs/base --rope .02 --k 1,8,64 --scope population
    """
    from lm_eval_bayes._util.validation import check_count, check_non_negative
    from lm_eval_bayes.analysis.comparability import check_counted
    from lm_eval_bayes.analysis.comparison import compare_runs
    from lm_eval_bayes.analysis.plan import pair_forecast

    spec = intervals.spec()
    check_count("--questions", questions, 0)
    if rope is not None:
        check_non_negative("--rope", rope)
    ks = () if k is None else parse_integers("--k", k)
    priors.strength()
    runs_a, runs_b = read_sides(a, b, model_a, model_b, reading)
    check_counted([*runs_a, *runs_b])
    sides = {"A": runs_a[0].model, "B": runs_b[0].model}
    informed = priors.apply([*runs_a, *runs_b], reading, seed=spec.seed, sides=sides)
    compared = partial(compare_runs, rope=rope, align=align, ks=ks, n_questions=questions)
    informed_a, informed_b = informed.runs[: len(runs_a)], informed.runs[len(runs_a) :]
    comparison = compared(informed_a, informed_b, spec)
    without = compared(runs_a, runs_b, spec) if informed.priors else None
    effects = informed.effects(spec)
    if as_json:
        say_json(
            {
                **comparison_record(comparison, runs_a, runs_b, align),
                "priors": effects,
                "without_priors": without,
            }
        )
        return
    results = {spec.scope: comparison}
    if spec.scope == "benchmark" and all(t.comparison.n_questions > 1 for t in comparison.tasks):
        of_kind = replace(spec, scope="population")
        results["population"] = compare_runs(informed_a, informed_b, of_kind, align=align)
    form, models = Form.of_output(), (sides["A"], sides["B"])
    show_pair(results, models, form, pair_forecast(comparison))
    say_effects(effects, spec)
    if without is not None:
        with_prior, alone = (
            probability_statement("P(A > B)", result.summary.p_a_greater)
            for result in (comparison, without)
        )
        say_sentence(f"{with_prior} with the prior trials, {alone} without", form)
    if form.verbose:
        say()
        show_details(comparison, form)
    compared_runs = (*runs_a, *runs_b)
    protocols = (run.provenance.protocol for run in compared_runs)
    say_counted((run.counted for run in compared_runs), protocols, form)
    warn_about(comparison)
    words = [*map(str, [a] if b is None else [a, b]), *reading.words()]
    say_next(["lm-eval-bayes", "report" if comparison.distinguishable else "plan", *words])


# -- the two models ------------------------------------------------------------------------------


def read_sides(
    a: Path,
    b: Path | None,
    model_a: str | None,
    model_b: str | None,
    reading: ReadingOptions,
    *,
    alone: bool = False,
) -> tuple[tuple[TaskRun, ...], tuple[TaskRun, ...]]:
    """Return the runs of model A and those of model B; `alone`, one model may be both."""
    if b is None:
        saved_a = reading.read([a], argument="A")
        if alone and len(saved_a.models) == 1:
            return saved_a.runs, saved_a.runs
        named = {"-a": model_a, "-b": model_b}
        for option, name in named.items():
            if name is not None:
                _runs_of_model(saved_a, name, option)
        others = [model for model in saved_a.models if model not in (model_a, model_b)]
        if None in named.values() and len(others) != [model_a, model_b].count(None):
            rule = "hold two models if B is left out, or -a and -b must name them"
            raise InvalidInputError.of("A", "missing", rule, ", ".join(saved_a.models))
        if model_a is not None and model_a == model_b:
            raise InvalidInputError.of("-b", "duplicate", "be another model than A", model_b)
        if len(saved_a.models) > 2:
            n = len(saved_a.models)
            warn_after(f"note: a pair that was chosen before looking; for all {n} models: rank")
        runs_a = saved_a.of_model(model_a or others.pop(0))
        return runs_a, saved_a.of_model(model_b or others.pop(0))
    saved = reading.read([a, b], merge=False, argument="A or B")
    runs_a = _runs_of_one_model(saved.of_path(0), model_a, "A", "-a")
    runs_b = _runs_of_one_model(saved.of_path(1), model_b, "B", "-b")
    sources_a, sources_b = (
        {os.path.realpath(source) for run in runs for source in run.sources}
        for runs in (runs_a, runs_b)
    )
    if sources_a & sources_b:
        warn("warning: A and B have trials of the same file, which are treated as independent")
    if runs_a[0].model == runs_b[0].model:
        name_a, name_b = _names_of_one_model(runs_a[0], runs_b[0])
        runs_a = tuple(replace(run, model=name_a) for run in runs_a)
        runs_b = tuple(replace(run, model=name_b) for run in runs_b)
    return runs_a, runs_b


def _names_of_one_model(a: TaskRun, b: TaskRun) -> tuple[str, str]:
    """Return names of two agents of one model by what differs in them, else with A and B."""
    from lm_eval_bayes.runs.provenance import differing_keys, with_settings

    setups = a.provenance.setup or {}, b.provenance.setup or {}
    keys = differing_keys(setups)
    name_a, name_b = (with_settings(a.model, setup, keys) for setup in setups)
    return (name_a, name_b) if name_a != name_b else (f"{a.model} (A)", f"{a.model} (B)")


def _runs_of_one_model(
    saved: SavedRuns, name: str | None, side: str, option: str
) -> tuple[TaskRun, ...]:
    """Return the runs of the only model, or of the named one."""
    if not saved.models:
        raise InvalidInputError.of(side, "empty", "hold trials that can be counted", "none")
    if name is None and len(saved.models) > 1:
        rule = f"hold one model, or {option} must name one of {first_names(saved.models, 8)}"
        raise InvalidInputError.of(side, "missing", rule, plural(len(saved.models), "model"))
    return _runs_of_model(saved, name or saved.models[0], option)


def _runs_of_model(saved: SavedRuns, name: str, option: str) -> tuple[TaskRun, ...]:
    runs = saved.of_model(name)
    if not runs:
        rule = f"be one of {first_names(saved.models, 8)}"
        raise InvalidInputError.of(option, "choice", rule, name)
    return runs


# -- the screen -----------------------------------------------------------------------------------

#: Questions with the largest differences that are shown, unless all of them are asked for.
_MOST_QUESTIONS = 3
#: What a difference is about, in these settings and in settings like these.
_WHERE: Mapping[Scope, tuple[str, str]] = {
    "benchmark": ("these questions", "settings like these"),
    "population": ("other questions", "other settings, questions"),
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

    scope, result = next(iter(results.items()))
    where, summary = result.where, result.summary
    equal = ""
    if summary.rope is not None and summary.p_rope is not None and summary.p_rope >= CONFIDENCE:
        low, high = summary.rope
        equal = f" They differ by {low:g} to {high:g} with probability {summary.p_rope:.3f}."
    if not result.distinguishable:
        both, level = " and ".join(models), format_score(abs(summary.posterior.mu)) == "0.000"
        if result.copies:
            return f"{both} {ARE_COPIES}."
        level_and = "level and " * level
        return f"{both} are {level_and}not distinguishable {where}.{equal}"
    better, worse = models if summary.p_a_greater >= 0.5 else models[::-1]
    of_kind = results.get("population")
    if scope == "benchmark" and of_kind is not None and of_kind.distinguishable:
        where += ", and on others of the kind"
    over = result.settings_at_95
    if over is not None and over.low <= 0.0 <= over.high:
        where += ", but not in settings like these"
    return f"{better} is better than {worse}: they are distinguishable {where}.{equal}"


def _show_differences(results: Mapping[Scope, RunComparison], form: Form) -> None:
    first = next(iter(results.values()))
    rows: list[tuple[str, float, Any]] = []
    for scope, result in results.items():
        rows.append((_WHERE[scope][0], result.summary.posterior.mu, result.summary.interval))
    if first.overall is not None:
        for task in first.tasks:
            rows.append((task.task, task.comparison.difference, task.comparison.interval))
    else:
        for scope, result in results.items():
            over = result.tasks[0].settings
            if over is not None:
                rows.append((_WHERE[scope][1], over.mean, over))
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
    bars = [(difference, (ends.low, ends.high), None) for _, difference, ends in rows]
    say_bars(columns, bars, form, zero=True)
    over = first.tasks[0].settings
    if first.overall is None and over is not None:
        labels = [one_line(label, LONGEST_LABEL) for label in over.paired]
        by = f"paired by {first_names(labels, MOST_SETTINGS)}" if labels else "not paired"
        single = [m.model for m in (first.tasks[0].a, first.tasks[0].b) if not m.settings]
        by += f", {single[0]} with the sd of the other" if single else ""
        p_above = probability_statement("P(A > B)", over.p_above)
        say_sentence(f"{_WHERE[first.spec.scope][1]}: {by}; {p_above}", form)


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
    bars = [(value, pair, None) for value, pair in zip(difference, ends, strict=True)]
    say_bars(columns, bars, form, zero=True)


# -- what is shown with --verbose, in JSON and by warnings ----------------------------------------


def show_details(comparison: RunComparison, form: Form) -> None:
    """Print P(A > B), task by task and for the mean, and that of practical equivalence."""
    results = {task.task: task.comparison for task in comparison.tasks}
    means = {} if comparison.overall is None else {"mean over tasks": comparison.overall}
    for where, result in {**results, **means}.items():
        statements = [probability_statement("P(A > B)", result.p_a_greater)]
        if result.rope is not None and result.p_rope is not None:
            event = f"P({result.rope[0]:g} <= A - B <= {result.rope[1]:g})"
            statements.append(probability_statement(event, result.p_rope))
        text = f"{where}: {', '.join(statements)}, under a flat prior on the difference"
        say_sentence(text, form)


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
        "p_a_less": 1.0 - comparison.summary.p_a_greater,
        **comparison.to_dict(),
    }


def questions_left_out(c: Comparison) -> list[str]:
    """Return how many questions only one side has."""
    sides = (("A", c.left_out_a), ("B", c.left_out_b))
    return [f"{plural(n, 'question')} that only {side} has" for side, n in sides if n]
