"""What a leaderboard says, in plain words."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from lm_eval_bayes.report.page import text as words
from lm_eval_bayes.report.page.contents import Contents, Panel
from lm_eval_bayes.stats.results import Scope

#: A model that is better than all others with this probability is called the best.
_SURE, _LIKELY = 0.95, 0.8
#: Models that a sentence names.
_NAMED = 3


def headline(panel: Panel, level: float) -> Markup:
    """Return the answer of a panel in a sentence or two."""
    board, scale = panel.board, panel.scale
    first = board.places[0]
    leader = named(first.model)
    about = "" if board.scope == "benchmark" else f", for {scope_words(board.scope)}"
    score = (
        f"{scale.whole(first.posterior.mu)} ({scale.short(first.interval.low)} to "
        f"{scale.whole(first.interval.high)} with {100.0 * level:g}% probability{about})"
    )
    if len(panel.models) == 1:
        return Markup("{} scores {}.").format(leader, score)
    tied = [one.model for one in board.places if one.rank == first.rank][1:]
    if first.p_best >= _SURE:
        told = f"is the best with {words.probability(first.p_best)}% probability"
        return Markup("{} {}: {}.").format(leader, told, score)
    if not tied:
        ahead = words.probability(float(board.p_greater[0, 1]))
        return Markup("{} leads with {}, ahead of {} with {}% probability.").format(
            leader, score, named(board.places[1].model), ahead
        )
    rivals: list[Markup] = [named(one) for one in tied[:_NAMED]]
    if len(tied) > _NAMED:
        rivals.append(escape(words.counted(len(tied) - _NAMED, "more model")))
    if first.p_best >= _LIKELY:
        told = f"is probably the best ({words.probability(first.p_best)}%): {score}. The trials"
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


def scope_words(scope: Scope) -> str:
    """Return what a scope is about."""
    return "these questions" if scope == "benchmark" else "questions like these"


def sizes(panel: Panel) -> str:
    """Return how much a panel rests on."""
    low, high = panel.n_range
    each = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return " · ".join(
        [
            words.counted(len(panel.models), "model"),
            words.counted(panel.n_questions, "question"),
            f"{each} {'trial' if high == 1 else 'trials'} of each",
        ]
    )


def overview(contents: Contents) -> str:
    """Return how much a report rests on."""
    return " · ".join(
        [
            words.counted(len(contents.models), "model"),
            words.counted(len(contents.tasks), "task"),
            words.counted(contents.n_questions, "question"),
            words.counted(contents.n_trials, "trial"),
        ]
    )
