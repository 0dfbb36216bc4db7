"""`lm-eval-bayes compare`: the posterior of the difference between two models."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from lm_eval_bayes._util.text import first_names, plural, probability_statement
from lm_eval_bayes.cli.screens.layout import Form, say_next
from lm_eval_bayes.cli.screens.pair import comparison_record, show_details, show_pair, warn_about
from lm_eval_bayes.cli.ui.options import (
    MORE,
    IntervalOptions,
    Json,
    option,
    parse_integers,
    prints_tables,
)
from lm_eval_bayes.cli.ui.output import say, say_counted, say_json, say_prose, say_protocols, warn
from lm_eval_bayes.cli.ui.prior import PriorOptions, say_effects
from lm_eval_bayes.cli.ui.reading import ReadingOptions
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes.runs.task_run import SavedRuns, TaskRun


#: What happens to questions that only one model answered.
Alignment: TypeAlias = Literal["strict", "intersection"]
Align = Annotated[
    Alignment,
    typer.Option(
        help="strict: a question that one model lacks is an error, and a task that A lacks fails a "
        "gate. intersection: both are left out, and this is shown."
    ),
]
RunA = Annotated[
    Path,
    typer.Argument(
        metavar="A",
        help="The run of model A: an output folder, a results or samples file, a store, a table, a "
        "matrix, a file of counts or a log of another tool (lm-eval-bayes doctor --formats).",
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

    On these questions the difference is that of hbayes@N, with independent posteriors. On other
    questions of the kind the models are paired by question and the observed differences are used,
    so that the difficulty of a question cancels.

    With --prior the posteriors also use the trials of earlier runs of the same questions: give
    them to a side as A=RUN or B=RUN. Its effect is shown.

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
            probability_statement("P(A > B)", result.p_a_greater)
            for result in (comparison, without)
        )
        say_prose(f"{with_prior} with the prior trials, {alone} without")
    if form.verbose:
        say()
        show_details(comparison)
    say_counted(run.counted for run in (*runs_a, *runs_b))
    say_protocols(run.provenance.protocol for run in (*runs_a, *runs_b))
    warn_about(comparison)
    words = [*map(str, [a] if b is None else [a, b]), *reading.words()]
    distinguishable = (comparison.overall or comparison.tasks[0]).distinguishable
    say_next(["lm-eval-bayes", "report" if distinguishable else "plan", *words])


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
