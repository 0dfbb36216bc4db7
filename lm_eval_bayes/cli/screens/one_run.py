"""The screen of one model's runs (`summary`): its score, and the chances of k trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lm_eval_bayes._util.text import (
    NO_VALUE,
    first_names,
    format_duration,
    format_interval,
    format_large,
    format_score,
    one_line,
    plural,
    questions_in_words,
)
from lm_eval_bayes.cli.screens.bars import Ends
from lm_eval_bayes.cli.screens.layout import (
    Column,
    Form,
    names,
    say_bars,
    say_columns,
    say_sentence,
)
from lm_eval_bayes.cli.ui.output import say

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.summary import GroupSummary, ScorePosteriors, TaskSummary

#: Rows of the pass family that are shown unasked.
_EVERYDAY = ("hpass@", "hpass^")

#: Settings that are named, and the longest label of one.
MOST_SETTINGS, LONGEST_LABEL = 6, 24

#: A row: its name, the mean, the interval, and that on other questions where there is one.
Row = tuple[str, float, Ends, Ends | None]


def show_run(summary: TaskSummary, form: Form, estimates: bool = False) -> None:
    """Print a run's score and the chances of k trials.

    Parameters
    ----------
    summary : TaskSummary
        The run.
    form : Form
        The form of the screen; `verbose` shows G-Pass@k, mG-Pass@k and maj@k too.
    estimates : bool
        Whether the usual estimates from the saved trials stand beside.
    """
    from lm_eval_bayes.analysis.board import score_in_words

    run, scope = summary.run, summary.spec.scope
    where = f"on {questions_in_words(scope, run.n_questions)}"
    score = score_in_words(summary.learned[scope].mu, summary.intervals[scope], where)
    over_settings, _ = summary.over_settings
    if over_settings is not None and len(over_settings.labels) > 2:
        score += f"; in settings like these {format_interval(over_settings.like[scope])}"
    say_sentence(f"{run.model} scores {score}.{_unscored(summary)}", form)
    say()
    rows = [_score_row(f"hbayes@{summary.n}", summary)]
    saved = {rows[0][0]: None if summary.average is None else summary.average.value}
    for name, member in summary.family.items():
        k = name.removeprefix(next((p for p in _EVERYDAY if name.startswith(p)), name))
        if form.verbose or (k and k != "1"):
            ends = member.interval()
            rows.append((name, member.mu, (ends.low, ends.high), None))
            saved[name] = summary.rows.get(name.removeprefix("h"))
    extra = []
    if estimates:
        paper = summary.paper
        if paper is not None:
            ends = summary.intervals["paper"]
            rows.append((f"bayes@{summary.n}", paper.mu, (ends.low, ends.high), None))
        cells = [format_score(saved.get(name)) for name, *_ in rows]
        extra = [Column("saved trials", cells)]
    show_rows(run.task, rows, _interval_head(summary), form, run.outcomes.bounds, extra)
    _say_settings(summary, form)
    say_sentence(_shares_and_cost(summary, form), form)


def show_tasks(
    summaries: Sequence[TaskSummary], groups: Sequence[GroupSummary], form: Form
) -> None:
    """Print a model's scores on several tasks, and the means over groups of them."""
    from lm_eval_bayes.analysis.board import score_in_words

    means = [
        (f"{group.group}, {weighting}", mean)
        for group in groups
        for weighting, mean in group.means.items()
    ]
    about, mean = next(((a, m) for a, m in means if a.endswith("equal")), ("", None))
    model = summaries[0].run.model
    if mean is not None:
        where = f"in the mean of {about.removesuffix(', equal')}, where each task counts the same"
        here = mean.learned["benchmark"].mu, mean.intervals["benchmark"]
        say_sentence(f"{model} scores {score_in_words(*here, where)}.", form)
    else:
        say_sentence(f"{model} on {plural(len(summaries), 'task')}:", form)
    say()
    rows = [_score_row(summary.run.task, summary) for summary in summaries]
    rows += [_score_row(name, group_mean) for name, group_mean in means]
    bounds = summaries[0].run.outcomes.bounds
    sizes = [f"{s.run.n_questions} x {s.n}" for s in summaries] + [""] * len(means)
    extra = [Column("M x N", sizes)]
    show_rows("task", rows, _interval_head(summaries[0]), form, bounds, extra)


def show_unsorted(summaries: Sequence[TaskSummary], form: Form) -> None:
    """Print the scores of models of a task that cannot be compared."""
    rows = [_score_row(summary.run.model, summary) for summary in summaries]
    sizes = [Column("M x N", [f"{s.run.n_questions} x {s.n}" for s in summaries])]
    show_rows("model", rows, _interval_head(summaries[0]), form, extra=sizes)


def show_categories(summary: TaskSummary, form: Form) -> None:
    """Print a run's score on every category of questions."""
    scores = summary.category_scores
    rows = [_score_row(score.category, score) for score in scores]
    sizes = [Column("questions", [f"{score.n_questions:,}" for score in scores])]
    head = f"{summary.run.model}, {summary.run.task}"
    say_sentence(f"Categories of {head}:", form)
    show_rows("category", rows, _interval_head(summary), form, extra=sizes)


def show_rows(
    head: str,
    rows: Sequence[Row],
    interval_head: str,
    form: Form,
    bounds: Ends = (0.0, 1.0),
    extra: Sequence[Column] = (),
) -> None:
    """Print rows of means and intervals with their bars."""
    columns = [
        names(head, [name for name, *_ in rows]),
        *extra,
        Column("mean", [format_score(mu) for _, mu, _, _ in rows]),
        Column(interval_head, [form.ends(ends) for _, _, ends, _ in rows], left=True),
    ]
    if not form.drawn:
        others = [NO_VALUE if thin is None else form.ends(thin) for *_, thin in rows]
        columns.append(Column("other questions", others, left=True))
    say_bars(columns, [(mu, thick, thin) for _, mu, thick, thin in rows], form, bounds)
    if form.drawn:
        of_kind = [row[3] for row in rows if row[3] is not None]
        ends = f" ({form.ends(of_kind[0])})" if len(of_kind) == 1 else ""
        say(f"━ these questions   ─ other questions of the kind{ends}   ● mean")


def _interval_head(summary: TaskSummary) -> str:
    return f"{100 * summary.spec.level:g}% interval"


def _score_row(name: str, scores: ScorePosteriors) -> Row:
    here, elsewhere = (scores.intervals[scope] for scope in ("benchmark", "population"))
    ends = (here.low, here.high), (elsewhere.low, elsewhere.high)
    return (name, scores.learned["benchmark"].mu, *ends)


def _say_settings(summary: TaskSummary, form: Form) -> None:
    """Print what the settings of the run tell of others."""
    from lm_eval_bayes.analysis.settings import settings_posterior, spread_sentence
    from lm_eval_bayes.stats import SCOPES

    posterior, _ = summary.over_settings
    if posterior is None and not summary.run.settings:
        posterior, _ = settings_posterior(summary.run, summary.spec)
    if posterior is None:
        return
    spread, labels = posterior.spread, [one_line(n, LONGEST_LABEL) for n in posterior.labels]
    if spread is None:
        sds, half_widths = zip(*posterior.sensitivity, strict=True)
        ends = ", ".join(map(format_score, half_widths))
        assumed = ", ".join(f"{sd:g}".lstrip("0") for sd in sds)
        say_sentence(f"Other settings: not known from one; +/- {ends} if sd {assumed}", form)
        return
    n, scores = len(labels), posterior.scores
    these = [(summary.learned[scope].mu, summary.intervals[scope]) for scope in SCOPES]
    like = [(posterior.like[scope].mean, posterior.like[scope]) for scope in SCOPES]
    head = f"{n} settings, {100 * posterior.level:g}%"
    columns = [Column(head, ["these questions", "other questions"], left=True)]
    for head, row in (("these settings", these), ("settings like these", like)):
        cells = [f"{format_score(mean)}  {form.interval(ends)}" for mean, ends in row]
        columns.append(Column(head, cells, left=True))
    say()
    say_columns(columns, form)
    others = (scores.sum() - scores) / (n - 1)
    furthest_first = (-abs(scores - scores.mean())).argsort(kind="stable").tolist()
    order = range(n) if n <= MOST_SETTINGS else furthest_first
    of_each = [f"{labels[s]} {format_score(scores[s])}" for s in order]
    apart = [f"{labels[s]} {form.score(scores[s] - others[s], True)}" for s in spread.outside]
    most = int(posterior.trials.argmax())
    share = float(posterior.trials[most] / posterior.trials.sum())
    sentences = [
        first_names(of_each, MOST_SETTINGS),
        f"{labels[most]} has {share:.0%} of the trials, and counts as any other setting."
        * (share > 2.0 / n),
        spread_sentence(spread, n, posterior.level),
        "S = 2: the interval about settings like these rests on the prior (half-t4 of t, scale .2)."
        * (n == 2),
    ]
    if spread.is_treatment:
        which = f"Outside the others: {first_names(apart, MOST_SETTINGS)}" if apart else ""
        which = which or "Settings differ much"
        sentences.append(f"{which}. If it is another method, compare it as another model.")
    for sentence in filter(None, sentences):
        say_sentence(sentence, form)


def _unscored(summary: TaskSummary) -> str:
    """Return what the mean of all trials would be, were those without a score wrong or right."""
    run = summary.run
    graded = run.is_graded
    n = 0 if graded is None else sum(int((~of_question).sum()) for of_question in graded)
    if not n or graded is None or not run.binary:
        return ""
    right = [row[1] for row in run.outcomes.counts.tolist()]
    wrong_mean, right_mean = 0.0, 0.0
    for count, of_question in zip(right, graded, strict=True):
        total = max(len(of_question), 1)
        wrong_mean += count / total / len(right)
        right_mean += (count + int((~of_question).sum())) / total / len(right)
    trials = f"{plural(n, 'trial')} {'has' if n == 1 else 'have'} no score"
    return (
        f" {trials}: the mean of all would be {format_score(wrong_mean)} if they were wrong, "
        f"{format_score(right_mean)} if right."
    )


def _shares_and_cost(summary: TaskSummary, form: Form) -> str:
    run = summary.run
    parts = [f"{form.number(run.n_trials)} {'trial' if run.n_trials == 1 else 'trials'}"]
    if run.tokens is not None:
        a_trial = run.tokens / max(run.n_trials, 1)
        parts += [f"{form.number(run.tokens)} tokens", f"{format_large(a_trial)} a trial"]
    if run.busy_seconds is not None:
        parts.append(f"{format_duration(run.busy_seconds)} of the model")
    if run.cost is not None:
        parts.append(f"cost {format_large(run.cost)}")
    shares = {"cut_off_share": "cut off", "empty_share": "empty"}
    parts += [f"{value:.1%} {shares.get(name, name)}" for name, value in run.shares.items()]
    return ", ".join(parts)
