"""The outcomes of a gate for continuous integration: annotations, Markdown and JUnit XML."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from typer.core import TyperCommand

from lm_eval_bayes._util.files import write_atomic, write_errors
from lm_eval_bayes._util.text import format_mean_sd, one_line
from lm_eval_bayes.cli.ui.errors import UsageError, usage_sentence
from lm_eval_bayes.cli.ui.output import warn
from lm_eval_bayes.errors import InvalidInputError, LmEvalBayesError

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.gate import GateCheck

#: The level of an annotation of GitHub Actions by the outcome of a check.
_LEVELS = {"failed": "error", "not known yet": "warning", "passed": "notice"}


#: How the files of an earlier check begin, and so many bytes of them.
_EARLIER = {
    "--junit": re.compile(rb"<testsuite name=\"lm-eval-bayes\" "),
    "--markdown": re.compile(rb"\*\*error\*\* |\*\*[^\n]*\n\n\| check \| outcome \|"),
}
_LONGEST_BEGINNING = 1 << 16

#: The options that make a comparison a gate.
_GATE_OPTIONS = ("--fail-if-worse", "--fail-if-below", "--fail-if-unknown", "--gate-on")


@contextmanager
def gate_files(
    junit: Path | None,
    markdown: Path | None,
    *,
    is_gate: bool,
    environ: Mapping[str, str] = os.environ,
) -> Iterator[None]:
    """Replace the outcomes of an earlier run, so that an error does not leave them in place.

    Until the outcomes are written, the files say that the command did not finish; after an error
    they say which it was. So also a command that the system ends leaves no earlier outcome. In
    GitHub Actions an error is also an annotation, and is added to the summary of the job.

    Parameters
    ----------
    junit, markdown : Path, optional
        The files that `show_checks` writes.
    is_gate : bool
        Whether the command checks something; otherwise nothing is written.
    environ : mapping
        The environment variables.

    Raises
    ------
    InvalidInputError
        If a file cannot be written, or both are the same.
    """
    if not is_gate:
        yield
        return
    try:
        if junit is not None and markdown is not None and junit.resolve() == markdown.resolve():
            got, markdown = str(markdown), None
            raise InvalidInputError.of("--markdown", "be another file than that of --junit", got)
        for file in _error_files(junit, markdown, "the command did not finish"):
            _write_outcome(*file)
        yield
    except LmEvalBayesError as error:
        _report_error(junit, markdown, str(error), environ)
        raise
    except (Exception, KeyboardInterrupt) as error:
        _report_error(junit, markdown, f"the command ended with {type(error).__name__}", environ)
        raise


class GateCommand(TyperCommand):
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
            names = {word.partition("=")[0] for word in given}
            if junit or markdown or not names.isdisjoint(_GATE_OPTIONS):
                _report_error(junit, markdown, usage_sentence(error), os.environ)
            raise


def _value_of(option: str, words: Sequence[str]) -> Path | None:
    """Return the last value of an option among words that could not be parsed."""
    value = None
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, sign, after = word.partition("=")
        if name == option:
            value = after if sign else "" if following.startswith("-") else following
    return Path(value) if value else None


def _report_error(
    junit: Path | None, markdown: Path | None, message: str, environ: Mapping[str, str]
) -> None:
    """Write an error to the files, and to the log and the summary of GitHub Actions."""
    for file in _error_files(junit, markdown, message):
        try:
            _write_outcome(*file)
        except InvalidInputError as error:
            if str(error) != message:
                warn(f"warning: {error}")
    _annotate("error", message, environ)
    _add_to_summary(_markdown_error(message), environ)


def _error_files(
    junit: Path | None, markdown: Path | None, message: str
) -> list[tuple[str, Path, bytes]]:
    """Return the option, path and content of each file that names an error."""
    suite = ElementTree.Element(
        "testsuite", {"name": "lm-eval-bayes", "tests": "1", "failures": "0", "errors": "1"}
    )
    case = ElementTree.SubElement(suite, "testcase", {"classname": "gate", "name": "compare"})
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
        If there is a file that holds no outcomes of an earlier check, or it cannot be written.
    """
    with write_errors(option):
        if path.is_file():
            with path.open("rb") as file:
                beginning = file.read(_LONGEST_BEGINNING)
            if beginning and not _EARLIER[option].match(beginning):
                rule = "name a new file, or one that an earlier check wrote"
                raise InvalidInputError.of(option, rule, str(path))
        write_atomic(path, content)


def _markdown_error(message: str) -> str:
    return f"**error** {_plain(message)}\n\n"


def _annotate(level: str, message: str, environ: Mapping[str, str]) -> None:
    """Write an annotation where GitHub Actions reads one."""
    if environ.get("GITHUB_ACTIONS") == "true":
        warn(f"::{level} title=lm-eval-bayes::{_escaped(message)}")


def _add_to_summary(text: str, environ: Mapping[str, str]) -> None:
    """Add a text to the summary of a job, if there is one; warn if it cannot be written."""
    summary = environ.get("GITHUB_STEP_SUMMARY")
    if not summary:
        return
    try:
        with open(summary, "a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        reason = error.strerror or str(error)
        warn(f"warning: the summary of the job cannot be written to {summary}: {reason}")


def show_checks(
    checks: Sequence[GateCheck],
    names: tuple[str, str],
    left_out: Sequence[str] = (),
    *,
    unknown_fails: bool = False,
    junit: Path | None = None,
    markdown: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> None:
    """Write the outcomes to standard error, and to the files that were asked for.

    In GitHub Actions they are also annotations, and are added to the summary of the job.

    Parameters
    ----------
    checks : sequence of GateCheck
        The checks.
    names : tuple of str
        The models A and B.
    left_out : sequence of str
        What did not count.
    unknown_fails : bool
        Whether an outcome that is not known yet is a failure in the XML, as in the exit code.
    junit, markdown : Path, optional
        Files to write.
    environ : mapping
        The environment variables.

    Raises
    ------
    InvalidInputError
        If a file cannot be written.
    """
    for check in checks:
        warn(check.sentence)
        message = f"{_sided(names[0], 'A')} and {_sided(names[1], 'B')}: {check.sentence}"
        _annotate(_LEVELS[check.outcome], "; left out: ".join([message, *left_out]), environ)
    text = markdown_table(checks, names, left_out)
    if markdown is not None:
        _write_outcome("--markdown", markdown, text.encode())
    if junit is not None:
        _write_outcome("--junit", junit, junit_xml(checks, names, unknown_fails, left_out))
    _add_to_summary(text, environ)


def _sided(name: str, side: str) -> str:
    """Return a name with its side, which the names of two runs of one model have already."""
    return name if name.endswith(f" ({side})") else f"{name} ({side})"


def _escaped(text: str) -> str:
    """Return a text as the message of an annotation."""
    return one_line(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def markdown_table(
    checks: Sequence[GateCheck], names: tuple[str, str], left_out: Sequence[str] = ()
) -> str:
    """Return the checks as a table in Markdown, and below it what did not count."""
    a, b = (
        _sided(f"**{_plain(name.removesuffix(f' ({side})'))}**", side)
        for name, side in zip(names, "AB", strict=True)
    )
    lines = [f"{a} and {b}", "", "| check | outcome | estimate ± sd |"]
    lines.append("| --- | --- | --- |")
    for check in checks:
        event = "A worse than B" if check.check == "worse" else f"A below {check.limit:g}"
        estimate = format_mean_sd(check.estimate, check.sd)
        lines.append(f"| {event}, {check.quantity} | {check.sentence} | {estimate} |")
    lines += [f"\nleft out: {_plain(sentence)}" for sentence in left_out]
    return "\n".join(lines) + "\n\n"


def _plain(name: str) -> str:
    """Return a name without what Markdown and HTML give a meaning."""
    return "".join(f"&#{ord(c)};" if c in "|*_`<>&[]!\\" else c for c in one_line(name))


def junit_xml(
    checks: Sequence[GateCheck],
    names: tuple[str, str],
    unknown_fails: bool = False,
    left_out: Sequence[str] = (),
) -> bytes:
    """Return the checks as a test suite; one that is not known yet is skipped, or a failure."""
    failed, unknown = (
        sum(check.outcome == outcome for check in checks) for outcome in ("failed", "not known yet")
    )
    if unknown_fails:
        failed, unknown = failed + unknown, 0
    counts = {"tests": str(len(checks)), "failures": str(failed), "skipped": str(unknown)}
    counts["errors"] = "0"
    suite = ElementTree.Element("testsuite", {"name": "lm-eval-bayes", **counts})
    for number, check in enumerate(checks, 1):
        name = f"{check.check} ({check.quantity}) {number}: {one_line(' and '.join(names))}"
        case = ElementTree.SubElement(suite, "testcase", {"classname": "gate", "name": name})
        if check.outcome != "passed":
            kind = "failure" if check.outcome == "failed" or unknown_fails else "skipped"
            ElementTree.SubElement(case, kind, {"message": check.sentence})
        if left_out:
            output = ElementTree.SubElement(case, "system-out")
            output.text = "\n".join(f"left out: {one_line(sentence)}" for sentence in left_out)
    return _xml(suite)


def _xml(suite: ElementTree.Element) -> bytes:
    return (ElementTree.tostring(suite, encoding="unicode") + "\n").encode()
