"""Models on these questions and on others of the kind: who leads, and who is distinguishable."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lm_eval_bayes._util.text import (
    first_names,
    format_interval,
    format_range,
    format_score,
    join_words,
    plural,
    questions_in_words,
)
from lm_eval_bayes.analysis.leaderboard import (
    Leaderboard,
    leaderboard,
    mean_of_tasks,
    overall_leaderboard,
)
from lm_eval_bayes.analysis.settings import pairs_over_settings
from lm_eval_bayes.analysis.summary import GroupSummary, posteriors_of_means
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats import (
    SCOPES,
    Interval,
    IntervalSpec,
    Posterior,
    Scope,
    TieRule,
    hbayes_by,
)

#: Models that a sentence names.
_NAMED = 4


@dataclass(frozen=True, eq=False)
class Board:
    """The models of a task, or of the mean of several tasks, in both scopes.

    Attributes
    ----------
    scopes : mapping of scope to Leaderboard
        "benchmark" is about these questions, "population" about others of the kind, which a
        single question says nothing about.
    scope : {"benchmark", "population"}
        That of the sentences, and of the order of the models.
    tasks : tuple of Board
        Those of the single tasks; empty for one task.
    n_over_settings : int or None
        Distinguishable pairs in settings like these, see `pairs_over_settings`.
    """

    scopes: Mapping[Scope, Leaderboard]
    scope: Scope = "benchmark"
    tasks: tuple[Board, ...] = ()
    n_over_settings: int | None = None

    @property
    def leaderboard(self) -> Leaderboard:
        """The leaderboard that the sentences are about."""
        return self.scopes[self.scope]

    @property
    def title(self) -> str:
        """The task, or "Mean of 4 tasks"."""
        if self.tasks:
            return f"Mean of {plural(len(self.tasks), 'task')}"
        return self.leaderboard.task

    @property
    def models(self) -> tuple[str, ...]:
        """The models, best first."""
        return self.leaderboard.models

    @property
    def may_be_first(self) -> tuple[str, ...]:
        """The models whose set of ranks has the first, without the leader."""
        return tuple(row.model for row in self.leaderboard.rows[1:] if row.rank_low == 1)

    @property
    def rivals(self) -> tuple[str, ...]:
        """The models that are not distinguishable from the leader."""
        return self._without(self.leaderboard.ranking.distinguishable[0])

    @property
    def leaders(self) -> tuple[str, ...]:
        """The first model, and those that are shown with its score and not distinguishable."""
        rows = {row.model: format_score(row.mu) for row in self.leaderboard.rows}
        first = self.models[0]
        return (first, *(model for model in self.rivals if rows[model] == rows[first]))

    @property
    def n_pairs(self) -> int:
        """Pairs of models."""
        n = len(self.leaderboard.rows)
        return n * (n - 1) // 2

    def n_distinguishable(self, scope: Scope) -> int:
        """Return the number of distinguishable pairs."""
        board = self.scopes.get(scope)
        return 0 if board is None else int(board.ranking.simultaneous.separated.sum())

    @property
    def intervals(self) -> list[tuple[Interval, Interval | None]]:
        """Of every model, best first, the intervals on these questions and on others of the kind.

        A single question has no second one.
        """
        here = {row.model: row.interval for row in self.scopes["benchmark"].rows}
        of_kind = self.scopes["population"].rows if "population" in self.scopes else ()
        elsewhere = {row.model: row.interval for row in of_kind}
        return [(here[model], elsewhere.get(model)) for model in self.models]

    @property
    def questions(self) -> str:
        """Where the scores are: "on these 15 questions", or "in the mean of 4 tasks"."""
        if not self.tasks:
            return f"on {questions_in_words(self.scope, self.leaderboard.n_questions)}"
        of_kind = ", on other questions" * (self.scope == "population")
        return f"in the mean of {plural(len(self.tasks), 'task')}{of_kind}"

    @property
    def trials(self) -> str:
        """The trials of a question: "4 trials each"."""
        boards = self.tasks or (self,)
        ranges = [row.n_range for board in boards for row in board.leaderboard.rows if row.n_range]
        ends = min(low for low, _ in ranges), max(high for _, high in ranges)
        return f"{format_range(ends)} {'trial' if ends[1] == 1 else 'trials'} each"

    def headline(self, names: Mapping[str, str] | None = None) -> str:
        """Return who leads with which score, and who is not distinguishable from it.

        Parameters
        ----------
        names : mapping of str to str, optional
            How the models are called, where not by their names.
        """
        rows, called = self.leaderboard.rows, {m: (names or {}).get(m, m) for m in self.models}
        first = rows[0]
        if len(rows) == 1:
            score = score_in_words(first.mu, first.interval, self.questions)
            return f"{called[first.model]} scores {score}."
        level = [called[model] for model in self.leaders]
        leads = f"{_listed(level)} {'leads' if len(level) == 1 else 'are level'} with "
        leads += format_score(first.mu) + f" {self.questions}" * bool(self.tasks)
        rivals = [called[model] for model in self.rivals if model not in self.leaders]
        if rivals:
            be, it = "is" if len(rivals) == 1 else "are", "it" if len(level) == 1 else "them"
            count = f"{plural(len(rivals), 'model')} {be}"
            return f"{leads}; {count} not distinguishable from {it}: {_listed(rivals)}."
        if len(level) > 1:
            return f"{leads} and not distinguishable."
        others = "all other models are" if self.n_pairs > 1 else f"{called[self.models[1]]} is"
        but = ", but not in settings like these" * (self.n_pairs == 1 and self.n_over_settings == 0)
        return f"{leads}; {others} distinguishable from it{but}."

    def score_sentence(self) -> str:
        """Return the headline, with the numbers of questions and trials of several models."""
        if len(self.leaderboard.rows) == 1:
            return self.headline()
        return (
            f"{self.headline()} {plural(self.leaderboard.n_questions, 'question')}, {self.trials}."
        )

    def rank_sentence(self) -> str:
        """Return who may be first, and how many pairs are distinguishable in either scope."""
        if self.n_pairs < 2:
            return self.headline()
        leaders = self.leaders
        others = [model for model in self.may_be_first if model not in leaders]
        first = f"{_listed(leaders)} {'leads' if len(leaders) == 1 else 'are level'}"
        who = others[0] if len(others) == 1 else plural(len(others), "model")
        also = f"{who} may also be first" if others else "no other model may be first"
        first = f"{first}; {also}."
        return f"{first} {self.pair_sentence()}"

    def pair_sentence(self) -> str:
        """Return how many pairs of models are distinguishable in either scope."""
        n = self.n_distinguishable(self.scope)
        pairs = f"{n:,} of {plural(self.n_pairs, 'pair')} of models {'is' if n == 1 else 'are'}"
        where = self.questions
        if self.tasks:
            where += f" (each counts the same; {self.trials})"
        if self.scope == "benchmark" and "population" in self.scopes:
            n_elsewhere = self.n_distinguishable("population")
            where += f", {n_elsewhere:,} on other questions of the kind"
        if self.n_over_settings is not None:
            where += f", {self.n_over_settings:,} in settings like these"
            n_single = sum(row.settings is None for row in self.leaderboard.rows)
            of_others = f" (sd of the others for {plural(n_single, 'model')} with one)"
            where += of_others * (n_single > 0)
        return f"{pairs} distinguishable {where}."

    def _without(self, distinguishable: Iterable[bool]) -> tuple[str, ...]:
        pairs = zip(self.models[1:], list(distinguishable)[1:], strict=True)
        return tuple(model for model, differs in pairs if not differs)


def score_in_words(mu: float, interval: Interval, where: str) -> str:
    """Return a score with what it is about and its interval, for a sentence."""
    return f"{format_score(mu)} {where} ({100 * interval.level:g}%: {format_interval(interval)})"


def _listed(models: Sequence[str]) -> str:
    return join_words(models) if len(models) <= _NAMED else first_names(models, _NAMED - 1)


def task_board(
    runs: Sequence[TaskRun],
    spec: IntervalSpec,
    *,
    ties: TieRule = "simultaneous",
    posteriors: Mapping[Scope, Mapping[str, Posterior]] | None = None,
) -> Board:
    """Rank the models of a task in both scopes.

    Parameters
    ----------
    runs : sequence of TaskRun
        One per model, all of the same questions.
    spec : IntervalSpec
        Settings of the intervals; its scope is that of the sentences.
    ties : {"simultaneous", "adjacent", "none"}
        Which models share a rank: see `lm_eval_bayes.rank`.
    posteriors : mapping of scope to mapping of str to Posterior, optional
        hbayes@N by model, with the settings of `spec`, where it is known already.

    Raises
    ------
    InvalidInputError
        If the models answered different questions, or category weights differ.
    """
    if posteriors is None:
        elsewhere = replace(spec, scope="population")
        of_kind = {run.model: hbayes_by(run.outcomes, elsewhere) for run in runs}
        here = {model: posterior.benchmark or posterior for model, posterior in of_kind.items()}
        posteriors = {"benchmark": here, "population": of_kind}
    scopes = SCOPES if runs[0].n_questions > 1 else dict.fromkeys((SCOPES[0], spec.scope))
    boards = {
        scope: leaderboard(
            runs, replace(spec, scope=scope), ties=ties, posteriors=posteriors[scope]
        )
        for scope in scopes
    }
    return Board(boards, spec.scope, n_over_settings=pairs_over_settings(runs, spec))


def mean_of_common(
    boards: Sequence[Board], models: Collection[str], groups: Iterable[GroupSummary] = ()
) -> tuple[Board | None, list[str]]:
    """Rank models by their mean over the tasks that all of them have.

    Parameters
    ----------
    boards : sequence of Board
        Of different tasks.
    models : collection of str
        All models.
    groups : iterable of GroupSummary
        Means over tasks that are known already.

    Returns
    -------
    mean : Board or None
        None for one model, and where fewer than two tasks have all.
    left_out : list of str
        The other tasks.
    """
    common = [board for board in boards if {*board.models} == {*models}]
    if len(models) < 2 or len(common) < 2:
        return None, []
    tasks = [board.leaderboard.task for board in common]
    others = [board.leaderboard.task for board in boards if board not in common]
    return mean_board(common, posteriors_of_means(groups, tasks)), others


def mean_board(
    boards: Sequence[Board], posteriors: Mapping[Scope, Mapping[str, Posterior]] | None = None
) -> Board:
    """Rank the models by the equally weighted mean of their scores on several tasks.

    Parameters
    ----------
    boards : sequence of Board
        At least two, of different tasks and the same models.
    posteriors : mapping of scope to mapping of str to Posterior, optional
        Those of the means by model, where they are known already.
    """
    scopes = [scope for scope in SCOPES if all(scope in board.scopes for board in boards)]
    if posteriors is None and "population" in scopes:
        of_kind = [board.scopes["population"] for board in boards]
        spec = of_kind[0].spec
        means = {m: mean_of_tasks(of_kind, m).posterior("equal", spec) for m in boards[0].models}
        here = {model: posterior.benchmark or posterior for model, posterior in means.items()}
        posteriors = {"benchmark": here, "population": means}
    overall = {
        scope: overall_leaderboard(
            [board.scopes[scope] for board in boards],
            None if posteriors is None else posteriors[scope],
        )
        for scope in scopes
    }
    return Board(overall, boards[0].scope, tuple(boards))
