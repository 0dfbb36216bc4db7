"""`lm-eval-bayes compare`: which of two models is better, and how sure that is."""

from __future__ import annotations

import os
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from lm_eval_bayes._util.text import plural
from lm_eval_bayes.cli.commands.compare_tables import show_comparison, told
from lm_eval_bayes.cli.ui.errors import named_as_options
from lm_eval_bayes.cli.ui.exit_codes import CHECK_FAILED
from lm_eval_bayes.cli.ui.output import say_json, warn
from lm_eval_bayes.cli.ui.reading import (
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
    interval_spec,
    numbers_in,
    read,
)
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm_eval_bayes.runs.task_run import TaskRun


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
    paired by question, and the observed differences plural, so that what a question does to both
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
    from lm_eval_bayes.analysis.comparison import compare_runs

    _check(level, seed, confidence, rope, fail_if_worse, questions)
    budgets = None if k is None else numbers_in("--k", k)
    if budgets is not None and not pass_at_k:
        raise InvalidInputError.of("--k", "be given with --pass-at-k", k or "")
    options: dict[str, Any] = {"task": task, "metric": metric, "filter": filter}
    options |= {"dedupe": dedupe, "regrade": regrade}
    runs_a, runs_b = _sides(a, b, model_a, model_b, options)
    with named_as_options("rope", "confidence", "pass_at_k", "k"):
        found = compare_runs(
            runs_a,
            runs_b,
            interval_spec(level, seed, scope, interval),
            rope=rope,
            confidence=confidence,
            align=align.value,
            ks=budgets,
            pass_curves=pass_at_k,
            n_questions=questions,
        )
    worse = 1.0 - found.p_a_greater
    failed = fail_if_worse is not None and worse >= fail_if_worse
    if as_json:
        sides = {"a": told(runs_a), "b": told(runs_b)}
        rule = {"fail_if_worse": fail_if_worse, "p_a_less": worse, "failed": failed}
        say_json({**sides, "align": align.value, **rule, **found.to_dict()})
    else:
        show_comparison(found, runs_a, runs_b, level, interval.value)
    if fail_if_worse is not None:
        from lm_eval_bayes._util.text import probability_statement

        relation = "at least" if failed else "below"
        warn(f"{probability_statement('P(A < B)', worse)}, {relation} {fail_if_worse:g}")
    if failed:
        raise typer.Exit(CHECK_FAILED)


def _check(
    level: float,
    seed: int,
    confidence: float,
    rope: float | None,
    fail_if_worse: float | None,
    questions: int,
) -> None:
    """Refuse wrong options before anything is read."""
    from lm_eval_bayes.stats.comparison.compare import z_threshold

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
        raise InvalidInputError.of(side, rule, plural(len(models), "model"))
    return _of(runs, name or models[0], option)


def _of(runs: Sequence[TaskRun], name: str, option: str) -> list[TaskRun]:
    found = [one for one in runs if one.model == name]
    if not found:
        models = list(dict.fromkeys(one.model for one in runs))
        raise InvalidInputError.of(option, f"be one of {', '.join(models)}", name)
    return found
