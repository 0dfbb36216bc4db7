"""Ranks with ties and without, tasks side by side: the layout of [Hariri 2026, Table 2]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes.analysis.comparability import check_comparable
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats import CONFIDENCE, bayes_at_n, rank, z_threshold


@dataclass(frozen=True)
class PaperRanks(Record):
    """A model's ranks on a task.

    Attributes
    ----------
    with_ties : int
        Dense rank; neighbours whose z is below the threshold share one.
    without_ties : int
        Dense rank by the posterior mean.
    """

    with_ties: int
    without_ties: int


@dataclass(frozen=True)
class PaperRow(Record):
    """A model's row.

    Attributes
    ----------
    model : str
        The model's name.
    ranks : mapping of str to PaperRanks or None
        By task; None where the model has no run.
    """

    model: str
    ranks: Mapping[str, PaperRanks | None]


@dataclass(frozen=True)
class PaperTable(Record):
    """Ranks of models on several tasks.

    Attributes
    ----------
    tasks : tuple of str
        The columns.
    rows : tuple of PaperRow
        In the order of the ranks without ties on the first task; a model that lacks it comes
        after those that have it, in the order of the next task, and so on.
    threshold : float
        The z below which neighbours tie.
    """

    tasks: tuple[str, ...]
    rows: tuple[PaperRow, ...]
    threshold: float


def paper_table(runs_by_task: Mapping[str, Sequence[TaskRun]]) -> PaperTable:
    """Rank the models of every task as [Hariri 2026, Table 2] does.

    Models are ordered by the posterior mean of bayes@N, with the uniform prior. With ties, two
    neighbours in this order share a rank if z = |μ − μ'| / sqrt(σ² + σ'²) is below
    Φ⁻¹(.95) = 1.645 [§2.9].

    Parameters
    ----------
    runs_by_task : mapping of str to sequence of TaskRun
        One run per model, of the same questions within a task.

    Raises
    ------
    InvalidInputError
        If the models of a task answered different questions.

    Examples
    --------
    >>> ids = [f"q{i}" for i in range(20)]
    >>> runs = [
    ...     TaskRun.from_trials(name, "aime", [[1] * right + [0] * (64 - right)] * 20, ids)
    ...     for name, right in (("poor", 20), ("good", 47), ("fair", 46))
    ... ]
    >>> table = paper_table({"aime": runs})
    >>> [(row.model, *row.ranks["aime"].to_dict().values()) for row in table.rows]
    [('good', 1, 1), ('fair', 1, 2), ('poor', 2, 3)]
    """
    ranks_by_task: dict[str, dict[str, PaperRanks]] = {}
    for task, runs in runs_by_task.items():
        check_comparable(runs)
        runs[0].require_graded()
        posteriors = {run.model: bayes_at_n(run.outcomes) for run in runs}
        plain = rank(posteriors, ties="none")
        tied = rank(posteriors, ties="adjacent")
        ranks_by_task[task] = {
            model: PaperRanks(int(tied.rank_of(model)), int(plain.rank_of(model)))
            for model in plain.models
        }
    models = dict.fromkeys(model for ranks in ranks_by_task.values() for model in ranks)
    rows = tuple(
        PaperRow(model, {task: ranks.get(model) for task, ranks in ranks_by_task.items()})
        for model in models
    )
    return PaperTable(tuple(runs_by_task), rows, z_threshold(CONFIDENCE))
