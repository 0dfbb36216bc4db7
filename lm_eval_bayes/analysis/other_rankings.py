"""Rankings by other rules than that of `rank`: functions of scorio, and the paper's table.

scorio [Hariri 2026] has some fifty ranking functions of binary outcomes: Bradley–Terry, Elo,
Plackett–Luce, Rasch models, voting rules and more. They are called, not rewritten.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from lm_eval_bayes._util.packages import pip_install_extra, version_of
from lm_eval_bayes._util.plain import Record
from lm_eval_bayes._util.text import join_words
from lm_eval_bayes._util.validation import check_seed
from lm_eval_bayes.analysis.comparability import aligned_rows, check_comparable
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats import (
    CONFIDENCE,
    IntArray,
    Ranking,
    bayes_at_n,
    kendall_tau_b,
    rank,
    z_threshold,
)

#: Arguments of scorio's functions that are given here.
_OWN_ARGUMENTS = ("R", "method", "return_scores")


@dataclass(frozen=True)
class ScorioRow(Record):
    """A model's rank and score by a function of scorio.

    Attributes
    ----------
    model : str
        The model.
    rank : float
        Its rank, 1 the best; tied models share the first of their places.
    score : float
        The number that it is ranked by.
    """

    model: str
    rank: float
    score: float


@dataclass(frozen=True)
class ScorioRanking(Record):
    """The ranking of models on a task by a function of scorio.

    Attributes
    ----------
    task : str
        The task.
    method : str
        The function's name.
    arguments : mapping
        The arguments that it was given.
    version : str
        scorio's version.
    n_trials : int
        Trials of every question that it was given.
    rows : tuple of ScorioRow
        Best first by this ranking.
    tau_b : float or None
        Kendall's τ_b with the order by posterior mean; None where all models of one tie.
    seed : int or None
        Seed of the order of the trials where only their counts are known.
    notes : tuple of str
        What was left out, and scorio's warnings.
    """

    task: str
    method: str
    arguments: Mapping[str, Any]
    version: str
    n_trials: int
    rows: tuple[ScorioRow, ...]
    tau_b: float | None
    seed: int | None
    notes: tuple[str, ...]


def scorio_methods() -> tuple[str, ...]:
    """Return the names of scorio's ranking functions.

    Raises
    ------
    InvalidInputError
        If scorio is not installed.
    """
    module = _scorio()
    names = (name for name in dir(module) if not name.startswith("_"))
    return tuple(name for name in names if _is_ranking(getattr(module, name)))


def rank_by_scorio(
    runs: Sequence[TaskRun], method: str, ranking: Ranking, *, seed: int = 0
) -> ScorioRanking:
    """Rank models by a function of scorio on the outcomes of the same questions and trials.

    scorio takes an array of 0 and 1, models × questions × trials. Where models or questions have
    more trials than others the first ones of each count, and where a run has counts only its
    trials are in an order drawn by `seed`.

    Parameters
    ----------
    runs : sequence of TaskRun
        At least two, comparable, of right and wrong trials.
    method : str
        A function's name, such as "bradley_terry", with arguments after a colon:
        "pass_at_k:k=2".
    ranking : Ranking
        The ranking of the same models that the result is compared with.
    seed : int
        See above.

    Returns
    -------
    ScorioRanking

    Raises
    ------
    InvalidInputError
        If scorio is not installed, has no such function, or refuses the outcomes or arguments.
    """
    seed = check_seed(seed)
    name, arguments = _parse(method)
    module = _scorio()
    function: Callable[..., Any] | None = getattr(module, name, None)
    if function is None or not _is_ranking(function):
        rule = f"be one of scorio's ranking functions: {', '.join(scorio_methods())}"
        raise InvalidInputError.of("method", "choice", rule, name)
    accepted = [key for key in inspect.signature(function).parameters if key not in _OWN_ARGUMENTS]
    for key in arguments:
        if key not in accepted or key.startswith("return_"):
            rule = f"have arguments of {name}: {accepted}"
            raise InvalidInputError.of("method", "unknown-key", rule, key)
    check_comparable(runs)
    if len(runs) < 2:
        raise InvalidInputError.of("RUN", "empty", "be at least two models", len(runs))
    table, notes, is_drawn = _outcomes(runs, seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            ranks, scores = function(table, return_scores=True, **arguments)[:2]
        except (ValueError, TypeError, ArithmeticError, RuntimeError) as error:
            rule = f"be one that scorio can compute from these outcomes ({name})"
            raise InvalidInputError.of("method", "unsupported", rule, str(error)) from error
    notes += [f"scorio: {warning.message}" for warning in caught]
    numbers = zip(map(float, ranks), map(float, scores), strict=True)
    of_model = dict(zip((run.model for run in runs), numbers, strict=True))
    mu, by_rank = ranking.mu.round(12), np.array([of_model[model][0] for model in ranking.models])
    varies = np.ptp(mu) > 0.0 and np.ptp(by_rank) > 0.0
    best_first = sorted(ranking.models, key=lambda model: of_model[model][0])
    return ScorioRanking(
        task=runs[0].task,
        method=name,
        arguments=arguments,
        version=version_of("scorio") or "of an unknown version",
        n_trials=table.shape[2],
        rows=tuple(ScorioRow(model, *of_model[model]) for model in best_first),
        tau_b=float(kendall_tau_b(mu, -by_rank)) if varies else None,
        seed=seed if is_drawn else None,
        notes=tuple(dict.fromkeys(notes)),
    )


def _scorio() -> ModuleType:
    """Return scorio's module of ranking functions."""
    try:
        return importlib.import_module("scorio.rank")
    except ImportError as error:
        rule = f"be left out, or scorio be installed: {pip_install_extra('scorio')}"
        raise InvalidInputError.of("method", "not-installed", rule, str(error)) from None


def _is_ranking(function: object) -> bool:
    """Return whether this is a function of outcomes that can return scores."""
    if not inspect.isfunction(function):
        return False
    parameters = inspect.signature(function).parameters
    return all(name in parameters for name in _OWN_ARGUMENTS)


def _parse(method: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments of NAME or NAME:ARG=VALUE,ARG=VALUE."""
    name, _, rest = method.partition(":")
    arguments: dict[str, Any] = {}
    for part in filter(None, (piece.strip() for piece in rest.split(","))):
        key, equals, value = part.partition("=")
        if not equals:
            raise InvalidInputError.of("method", "format", "be NAME or NAME:ARG=VALUE,…", method)
        try:
            arguments[key.strip()] = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError):
            arguments[key.strip()] = value.strip()
    return name.strip(), arguments


def _outcomes(runs: Sequence[TaskRun], seed: int) -> tuple[IntArray, list[str], bool]:
    """Return right trials as 1, shape (L, M, N); notes; and whether an order was drawn.

    Questions are in the order of the first run.
    """
    rng = np.random.default_rng(seed)
    fewest = min(run.outcomes.trials_range[0] for run in runs)
    most = max(run.outcomes.trials_range[1] for run in runs)
    if fewest == 0:
        rule = "have at least one trial of every question"
        raise InvalidInputError.of("RUN", "empty", rule, "none")
    table = []
    for run in runs:
        run.require_graded()
        at_top = run.outcomes.top_categories()
        if at_top is None:
            rule = "be of right and wrong trials for scorio's functions"
            raise InvalidInputError.of("RUN", "unsupported", rule, f"a rubric on {run.task}")
        trials = run.trials
        if trials is None:
            categories = np.arange(run.outcomes.n_categories)
            counts = run.outcomes.counts.astype(np.int64)
            trials = tuple(rng.permutation(np.repeat(categories, row)) for row in counts)
        rows = aligned_rows(run, runs[0]).tolist()
        table.append([at_top[trials[row][:fewest]].astype(np.int64) for row in rows])
    notes = []
    if most > fewest:
        first = "trial" if fewest == 1 else f"{fewest} trials"
        notes.append(f"scorio was given the first {first} of every question, of up to {most}")
    of_counts = [run.model for run in runs if run.trials is None]
    if of_counts:
        notes.append(f"the order of the trials of {join_words(of_counts)} is unknown and was drawn")
    return np.array(table), notes, bool(of_counts)


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
