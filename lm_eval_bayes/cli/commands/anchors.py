"""`lm-eval-bayes anchors`: where a model stands among models that are known."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from lm_eval_bayes._util.text import one_line, plural, scope_label
from lm_eval_bayes.cli.ui.errors import named_as_options
from lm_eval_bayes.cli.ui.output import say, say_json, say_table
from lm_eval_bayes.cli.ui.reading import (
    Dedupe,
    Filter,
    Json,
    Level,
    Metric,
    Regrade,
    Runs,
    Scope,
    Seed,
    Task,
    check_level_and_seed,
    read,
)
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.anchor_study import AnchorStudy, Placement
    from lm_eval_bayes.runs.task_run import SavedRuns


class BetweenKind(str, Enum):
    """How a model that lies between two anchors relates to them."""

    shared = "shared"
    query = "query"


class RangeKind(str, Enum):
    """Which neighbouring intervals between anchors are told."""

    hdi = "hdi"
    exact = "exact"


def command(
    runs: Runs,
    target: Annotated[
        Optional[list[str]],  # noqa: UP045  typer reads this on Python 3.10 too
        typer.Option(
            metavar="RUN|MODEL",
            help="The model to place: a run of it, or the name of a model that is read; may be "
            "given again. By default every model, each among all the others.",
        ),
    ] = None,
    anchor: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            metavar="MODEL",
            help="Only this model is an anchor; may be given again. By default all that are not "
            "placed.",
        ),
    ] = None,
    keep: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="LOW:HIGH",
            help="Count only the questions that such a share of the anchors solves, as 0.01:0.5.",
        ),
    ] = None,
    between: Annotated[
        BetweenKind,
        typer.Option(
            help="shared: a model between two anchors has one position there for all questions. "
            "query: the paper's likelihood, a position for every question, which is surer than "
            "it may be."
        ),
    ] = BetweenKind.shared,
    epsilon: Annotated[
        float,
        typer.Option(
            metavar="E", help="How far the anchors' probabilities are kept from 0 and from 1."
        ),
    ] = 0.01,
    pseudo_count: Annotated[
        float,
        typer.Option(
            metavar="C",
            help="Imagined right and wrong trials of every anchor; 1 is kinder where they are few.",
        ),
    ] = 0.0,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Show how sure fewer questions would be.")
    ] = False,
    task: Task = None,
    metric: Metric = None,
    filter: Filter = None,
    dedupe: Dedupe = False,
    regrade: Regrade = False,
    level: Level = 0.95,
    scope: Annotated[
        Scope,
        typer.Option(
            help="About these questions, or about questions like these, which also asks less of "
            "the method: questions are drawn anew, and the posteriors averaged."
        ),
    ] = Scope.benchmark,
    interval: Annotated[
        RangeKind,
        typer.Option(
            help="The neighbouring intervals that hold the level: as few as possible, or those "
            "between two equal tails."
        ),
    ] = RangeKind.hdi,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Place a model among reference models.

    The reference models, the anchors, are put in the order of their scores, which leaves
    intervals: below the weakest, between every two neighbours, above the strongest. From the
    model's trials, question by question, follows the probability of each interval. All are
    equally probable beforehand.

    The method takes anchors as solving ever more of every question, and questions as
    independent given the model. Both are checked, and the result of the checks is shown.

    \b
    Examples:
      lm-eval-bayes anchors reference.npz --target runs/mine --keep 0.01:0.5
      lm-eval-bayes anchors runs/* --target qwen3-8b --between query --sweep --json
    """
    share = None if keep is None else _share(keep)
    _check(level, seed, epsilon)
    saved, targets = _read(runs, target or (), task, metric, filter, dedupe, regrade)
    from lm_eval_bayes.analysis.anchor_study import anchor_study

    with named_as_options("target", "keep", "epsilon", "pseudo_count", "level", "seed"):
        try:
            found = [
                anchor_study(
                    saved.of_task(name),
                    targets=targets,
                    anchors=anchor or (),
                    keep=share,
                    epsilon=epsilon,
                    between=between.value,
                    pseudo_count=pseudo_count,
                    level=level,
                    interval=interval.value,
                    scope=scope.value,
                    sweep=sweep,
                    seed=seed,
                )
                for name in saved.tasks
            ]
        except InvalidInputError as error:
            raise InvalidInputError(str(error).replace("`anchors` ", "`--anchor` ", 1)) from None
    if as_json:
        say_json({"tasks": [one.to_dict() for one in found], "warnings": list(saved.warnings)})
        return
    for number, one in enumerate(found):
        if number:
            say()
        _show(one)


def _share(text: str) -> tuple[float, float]:
    rule = "be two shares from 0 to 1 with a colon between them, as in 0.01:0.5"
    first, _, second = text.partition(":")
    try:
        low, high = float(first), float(second)
    except ValueError:
        raise InvalidInputError.of("--keep", rule, text) from None
    if not 0.0 <= low <= high <= 1.0:
        raise InvalidInputError.of("--keep", rule, text)
    return low, high


def _check(level: float, seed: int, epsilon: float) -> None:
    """Refuse wrong options before anything is read."""
    from lm_eval_bayes.stats.anchors.capability import check_epsilon

    with named_as_options("level", "seed", "epsilon"):
        check_level_and_seed(level, seed)
        check_epsilon(epsilon)


def _read(
    runs: Sequence[Path],
    target: Sequence[str],
    task: str | None,
    metric: str | None,
    filter: str | None,
    dedupe: bool,
    regrade: bool,
) -> tuple[SavedRuns, list[str]]:
    """Read all runs together, and return the names of the models to place."""

    def all_of(paths: Sequence[Path]) -> SavedRuns:
        return read(paths, task=task, metric=metric, filter=filter, dedupe=dedupe, regrade=regrade)

    paths, names, new = list(runs), list[str](), list[Path]()
    for one in target:
        path = Path(one)
        if path.exists():
            new.append(path)
        else:
            names.append(one)
    for path in new:
        names += all_of([path]).models
    if new:
        known = all_of(paths)
        both = [name for name in names if name in known.models]
        if both:
            rule = "be a model that is not among the RUNs; name it, instead of giving its path"
            raise InvalidInputError.of("--target", rule, ", ".join(both))
    return all_of([*paths, *new]), list(dict.fromkeys(names))


# -- what is shown -------------------------------------------------------------------------------


def _show(found: AnchorStudy) -> None:
    n = len(found.question_ids)
    say(f"{found.task}: {plural(found.anchors.n_anchors, 'anchor')}, {plural(n, 'question')}")
    if found.question_filter is not None:
        told = f"{found.question_filter.low:.0%} to {found.question_filter.high:.0%} of the anchors"
        say(f"{plural(found.question_filter.kept.size, 'question')} selected, which {told} solve")
    order = found.ordering
    if order.n_comparisons:
        compared = f"{order.n_comparisons:,} comparisons"
        say(f"a weaker anchor does better in {order.share:.1%} of {compared}")
    for pair in order.tied:
        say(f"equal in all, so in no order: {' and '.join(pair)}")
    check = found.independence
    if check is None:
        say("independence of the questions: not checked, it takes two trials in a known order")
    elif check.variance_ratio is None:
        say("independence of the questions: no question varies")
    else:
        told = f"= {check.p_value:.3f}" if check.p_value >= 0.001 else "below 0.001"
        say(
            f"totals of trials vary {check.variance_ratio:.2f} times as much as independent "
            f"questions would (p {told})"
        )
    if found.doubtful:
        say(
            "the method's assumptions do not hold here: the probabilities claim more than is "
            "known (--scope population asks less of them)"
        )
    if len(found.placements) == 1:
        _show_one(found.placements[0])
    else:
        _show_all(found)
    for one in found.placements:
        if one.sweep is not None:
            _show_sweep(one)
    if found.placements:
        posterior = found.placements[0].posterior
        told = f"likelihood: {posterior.between}, epsilon {posterior.epsilon:g}"
        say(f"{told}; about {scope_label(posterior.scope)}")


def _show_one(one: Placement) -> None:
    ability = [f"{value:.3f}" for value in one.anchors.ability]
    first, last = one.inside
    rows = [
        (
            label,
            f"{below} to {above}",
            f"{probability:.1%}" if probability >= 0.0005 else "below 0.1%",
            "*" if first <= number <= last else "",
        )
        for number, (label, below, above, probability) in enumerate(
            zip(
                one.posterior.labels,
                ["0", *ability],
                [*ability, "1"],
                one.posterior.probability,
                strict=True,
            )
        )
    ]
    title = f"{one_line(one.model)}, score {one.score:.3f}: where it stands"
    say_table(title, ("interval", "anchors' scores", "probability", "most"), rows)


def _show_all(found: AnchorStudy) -> None:
    rows = []
    for one in sorted(found.placements, key=lambda one: -one.score):
        labels = one.posterior.labels
        first, last = one.inside
        inside = labels[first] if first == last else f"{labels[first]} ... {labels[last]}"
        peak = one.posterior.probability[one.posterior.peak]
        rows.append(
            (one.model, f"{one.score:.3f}", labels[one.posterior.peak], f"{peak:.0%}", inside)
        )
    head = ("model", "score", "most probable", "", f"{100 * found.level:g}%")
    say_table("each model among the anchors, itself left out", head, rows)


def _show_sweep(one: Placement) -> None:
    sweep = one.sweep
    if sweep is None:
        return
    columns = (sweep.sizes, sweep.mean, sweep.low, sweep.high, sweep.agreement)
    rows = [
        (int(n), f"{mean:.2f}", f"{low:.2f} to {high:.2f}", f"{same:.0%}")
        for n, mean, low, high, same in zip(*columns, strict=True)
    ]
    head = ("questions", "peak probability", "80% of choices", "in the place of all")
    title = f"{one_line(one.model)}, by fewer of these questions, chosen at random"
    say_table(title, head, rows)
