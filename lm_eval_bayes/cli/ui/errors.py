"""How a command ends: its exit code, and after an error one sentence and no traceback.

The names of removed commands and options stand here in one table, emptied one release later.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType, MappingProxyType
from typing import Any

import typer
from typer.core import TyperGroup

from lm_eval_bayes.cli.ui.output import discard, warn
from lm_eval_bayes.errors import InvalidInputError, LmEvalBayesError

#: Removed commands, and those that moved.
REMOVED_COMMANDS = MappingProxyType(
    {
        "wrap": "run the task as `TASK_bayes`",
        "formats": "use `doctor --formats`",
        **{
            name: f"use `study {name}`"
            for name in ("convergence", "simulate", "anchors", "rubric", "verify")
        },
        "export csv": "use `export table RUN... -o board.csv`",
        "export json": "use `export table RUN... -o board.json`",
        "export markdown": "use `export table RUN... -o board.md`",
        "export latex": "use `export table RUN... -o board.md`",
        "store verify": "use `store info --check`",
        "store compact": "use `store prune`, which compacts",
        "store snapshot": "use `store merge STORE -o COPY`",
        "store alias": "use the option --model NAME=RUN of the commands that read runs",
    }
)
_NO_SUCCESSOR = (
    "--all-tasks --no-categories --prior-mean --numbering --quantile --audit --correlation "
    "--scheme --gold --subsets --between --epsilon --sweep --temperature --think-end"
)
#: Removed options, by the name alone where no command has the option any more.
REMOVED_OPTIONS = MappingProxyType(
    {
        "--wide": "use --verbose",
        "--interval": "leave it out: intervals are those of the exact posterior",
        **dict.fromkeys(
            ("--plot", "--plots"), "use `report`, which draws its figures into one page"
        ),
        "--confidence": "leave it out: models are distinguishable with 95% confidence",
        "--categories": "use --by COLUMN",
        "--model-a": "use -a",
        "--model-b": "use -b",
        "--pass-at-k": "use --k",
        "--separate": "use --apart",
        "--fail-if-worse": "use `gate --margin`",
        "--fail-if-below": "use `gate --floor`",
        "--gate-on": "use `gate --on`",
        **{
            f"compare {name}": f"use `gate {name}`"
            for name in ("--margin", "--fail-if-unknown", "--junit", "--markdown")
        },
        **{
            f"rank {name}": f"use `study rank {name}`"
            for name in ("--ties", "--method", "--shared", "--paper")
        },
        "study rank --pairs": "use `rank --pairs`",
        **{
            f"study {study} {name}": f"use `{command} {name}`"
            for study, command in (("rank", "rank"), ("convergence", "summary"))
            for name in ("--prior", "--prior-strength")
        },
        "export table --ties": "use `study rank --ties`",
        "export hub --push": "use `hf upload ORG/NAME FOLDER --create-pr`",
        **dict.fromkeys(_NO_SUCCESSOR.split(), "leave it out: it has no successor"),
    }
)


class CommandGroup(TyperGroup):
    """A group of commands that knows what became of removed ones."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the words name."""
        name = " ".join([*ctx.command_path.split(" ")[1:], args[0]])
        if name in REMOVED_COMMANDS:
            ctx.fail(f"`{name}` was removed: {REMOVED_COMMANDS[name]}")
        return super().resolve_command(ctx, args)


def instead_of_option(command: str, option: str) -> str | None:
    """Return the sentence about a removed option of a command; None if there was none."""
    name = f"{command} {option}"
    instead = REMOVED_OPTIONS.get(name) or REMOVED_OPTIONS.get(option)
    return None if instead is None else f"`{name}` was removed: {instead}"


#: A check failed: a worse model, a damaged store, a missing requirement.
CHECK_FAILED = 1
#: The trials do not suffice to know the outcome of a gate.
NOT_KNOWN = 3
#: Wrong arguments, or an error.
ERROR = 2
#: Ctrl-C.
INTERRUPTED = 130
#: The reader of standard output has ended; a shell reports SIGPIPE by this code.
CLOSED_PIPE = 141

EXIT_CODES = """\b
Exit codes:
  0    success
  1    success, but a check failed (see the command's help)
  2    wrong arguments, or an error, reported in one sentence
  3    the outcome of a gate is not known yet, with --fail-if-unknown
  130  interrupted by Ctrl-C
  141  the program that reads the output has ended (such as `head`)
  143  terminated by SIGTERM
"""

#: The error of wrong arguments: from click, or from the copy of click that typer carries.
UsageError: Any = typer.BadParameter.__base__

#: How pydantic's rules begin.
_RULE_OF_PYDANTIC = "Input should be "


class PlainErrorsGroup(CommandGroup):
    """A group of commands that reports every deliberate error in one sentence."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Parse the arguments before the command; `--help` and `--version` print here."""
        with _plain_errors():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        with _plain_errors(), _signals_as_exceptions():
            return super().invoke(ctx)


class TerminatedError(KeyboardInterrupt):
    """SIGTERM or SIGHUP, raised so that a command ends as after Ctrl-C; holds the signal."""


def exit_code(interruption: KeyboardInterrupt) -> int:
    """Return the exit code after Ctrl-C or a signal."""
    if isinstance(interruption, TerminatedError):
        return 128 + int(interruption.args[0])
    return INTERRUPTED


def usage_sentence(error: Any) -> str:
    """Return the sentence of an error of wrong arguments, without its stop."""
    if type(error).__name__ == "NoSuchOption" and error.ctx is not None:
        command = error.ctx.command_path.partition(" ")[2]
        if removed := instead_of_option(command, error.option_name):
            return removed
    rule = str(error.message).partition(",")[0]
    invalid: list[Any] = getattr(
        error.__cause__, "errors", list
    )()  # of pydantic, which newer typer uses
    if invalid and rule.startswith(_RULE_OF_PYDANTIC):
        option = max(error.param.opts, key=len)
        rule = f"be {rule.removeprefix(_RULE_OF_PYDANTIC)}"
        return str(InvalidInputError.of(option, "type", rule, invalid[0]["input"]))
    sentence: str = error.format_message()
    return sentence.replace("Value error, ", "").rstrip(".")


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Report an error in one sentence, and end with its exit code."""
    with _output_errors():
        try:
            yield
        except UsageError as error:
            context = error.ctx
            if context is not None and error.message == context.get_help():
                raise  # no arguments at all: the help text is shown
            command = "" if context is None else f" (see `{context.command_path} --help`)"
            warn(f"error: {usage_sentence(error)}{command}")
            raise typer.Exit(ERROR) from None
        except LmEvalBayesError as error:
            warn(f"error: {error}")
            raise typer.Exit(ERROR) from None
        except KeyboardInterrupt as interruption:
            warn("stopped")
            raise typer.Exit(exit_code(interruption)) from None


@contextmanager
def _signals_as_exceptions() -> Iterator[None]:
    """Raise an exception at SIGTERM and SIGHUP where no other handler is set."""
    process_id = os.getpid()

    def terminate(signum: int, frame: FrameType | None) -> None:
        if os.getpid() != process_id:  # in a forked worker: end without cleaning up
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)
            return
        raise TerminatedError(signum)

    handled = []
    if threading.current_thread() is threading.main_thread():
        signals = (signal.SIGTERM, getattr(signal, "SIGHUP", None))
        handled = [s for s in signals if s is not None and signal.getsignal(s) is signal.SIG_DFL]
    for signum in handled:
        signal.signal(signum, terminate)
    try:
        yield
    finally:
        for signum in handled:
            signal.signal(signum, signal.SIG_DFL)


@contextmanager
def _output_errors() -> Iterator[None]:
    """Report a standard output that cannot be written; end silently at a closed pipe."""
    try:
        try:
            yield
        except (typer.Exit, SystemExit):
            _flush()
            raise
        # Flushed here: at the interpreter's exit the error would be a traceback.
        _flush()
    except OSError as error:
        output_error = _error_of_standard_output(error)
        if output_error is None:
            if error.errno != errno.EPIPE:
                raise
            # A pipe other than standard output; typer would end with 1 and print nothing.
            warn(f"error: a pipe or connection was closed by the other side: {error.strerror}")
            raise typer.Exit(ERROR) from None
        discard(sys.stdout)
        if output_error.errno == errno.EPIPE:
            raise typer.Exit(CLOSED_PIPE) from None
        warn(f"error: standard output cannot be written: {output_error.strerror}")
        raise typer.Exit(ERROR) from None


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _error_of_standard_output(error: OSError) -> OSError | None:
    """Return the error of writing to standard output; None if that works."""
    if sys.stdout is None or error.filename is not None:
        return None
    try:
        # The buffer still holds the text that failed; an unbuffered stream gets one character.
        sys.stdout.flush()
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError as output_error:
        return output_error
    return None


@contextmanager
def named_as_typed(ctx: Any) -> Iterator[None]:
    """Name the argument of an error as it is typed on the command line of a context.

    What is read is the argument RUN in the Python API, whatever its command calls it.
    """
    options = [p for p in ctx.command.params if p.param_type_name == "option"]
    names = {option.name: max(option.opts, key=len) for option in options}
    arguments = [p for p in ctx.command.params if p not in options and ctx.params.get(p.name)]
    if arguments:
        names["RUN"] = " or ".join(p.metavar or p.name for p in arguments)
    with named(names):
        yield


@contextmanager
def named(names: Mapping[str, str]) -> Iterator[None]:
    """Name the arguments of the Python API in errors by their names on the command line."""
    try:
        yield
    except LmEvalBayesError as error:
        argument = error.argument or ""
        if argument in names:
            error.argument = names[argument]
            error.args = (str(error).replace(f"`{argument}`", f"`{error.argument}`", 1),)
        raise
