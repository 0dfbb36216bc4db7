"""`lm-eval-bayes study anchors`: the position of a model among reference models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from lm_eval_bayes._util.text import (
    format_probability,
    format_range,
    format_score,
    join_words,
    plural,
    probability_statement,
    questions_in_words,
)
from lm_eval_bayes.cli.screens.bars import filled_bar
from lm_eval_bayes.cli.screens.layout import (
    Column,
    Form,
    free_width,
    names,
    say_columns,
    say_next,
    say_sentence,
    say_table,
)
from lm_eval_bayes.cli.ui.options import (
    MORE,
    IntervalOptions,
    Json,
    option,
    parse_pair,
    prints_tables,
)
from lm_eval_bayes.cli.ui.output import say, say_each, say_json, warn_after
from lm_eval_bayes.cli.ui.reading import ReadingOptions, Runs

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.anchor_study import AnchorStudy, Placement

#: Probabilities below this are shown with --verbose alone.
_NEGLIGIBLE = 0.0005


@prints_tables
def command(
    runs: Runs,
    *,
    target: Annotated[
        list[str] | None,
        option(
            "MODEL",
            "The model to place; can be repeated. By default every model, each among all the "
            "others.",
        ),
    ] = None,
    anchors: Annotated[
        list[str] | None,
        option(
            "MODEL",
            "Use only this model as an anchor; can be repeated. By default all models that "
            "are not placed.",
            "--anchor",
        ),
    ] = None,
    keep: Annotated[
        str | None,
        option(
            "LOW:HIGH", "Use only the questions that this share of the anchors solves, as 0.01:0.5."
        ),
    ] = None,
    pseudo_count: Annotated[
        float,
        option(
            "C",
            "Right and wrong pseudo-trials added to every anchor; use 1 if trials are few.",
            panel=MORE,
        ),
    ] = 0.0,
    reading: ReadingOptions,
    intervals: IntervalOptions,
    as_json: Json = False,
) -> None:
    """Place a model among reference models.

    The scores of the reference models, the anchors, split the range of scores into intervals. The
    model's trials give the posterior probability of each under a uniform prior [Xiao 2025].

    The method assumes that a stronger anchor is better on every question, and that questions are
    independent given the model. Both assumptions are tested. Scope population resamples the
    questions, which is less sensitive to them.

    \b
    Examples:
      lm-eval-bayes study anchors reference.npz runs/mine --target mine --keep 0.01:0.5
      lm-eval-bayes study anchors runs/* --target qwen3-8b --json
    """
    from lm_eval_bayes.analysis.anchor_study import anchor_study

    shares = None
    if keep is not None:
        rule = "be two shares from 0 to 1 separated by a colon, as in 0.01:0.5"
        shares = parse_pair("--keep", keep, rule, lambda low, high: 0.0 <= low <= high <= 1.0)
    spec = intervals.spec()
    saved = reading.read(runs)
    studies = [
        anchor_study(
            saved.of_task(name),
            spec,
            targets=target or (),
            anchors=anchors or (),
            keep=shares,
            pseudo_count=pseudo_count,
        )
        for name in saved.tasks
    ]
    if as_json:
        say_json({"tasks": studies, "warnings": saved.warnings})
    else:
        form = Form.of_output()
        with_tables = form.verbose or len(studies) == 1
        say_each(studies, lambda study: _show(study, form, with_tables), lambda study: study.task)
        if not with_tables:
            words = [*map(str, runs), *reading.words(), "--task", studies[0].task]
            say_next(["lm-eval-bayes", "study", "anchors", *words], "one task")


# -- the screen ----------------------------------------------------------------------------------


def _show(study: AnchorStudy, form: Form, with_tables: bool) -> None:
    say_sentence(_sentence(study), form)
    level = f"{100 * study.spec.level:g}%"
    if with_tables and len(study.placements) == 1:
        say()
        _show_placement(study.placements[0], level, form)
    elif with_tables:
        say()
        best_first = sorted(study.placements, key=lambda placement: -placement.score)
        rows = [(p.model, format_score(p.score), *_places(p)) for p in best_first]
        say_table("", ("model", "score", "place", "probability", f"places, {level}"), rows)
    say_sentence(_checks(study), form)
    for pair in study.ordering.tied:
        note = f"note: equal on every question, so without an order: {join_words(pair)}"
        warn_after(note, is_note=True)


def _sentence(study: AnchorStudy) -> str:
    """Return where the model is, or the best of several."""
    scope = questions_in_words(study.spec.scope, study.anchors.n_queries)
    best = max(study.placements, key=lambda placement: placement.score)
    place, probability, _ = _places(best)
    if len(study.placements) > 1:
        return (
            f"{best.model} has the highest score of {len(study.placements)} models on {scope}; "
            f"its most probable place is {place} ({probability})."
        )
    interval = best.posterior.labels[best.posterior.peak]
    return (
        f"{best.model} scores {format_score(best.score)} on {scope}; its most probable interval "
        f"between anchors is {interval} ({probability})."
    )


def _places(placement: Placement) -> tuple[str, str, str]:
    """Return the most probable place among the anchors, its probability, and the range."""
    posterior, last = placement.posterior, placement.anchors.n_anchors + 1
    low, high = (last - number for number in reversed(placement.inside))
    probability = format_probability(posterior.probability[posterior.peak])
    return str(last - posterior.peak), probability, format_range((low, high))


def _show_placement(placement: Placement, level: str, form: Form) -> None:
    """Show the probability of every interval that is not negligible."""
    posterior, (first, last) = placement.posterior, placement.inside
    scores = ["0", *map(format_score, placement.anchors.ability), "1"]
    least = min(_NEGLIGIBLE, posterior.probability.max())
    shown = [i for i, p in enumerate(posterior.probability) if form.verbose or p >= least]
    probabilities = posterior.probability[shown]
    columns = [
        names("interval", [posterior.labels[i] for i in shown]),
        Column("anchors' scores", [f"{scores[i]} to {scores[i + 1]}" for i in shown]),
        Column("probability", list(map(format_probability, probabilities))),
        Column(level, ["*" if first <= i <= last else "" for i in shown]),
    ]
    width = free_width(columns, form)
    bars = [
        filled_bar(p / probabilities.max(), width, form.drawn, rest=False) for p in probabilities
    ]
    say_columns([*columns, Column("", bars, left=True)], form)


def _checks(study: AnchorStudy) -> str:
    """Return the results of the tests of the method's assumptions as a sentence."""
    ordering, independence = study.ordering, study.independence
    order = "the order of the anchors cannot be tested"
    if ordering.n_comparisons:
        n = plural(ordering.n_comparisons, "comparison")
        order = f"a weaker anchor does better in {ordering.share:.1%} of {n}"
    variance = "independence of the questions is not tested"
    if independence is not None and independence.variance_ratio is not None:
        p_value = probability_statement("p", independence.p_value)
        ratio = f"{independence.variance_ratio:.2f} times that of independent questions"
        variance = f"the variance of trial totals is {ratio} ({p_value})"
    doubt = " The probabilities are overconfident; --scope population is less so."
    return f"Checks: {order}; {variance}.{doubt * study.doubtful}"
