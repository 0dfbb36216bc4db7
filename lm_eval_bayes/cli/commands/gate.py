"""`lm-eval-bayes gate`: is a model worse than another one, or below a score?"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple
from xml.etree import ElementTree

import typer

from lm_eval_bayes._util.files import irregular_kind, write_atomic, write_errors
from lm_eval_bayes._util.text import one_line, plural
from lm_eval_bayes.cli.commands.compare import (
    Align,
    ModelA,
    ModelB,
    RunA,
    RunB,
    comparison_record,
    questions_left_out,
    read_sides,
)
from lm_eval_bayes.cli.screens.layout import Form, say_sentence
from lm_eval_bayes.cli.ui.errors import CHECK_FAILED, NOT_KNOWN, named_as_typed
from lm_eval_bayes.cli.ui.options import IntervalOptions, Json, option, prints_tables
from lm_eval_bayes.cli.ui.output import say_json, warn
from lm_eval_bayes.cli.ui.reading import ReadingOptions
from lm_eval_bayes.errors import InvalidInputError, LmEvalBayesError

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.comparison import RunComparison
    from lm_eval_bayes.analysis.gate import GateCheck, GateOutcome


@prints_tables
def command(
    context: typer.Context,
    a: RunA,
    b: RunB = None,
    *,
    model_a: ModelA = None,
    model_b: ModelB = None,
    margin: Annotated[
        float | None,
        option(
            "D",
            "Fail if A is below B by more than this: the 95% interval of A - B lies below -D, in "
            "the mean over tasks if there are several; 0 by default, unless a floor is given.",
        ),
    ] = None,
    floor: Annotated[
        float | None,
        option("SCORE", "Fail if the 95% interval of A's score on a task lies below this."),
    ] = None,
    on: Annotated[
        str,
        option(
            "score|pass^K|question",
            "What is checked: the score, Pass^K, or of a floor every question by its own trials.",
        ),
    ] = "score",
    fail_if_unknown: Annotated[
        bool,
        option(
            None, "Fail also if the trials do not suffice to know the outcome.", "--fail-if-unknown"
        ),
    ] = False,
    junit: Annotated[
        Path | None, option("FILE", "Write the outcomes of the checks, or an error, as JUnit XML.")
    ] = None,
    markdown: Annotated[
        Path | None, option("FILE", "Write the outcomes of the checks, or an error, as Markdown.")
    ] = None,
    align: Align = "strict",
    reading: ReadingOptions,
    intervals: IntervalOptions,
    as_json: Json = False,
) -> None:
    """Fail if a new model A is worse than an old one B, or below a score.

    For training loops and continuous integration. A fails if it is worse than B and the two are
    distinguishable, as `compare` says; with a margin the 95% interval of A - B has to lie below
    -margin, too. It also fails if one of its questions has no trial that counts (--unscored wrong
    counts trials without a score as wrong), and if it lacks a task of B (--align intersection
    leaves such tasks out). With a floor alone B may be left out. In GitHub Actions the outcomes
    are annotations and part of the job's summary. Where models have several settings, the numbers
    show settings like these too; the outcome is about these.

    Exit codes: 0 passed, or not known; 1 worse; 2 error; 3 not known, with --fail-if-unknown.

    \b
    Examples:
      lm-eval-bayes gate runs/new runs/old
      lm-eval-bayes gate runs/new runs/old --margin .02 --on pass^4 --junit gate.xml
      lm-eval-bayes gate runs/new --floor .6 --on question
    """
    from lm_eval_bayes._util.validation import check_non_negative, check_real
    from lm_eval_bayes.analysis.comparison import compare_runs
    from lm_eval_bayes.analysis.gate import gate_checks

    with errors_in_files(junit, markdown), named_as_typed(context):
        if margin is not None:
            check_non_negative("--margin", margin)
        if floor is not None:
            check_real("--floor", floor, "be a finite score", math.isfinite)
        pass_hat_k, spec = _pass_hat_k(on), intervals.spec()
        alone = floor is not None and margin is None
        margin = margin if alone else margin or 0.0
        runs_a, runs_b = read_sides(a, b, model_a, model_b, reading, alone=alone)
        comparison = compare_runs(runs_a, runs_b, spec=spec, align=align)
        checks = gate_checks(
            comparison,
            margin=margin,
            floor=floor,
            pass_hat_k=pass_hat_k,
            every_question=on == "question",
        )
        missing = comparison.only_b if align == "strict" and not alone else ()
        names = (runs_a[0].model, runs_b[0].model)
        report = GateReport.of(checks, comparison, names, missing, fail_if_unknown)
        report.write(junit, markdown)
    # The outcomes are written: an error of standard output does not replace them.
    try:
        if as_json:
            say_json(
                {
                    **comparison_record(comparison, runs_a, runs_b, align),
                    "checks": checks,
                    "missing_tasks": missing,
                    "outcome": report.outcome,
                    "failed": report.exit_code != 0,
                }
            )
    finally:
        report.show(warn if as_json else partial(say_sentence, form=Form.of_output()))
    raise typer.Exit(report.exit_code)


def _pass_hat_k(on: str) -> int | None:
    """Return the k of "pass^k"; None for "score" and "question"."""
    match = re.fullmatch(r"pass\^([1-9][0-9]{0,5})", on)
    if match is None and on not in ("score", "question"):
        rule = "be score, question, or pass^K such as pass^4"
        raise InvalidInputError.of("--on", "choice", rule, on)
    return None if match is None else int(match[1])


# -- the outcomes: lines, annotations, Markdown and JUnit XML -------------------------------------

#: The first word of a check's line, and the level of its annotation, by the outcome.
_WORDS = {"failed": "FAIL", "not known yet": "NOT KNOWN", "passed": "PASS"}
_LEVELS = {"failed": "error", "not known yet": "warning", "passed": "notice"}
#: What the files of a gate hold at their beginning.
_MARK = b"lm-eval-bayes"


class CheckLine(NamedTuple):
    """What is said of one check: the check, its outcome, a sentence, and its numbers."""

    name: str
    outcome: GateOutcome
    sentence: str
    numbers: str


@dataclass(frozen=True)
class GateReport:
    """The outcomes of the checks of two models, and what is said of them.

    Attributes
    ----------
    lines : tuple of CheckLine
        One per check, and one for the tasks that A lacks where this fails.
    left_out : tuple of str
        What did not count.
    unknown_fails : bool
        Whether an outcome that is not known yet is a failure.
    """

    lines: tuple[CheckLine, ...]
    left_out: tuple[str, ...]
    unknown_fails: bool

    @classmethod
    def of(
        cls,
        checks: Sequence[GateCheck],
        comparison: RunComparison,
        names: tuple[str, str],
        missing_tasks: Sequence[str],
        unknown_fails: bool,
    ) -> GateReport:
        """Return the outcomes of models with these names; A lacks tasks of B where this fails."""
        a_and_b = " and ".join(names)
        lines = [
            CheckLine(
                *(f"{number}: {check.check} ({check.quantity}): {a_and_b}", check.outcome),
                *(check.sentence(*names), check.numbers()),
            )
            for number, check in enumerate(checks, 1)
        ]
        if missing_tasks:
            tasks = f"{plural(len(missing_tasks), 'task')} of {names[1]}"
            sentence = f"{names[0]} lacks {tasks}: {', '.join(missing_tasks)}"
            hint = "--align intersection compares the tasks of both"
            lines.append(CheckLine(f"tasks: {a_and_b}", "failed", sentence, hint))
        sides = (("A", comparison.only_a), ("B", comparison.only_b))
        left_out = [
            f"left out: {task}, which only {side} has"
            for side, tasks_of_side in sides
            for task in tasks_of_side
            if task not in missing_tasks
        ]
        left_out += [
            f"left out: {task.task}: {sentence}"
            for task in comparison.tasks
            for sentence in questions_left_out(task.comparison)
        ]
        return cls(tuple(lines), tuple(left_out), unknown_fails)

    @property
    def outcome(self) -> GateOutcome:
        """The outcome of all checks."""
        from lm_eval_bayes.analysis.gate import gate_outcome

        return gate_outcome(line.outcome for line in self.lines)

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        unknown = NOT_KNOWN if self.unknown_fails else 0
        return {"failed": CHECK_FAILED, "not known yet": unknown}.get(self.outcome, 0)

    def show(self, write: Callable[[str], None]) -> None:
        """Write the outcomes, in GitHub Actions also as annotations on standard error."""
        for line in self.lines:
            write(f"{_WORDS[line.outcome]}  {line.sentence}.")
            write(f"      {line.numbers}")
            _annotate(_LEVELS[line.outcome], "; ".join([line.sentence, *self.left_out]))
        for sentence in self.left_out:
            write(sentence)
        others = "1 worse, 2 error, 3 not known with --fail-if-unknown"
        write(f"exit code {self.exit_code}   ({others})")

    def markdown(self) -> str:
        """Return the checks as a table in Markdown, and below it what did not count."""
        lines = [
            "**lm-eval-bayes gate**",
            "",
            "| outcome | check | numbers |",
            "| --- | --- | --- |",
        ]
        cells = [[_WORDS[line.outcome], line.sentence, line.numbers] for line in self.lines]
        lines += [f"| {' | '.join(map(_plain, row))} |" for row in cells]
        lines += [f"\n{_plain(sentence)}" for sentence in self.left_out]
        return "\n".join(lines) + "\n\n"

    def junit_xml(self) -> bytes:
        """Return the checks as a test suite; one that is not known is skipped, or a failure."""
        unknown = "failure" if self.unknown_fails else "skipped"
        kinds = {"failed": "failure", "not known yet": unknown}
        results = [
            (line.name, kinds.get(line.outcome), line.sentence, line.numbers) for line in self.lines
        ]
        return _suite(results, "\n".join(self.left_out))

    def write(self, junit: Path | None, markdown: Path | None) -> None:
        """Write the files, and the summary of a job.

        Raises
        ------
        InvalidInputError
            If a file cannot be written.
        """
        _write_files(junit, self.junit_xml(), markdown, self.markdown())
        _add_to_summary(self.markdown())


@contextmanager
def errors_in_files(junit: Path | None, markdown: Path | None) -> Iterator[None]:
    """Write an error where a gate writes its outcomes.

    Until there are outcomes, the files say that the command did not finish, so that no earlier
    outcome stays in place.

    Raises
    ------
    InvalidInputError
        If a file cannot be written, or both are the same.
    """
    if junit is not None and markdown is not None and junit.resolve() == markdown.resolve():
        rule = "be another file than that of --junit"
        raise InvalidInputError.of("--markdown", "conflict", rule, str(markdown))

    def write(message: str) -> str:
        text = f"**lm-eval-bayes gate** error: {_plain(message)}\n\n"
        _write_files(junit, _suite([("gate", "error", message, "")]), markdown, text)
        return text

    write("the command did not finish")
    try:
        yield
    except LmEvalBayesError as error:
        _annotate("error", str(error))
        _add_to_summary(write(str(error)))
        raise


def _write_files(junit: Path | None, xml: bytes, markdown: Path | None, text: str) -> None:
    """Write the files that were asked for, in place of those of an earlier gate alone."""
    for name, path, content in (
        ("--junit", junit, xml),
        ("--markdown", markdown, text.encode("utf-8")),
    ):
        if path is None:
            continue
        kind = irregular_kind(path)
        if kind is not None:
            rule = f"be a regular file; it is {kind}"
            raise InvalidInputError.of(name, "path", rule, str(path))
        with write_errors(name):
            if path.is_file():
                with path.open("rb") as file:
                    beginning = file.read(64)
                if beginning and _MARK not in beginning:
                    rule = "name a new file, or one that an earlier gate wrote"
                    raise InvalidInputError.of(name, "path", rule, str(path))
            write_atomic(path, content)


def _suite(results: Sequence[tuple[str, str | None, str, str]], left_out: str = "") -> bytes:
    """Return names, kinds of results (None for a pass), messages and numbers as XML."""
    suite = ElementTree.Element("testsuite", {"name": "lm-eval-bayes", "tests": str(len(results))})
    kinds = [kind for _, kind, *_ in results]
    for attribute, counted in (("failures", "failure"), ("errors", "error"), ("skipped",) * 2):
        suite.set(attribute, str(kinds.count(counted)))
    for name, kind, message, numbers in results:
        attributes = {"classname": "gate", "name": one_line(name)}
        case = ElementTree.SubElement(suite, "testcase", attributes)
        if kind is not None:
            result = ElementTree.SubElement(case, kind, {"message": one_line(message)})
            result.text = one_line(numbers)
        if left_out:
            ElementTree.SubElement(case, "system-out").text = one_line(left_out)
    return (ElementTree.tostring(suite, encoding="unicode") + "\n").encode()


def _annotate(level: str, message: str) -> None:
    """Write an annotation where GitHub Actions reads one."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        text = one_line(message).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
        warn(f"::{level} title=lm-eval-bayes::{text}", is_command=True)


def _add_to_summary(text: str) -> None:
    """Add a text to the summary of a job, if there is one; warn if it cannot be written."""
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if not summary:
        return
    try:
        with open(summary, "a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        reason = error.strerror or str(error)
        warn(f"warning: the summary of the job cannot be written to {summary}: {reason}")


def _plain(text: str) -> str:
    """Return a text without what Markdown and HTML give a meaning."""
    return "".join(f"&#{ord(c)};" if c in "|*_`<>&[]!\\" else c for c in one_line(text))
