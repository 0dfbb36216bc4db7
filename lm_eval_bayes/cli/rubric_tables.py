"""What `lm-eval-bayes rubric` prints."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from typing import TYPE_CHECKING

from lm_eval_bayes.cli.output import count, printable, say, say_table
from lm_eval_bayes.cli.wording import about

if TYPE_CHECKING:
    from lm_eval_bayes.report.rubric_runs import ClassifiedRuns
    from lm_eval_bayes.report.rubrics import ModelScore, RubricTable

#: Above so many, runs are counted and not named; --json names them.
_RUNS_SHOWN = 4


def show_table(table: RubricTable, origin: str | None, given: Collection[str]) -> None:
    """Print the scores of one task's runs under rubrics, and what they rest on."""
    found = table.classified
    runs = found.source.runs
    over = ", ".join(runs) if len(runs) <= _RUNS_SHOWN else count(len(runs), "run")
    how = f"frozen on {found.source.date} in {origin}" if origin else "not frozen"
    asked = count(found.n_questions, "question")
    say(f"{found.task}: {asked}, {table.prior}@N {about(table.scope)}")
    say(f"thresholds {found.thresholds.hash}, {how}, taken over {over}")
    say(f"invalid: {_invalid(found)}")
    for row in table.rows:
        if row.schema.name in given:
            told = ",".join(f"{weight:g}" for weight in row.schema.weights)
            say(f"weights given: {row.schema.name}={told}")
    if len(found.models) == 1:
        _show_one(table)
    elif not _fits(table):
        _show_lists(table)
    else:
        cells = [[_cell(one) for one in row.scores] for row in table.rows]
        rows = [[row.schema.name, *line] for row, line in zip(table.rows, cells, strict=True)]
        say_table("mean ± sd (rank)", _head(table), rows)
    for line in _left_out(found):
        say(line)


def _left_out(found: ClassifiedRuns) -> list[str]:
    """Return a line for every reason, with the schemata that it keeps out."""
    reasons: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for one in found.left_out:
        reasons.setdefault((one.lacks, one.models), []).append(one.schema)
    return [
        f"left out: {', '.join(schemata)}, for want of {lacks}"
        + ("" if models == found.models else f", in {', '.join(models)}")
        for (lacks, models), schemata in reasons.items()
    ]


def _invalid(found: ClassifiedRuns) -> str:
    from lm_eval_bayes.report.rubric_runs import verifier_name

    if found.verifier is None:
        return "generation that did not come to a stop; no verifier took part"
    name = verifier_name(found.verifier)
    return f"generation that did not come to a stop, or C >= .50 by {name}, whose A >= .6 is high"


def _head(table: RubricTable) -> list[str]:
    return ["schema", *map(printable, table.classified.models)]


def _cell(one: ModelScore) -> str:
    missing = f", missing {one.score.missing:,} of {one.n_trials:,}" if one.score.missing else ""
    return f"{one.mu:.3f} ± {one.sigma:.3f} ({one.rank}){missing}"


def _fits(table: RubricTable) -> bool:
    columns = zip(
        _head(table),
        *([row.schema.name, *map(_cell, row.scores)] for row in table.rows),
        strict=True,
    )
    width = sum(max(map(len, column)) + 2 for column in columns)
    return width <= shutil.get_terminal_size((120, 24)).columns


def _show_one(table: RubricTable) -> None:
    head = ("schema", *_columns(table))
    lines = [(row.schema.name, *_numbers(one)) for row in table.rows for one in row.scores]
    say_table(printable(table.classified.models[0]), head, lines)


def _show_lists(table: RubricTable) -> None:
    for row in table.rows:
        best_first = sorted(row.scores, key=lambda one: (one.rank, -one.mu))
        lines = [(one.rank, one.model, *_numbers(one)) for one in best_first]
        say_table(row.schema.name, ("rank", "model", *_columns(table)), lines)


def _columns(table: RubricTable) -> tuple[str, ...]:
    return ("mean ± sd", f"{100 * table.level:g}% {table.interval}", "missing")


def _numbers(one: ModelScore) -> tuple[str, ...]:
    return (
        f"{one.mu:.3f} ± {one.sigma:.3f}",
        f"{one.interval.low:.3f} to {one.interval.high:.3f}",
        f"{one.score.missing:,} of {one.n_trials:,}",
    )
