"""`lm-eval-bayes study convergence`: scores and ranks as a function of the number of trials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

from lm_eval_bayes._util.text import (
    NO_VALUE,
    format_interval,
    format_score,
    interval_label,
    plural,
    scope_label,
)
from lm_eval_bayes.cli.ui.errors import named_as_options
from lm_eval_bayes.cli.ui.options import (
    IntervalOptions,
    Json,
    option,
    prints_tables,
)
from lm_eval_bayes.cli.ui.output import (
    say,
    say_each,
    say_json,
    say_records,
    say_table,
    sentence_name,
)
from lm_eval_bayes.cli.ui.prior import PriorOptions, say_effects
from lm_eval_bayes.cli.ui.reading import ReadingOptions, Runs

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.convergence import (
        PrefixPosterior,
        RankingConvergence,
        TaskConvergence,
    )
    from lm_eval_bayes.stats import Convergence

#: Shares of the resampled orders whose number of trials is shown.
_SHARES = (0.5, 0.9, 0.95)


@prints_tables
def command(
    runs: Runs,
    *,
    score: Annotated[
        list[str] | None,
        option(
            "NAME",
            "The score that ranks the models: bayes, avg, pass@8, pass^8, g-pass@8_0.5, "
            "mg-pass@8, with any k; can be repeated. By default bayes, and Pass@2, 4 and 8 up to "
            "N/2.",
        ),
    ] = None,
    replicates: Annotated[int, option("N", "How many orders of the trials to resample.")] = 2000,
    priors: PriorOptions,
    reading: ReadingOptions,
    intervals: IntervalOptions,
    as_json: Json = False,
) -> None:
    """Show how scores and ranks converge with the number of trials.

    For every model: mean and interval of hbayes@n after the first n trials. With --prior it also
    uses the trials of an earlier run, whose weight is learned for every n anew; rankings do not.

    For several models: convergence@n, the number of trials from which on the ranking is that by
    bayes@N of all N trials, each taken once. Trials are resampled with replacement in many orders,
    the same for all questions, which gives the number a distribution; an order that ends with
    another ranking has not converged. Kendall's tau measures the agreement of the ranking by n
    resampled trials with the ranking by all N (1: the same order). With ties, neighbours share a
    rank unless one is better with a probability of 95%, and the ties have to stay the same as well.

    \b
    Examples:
      lm-eval-bayes study convergence runs/qwen runs/phi runs/llama
      lm-eval-bayes study convergence outcomes.npz --score bayes --score pass@16 --json
    """
    from lm_eval_bayes._util.validation import check_size
    from lm_eval_bayes.analysis.convergence import score_named, task_convergence

    with named_as_options("score", "replicates"):
        scores = None if score is None else [score_named(name) for name in score]
        check_size("replicates", replicates, 1)
    spec = intervals.spec()
    priors.strength()
    saved = reading.read(runs)
    informed = priors.apply(saved.runs, reading, seed=spec.seed)
    saved = replace(saved, runs=informed.runs)
    with named_as_options("score", "replicates"):
        results = [
            task_convergence(saved.of_task(name), spec, scores=scores, replicates=replicates)
            for name in saved.tasks
        ]
    effects = informed.effects(spec)
    if as_json:
        say_json({"tasks": results, "priors": effects, "warnings": saved.warnings})
    else:
        say_each(results, _show)
        say_effects(effects, spec)


# -- tables --------------------------------------------------------------------------------------


def _show(result: TaskConvergence) -> None:
    models = plural(len(result.models), "model")
    questions = plural(result.n_questions, "question")
    scope = scope_label(result.spec.scope)
    say(f"{result.task}: {models}, {questions}, N = {result.n_trials}, for {scope}")
    interval = interval_label(result.spec.level, result.spec.method)
    if len(result.models) == 1:
        ((model, prefixes),) = result.prefixes.items()
        _show_model(model, prefixes, interval)
    else:
        _show_widths(result, interval)
    if result.rankings:
        _show_rankings(result)
    for note in result.notes:
        say(f"note: {note}")


def _show_model(model: str, prefixes: Sequence[PrefixPosterior], interval: str) -> None:
    say_records(
        f"{sentence_name(model)} after its first n trials",
        prefixes,
        {
            "n": lambda prefix: prefix.n,
            "hbayes@n": lambda prefix: format_score(prefix.mu),
            "sd": lambda prefix: format_score(prefix.sigma),
            interval: lambda prefix: format_interval(prefix.interval),
            "width": lambda prefix: format_score(prefix.interval.width),
        },
    )


def _show_widths(result: TaskConvergence, interval: str) -> None:
    """Show the interval widths of all models after 1, 2, 4, … trials, and the final means."""
    ns = sorted({prefix.n for prefixes in result.prefixes.values() for prefix in prefixes})
    rows = []
    for model, prefixes in result.prefixes.items():
        widths = {prefix.n: format_score(prefix.interval.width) for prefix in prefixes}
        rows.append((model, *(widths.get(n, "") for n in ns), format_score(prefixes[-1].mu)))
    title = f"width of the {interval} after the first n trials"
    say_table(title, ["model", *(f"n={n}" for n in ns), "hbayes@N"], rows)


def _show_rankings(result: TaskConvergence) -> None:
    from lm_eval_bayes.analysis.convergence import doublings

    orders = f"{plural(result.rankings[0].convergence.replicates, 'order')} of the trials"
    head = ["ranked by", "mean", *(f"{share:.0%} by" for share in _SHARES), "never"]
    rows: list[tuple[str, ...]] = []
    for ranking in result.rankings:
        rows.append((ranking.score.name, *_convergence_cells(ranking.convergence)))
        if ranking.tied is not None:
            rows.append((f"{ranking.score.name}, ties at 0.95", *_convergence_cells(ranking.tied)))
    say_table(f"trials until the ranking stays the same (convergence@n), {orders}", head, rows)
    say("mean: over the orders that converged; never: those that did not")
    if any(ranking.kendall is not None for ranking in result.rankings):
        title = "Kendall's tau with the ranking by bayes@N on all trials, mean"
        taus = {f"n={n}": partial(_tau, n) for n in doublings(result.n_trials)}
        say_records(title, result.rankings, {"ranked by": lambda r: r.score.name, **taus})


def _convergence_cells(convergence: Convergence) -> tuple[str, ...]:
    from lm_eval_bayes.analysis.convergence import trials_to_converge

    mean = NO_VALUE if convergence.mean is None else f"{convergence.mean:.1f}"
    trials = [trials_to_converge(convergence, share) for share in _SHARES]
    shares = (NO_VALUE if n is None else str(n) for n in trials)
    n_never = convergence.replicates - int(convergence.counts.sum())
    return (mean, *shares, f"{n_never:,} ({convergence.not_converged:.1%})")


def _tau(n: int, ranking: RankingConvergence) -> str:
    tau = math.nan if ranking.kendall is None else float(ranking.kendall.mean[n - 1])
    return NO_VALUE if math.isnan(tau) else f"{tau:.2f}"
