"""The command line, run inside the tests' own process."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from typer.testing import CliRunner

from lm_eval_bayes.cli.main import app
from lm_eval_bayes.cli.ui.errors import UsageError
from lm_eval_bayes.errors import LmEvalBayesError


def invoked(*arguments, width="400"):
    """Run `lm-eval-bayes`; return the result of click's runner."""
    try:
        runner = CliRunner(mix_stderr=False)
    except TypeError:  # click 8.2 and later never mixes them
        runner = CliRunner()
    words = [str(argument) for argument in arguments]
    words[:1] = " ".join(words[:1]).split()  # a command of a group is one argument, "study rank"
    result = runner.invoke(app, words, prog_name="lm-eval-bayes", env={"COLUMNS": width})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def called(*arguments, width="400"):
    """Run `lm-eval-bayes`; return (exit code, standard output, standard error)."""
    result = invoked(*arguments, width=width)
    return result.exit_code, result.stdout, result.stderr


def answer(*arguments):
    """Return what a command with `--json` prints."""
    code, printed, error = called(*arguments, "--json")
    assert code == 0, error
    return json.loads(printed)


def error_of(result):
    """Return the error that a command ended with: the only one, in a sentence, exit code 2."""
    assert result.exit_code == 2, result.stdout
    assert [line[:7] for line in result.stderr.splitlines()].count("error: ") == 1, result.stderr
    assert "\x1b" not in result.stderr
    assert "Traceback" not in result.stderr
    error = result.exception
    while not isinstance(error, (LmEvalBayesError, UsageError)):
        error = error.__context__
    return error


def command_error(*arguments):
    """Run a command that must end with an error and print nothing; return the error."""
    result = invoked(*arguments)
    assert result.stdout == ""
    return error_of(result)


def refusal(*arguments):
    """Return the argument and the rule of the error that a command ends with.

    The rule of an error of the parser is "usage", and its argument the option that is wrong.
    """
    error = command_error(*arguments)
    if isinstance(error, LmEvalBayesError):
        return error.argument, error.rule
    parameter = getattr(error, "param", None)
    if parameter is None:
        return getattr(error, "option_name", None), "usage"
    return max(parameter.opts, key=len), "usage"


def exported_table(suffix, *arguments):
    """Run `export table`; return (exit code, the text of the file, standard error)."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"table{suffix}"
        code, _, error = called("export", "table", *arguments, "-o", file)
        return code, file.read_text(encoding="utf-8") if file.exists() else "", error
