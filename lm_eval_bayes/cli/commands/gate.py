"""`lm-eval-bayes gate`: is a model worse than another one, or below a score?"""

from __future__ import annotations

import math
import re
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from lm_eval_bayes.cli.commands.compare import Align, ModelA, ModelB, RunA, RunB, read_sides
from lm_eval_bayes.cli.screens.layout import Form, say_sentence
from lm_eval_bayes.cli.screens.pair import comparison_record
from lm_eval_bayes.cli.ui.errors import named_as_typed
from lm_eval_bayes.cli.ui.gate import GateReport, errors_in_files
from lm_eval_bayes.cli.ui.options import IntervalOptions, Json, option, prints_tables
from lm_eval_bayes.cli.ui.output import say_json, warn
from lm_eval_bayes.cli.ui.reading import ReadingOptions
from lm_eval_bayes.errors import InvalidInputError


@prints_tables
def command(
    context: typer.Context,
    a: RunA,
    b: RunB = None,
    *,
    model_a: ModelA = None,
    model_b: ModelB = None,
    margin: Annotated[
        float | None,
        option(
            "D",
            "Fail if A is below B by more than this: the 95% interval of A - B lies below -D, in "
            "the mean over tasks if there are several; 0 by default, unless a floor is given.",
        ),
    ] = None,
    floor: Annotated[
        float | None,
        option("SCORE", "Fail if the 95% interval of A's score on a task lies below this."),
    ] = None,
    on: Annotated[
        str,
        option(
            "score|pass^K|question",
            "What is checked: the score, Pass^K, or of a floor every question by its own trials.",
        ),
    ] = "score",
    fail_if_unknown: Annotated[
        bool,
        typer.Option(
            "--fail-if-unknown", help="Fail also if the trials do not suffice to know the outcome."
        ),
    ] = False,
    junit: Annotated[
        Path | None, option("FILE", "Write the outcomes of the checks, or an error, as JUnit XML.")
    ] = None,
    markdown: Annotated[
        Path | None, option("FILE", "Write the outcomes of the checks, or an error, as Markdown.")
    ] = None,
    align: Align = "strict",
    reading: ReadingOptions,
    intervals: IntervalOptions,
    as_json: Json = False,
) -> None:
    """Fail if a new model A is worse than an old one B, or below a score.

    For training loops and continuous integration. A fails if it is worse than B and the two are
    distinguishable, as `compare` says; with a margin the 95% interval of A - B has to lie below
    -margin, too. It also fails if one of its questions has no trial that counts (--unscored wrong
    counts trials without a score as wrong), and if it lacks a task of B (--align intersection
    leaves such tasks out). With a floor alone B may be left out. In GitHub Actions the outcomes
    are annotations and part of the job's summary.

    Exit codes: 0 passed, or not known; 1 worse; 2 error; 3 not known, with --fail-if-unknown.

    \b
    Examples:
      lm-eval-bayes gate runs/new runs/old
      lm-eval-bayes gate runs/new runs/old --margin .02 --on pass^4 --junit gate.xml
      lm-eval-bayes gate runs/new --floor .6 --on question
    """
    from lm_eval_bayes._util.validation import check_non_negative, check_real
    from lm_eval_bayes.analysis.comparison import compare_runs
    from lm_eval_bayes.analysis.gate import gate_checks

    with errors_in_files(junit, markdown), named_as_typed(context):
        if margin is not None:
            check_non_negative("--margin", margin)
        if floor is not None:
            check_real("--floor", floor, "be a finite score", math.isfinite)
        pass_hat_k, spec = _pass_hat_k(on), intervals.spec()
        alone = floor is not None and margin is None
        margin = margin if alone else margin or 0.0
        runs_a, runs_b = read_sides(a, b, model_a, model_b, reading, alone=alone)
        comparison = compare_runs(runs_a, runs_b, spec=spec, align=align)
        checks = gate_checks(
            comparison,
            margin=margin,
            floor=floor,
            pass_hat_k=pass_hat_k,
            every_question=on == "question",
        )
        missing = comparison.only_b if align == "strict" and not alone else ()
        names = (runs_a[0].model, runs_b[0].model)
        report = GateReport.of(checks, comparison, names, missing, fail_if_unknown)
        report.write(junit, markdown)
    # The outcomes are written: an error of standard output does not replace them.
    try:
        if as_json:
            say_json(
                {
                    **comparison_record(comparison, runs_a, runs_b, align),
                    "checks": checks,
                    "missing_tasks": missing,
                    "outcome": report.outcome,
                    "failed": report.exit_code != 0,
                }
            )
    finally:
        report.show(warn if as_json else partial(say_sentence, form=Form.of_output()))
    raise typer.Exit(report.exit_code)


def _pass_hat_k(on: str) -> int | None:
    """Return the k of "pass^k"; None for "score" and "question"."""
    match = re.fullmatch(r"pass\^([1-9][0-9]{0,5})", on)
    if match is None and on not in ("score", "question"):
        rule = "be score, question, or pass^K such as pass^4"
        raise InvalidInputError.of("--on", "choice", rule, on)
    return None if match is None else int(match[1])
