"""`lm-eval-bayes study anchors`: the position of a model among reference models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from lm_eval_bayes._util.text import (
    format_probability,
    format_score,
    join_words,
    plural,
    probability_statement,
    scope_label,
)
from lm_eval_bayes.cli.ui.errors import named_as_options
from lm_eval_bayes.cli.ui.options import (
    MORE,
    IntervalOptions,
    Json,
    option,
    parse_pair,
    prints_tables,
)
from lm_eval_bayes.cli.ui.output import (
    say,
    say_each,
    say_json,
    say_prose,
    say_records,
    sentence_name,
    warn,
)
from lm_eval_bayes.cli.ui.reading import ReadingOptions, Runs
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.anchor_study import AnchorStudy, Placement
    from lm_eval_bayes.runs.task_run import SavedRuns


@prints_tables
def command(
    runs: Runs,
    *,
    target: Annotated[
        list[str] | None,
        option(
            "RUN|MODEL",
            "The model to place: its run, or the name of a model in the runs; can be "
            "repeated. By default every model, each among all the others.",
        ),
    ] = None,
    anchor: Annotated[
        list[str] | None,
        option(
            "MODEL",
            "Use only this model as an anchor; can be repeated. By default all models that "
            "are not placed.",
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

    The scores of the reference models, the anchors, split the range of scores into intervals:
    below the weakest anchor, between neighbours, above the strongest. The model's trials,
    question by question, give the posterior probability of each interval under a uniform prior.

    The method assumes that a stronger anchor is better on every question, and that questions are
    independent given the model. Both assumptions are tested, and the results are shown. In scope
    population questions are resampled and the posteriors averaged, which is less sensitive to the
    assumptions.

    \b
    Examples:
      lm-eval-bayes study anchors reference.npz --target runs/mine --keep 0.01:0.5
      lm-eval-bayes study anchors runs/* --target qwen3-8b --json
    """
    from lm_eval_bayes.analysis.anchor_study import anchor_study

    shares = None
    if keep is not None:
        rule = "be two shares from 0 to 1 separated by a colon, as in 0.01:0.5"
        shares = parse_pair("--keep", keep, rule, lambda low, high: 0.0 <= low <= high <= 1.0)
    spec = intervals.spec()
    saved, targets = _read(runs, target or (), reading)
    with named_as_options("target", "keep", "pseudo_count", anchors="anchor"):
        studies = [
            anchor_study(
                saved.of_task(name),
                spec,
                targets=targets,
                anchors=anchor or (),
                keep=shares,
                pseudo_count=pseudo_count,
            )
            for name in saved.tasks
        ]
    if as_json:
        say_json({"tasks": studies, "warnings": saved.warnings})
    else:
        say_each(studies, _show)


def _read(
    runs: Sequence[Path], targets: Sequence[str], reading: ReadingOptions
) -> tuple[SavedRuns, list[str]]:
    """Read every run once, and return the names of the models to place."""
    from lm_eval_bayes.runs.reader import join_runs

    paths = [path for path in map(Path, targets) if path.exists()]
    names = [target for target in targets if not Path(target).exists()]
    saved = reading.read(runs)
    if paths:
        placed = reading.read(paths)
        in_both = [model for model in placed.models if model in saved.models]
        if in_both:
            rule = "be a model that is not in the RUNs; give its name instead of its path"
            raise InvalidInputError.of("--target", "duplicate", rule, ", ".join(in_both))
        names += placed.models
        already_shown = {*saved.warnings, *placed.warnings}
        saved = join_runs(saved, placed)
        for warning in saved.warnings:
            if warning not in already_shown:
                warn(f"warning: {warning}")
    return saved, list(dict.fromkeys(names))


# -- tables --------------------------------------------------------------------------------------


def _show(study: AnchorStudy) -> None:
    anchors = plural(study.anchors.n_anchors, "anchor")
    say(f"{study.task}: {anchors}, {plural(len(study.question_ids), 'question')}")
    selected = study.question_filter
    if selected is not None:
        questions = plural(selected.kept.size, "question")
        shares = f"{selected.low:.0%} to {selected.high:.0%}"
        say(f"selected: {questions} that {shares} of the anchors solve")
    _show_assumptions(study)
    if len(study.placements) == 1:
        _show_placement(study.placements[0])
    else:
        _show_placements(study)
    say(f"for {scope_label(study.spec.scope)}")


def _show_assumptions(study: AnchorStudy) -> None:
    """Show the results of the tests of the method's assumptions."""
    ordering, independence = study.ordering, study.independence
    if ordering.n_comparisons:
        comparisons = f"{ordering.n_comparisons:,} comparisons"
        say_prose(f"a weaker anchor does better in {ordering.share:.1%} of {comparisons}")
    for pair in ordering.tied:
        say_prose(f"equal on every question, so without an order: {join_words(pair)}")
    if independence is None:
        say_prose("independence of the questions: not tested; it needs two trials in a known order")
    elif independence.variance_ratio is None:
        say_prose("independence of the questions: not tested; no question varies")
    else:
        p_value = probability_statement("p", independence.p_value)
        say_prose(
            f"the variance of trial totals is {independence.variance_ratio:.2f} times that of "
            f"independent questions ({p_value})"
        )
    if study.doubtful:
        say_prose(
            "the method's assumptions are violated: the probabilities are overconfident "
            "(--scope population is less sensitive to this)"
        )


def _show_placement(placement: Placement) -> None:
    """Show the probability of every interval for one model."""
    scores = ["0", *map(format_score, placement.anchors.ability), "1"]
    first, last = placement.inside
    say_records(
        f"{sentence_name(placement.model)}, score {format_score(placement.score)}: position",
        range(len(scores) - 1),
        {
            "interval": lambda i: placement.posterior.labels[i],
            "anchors' scores": lambda i: f"{scores[i]} to {scores[i + 1]}",
            "probability": lambda i: format_probability(placement.posterior.probability[i]),
            "in range": lambda i: "*" if first <= i <= last else "",
        },
    )


def _show_placements(study: AnchorStudy) -> None:
    """Show the most probable interval of every model."""
    say_records(
        "every model among the anchors, itself excluded",
        sorted(study.placements, key=lambda placement: -placement.score),
        {
            "model": lambda p: p.model,
            "score": lambda p: format_score(p.score),
            "most probable": lambda p: p.posterior.labels[p.posterior.peak],
            "": lambda p: format_probability(p.posterior.probability[p.posterior.peak]),
            f"{100 * study.spec.level:g}%": lambda p: " ... ".join(
                dict.fromkeys(p.posterior.labels[number] for number in p.inside)
            ),
        },
    )
