"""`lm-eval-bayes convergence`: how scores and their ranking settle as trials come in."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from lm_eval_bayes._util.text import (
    NO_VALUE,
    format_interval,
    interval_label,
    one_line,
    plural,
    scope_label,
)
from lm_eval_bayes.cli.ui.errors import named_as_options
from lm_eval_bayes.cli.ui.output import say, say_json, say_table, warn
from lm_eval_bayes.cli.ui.reading import (
    Dedupe,
    Filter,
    Interval,
    IntervalKind,
    Json,
    Level,
    Metric,
    Regrade,
    Runs,
    Scope,
    ScopeOption,
    Seed,
    Task,
    check_level_and_seed,
    interval_spec,
    read,
)
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.convergence import RankingConvergence, TaskConvergence
    from lm_eval_bayes.analysis.prefix_posteriors import PrefixPosterior
    from lm_eval_bayes.stats.convergence.convergence import Convergence


class Scheme(str, Enum):
    """What a resampled order of trials is."""

    column = "column"
    row = "row"


def command(
    runs: Runs,
    task: Task = None,
    metric: Metric = None,
    filter: Filter = None,
    score: Annotated[
        Optional[list[str]],  # noqa: UP045  typer reads this on Python 3.10 too
        typer.Option(
            metavar="NAME",
            help="What ranks the models: bayes, avg, pass@8, pass^8, g-pass@8_0.5, mg-pass@8, "
            "with any k; may be given again. By default bayes, and Pass@2, 4 and 8 up to N/2.",
        ),
    ] = None,
    replicates: Annotated[
        int, typer.Option(metavar="N", help="How many orders of the trials are resampled.")
    ] = 2000,
    scheme: Annotated[
        Scheme,
        typer.Option(
            help="column: all questions of a resampled order take the same trials. row: every "
            "question draws its own."
        ),
    ] = Scheme.column,
    confidence: Annotated[
        float,
        typer.Option(
            metavar="P",
            help="Of the ranking with ties, one-sided: neighbours less surely apart share a rank.",
        ),
    ] = 0.95,
    plot: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="Draw all this, as .svg or .png; of one task."),
    ] = None,
    dedupe: Dedupe = False,
    regrade: Regrade = False,
    level: Level = 0.95,
    scope: ScopeOption = Scope.benchmark,
    interval: Interval = IntervalKind.exact,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Show how scores and ranks settle as trials come in.

    For every model: the mean and the interval of hbayes@n after the first n trials.

    For several models: convergence@n, the number of trials from which on the ranking stays what
    it is after all N trials. The trials are resampled, with replacement, in many orders, which
    gives the number a distribution; an order whose very last trial changes the ranking has not
    converged. Kendall's tau tells how well the ranking by n resampled trials agrees with the
    ranking by all N: 1 is the same order. With ties, models that are not surely apart share a
    rank, and the ties have to stay as well.

    \b
    Examples:
      lm-eval-bayes convergence runs/qwen runs/phi runs/llama --plot convergence.svg
      lm-eval-bayes convergence outcomes.npz --score bayes --score pass@16 --json
    """
    from lm_eval_bayes.analysis.convergence import score_named, task_convergence

    with named_as_options("score"):
        scores = None if score is None else [score_named(one) for one in score]
    _check(replicates, confidence, level, seed)
    if plot is not None:
        from lm_eval_bayes.report.plots.drawing import check_figure_path

        check_figure_path(plot, "--plot")
    saved = read(runs, task=task, metric=metric, filter=filter, dedupe=dedupe, regrade=regrade)
    if plot is not None and len(saved.tasks) > 1:
        rule = f"be of one task; choose one with --task ({', '.join(saved.tasks)})"
        raise InvalidInputError.of("--plot", rule, plot.name)
    spec = interval_spec(level, seed, scope, interval)
    with named_as_options("score", "replicates", "confidence"):
        found = [
            task_convergence(
                saved.of_task(name),
                spec,
                scores=scores,
                replicates=replicates,
                scheme=scheme.value,
                confidence=confidence,
            )
            for name in saved.tasks
        ]
    if as_json:
        say_json({"tasks": [one.to_dict() for one in found], "warnings": list(saved.warnings)})
    else:
        for number, one in enumerate(found):
            if number:
                say()
            _show(one)
    if plot is not None:
        from lm_eval_bayes.report.plots.convergence_plot import draw_convergence

        draw_convergence(plot, found[0], one_line(found[0].task))
        warn(f"the picture is {plot}")


def _check(replicates: int, confidence: float, level: float, seed: int) -> None:
    """Refuse wrong options before anything is read."""
    from lm_eval_bayes.stats.ranking.rank import check_confidence
    from lm_eval_bayes.stats.validation import check_size

    with named_as_options("replicates", "confidence", "level", "seed"):
        check_size("replicates", replicates, 1)
        check_confidence(confidence)
        check_level_and_seed(level, seed)


# -- what is shown -------------------------------------------------------------------------------

#: Shares of the resampled orders whose number of trials is told.
_SHARES = (0.5, 0.9, 0.95)


def _show(found: TaskConvergence) -> None:
    size = [plural(len(found.models), "model"), plural(found.n_questions, "question")]
    about = scope_label(found.spec.scope)
    say(f"{found.task}: {', '.join(size)}, N = {found.n_trials}, about {about}")
    if len(found.models) == 1:
        ((model, row),) = found.prefixes.items()
        _show_one(found, model, row)
    else:
        _show_widths(found)
    if found.rankings:
        _show_rankings(found)
    for note in found.notes:
        say(f"note: {note}")


def _show_one(found: TaskConvergence, model: str, row: Sequence[PrefixPosterior]) -> None:
    head = ["n", "hbayes@n", "sd", interval_label(found.spec.level, found.spec.method), "width"]
    lines = [
        (one.n, f"{one.mu:.3f}", f"{one.sigma:.3f}", format_interval(one.interval), _width(one))
        for one in row
    ]
    say_table(f"{one_line(model)} after its first n trials", head, lines)


def _show_widths(found: TaskConvergence) -> None:
    """Show the width of every model's interval after 1, 2, 4, … trials, and its last mean."""
    steps = sorted({one.n for row in found.prefixes.values() for one in row})
    lines = []
    for model, row in found.prefixes.items():
        by_n = {one.n: one for one in row}
        widths = [_width(by_n[n]) if n in by_n else "" for n in steps]
        lines.append((model, *widths, f"{row[-1].mu:.3f}"))
    label = interval_label(found.spec.level, found.spec.method)
    title = f"width of the {label} after the first n trials"
    say_table(title, ["model", *(f"n={n}" for n in steps), "hbayes@N"], lines)


def _width(one: PrefixPosterior) -> str:
    return f"{one.interval.width:.3f}"


def _show_rankings(found: TaskConvergence) -> None:
    from lm_eval_bayes.analysis.prefix_posteriors import doublings

    steps = doublings(found.n_trials)
    first = found.rankings[0].convergence
    drawn = f"{plural(first.replicates, 'order')} of the trials, scheme {first.scheme}"
    head = ["ranked by", "mean", *(f"{share:.0%} by" for share in _SHARES), "never"]
    lines: list[tuple[str, ...]] = []
    for one in found.rankings:
        lines.append((one.score.name, *_settled(one.convergence)))
        if one.tied is not None:
            name = f"{one.score.name}, ties at {one.tied.confidence:g}"
            lines.append((name, *_settled(one.tied)))
    say_table(f"trials until the ranking stays (convergence@n), {drawn}", head, lines)
    if any(one.kendall is not None for one in found.rankings):
        rows = [(one.score.name, *_taus(one, steps)) for one in found.rankings]
        title = "Kendall's tau with the ranking by bayes@N on all trials, mean"
        say_table(title, ["ranked by", *(f"n={n}" for n in steps)], rows)


def _settled(one: Convergence) -> tuple[str, ...]:
    from lm_eval_bayes.analysis.convergence import trials_to_converge

    mean = NO_VALUE if one.mean is None else f"{one.mean:.1f}"
    when = [trials_to_converge(one, share) for share in _SHARES]
    shares = (NO_VALUE if n is None else str(n) for n in when)
    return (mean, *shares, f"{one.not_converged:.1%}")


def _taus(one: RankingConvergence, steps: Sequence[int]) -> list[str]:
    if one.kendall is None:
        return [NO_VALUE for _ in steps]
    values = [float(one.kendall.mean[n - 1]) for n in steps]
    return [NO_VALUE if value != value else f"{value:.2f}" for value in values]
