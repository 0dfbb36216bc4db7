"""What a leaderboard says, in plain words."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from lm_eval_bayes._util.text import format_percent, format_range, plural, scope_label
from lm_eval_bayes.analysis.report_data import ReportData, TaskPanel
from lm_eval_bayes.report.page import text as words
from lm_eval_bayes.report.page.text import Scale

#: A model that is better than all others with this probability is called the best.
_SURE, _LIKELY = 0.95, 0.8
#: Models that a sentence names.
_NAMED = 3


def headline(panel: TaskPanel, level: float) -> Markup:
    """Return the answer of a panel in a sentence or two."""
    board, scale = panel.board, Scale(*panel.bounds)
    first = board.rows[0]
    leader = named(first.model)
    about = "" if board.scope == "benchmark" else f", for {scope_label(board.scope)}"
    score = (
        f"{scale.whole(first.posterior.mu)} ({scale.short(first.interval.low)} to "
        f"{scale.whole(first.interval.high)} with {100.0 * level:g}% probability{about})"
    )
    if len(panel.models) == 1:
        return Markup("{} scores {}.").format(leader, score)
    tied = [one.model for one in board.rows if one.rank == first.rank][1:]
    if first.p_best >= _SURE:
        told = f"is the best with {format_percent(first.p_best)}% probability"
        return Markup("{} {}: {}.").format(leader, told, score)
    if not tied:
        ahead = format_percent(float(board.p_greater[0, 1]))
        return Markup("{} leads with {}, ahead of {} with {}% probability.").format(
            leader, score, named(board.rows[1].model), ahead
        )
    rivals: list[Markup] = [named(one) for one in tied[:_NAMED]]
    if len(tied) > _NAMED:
        rivals.append(escape(plural(len(tied) - _NAMED, "more model")))
    if first.p_best >= _LIKELY:
        told = f"is probably the best ({format_percent(first.p_best)}%): {score}. The trials"
        return Markup("{} {} do not yet separate it from {}.").format(leader, told, _listed(rivals))
    return Markup("{} stands first with {}, but the trials do not separate it from {}.").format(
        leader, score, _listed(rivals)
    )


def named(model: str) -> Markup:
    """Return a model's name for a sentence, kept from turning the words around it."""
    return Markup('<bdi class="model">{}</bdi>').format(words.name(model))


def _listed(parts: Sequence[Markup]) -> Markup:
    if len(parts) < 2:
        return Markup("").join(parts)
    return Markup("{} or {}").format(Markup(", ").join(parts[:-1]), parts[-1])


def sizes(panel: TaskPanel) -> str:
    """Return how much a panel rests on."""
    trials = "trial" if panel.n_range[1] == 1 else "trials"
    return " · ".join(
        [
            plural(len(panel.models), "model"),
            plural(panel.n_questions, "question"),
            f"{format_range(panel.n_range)} {trials} of each",
        ]
    )


def overview(contents: ReportData) -> str:
    """Return how much a report rests on."""
    return " · ".join(
        [
            plural(len(contents.models), "model"),
            plural(len(contents.tasks), "task"),
            plural(contents.n_questions, "question"),
            plural(contents.n_trials, "trial"),
        ]
    )
