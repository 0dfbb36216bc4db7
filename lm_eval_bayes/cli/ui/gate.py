"""The outcomes of a gate for continuous integration: annotations, Markdown and JUnit XML."""

from __future__ import annotations

import math
import os
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from xml.etree import ElementTree

import typer

from lm_eval_bayes._util.files import irregular_kind, write_atomic, write_errors
from lm_eval_bayes._util.text import NO_VALUE, format_mean_sd, one_line, plural
from lm_eval_bayes.cli.screens.pair import questions_left_out
from lm_eval_bayes.cli.ui.errors import (
    CHECK_FAILED,
    NOT_KNOWN,
    TerminatedError,
    UsageError,
    named_as_options,
    usage_sentence,
)
from lm_eval_bayes.cli.ui.options import HelpCommand, option
from lm_eval_bayes.cli.ui.output import warn
from lm_eval_bayes.errors import InvalidInputError, LmEvalBayesError

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.comparison import RunComparison
    from lm_eval_bayes.analysis.gate import GateCheck, GateOutcome

#: The level of an annotation of GitHub Actions by the outcome of a check.
_LEVELS = {"failed": "error", "not known yet": "warning", "passed": "notice"}


#: How the files of an earlier check begin, and so many bytes of them.
_EARLIER = {
    "--junit": re.compile(rb"<testsuite name=\"lm-eval-bayes\" "),
    "--markdown": re.compile(rb"\*\*error\*\* |\*\*[^\n]*\n\n\| check \| outcome \|"),
}
_LONGEST_BEGINNING = 1 << 16


def _end_of_command(error: BaseException) -> str:
    """Return in words how a command ended with an exception that is no error of its arguments."""
    if isinstance(error, TerminatedError):
        return f"the command was terminated by {signal.Signals(error.args[0]).name}"
    if isinstance(error, KeyboardInterrupt):
        return "the command was interrupted by Ctrl-C"
    if isinstance(error, OSError) and error.strerror:
        file = f" of {error.filename}" if error.filename else ""
        return f"the command ended with an error of the system{file}: {error.strerror}"
    return "the command ended with an unexpected error, which its standard error shows"


class GateCommand(HelpCommand):
    """A command that reports wrong arguments where a gate reports its outcomes."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Parse the arguments."""
        given = list(args)
        try:
            return super().make_context(info_name, args, parent, **extra)
        except UsageError as error:
            junit, markdown = (_value_of(option, given) for option in ("--junit", "--markdown"))
            _report_error(junit, markdown, usage_sentence(error))
            raise


def _value_of(option: str, words: Sequence[str]) -> Path | None:
    """Return the last value of an option among words that could not be parsed."""
    value = None
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, sign, after = word.partition("=")
        if name == option:
            value = after if sign else "" if following.startswith("-") else following
    return Path(value) if value else None


def _report_error(junit: Path | None, markdown: Path | None, message: str) -> None:
    """Write an error to the files, and to the log and the summary of GitHub Actions."""
    for file in _error_files(junit, markdown, message):
        try:
            _write_outcome(*file)
        except InvalidInputError as error:
            if str(error) != message:
                warn(f"warning: {error}")
    _annotate("error", message)
    _add_to_summary(_markdown_error(message))


def _error_files(
    junit: Path | None, markdown: Path | None, message: str
) -> list[tuple[str, Path, bytes]]:
    """Return the option, path and content of each file that names an error."""
    suite = ElementTree.Element(
        "testsuite", {"name": "lm-eval-bayes", "tests": "1", "failures": "0", "errors": "1"}
    )
    case = ElementTree.SubElement(suite, "testcase", {"classname": "gate", "name": "gate"})
    ElementTree.SubElement(case, "error", {"message": one_line(message)})
    contents = (
        ("--markdown", markdown, _markdown_error(message).encode()),
        ("--junit", junit, _xml(suite)),
    )
    return [(option, path, content) for option, path, content in contents if path is not None]


def _write_outcome(option: str, path: Path, content: bytes) -> None:
    """Write a file of outcomes, and replace no other file.

    Raises
    ------
    InvalidInputError
        If there is a file that holds no outcomes of an earlier check, a folder, a device or a pipe,
        or it cannot be written.
    """
    kind = irregular_kind(path)
    if kind is not None:
        raise InvalidInputError.of(option, "path", f"be a regular file; it is {kind}", str(path))
    with write_errors(option):
        if path.is_file():
            with path.open("rb") as file:
                beginning = file.read(_LONGEST_BEGINNING)
            if beginning and not _EARLIER[option].match(beginning):
                rule = "name a new file, or one that an earlier check wrote"
                raise InvalidInputError.of(option, "path", rule, str(path))
        write_atomic(path, content)


def _markdown_error(message: str) -> str:
    return f"**error** {_plain(message)}\n\n"


def _annotate(level: str, message: str) -> None:
    """Write an annotation where GitHub Actions reads one."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        warn(f"::{level} title=lm-eval-bayes::{_escaped(message)}", is_command=True)


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


@dataclass(frozen=True)
class GateOptions:
    """What a gate checks, and the files of its outcomes."""

    margin: Annotated[
        float | None,
        option(
            "D",
            "Fail if A is below B by more than this: the 95% interval of A - B lies below -D, in "
            "the mean over tasks if there are several; 0 by default, unless a floor is given.",
        ),
    ] = None
    floor: Annotated[
        float | None,
        option("SCORE", "Fail if the 95% interval of A's score on a task lies below this."),
    ] = None
    on: Annotated[
        str,
        option(
            "score|pass^K|question",
            "What is checked: the score, Pass^K, or of a floor every question by its own trials.",
        ),
    ] = "score"
    fail_if_unknown: Annotated[
        bool,
        typer.Option(
            "--fail-if-unknown", help="Fail also if the trials do not suffice to know the outcome."
        ),
    ] = False
    junit: Annotated[
        Path | None, option("FILE", "Write the outcomes of the checks, or an error, as JUnit XML.")
    ] = None
    markdown: Annotated[
        Path | None, option("FILE", "Write the outcomes of the checks, or an error, as Markdown.")
    ] = None

    @contextmanager
    def files(self) -> Iterator[None]:
        """Replace the outcomes of an earlier run, so that an error does not leave them in place.

        Until the outcomes are written, the files say that the command did not finish; after an
        error they say which it was. So also a command that the system ends leaves no earlier
        outcome. In GitHub Actions an error is also an annotation, and is added to the summary of
        the job.

        Raises
        ------
        InvalidInputError
            If a file cannot be written, or both are the same.
        """
        junit, markdown = self.junit, self.markdown
        try:
            if junit is not None and markdown is not None and junit.resolve() == markdown.resolve():
                got, markdown = str(markdown), None
                rule = "be another file than that of --junit"
                raise InvalidInputError.of("--markdown", "conflict", rule, got)
            for file in _error_files(junit, markdown, "the command did not finish"):
                _write_outcome(*file)
            yield
        except LmEvalBayesError as error:
            _report_error(junit, markdown, str(error))
            raise
        except (Exception, KeyboardInterrupt) as error:
            _report_error(junit, markdown, _end_of_command(error))
            raise

    def check(self) -> None:
        """Check the options, before any run is read.

        Raises
        ------
        InvalidInputError
            If an option breaks its rule.
        """
        from lm_eval_bayes._util.validation import check_non_negative, check_real

        if self.margin is not None:
            check_non_negative("--margin", self.margin)
        if self.floor is not None:
            check_real("--floor", self.floor, "be a finite score", math.isfinite)
        self._pass_hat_k()

    def _pass_hat_k(self) -> int | None:
        """Return the k of "pass^k"; None for "score" and "question"."""
        if self.on in ("score", "question"):
            return None
        match = re.fullmatch(r"pass\^([1-9][0-9]{0,5})", self.on)
        if match is None:
            rule = "be score, question, or pass^K such as pass^4"
            raise InvalidInputError.of("--on", "choice", rule, self.on)
        return int(match[1])

    def report(self, comparison: RunComparison, names: tuple[str, str], strict: bool) -> GateReport:
        """Check a comparison, and write the outcomes to the files.

        Parameters
        ----------
        comparison : RunComparison
            The comparison.
        names : tuple of str
            The models A and B.
        strict : bool
            Whether A has to have the tasks of B, if it must not be worse.

        Raises
        ------
        InvalidInputError
            If a check does not fit the tasks, or a file cannot be written.
        """
        from lm_eval_bayes.analysis.gate import gate_checks

        margin = 0.0 if self.margin is None and self.floor is None else self.margin
        with named_as_options("on", "floor"):
            checks = gate_checks(
                comparison,
                margin=margin,
                floor=self.floor,
                pass_hat_k=self._pass_hat_k(),
                every_question=self.on == "question",
            )
        missing = comparison.only_b if margin is not None and strict else ()
        report = GateReport(
            checks=checks,
            names=names,
            missing_tasks=missing,
            left_out=_left_out(comparison, missing),
            unknown_fails=self.fail_if_unknown,
        )
        text = markdown_table(report)
        if self.markdown is not None:
            _write_outcome("--markdown", self.markdown, text.encode())
        if self.junit is not None:
            _write_outcome("--junit", self.junit, junit_xml(report))
        _add_to_summary(text)
        return report


def _left_out(comparison: RunComparison, missing: Sequence[str]) -> tuple[str, ...]:
    """Return what the checks leave out: tasks that are not missing, and questions."""
    sides = (("A", comparison.only_a), ("B", comparison.only_b))
    tasks = [
        f"{task}, which only {side} has"
        for side, names in sides
        for task in names
        if task not in missing
    ]
    questions = [
        f"{task.task}: {sentence}"
        for task in comparison.tasks
        for sentence in questions_left_out(task.comparison)
    ]
    return (*tasks, *questions)


@dataclass(frozen=True)
class GateReport:
    """The outcomes of the checks of two models, and what is said of them.

    Attributes
    ----------
    checks : tuple of GateCheck
        The checks.
    names : tuple of str
        The models A and B.
    missing_tasks : tuple of str
        Tasks that only B has, where this fails: A may have failed in them.
    left_out : tuple of str
        What did not count.
    unknown_fails : bool
        Whether an outcome that is not known yet is a failure.
    """

    checks: tuple[GateCheck, ...]
    names: tuple[str, str]
    missing_tasks: tuple[str, ...]
    left_out: tuple[str, ...]
    unknown_fails: bool

    @property
    def missing_sentence(self) -> str | None:
        """The failure of a check that A has the tasks of B, in words; None where A has them."""
        if not self.missing_tasks:
            return None
        tasks = plural(len(self.missing_tasks), "task")
        return (
            f"failed: {tasks} of B without a trial of A: {', '.join(self.missing_tasks)} "
            "(--align intersection compares the tasks of both)"
        )

    @property
    def outcome(self) -> GateOutcome:
        """The outcome of all checks."""
        from lm_eval_bayes.analysis.gate import gate_outcome

        return "failed" if self.missing_tasks else gate_outcome(self.checks)

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        unknown = NOT_KNOWN if self.unknown_fails else 0
        return {"failed": CHECK_FAILED, "not known yet": unknown}.get(self.outcome, 0)

    def show(self, write: Callable[[str], None]) -> None:
        """Write the outcomes, in GitHub Actions also as annotations on standard error."""
        a, b = (_sided(name, side) for name, side in zip(self.names, "AB", strict=True))
        lines = [(_LEVELS[check.outcome], check.sentence) for check in self.checks]
        if self.missing_sentence is not None:
            lines.append((_LEVELS["failed"], self.missing_sentence))
        for level, sentence in lines:
            write(sentence)
            message = "; left out: ".join([f"{a} and {b}: {sentence}", *self.left_out])
            _annotate(level, message)


def _sided(name: str, side: str) -> str:
    """Return a name with its side, which the names of two runs of one model have already."""
    return name if name.endswith(f" ({side})") else f"{name} ({side})"


def _escaped(text: str) -> str:
    """Return a text as the message of an annotation."""
    return one_line(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def markdown_table(report: GateReport) -> str:
    """Return the checks as a table in Markdown, and below it what did not count."""
    a, b = (
        _sided(f"**{_plain(name.removesuffix(f' ({side})'))}**", side)
        for name, side in zip(report.names, "AB", strict=True)
    )
    lines = [f"{a} and {b}", "", "| check | outcome | estimate ± sd |"]
    lines.append("| --- | --- | --- |")
    for check in report.checks:
        event = "A worse than B" if check.check == "worse" else f"A below {check.limit:g}"
        estimate = format_mean_sd(check.estimate, check.sd)
        lines.append(f"| {event}, {check.quantity} | {check.sentence} | {estimate} |")
    if report.missing_sentence is not None:
        lines.append(f"| A lacks tasks of B | {_plain(report.missing_sentence)} | {NO_VALUE} |")
    lines += [f"\nleft out: {_plain(sentence)}" for sentence in report.left_out]
    return "\n".join(lines) + "\n\n"


def _plain(name: str) -> str:
    """Return a name without what Markdown and HTML give a meaning."""
    return "".join(f"&#{ord(c)};" if c in "|*_`<>&[]!\\" else c for c in one_line(name))


def junit_xml(report: GateReport) -> bytes:
    """Return the checks as a test suite; one that is not known yet is skipped, or a failure."""
    models = one_line(" and ".join(report.names))
    suite = ElementTree.Element("testsuite", {"name": "lm-eval-bayes"})
    for number, check in enumerate(report.checks, 1):
        name = f"{check.check} ({check.quantity}) {number}: {models}"
        case = ElementTree.SubElement(suite, "testcase", {"classname": "gate", "name": name})
        if check.outcome != "passed":
            fails = check.outcome == "failed" or report.unknown_fails
            kind = "failure" if fails else "skipped"
            ElementTree.SubElement(case, kind, {"message": check.sentence})
    if report.missing_sentence is not None:
        name = f"A lacks tasks of B: {models}"
        case = ElementTree.SubElement(suite, "testcase", {"classname": "gate", "name": name})
        ElementTree.SubElement(case, "failure", {"message": one_line(report.missing_sentence)})
    for case in suite if report.left_out else ():
        output = ElementTree.SubElement(case, "system-out")
        output.text = "\n".join(f"left out: {one_line(text)}" for text in report.left_out)
    for attribute, path in (("failures", "failure"), ("skipped", "skipped")):
        suite.set(attribute, str(len(suite.findall(f"testcase/{path}"))))
    suite.set("tests", str(len(suite)))
    suite.set("errors", "0")
    return _xml(suite)


def _xml(suite: ElementTree.Element) -> bytes:
    return (ElementTree.tostring(suite, encoding="unicode") + "\n").encode()
