"""The results of a panel in sentences: which models are distinguishable, and who leads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from markupsafe import Markup, escape

from lm_eval_bayes._util.text import format_percent, join_words, plural, scope_label, shorten_middle
from lm_eval_bayes.analysis.leaderboard import Leaderboard
from lm_eval_bayes.analysis.report_data import TaskPanel
from lm_eval_bayes.report.page.text import Scale, name, short_names

#: Pairs that are not distinguishable and are named one by one, groups of models that are not
#: distinguishable and are named, and models of a group that are named one by one.
_MAX_PAIRS, _MAX_GROUPS, _MAX_NAMED = 3, 2, 4
#: Characters of a model's name in a sentence about several.
_MAX_NAME = 48


def comparison_sentence(board: Leaderboard) -> Markup | None:
    """Return which models are distinguishable and which are not; None for a single model.

    All pairs are compared at once, as in the ranks.
    """
    comparisons = board.ranking.simultaneous
    n_models = len(board.models)
    if n_models < 2:
        return None
    separated = comparisons.separated | comparisons.separated.T
    names = [_model_markup(shorten_middle(n, _MAX_NAME)) for n in short_names(board.models)]
    confidence = f"with {100.0 * comparisons.confidence:g}% confidence"
    if n_models == 2:
        are = "are" if separated.any() else "are not"
        text = "{} and {} {} distinguishable {} (two-sided)."
        return Markup(text).format(*names, are, confidence)
    confidence += " for all pairs at once"
    pairs = [(i, j) for i in range(n_models) for j in range(i + 1, n_models)]
    tied = [pair for pair in pairs if not separated[pair]]
    if not tied:
        text = "All {} models are distinguishable from each other {}."
        return Markup(text).format(n_models, confidence)
    if len(tied) == len(pairs):
        text = "None of the {} models is distinguishable from another {}."
        return Markup(text).format(n_models, confidence)
    if len(tied) <= _MAX_PAIRS:
        text = "All pairs of models are distinguishable {}, except {}."
        named = [Markup("{} and {}").format(names[i], names[j]) for i, j in tied]
        return Markup(text).format(confidence, Markup("; ").join(named))
    groups = _groups(separated)
    parts = [_group_markup(names[start:end]) for start, end in groups[:_MAX_GROUPS]]
    n_others = sum(not any(a <= i and j < b for a, b in groups) for i, j in tied)
    further = [
        plural(n, f"further {what}")
        for n, what in ((len(groups) - len(parts), "group"), (n_others, "pair"))
        if n
    ]
    if further:
        parts.append(escape(join_words(further)))
    leader = Markup("")
    if separated[0, 1:].all():
        leader = Markup("{} is better than all others; ").format(names[0])
    return Markup(
        "{}{} of {} pairs of models are distinguishable {}, and not distinguishable from each "
        "other are {}."
    ).format(leader, len(pairs) - len(tied), len(pairs), confidence, Markup("; ").join(parts))


def _groups(separated: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the largest groups of neighbours of which no two are distinguishable.

    Examples
    --------
    >>> import numpy as np
    >>> _groups(np.array([[0, 0, 1], [0, 0, 0], [1, 0, 0]], dtype=bool))
    [(0, 2), (1, 3)]
    """
    groups: list[tuple[int, int]] = []
    n_models, end = len(separated), 0
    for start in range(n_models):
        while end < n_models and not separated[start:end, end].any():
            end += 1
        if end - start > 1 and (not groups or end > groups[-1][1]):
            groups.append((start, end))
    return groups


def _group_markup(names: Sequence[Markup]) -> Markup:
    """Return the names of a group, or how many models it has, from the first to the last."""
    if len(names) <= _MAX_NAMED:
        return Markup("{} and {}").format(Markup(", ").join(names[:-1]), names[-1])
    return Markup("the {} models from {} to {}").format(len(names), names[0], names[-1])


def leader_sentence(panel: TaskPanel, level: float) -> Markup:
    """Return the score of the leader, and its probability of being the best."""
    board, scale = panel.board, Scale(*panel.bounds)
    first = board.rows[0]
    leader = _model_markup(first.model)
    scope = scope_label(board.ranking.scope, board.ranking.n_clusters)
    about = "" if board.ranking.scope == "benchmark" else f", for {scope}"
    score = (
        f"{scale.with_unit(first.posterior.mu)} ({scale.short(first.interval.low)} to "
        f"{scale.with_unit(first.interval.high)} with {100.0 * level:g}% probability{about})"
    )
    if len(panel.board.models) == 1:
        return Markup("{} scores {}.").format(leader, score)
    return Markup("{} leads with {}; it is the best with {}% probability.").format(
        leader, score, format_percent(first.p_best)
    )


def _model_markup(model: str) -> Markup:
    """Return a model's name, isolated from the direction of the text around it."""
    return Markup('<bdi class="model">{}</bdi>').format(name(model))
