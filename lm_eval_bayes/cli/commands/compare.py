"""`lm-eval-bayes compare`: the posterior of the difference between two models."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from lm_eval_bayes._util.text import plural, probability_statement
from lm_eval_bayes.cli.ui.comparison import questions_left_out, show_comparison, sources_of
from lm_eval_bayes.cli.ui.errors import CHECK_FAILED, named_as_options
from lm_eval_bayes.cli.ui.gate import GateReport, gate_files
from lm_eval_bayes.cli.ui.options import (
    IntervalOptions,
    Json,
    expand_options,
    option,
    parse_integers,
    prints_tables,
)
from lm_eval_bayes.cli.ui.output import say_json, say_prose, warn
from lm_eval_bayes.cli.ui.prior import PriorOptions, say_effects
from lm_eval_bayes.cli.ui.reading import ReadingOptions
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.comparison import RunComparison
    from lm_eval_bayes.runs.task_run import SavedRuns, TaskRun


#: What happens to questions that only one model answered.
Alignment: TypeAlias = Literal["strict", "intersection"]


@prints_tables
@expand_options
def command(
    a: Annotated[
        Path,
        typer.Argument(
            metavar="A",
            help="The run of model A: an output folder, a results or samples file, a store, a "
            "table, a matrix, a file of counts or a log of another tool (lm-eval-bayes formats).",
        ),
    ],
    b: Annotated[
        Path | None,
        typer.Argument(
            metavar="B", help="The run of model B. If it is left out, A must hold two models."
        ),
    ] = None,
    *,
    model_a: Annotated[str | None, option("NAME", "The model A, if the run has several.")] = None,
    model_b: Annotated[str | None, option("NAME", "The model B, if the run has several.")] = None,
    rope: Annotated[
        float | None,
        option("R", "Region of practical equivalence, from -R to R: show its probability."),
    ] = None,
    confidence: Annotated[
        float,
        option(
            "P",
            "Confidence (at least 0.5) of the verdict: the models are distinguishable as in rank "
            "and the interval of A - B excludes 0. Also the probability from which on A and B are "
            "practically equal (--rope), or A is below a score (--fail-if-below).",
        ),
    ] = 0.95,
    fail_if_worse: Annotated[
        float | None,
        option(
            "P",
            "End with exit code 1 if P(A < B) is at least this, for the mean over tasks if "
            "there are several.",
        ),
    ] = None,
    margin: Annotated[
        float | None,
        option("D", "With --fail-if-worse: A is worse only if it is below B by more than this."),
    ] = None,
    fail_if_below: Annotated[
        float | None,
        option(
            "SCORE",
            "End with exit code 1 if A's score on a task is below this, with the probability of "
            "--confidence.",
        ),
    ] = None,
    fail_if_unknown: Annotated[
        bool,
        typer.Option(
            "--fail-if-unknown",
            help="End with exit code 1 also if the trials do not suffice to know the outcome.",
        ),
    ] = False,
    gate_on: Annotated[
        str, option("score|pass^K", "What --fail-if-worse and --fail-if-below are about.")
    ] = "score",
    junit: Annotated[
        Path | None, option("FILE", "Write the outcomes of the checks, or an error, as JUnit XML.")
    ] = None,
    markdown: Annotated[
        Path | None, option("FILE", "Write the outcomes of the checks, or an error, as Markdown.")
    ] = None,
    pass_at_k: Annotated[
        bool, typer.Option("--pass-at-k", help="Also compare Pass@k curves, simultaneously over k.")
    ] = False,
    k: Annotated[
        str | None, option("K,K,...", "The k of --pass-at-k. By default powers of two, and N.")
    ] = None,
    questions: Annotated[
        int, option("N", "How many of the questions that differ most to list.")
    ] = 5,
    align: Annotated[
        Alignment,
        typer.Option(
            help="strict: a question that one model lacks is an error, and a task that A lacks "
            "fails --fail-if-worse. intersection: both are left out, and this is shown."
        ),
    ] = "strict",
    priors: PriorOptions,
    reading: ReadingOptions,
    intervals: IntervalOptions,
    as_json: Json = False,
) -> None:
    """Compare two models on the same questions.

    Shows the posterior of the difference A - B (above 0, A is better), P(A > B) and a verdict,
    under a flat prior on the difference: between close models P(A > B) is too certain. The
    verdict names a better model where `rank` separates the two and the interval of A - B
    excludes 0. The probabilities of --fail-if-worse and --fail-if-below are yours to choose, and
    do not depend on the verdict.

    In scope benchmark the difference is that of hbayes@N, with independent posteriors. In scope
    population the models are paired by question and the observed differences are used, so that
    the difficulty of a question cancels; runs of one trial per question also get the paired
    model of Bowyer et al. (2025).

    With --prior the posteriors also use the trials of earlier runs of the same questions: give
    them to a side as A=RUN or B=RUN. Its effect is shown.

    Several tasks are compared one by one, and on their mean with equal weights.

    For training loops and continuous integration, let A be the new model and B the old one:
    with --fail-if-worse .95 the exit code is 1 if the new one is worse with a probability of at
    least 95%. A check has three outcomes: worse, not worse, or not known yet, with the number of
    trials that would tell. It fails where questions of A have no trial that counts, as of an agent
    that ended in an error; --unscored wrong counts these trials as wrong. With --fail-if-worse it
    also fails where A lacks a task of B; --align intersection leaves such tasks out, and says so.
    Exit code 0 does not mean that A is better; 2 means that nothing was compared. In GitHub Actions
    the outcomes are annotations and part of the job's summary.

    \b
    Examples:
      lm-eval-bayes compare runs/new runs/old --fail-if-worse .95
      lm-eval-bayes compare runs/new runs/old --fail-if-worse .9 --margin .02 --gate-on pass^4
      lm-eval-bayes compare runs/new runs/old --fail-if-below .6 --junit gate.xml
      lm-eval-bayes compare runs/rl runs/base --rope .02 --pass-at-k --scope population
    """
    from lm_eval_bayes.analysis.comparison import compare_runs
    from lm_eval_bayes.analysis.gate import gate_checks
    from lm_eval_bayes.stats.validation import (
        check_confidence,
        check_count,
        check_non_negative,
        check_real,
    )

    checked = fail_if_worse is not None or fail_if_below is not None
    only_of_gates = {
        "--junit": junit,
        "--markdown": markdown,
        "--fail-if-unknown": fail_if_unknown,
        "--gate-on": gate_on != "score",
    }
    with gate_files(junit, markdown, is_gate=checked or any(only_of_gates.values())):
        for name, is_given in only_of_gates.items():
            if is_given and not checked:
                rule = "be given with --fail-if-worse or --fail-if-below"
                raise InvalidInputError.of(name, "conflict", rule, "neither of them")
        spec = intervals.spec()
        named = ("confidence", "rope", "fail_if_worse", "questions", "margin", "fail_if_below")
        with named_as_options(*named):
            check_confidence(confidence)
            check_count("questions", questions, 0)
            if rope is not None:
                check_non_negative("rope", rope)
            if fail_if_worse is not None:
                rule = "be a probability above 0 and at most 1"
                check_real("fail_if_worse", fail_if_worse, rule, lambda p: 0.0 < p <= 1.0)
            if margin is not None:
                check_non_negative("margin", margin)
            if fail_if_below is not None:
                check_real("fail_if_below", fail_if_below, "be a finite score", math.isfinite)
        pass_hat_k = _pass_hat_k(gate_on)
        if fail_if_worse is None and margin is not None:
            raise InvalidInputError.of(
                "--margin", "conflict", "be given with --fail-if-worse", margin
            )
        ks = None if k is None else parse_integers("--k", k)
        if ks is not None and not pass_at_k:
            raise InvalidInputError.of("--k", "conflict", "be given with --pass-at-k", k or "")
        priors.strength()
        runs_a, runs_b = _read_sides(a, b, model_a, model_b, reading)
        sides = {"A": runs_a[0].model, "B": runs_b[0].model}
        informed = priors.apply([*runs_a, *runs_b], reading, seed=spec.seed, sides=sides)
        compared = partial(
            compare_runs,
            spec=spec,
            rope=rope,
            confidence=confidence,
            align=align,
            ks=ks,
            pass_curves=pass_at_k,
            n_questions=questions,
        )
        with named_as_options("rope", "confidence", "pass_at_k", "k"):
            comparison = compared(informed.runs[: len(runs_a)], informed.runs[len(runs_a) :])
            without = compared(runs_a, runs_b) if informed.informed else None
        effects = informed.effects(spec)
        with named_as_options("gate_on", "fail_if_below"):
            checks = gate_checks(
                comparison,
                worse=fail_if_worse,
                margin=margin or 0.0,
                below=fail_if_below,
                confidence=confidence,
                pass_hat_k=pass_hat_k,
            )
        report = None
        if checks:
            missing = comparison.only_b if fail_if_worse is not None and align == "strict" else ()
            report = GateReport(
                checks=checks,
                names=(sides["A"], sides["B"]),
                missing_tasks=missing,
                left_out=_left_out_of_gate(comparison, missing),
                unknown_fails=fail_if_unknown,
            )
            report.write(junit, markdown)
    # The outcomes are written: an error of standard output does not replace them.
    try:
        if as_json:
            say_json(
                {
                    "a": _describe(runs_a),
                    "b": _describe(runs_b),
                    "align": align,
                    "fail_if_worse": fail_if_worse,
                    "p_a_less": 1.0 - comparison.p_a_greater,
                    "checks": checks,
                    "missing_tasks": [] if report is None else report.missing_tasks,
                    "outcome": None if report is None else report.outcome,
                    "failed": report is not None and report.failed,
                    **comparison.to_dict(),
                    "priors": effects,
                    "without_priors": without,
                }
            )
        else:
            plan = ["lm-eval-bayes", "plan", *map(str, [a] if b is None else [a, b]), "--separate"]
            show_comparison(comparison, runs_a, runs_b, spec, [*plan, *reading.words()])
            say_effects(effects, spec)
            if without is not None:
                with_prior, alone = (
                    probability_statement("P(A > B)", result.p_a_greater)
                    for result in (comparison, without)
                )
                say_prose(f"{with_prior} with the prior trials, {alone} without")
    finally:
        if report is not None:
            report.show()
    if report is not None and report.failed:
        raise typer.Exit(CHECK_FAILED)


def _left_out_of_gate(comparison: RunComparison, missing: Sequence[str]) -> tuple[str, ...]:
    """Return what the checks leave out: tasks that are not missing, and questions."""
    sides = (("A", comparison.only_a), ("B", comparison.only_b))
    tasks = [
        f"{task}, which only {side} has"
        for side, names in sides
        for task in names
        if task not in missing
    ]
    questions = [
        f"{task.task}: {sentence}"
        for task in comparison.tasks
        for sentence in questions_left_out(task.comparison)
    ]
    return (*tasks, *questions)


def _pass_hat_k(gate_on: str) -> int | None:
    """Return the k of "pass^k"; None for "score"."""
    k = gate_on.removeprefix("pass^")
    if gate_on == "score":
        return None
    if k == gate_on or not (k.isascii() and k.isdigit()) or not 1 <= int(k) <= 1_000_000:
        raise InvalidInputError.of(
            "--gate-on", "choice", "be score, or pass^K such as pass^4", gate_on
        )
    return int(k)


# -- the two models ------------------------------------------------------------------------------


def _read_sides(
    a: Path, b: Path | None, model_a: str | None, model_b: str | None, reading: ReadingOptions
) -> tuple[tuple[TaskRun, ...], tuple[TaskRun, ...]]:
    """Return the runs of model A and those of model B."""
    if b is None:
        saved_a = reading.read([a])
        named = {"--model-a": model_a, "--model-b": model_b}
        for option, name in named.items():
            if name is not None:
                _runs_of_model(saved_a, name, option)
        others = [model for model in saved_a.models if model not in (model_a, model_b)]
        if None in named.values() and len(others) != [model_a, model_b].count(None):
            rule = "hold two models if B is left out, or --model-a and --model-b must name them"
            raise InvalidInputError.of("A", "empty", rule, ", ".join(saved_a.models))
        if model_a is not None and model_a == model_b:
            raise InvalidInputError.of("--model-b", "duplicate", "be another model than A", model_b)
        runs_a = saved_a.of_model(model_a or others.pop(0))
        return runs_a, saved_a.of_model(model_b or others.pop(0))
    saved = reading.read([a, b], merge=False)
    runs_a = _runs_of_one_model(saved.of_path(0), model_a, "A", "--model-a")
    runs_b = _runs_of_one_model(saved.of_path(1), model_b, "B", "--model-b")
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
    from lm_eval_bayes.runs.model_names import differing_keys, with_settings

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
        rule = f"hold one model, or {option} must name one of {', '.join(saved.models)}"
        raise InvalidInputError.of(side, "choice", rule, plural(len(saved.models), "model"))
    return _runs_of_model(saved, name or saved.models[0], option)


def _runs_of_model(saved: SavedRuns, name: str, option: str) -> tuple[TaskRun, ...]:
    runs = saved.of_model(name)
    if not runs:
        raise InvalidInputError.of(option, "choice", f"be one of {', '.join(saved.models)}", name)
    return runs


def _describe(runs: Sequence[TaskRun]) -> dict[str, Any]:
    """Return the model of some runs, and the files that they are from."""
    return {"model": runs[0].model, "sources": sources_of(runs)}
