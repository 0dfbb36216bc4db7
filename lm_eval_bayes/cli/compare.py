"""`lm-eval-bayes compare`: which of two models is better, and how sure that is."""

from __future__ import annotations

import os
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from lm_eval_bayes.cli.errors import FOUND, named_as_options
from lm_eval_bayes.cli.output import count, say, say_json, say_table, warn
from lm_eval_bayes.cli.reading import (
    Dedupe,
    Filter,
    Interval,
    IntervalKind,
    Json,
    Level,
    Metric,
    Regrade,
    Scope,
    ScopeOption,
    Seed,
    Task,
    check_level_and_seed,
    numbers_in,
    read,
)
from lm_eval_bayes.cli.wording import about, ends, interval_name, mean_sd, trials
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm_eval_bayes.report.comparison import RunComparison, TaskComparison
    from lm_eval_bayes.report.mean_difference import MeanDifference
    from lm_eval_bayes.store.task_run import TaskRun


class Alignment(str, Enum):
    """What becomes of questions that only one model answered."""

    strict = "strict"
    intersection = "intersection"


def command(
    a: Annotated[
        Path,
        typer.Argument(
            metavar="A",
            help="The run of model A: an output folder, a results or samples file, a store, a "
            "matrix or a file of counts.",
            show_default=False,
        ),
    ],
    b: Annotated[
        Optional[Path],  # noqa: UP045  typer reads this on Python 3.10 too
        typer.Argument(
            metavar="B",
            help="The run of model B. Left out: the other one of the two models in A.",
            show_default=False,
        ),
    ] = None,
    task: Task = None,
    metric: Metric = None,
    filter: Filter = None,
    model_a: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="NAME", help="Which model is A, where the run has several."),
    ] = None,
    model_b: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="NAME", help="Which model is B, where the run has several."),
    ] = None,
    rope: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            metavar="R",
            help="Differences from -R to R do not matter: show how probable they are.",
        ),
    ] = None,
    confidence: Annotated[
        float,
        typer.Option(
            metavar="P", help="From this probability on, a model is called better; at least 0.5."
        ),
    ] = 0.95,
    fail_if_worse: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            metavar="P",
            help="End with exit code 1 if P(A < B) is at least this, on the mean over tasks "
            "where there are several.",
        ),
    ] = None,
    pass_at_k: Annotated[
        bool,
        typer.Option("--pass-at-k", help="Compare whole Pass@k curves as well, at all k at once."),
    ] = False,
    k: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="K,K,...", help="The budgets of --pass-at-k. By default powers of two, and N."
        ),
    ] = None,
    questions: Annotated[
        int,
        typer.Option(metavar="N", help="How many of the questions that differ most are listed."),
    ] = 5,
    align: Annotated[
        Alignment,
        typer.Option(
            help="strict: a question that one model lacks is an error. intersection: it is left "
            "out, and counted."
        ),
    ] = Alignment.strict,
    dedupe: Dedupe = False,
    regrade: Regrade = False,
    level: Level = 0.95,
    scope: ScopeOption = Scope.benchmark,
    interval: Interval = IntervalKind.exact,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Compare two models on the same questions.

    What is told is the posterior of A - B, and a verdict.

    Differences are A minus B: above 0, A is better. About these questions, they are those of
    hbayes@N, and the two posteriors are independent; about questions like these, the models are
    paired by question, and the observed differences count, so that what a question does to both
    cancels. There, runs of one trial a question
    also get the paired model of Bowyer et al. (2025).

    Several tasks are compared one by one, and on the mean that counts each task the same.

    For training loops and continuous integration, let A be the new model and B the old one:
    with --fail-if-worse .95 the exit code is 1 where the new one is worse with a probability of
    at least 95%. Exit code 0 does not say that A is better, and 2 that nothing was compared.

    \b
    Examples:
      lm-eval-bayes compare runs/new runs/old --fail-if-worse .95
      lm-eval-bayes compare runs/rl runs/base --rope .02 --pass-at-k --scope population
    """
    from lm_eval_bayes.report.comparison import compare_runs

    _check(level, seed, confidence, rope, fail_if_worse, questions)
    budgets = None if k is None else numbers_in("--k", k)
    if budgets is not None and not pass_at_k:
        raise InvalidInputError.of("--k", "be given with --pass-at-k", k or "")
    options: dict[str, Any] = {"task": task, "metric": metric, "filter": filter}
    options |= {"dedupe": dedupe, "regrade": regrade}
    runs_a, runs_b = _sides(a, b, model_a, model_b, options)
    with named_as_options("rope", "confidence", "level", "interval", "seed", "pass_at_k", "k"):
        found = compare_runs(
            runs_a,
            runs_b,
            scope=scope.value,
            level=level,
            method=interval.value,
            rope=rope,
            confidence=confidence,
            align=align.value,
            ks=budgets,
            pass_curves=pass_at_k,
            n_questions=questions,
            seed=seed,
        )
    worse = 1.0 - found.p_a_greater
    failed = fail_if_worse is not None and worse >= fail_if_worse
    if as_json:
        sides = {"a": _told(runs_a), "b": _told(runs_b)}
        rule = {"fail_if_worse": fail_if_worse, "p_a_less": worse, "failed": failed}
        say_json({**sides, "align": align.value, **rule, **found.to_dict()})
    else:
        _show(found, runs_a, runs_b, level, interval.value)
    if fail_if_worse is not None:
        relation = "at least" if failed else "below"
        warn(f"P(A < B) = {_share(worse)} is {relation} {fail_if_worse:g}")
    if failed:
        raise typer.Exit(FOUND)


def _check(
    level: float,
    seed: int,
    confidence: float,
    rope: float | None,
    fail_if_worse: float | None,
    questions: int,
) -> None:
    """Refuse wrong options before anything is read."""
    from lm_eval_bayes.core.comparison.compare import z_threshold

    with named_as_options("level", "seed", "confidence"):
        check_level_and_seed(level, seed)
        z_threshold(confidence)
    if rope is not None and not 0.0 <= rope < float("inf"):
        raise InvalidInputError.of("--rope", "be a number of at least 0", rope)
    if fail_if_worse is not None and not 0.0 < fail_if_worse <= 1.0:
        rule = "be a probability above 0 and up to 1"
        raise InvalidInputError.of("--fail-if-worse", rule, fail_if_worse)
    if questions < 0:
        raise InvalidInputError.of("--questions", "be at least 0", questions)


# -- what is A, and what is B --------------------------------------------------------------------


def _sides(
    a: Path, b: Path | None, model_a: str | None, model_b: str | None, options: dict[str, Any]
) -> tuple[list[TaskRun], list[TaskRun]]:
    """Read both runs, and return those of one model each."""
    if b is None:
        both = read([a], **options).runs
        models = list(dict.fromkeys(one.model for one in both))
        for option, name in (("--model-a", model_a), ("--model-b", model_b)):
            if name is not None:
                _of(both, name, option)
        free = [one for one in models if one not in (model_a, model_b)]
        wanted = [model_a, model_b].count(None)
        if len(free) != wanted and wanted:
            rule = "hold two models where B is left out, or --model-a and --model-b name them"
            raise InvalidInputError.of("A", rule, ", ".join(models))
        if model_a is not None and model_a == model_b:
            raise InvalidInputError.of("--model-b", "be another model than A", model_b)
        first = free.pop(0) if model_a is None else model_a
        second = free.pop(0) if model_b is None else model_b
        return _of(both, first, "--model-a"), _of(both, second, "--model-b")
    # on their own: two runs of one name are not brought together, but compared
    of_a, of_b = (read([path], **options).runs for path in (a, b))
    runs_a = _only(of_a, model_a, "A", "--model-a")
    runs_b = _only(of_b, model_b, "B", "--model-b")
    of_both = {os.path.realpath(one) for run in runs_a for one in run.sources}
    if of_both & {os.path.realpath(one) for run in runs_b for one in run.sources}:
        warn("warning: A and B have trials of the same file, which are taken as independent")
    if runs_a[0].model == runs_b[0].model:
        runs_a = [replace(one, model=f"{one.model} (A)") for one in runs_a]
        runs_b = [replace(one, model=f"{one.model} (B)") for one in runs_b]
    return runs_a, runs_b


def _only(runs: Sequence[TaskRun], name: str | None, side: str, option: str) -> list[TaskRun]:
    """Return the runs of the only model, or of the one that is named."""
    models = list(dict.fromkeys(one.model for one in runs))
    if name is None and len(models) > 1:
        rule = f"hold one model, or {option} names which; there are {', '.join(models)}"
        raise InvalidInputError.of(side, rule, count(len(models), "model"))
    return _of(runs, name or models[0], option)


def _of(runs: Sequence[TaskRun], name: str, option: str) -> list[TaskRun]:
    found = [one for one in runs if one.model == name]
    if not found:
        models = list(dict.fromkeys(one.model for one in runs))
        raise InvalidInputError.of(option, f"be one of {', '.join(models)}", name)
    return found


def _told(runs: Sequence[TaskRun]) -> dict[str, Any]:
    sources = dict.fromkeys(source for one in runs for source in one.sources)
    return {"model": runs[0].model, "sources": list(sources)}


# -- what is shown -------------------------------------------------------------------------------


def _show(
    found: RunComparison,
    runs_a: Sequence[TaskRun],
    runs_b: Sequence[TaskRun],
    level: float,
    method: str,
) -> None:
    for name, runs in (("A", runs_a), ("B", runs_b)):
        told = _told(runs)
        say(f"{name} is {told['model']}" + _from(told["sources"]))
    for one in found.tasks:
        say()
        _show_task(one, level, method)
    if found.overall is not None:
        say()
        _show_overall(found.overall, level, method)
    for name, tasks in (("A", found.only_a), ("B", found.only_b)):
        if tasks:
            say(f"left out: {', '.join(tasks)}, which only {name} has")
    if _undecided(found):
        say("how many more trials may decide it: lm-eval-bayes plan A B --separate")
    for one in found.tasks:
        if one.comparison.posterior.note is not None:
            warn(f"note: {one.task}: {one.comparison.posterior.note}")
        for differs in one.differs:
            warn(f"warning: {differs}")


def _undecided(found: RunComparison) -> bool:
    decisive = found.tasks[0].comparison if found.overall is None else found.overall
    return max(found.p_a_greater, 1.0 - found.p_a_greater) < decisive.confidence and (
        decisive.p_rope is None or decisive.p_rope < decisive.confidence
    )


def _from(sources: Sequence[str]) -> str:
    if not sources:
        return ""
    more = f" and {count(len(sources) - 1, 'more source')}" if len(sources) > 1 else ""
    return f", from {sources[0]}{more}"


def _show_task(one: TaskComparison, level: float, method: str) -> None:
    c = one.comparison
    n_a, n_b = (trials(run.outcomes.trials_range) for run in (one.a, one.b))
    n = f"N = {n_a}" if n_a == n_b else f"N = {n_a} for A and {n_b} for B"
    title = f"{one.task}: {count(c.n_questions, 'question')}, {n}, {about(c.scope)}"
    head = ("hbayes@N", "mean ± sd", interval_name(level, method))
    paired = ", paired" if c.scope == "population" else ""
    lines = [
        ("A", mean_sd(c.a.mu, c.a.sigma), ends(c.interval_a)),
        ("B", mean_sd(c.b.mu, c.b.sigma), ends(c.interval_b)),
        ("A - B" + paired, mean_sd(c.difference, c.sd), ends(c.interval)),
    ]
    say_table(title, head, lines)
    if paired:
        say(
            "paired: the mean of the questions' observed differences, which no prior pulls together"
        )
    for name, left in (("A", c.left_out_a), ("B", c.left_out_b)):
        if left:
            say(f"left out: {count(left, 'question')} that only {name} has")
    _show_probabilities(c.p_a_greater, c.rope, c.p_rope)
    say(f"verdict: {one.verdict}")
    apart = "do not overlap" if c.rule_intervals != "undecided" else "overlap"
    say(f"rules of Hariri et al. (2026): {_z(c.z, c.rule_z, c.confidence)}; the intervals {apart}")
    if one.paired is not None:
        p = one.paired
        say(
            f"one trial a question, paired (Bowyer et al. 2025): A - B = "
            f"{mean_sd(p.difference, p.sd)}, {interval_name(level, 'exact')} {ends(p.interval)}, "
            f"P(A > B) = {_share(p.p_a_greater)}, odds ratio {p.odds_ratio:.3g} "
            f"({p.odds_ratio_interval.low:.3g} to {p.odds_ratio_interval.high:.3g})"
        )
        if p.table is not None:
            both, only_a, only_b, none = p.table
            say(f"right: both {both:,}, only A {only_a:,}, only B {only_b:,}, neither {none:,}")
    if one.questions:
        say()
        _show_questions(one)
    if one.curves is not None:
        say()
        _show_curves(one)


def _show_probabilities(
    p_a_greater: float, rope: tuple[float, float] | None, p_rope: float | None
) -> None:
    told = f"P(A > B) = {_share(p_a_greater)}, P(A < B) = {_share(1.0 - p_a_greater)}"
    if rope is not None and p_rope is not None:
        told += f", P({rope[0]:g} <= A - B <= {rope[1]:g}) = {_share(p_rope)}"
    say(told)


def _share(probability: float) -> str:
    from lm_eval_bayes.report.words import share

    return share(probability)


def _z(z: float, rule: str, confidence: float) -> str:
    from lm_eval_bayes.core.comparison.compare import z_threshold

    relation = "below" if rule == "undecided" else "at least"
    return f"z = {z:.2f} is {relation} {z_threshold(confidence):.3f}"


def _show_questions(one: TaskComparison) -> None:
    from lm_eval_bayes.report.questions import short_id, short_text

    binary = one.a.binary
    rows = [
        (
            short_id(each.question_id),
            _trials(each.a, binary),
            _trials(each.b, binary),
            mean_sd(each.difference, each.sd),
            short_text(each.text),
        )
        for each in one.questions
    ]
    head = ("question", "A", "B", "A - B", "text")
    what = "right of N" if binary else "trials by category"
    say_table(f"the questions that drive the difference, {what}", head, rows)


def _trials(counts: Sequence[int], binary: bool) -> str:
    return f"{counts[1]}/{sum(counts)}" if binary else " ".join(map(str, counts))


def _show_curves(one: TaskComparison) -> None:
    curves = one.curves
    if curves is None:
        return
    sign = dict.fromkeys(curves.better, "A") | dict.fromkeys(curves.worse, "B")
    columns = (curves.ks, curves.a, curves.b, curves.difference, curves.low, curves.high)
    rows = [
        (
            k,
            f"{a:.3f}",
            f"{b:.3f}",
            f"{difference:.3f}",
            f"{low:.3f} to {high:.3f}",
            sign.get(k, "-"),
        )
        for k, a, b, difference, low, high in zip(*(each.tolist() for each in columns), strict=True)
    ]
    band = f"{100 * curves.level:g}% band for all k together"
    say_table("Pass@k", ("k", "A", "B", "A - B", band, "certainly ahead"), rows)
    turn = curves.turn
    if turn is not None and turn.high is not None:
        which = "from A to B" if turn.direction == "gain to loss" else "from B to A"
        where = f"at k = {turn.low}"
        if turn.low < turn.high:
            where = f"somewhere from k = {turn.low} to {turn.high}"
        say(f"the lead turns {which}, {where}")
    if curves.note is not None:
        warn(f"note: {one.task}, Pass@k: {curves.note}")


def _show_overall(overall: MeanDifference, level: float, method: str) -> None:
    about_what = about(overall.posterior.scope)
    title = f"all {len(overall.tasks)} tasks, each counting the same, {about_what}"
    cells = (mean_sd(overall.posterior.mu, overall.posterior.sigma), ends(overall.interval))
    head = ("hbayes@N", "mean ± sd", interval_name(level, method))
    say_table(title, head, [("A - B", *cells)])
    _show_probabilities(overall.p_a_greater, overall.rope, overall.p_rope)
    say(f"verdict: {overall.verdict}")
    say(f"rule of Hariri et al. (2026): {_z(overall.z, overall.rule_z, overall.confidence)}")
