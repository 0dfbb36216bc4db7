"""`lm-eval-bayes gate`: is a model worse than another one, or below a score?"""

from __future__ import annotations

import typer

from lm_eval_bayes.cli.commands.compare import Align, ModelA, ModelB, RunA, RunB, read_sides
from lm_eval_bayes.cli.screens.pair import comparison_record
from lm_eval_bayes.cli.ui.gate import GateOptions
from lm_eval_bayes.cli.ui.options import IntervalOptions, Json, expand_options
from lm_eval_bayes.cli.ui.output import say, say_json, warn
from lm_eval_bayes.cli.ui.reading import ReadingOptions


@expand_options
def command(
    a: RunA,
    b: RunB = None,
    *,
    model_a: ModelA = None,
    model_b: ModelB = None,
    gate: GateOptions,
    align: Align = "strict",
    reading: ReadingOptions,
    intervals: IntervalOptions,
    as_json: Json = False,
) -> None:
    """Fail if a new model A is worse than an old one B, or below a score.

    For training loops and continuous integration. A check has three outcomes: worse, not worse, or
    not known yet, with the number of trials that would tell. It fails where A and B are
    distinguishable and the 95% interval of A - B lies below -margin, and where a question of A
    has no trial that counts, as of an agent that ended in an error; --unscored wrong counts these
    trials as wrong. With a margin it also fails where A lacks a task of B; --align intersection
    leaves such tasks out. With a floor alone B may be left out. In GitHub Actions the outcomes are
    annotations and part of the job's summary.

    Exit codes: 0 passed, or not known; 1 worse; 2 error; 3 not known, with --fail-if-unknown.

    \b
    Examples:
      lm-eval-bayes gate runs/new runs/old
      lm-eval-bayes gate runs/new runs/old --margin .02 --on pass^4 --junit gate.xml
      lm-eval-bayes gate runs/new --floor .6 --on question
    """
    from lm_eval_bayes.analysis.comparison import compare_runs

    with gate.files():
        gate.check()
        spec = intervals.spec()
        alone = gate.floor is not None and gate.margin is None
        runs_a, runs_b = read_sides(a, b, model_a, model_b, reading, alone=alone)
        comparison = compare_runs(runs_a, runs_b, spec=spec, align=align)
        names = (runs_a[0].model, runs_b[0].model)
        report = gate.report(comparison, names, strict=align == "strict")
    # The outcomes are written: an error of standard output does not replace them.
    try:
        if as_json:
            say_json(
                {
                    **comparison_record(comparison, runs_a, runs_b, align),
                    "checks": report.checks,
                    "missing_tasks": report.missing_tasks,
                    "outcome": report.outcome,
                    "failed": report.exit_code != 0,
                }
            )
    finally:
        report.show(warn if as_json else say)
    raise typer.Exit(report.exit_code)
