"""What `lm-eval-bayes compare` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lm_eval_bayes._util.text import (
    format_interval,
    format_mean_sd,
    format_range,
    format_score,
    interval_label,
    plural,
    scope_label,
)
from lm_eval_bayes.cli.ui.output import say, say_table, warn

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.comparison import MeanDifference, RunComparison, TaskComparison
    from lm_eval_bayes.runs.task_run import TaskRun


def told(runs: Sequence[TaskRun]) -> dict[str, Any]:
    """Return the model of some runs, and the files that they are from."""
    sources = dict.fromkeys(source for one in runs for source in one.sources)
    return {"model": runs[0].model, "sources": list(sources)}


def show_comparison(
    found: RunComparison,
    runs_a: Sequence[TaskRun],
    runs_b: Sequence[TaskRun],
    level: float,
    method: str,
) -> None:
    """Print what a comparison found, task by task, and what to know about it."""
    for name, runs in (("A", runs_a), ("B", runs_b)):
        side = told(runs)
        say(f"{name} is {side['model']}" + _from(side["sources"]))
    for one in found.tasks:
        say()
        _show_task(one, level, method)
    if found.overall is not None:
        say()
        _show_overall(found.overall, level, method)
    for name, tasks in (("A", found.only_a), ("B", found.only_b)):
        if tasks:
            say(f"left out: {', '.join(tasks)}, which only {name} has")
    if _undecided(found):
        like = " --scope population" if found.tasks[0].comparison.scope == "population" else ""
        say(f"how many more trials may decide it: lm-eval-bayes plan A B --separate{like}")
    for one in found.tasks:
        if one.comparison.posterior.note is not None:
            warn(f"note: {one.task}: {one.comparison.posterior.note}")
        for differs in one.differs:
            warn(f"warning: {differs}")


def _undecided(found: RunComparison) -> bool:
    """Whether trials are wanted, and can be had that do not repeat those there are."""
    from lm_eval_bayes.analysis.plan import repeat_note

    if any(repeat_note(run) for one in found.tasks for run in (one.a, one.b)):
        return False
    decisive = found.tasks[0].comparison if found.overall is None else found.overall
    return max(found.p_a_greater, 1.0 - found.p_a_greater) < decisive.confidence and (
        decisive.p_rope is None or decisive.p_rope < decisive.confidence
    )


def _from(sources: Sequence[str]) -> str:
    if not sources:
        return ""
    more = f" and {plural(len(sources) - 1, 'more source')}" if len(sources) > 1 else ""
    return f", from {sources[0]}{more}"


def _show_task(one: TaskComparison, level: float, method: str) -> None:
    c = one.comparison
    n_a, n_b = (format_range(run.outcomes.trials_range) for run in (one.a, one.b))
    n = f"N = {n_a}" if n_a == n_b else f"N = {n_a} for A and {n_b} for B"
    if one.a.counted != "graded trials":
        n += f", {one.a.counted}"
    title = f"{one.task}: {plural(c.n_questions, 'question')}, {n}, about {scope_label(c.scope)}"
    head = ("hbayes@N", "mean ± sd", interval_label(level, method))
    paired = ", paired" if c.scope == "population" else ""
    lines = [
        ("A", format_mean_sd(c.a.mu, c.a.sigma), format_interval(c.interval_a)),
        ("B", format_mean_sd(c.b.mu, c.b.sigma), format_interval(c.interval_b)),
        ("A - B" + paired, format_mean_sd(c.difference, c.sd), format_interval(c.interval)),
    ]
    say_table(title, head, lines)
    if paired:
        say(
            "paired: the mean of the questions' observed differences, which no prior pulls together"
        )
    for name, left in (("A", c.left_out_a), ("B", c.left_out_b)):
        if left:
            say(f"left out: {plural(left, 'question')} that only {name} has")
    _show_probabilities(c.p_a_greater, c.rope, c.p_rope)
    say(f"verdict: {one.verdict}")
    apart = "do not overlap" if c.rule_intervals != "undecided" else "overlap"
    say(f"rules of Hariri et al. (2026): {_z(c.z, c.rule_z, c.confidence)}; the intervals {apart}")
    if one.paired is not None:
        from lm_eval_bayes._util.text import probability_statement

        p = one.paired
        say(
            f"one trial a question, paired (Bowyer et al. 2025): A - B = "
            f"{format_mean_sd(p.difference, p.sd)}, "
            f"{interval_label(level, 'exact')} {format_interval(p.interval)}, "
            f"{probability_statement('P(A > B)', p.p_a_greater)}, odds ratio {p.odds_ratio:.3g} "
            f"({p.odds_ratio_interval.low:.3g} to {p.odds_ratio_interval.high:.3g})"
        )
        if p.table is not None:
            both, only_a, only_b, none = p.table
            say(f"right: both {both:,}, only A {only_a:,}, only B {only_b:,}, neither {none:,}")
    if one.questions:
        say()
        _show_questions(one)
    if one.curves is not None:
        say()
        _show_curves(one)


def _show_probabilities(
    p_a_greater: float, rope: tuple[float, float] | None, p_rope: float | None
) -> None:
    from lm_eval_bayes._util.text import probability_statement

    told = [
        probability_statement("P(A > B)", p_a_greater),
        probability_statement("P(A < B)", 1.0 - p_a_greater),
    ]
    if rope is not None and p_rope is not None:
        told.append(probability_statement(f"P({rope[0]:g} <= A - B <= {rope[1]:g})", p_rope))
    say(", ".join(told))


def _z(z: float, rule: str, confidence: float) -> str:
    from lm_eval_bayes.stats.comparison.compare import z_threshold

    relation = "below" if rule == "undecided" else "at least"
    return f"z = {z:.2f} is {relation} {z_threshold(confidence):.3f}"


def _show_questions(one: TaskComparison) -> None:
    from lm_eval_bayes.analysis.comparability import short_id, short_text

    binary = one.a.binary
    rows = [
        (
            short_id(each.question_id),
            _trials(each.a, binary),
            _trials(each.b, binary),
            format_mean_sd(each.difference, each.sd),
            short_text(each.text),
        )
        for each in one.questions
    ]
    head = ("question", "A", "B", "A - B", "text")
    what = "right of N" if binary else "trials by category"
    say_table(f"the questions that drive the difference, {what}", head, rows)


def _trials(counts: Sequence[int], binary: bool) -> str:
    return f"{counts[1]}/{sum(counts)}" if binary else " ".join(map(str, counts))


def _show_curves(one: TaskComparison) -> None:
    curves = one.curves
    if curves is None:
        return
    sign = dict.fromkeys(curves.better, "A") | dict.fromkeys(curves.worse, "B")
    columns = (curves.ks, curves.a, curves.b, curves.difference, curves.low, curves.high)
    rows = [
        (
            k,
            format_score(a),
            format_score(b),
            format_score(difference),
            f"{low:.3f} to {high:.3f}",
            sign.get(k, "-"),
        )
        for k, a, b, difference, low, high in zip(*(each.tolist() for each in columns), strict=True)
    ]
    band = f"{100 * curves.level:g}% band for all k together"
    say_table("Pass@k", ("k", "A", "B", "A - B", band, "certainly ahead"), rows)
    turn = curves.turn
    if turn is not None and turn.high is not None:
        which = "from A to B" if turn.direction == "gain to loss" else "from B to A"
        where = f"at k = {turn.low}"
        if turn.low < turn.high:
            where = f"somewhere from k = {turn.low} to {turn.high}"
        say(f"the lead turns {which}, {where}")
    if curves.note is not None:
        warn(f"note: {one.task}, Pass@k: {curves.note}")


def _show_overall(overall: MeanDifference, level: float, method: str) -> None:
    about_what = f"about {scope_label(overall.posterior.scope)}"
    title = f"all {len(overall.tasks)} tasks, each counting the same, {about_what}"
    cells = (
        format_mean_sd(overall.posterior.mu, overall.posterior.sigma),
        format_interval(overall.interval),
    )
    head = ("hbayes@N", "mean ± sd", interval_label(level, method))
    say_table(title, head, [("A - B", *cells)])
    _show_probabilities(overall.p_a_greater, overall.rope, overall.p_rope)
    say(f"verdict: {overall.verdict}")
    say(f"rule of Hariri et al. (2026): {_z(overall.z, overall.rule_z, overall.confidence)}")
