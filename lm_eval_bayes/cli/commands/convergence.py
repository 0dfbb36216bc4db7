"""`lm-eval-bayes study convergence`: scores and ranks as a function of the number of trials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from lm_eval_bayes._util.text import NO_VALUE, format_score, plural, questions_in_words
from lm_eval_bayes.cli.screens.layout import (
    Column,
    Form,
    say_bars,
    say_next,
    say_sentence,
    say_table,
)
from lm_eval_bayes.cli.ui.options import (
    IntervalOptions,
    Json,
    option,
    prints_tables,
)
from lm_eval_bayes.cli.ui.output import say, say_each, say_json
from lm_eval_bayes.cli.ui.reading import ReadingOptions, Runs

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.convergence import PrefixPosterior, TaskConvergence
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
    reading: ReadingOptions,
    intervals: IntervalOptions,
    as_json: Json = False,
) -> None:
    """Show how scores and ranks converge with the number of trials.

    For one model: mean and interval of hbayes@n after the first n trials.

    For several models: convergence@n, the number of trials from which on the ranking is that by
    bayes@N of all N trials [Hariri 2026]. The trials are resampled with replacement in many orders;
    one that ends with another ranking has not converged, and the mean is over those that have.
    With ties, neighbours share a rank unless one is better with a probability of 95%. Kendall's tau
    is 1 for the same order.

    \b
    Examples:
      lm-eval-bayes study convergence runs/qwen runs/phi runs/llama
      lm-eval-bayes study convergence outcomes.npz --score bayes --score pass@16 --json
    """
    from lm_eval_bayes._util.validation import check_size
    from lm_eval_bayes.analysis.convergence import score_named, task_convergence

    scores = None if score is None else [score_named(name) for name in score]
    check_size("replicates", replicates, 1)
    spec = intervals.spec()
    saved = reading.read(runs)
    results = [
        task_convergence(saved.of_task(name), spec, scores=scores, replicates=replicates)
        for name in saved.tasks
    ]
    if as_json:
        say_json({"tasks": results, "warnings": saved.warnings})
        return
    form = Form.of_output()
    with_tables = form.verbose or len(results) == 1
    say_each(results, lambda result: _show(result, form, with_tables), lambda result: result.task)
    words = [*map(str, runs), *reading.words()]
    if with_tables:
        say_next(["lm-eval-bayes", "plan", *words], "how many more trials")
    else:
        words += ["--task", results[0].task]
        say_next(["lm-eval-bayes", "study", "convergence", *words], "one task")


# -- the screen ----------------------------------------------------------------------------------


def _show(result: TaskConvergence, form: Form, with_tables: bool) -> None:
    say_sentence(_sentence(result), form)
    for note in result.notes:
        say_sentence(f"Note: {note}.", form)
    if with_tables and len(result.models) == 1:
        say()
        _show_model(result.prefixes[result.models[0]], form)
    elif with_tables and result.rankings:
        say()
        _show_rankings(result)


def _sentence(result: TaskConvergence) -> str:
    """Return how the scores of one model, or the ranking of several, converge."""
    scope = questions_in_words(result.spec.scope, result.n_questions)
    if len(result.models) == 1:
        (model,) = result.models
        first, last = result.prefixes[model][0], result.prefixes[model][-1]
        return (
            f"{model} scores {format_score(last.mu)} on {scope} after {plural(last.n, 'trial')}; "
            f"the {100 * result.spec.level:g}% interval is {format_score(last.interval.width)} "
            f"wide, {format_score(first.interval.width)} after the first."
        )
    if not result.rankings:
        return f"{len(result.models)} models on {scope}."
    ranking = result.rankings[0]
    convergence, n = ranking.convergence, ranking.convergence.replicates
    n_never = _n_never(convergence)
    of_models = f"The ranking of {len(result.models)} models by {ranking.score.name}"
    if convergence.mean is None:
        return f"{of_models} converged in none of {plural(n, 'order')} of the trials."
    return (
        f"{of_models} stays the same from {convergence.mean:.1f} trials on: the mean over the "
        f"{n - n_never:,} of {n:,} orders of the trials that converged; {n_never:,} did not."
    )


def _show_model(prefixes: Sequence[PrefixPosterior], form: Form) -> None:
    columns = [
        Column("n", [str(prefix.n) for prefix in prefixes]),
        Column("hbayes@n", [format_score(prefix.mu) for prefix in prefixes]),
        Column("interval", [form.interval(prefix.interval) for prefix in prefixes], left=True),
        Column("width", [format_score(prefix.interval.width) for prefix in prefixes]),
    ]
    bars = [(prefix.mu, (prefix.interval.low, prefix.interval.high), None) for prefix in prefixes]
    low, high = (end(pair[side] for _, pair, _ in bars) for side, end in enumerate((min, max)))
    say_bars(columns, bars, form, (min(0.0, low), max(1.0, high)))


def _show_rankings(result: TaskConvergence) -> None:
    from lm_eval_bayes.analysis.convergence import doublings

    head = ["ranked by", "mean n", *(f"{share:.0%} by" for share in _SHARES), "not converged"]
    rows: list[tuple[str, ...]] = []
    for ranking in result.rankings:
        rows.append((ranking.score.name, *_convergence_cells(ranking.convergence)))
        if ranking.tied is not None:
            rows.append((f"{ranking.score.name}, ties at 0.95", *_convergence_cells(ranking.tied)))
    say_table("", head, rows)
    ns = doublings(result.n_trials)
    taus = [
        (ranking.score.name, *(_tau(ranking.kendall.mean[n - 1]) for n in ns))
        for ranking in result.rankings
        if ranking.kendall is not None
    ]
    if taus:
        say()
        title = "Kendall's tau with the ranking by bayes@N of all trials, after n trials"
        say_table(title, ["ranked by", *(f"n={n}" for n in ns)], taus)


def _tau(value: float) -> str:
    return NO_VALUE if math.isnan(value) else f"{value:.2f}"


def _n_never(convergence: Convergence) -> int:
    """Return the number of orders that did not converge."""
    return convergence.replicates - int(convergence.counts.sum())


def _convergence_cells(convergence: Convergence) -> tuple[str, ...]:
    from lm_eval_bayes.analysis.convergence import trials_to_converge

    mean = NO_VALUE if convergence.mean is None else f"{convergence.mean:.1f}"
    trials = [trials_to_converge(convergence, share) for share in _SHARES]
    shares = (NO_VALUE if n is None else str(n) for n in trials)
    return (mean, *shares, f"{_n_never(convergence):,} ({convergence.not_converged:.1%})")
