"""The command line, run inside the tests' own process."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from typer.testing import CliRunner

from lm_eval_bayes.cli.main import app


def called(*arguments, width="400"):
    """Run `lm-eval-bayes`; return (exit code, standard output, standard error)."""
    try:
        runner = CliRunner(mix_stderr=False)
    except TypeError:  # click 8.2 and later never mixes them
        runner = CliRunner()
    words = [str(argument) for argument in arguments]
    result = runner.invoke(app, words, prog_name="lm-eval-bayes", env={"COLUMNS": width})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def exported_table(suffix, *arguments):
    """Run `export table`; return (exit code, the text of the file, standard error)."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"table{suffix}"
        code, _, error = called("export", "table", *arguments, "-o", file)
        return code, file.read_text(encoding="utf-8") if file.exists() else "", error
