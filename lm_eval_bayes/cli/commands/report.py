"""`lm-eval-bayes report`: an HTML report of saved runs."""

from __future__ import annotations

import shlex
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from lm_eval_bayes._util.text import format_bytes, plural
from lm_eval_bayes.cli.screens.layout import Form, say_sentence
from lm_eval_bayes.cli.ui.options import (
    MORE,
    STANDARD_OUTPUT,
    IntervalOptions,
    Json,
    expand_options,
    option,
)
from lm_eval_bayes.cli.ui.output import check_standard_output, say, say_json
from lm_eval_bayes.cli.ui.reading import ReadingOptions, Runs, check_not_read
from lm_eval_bayes.errors import InvalidInputError

#: Number of runs from which the progress is shown.
_MANY_RUNS = 12


@expand_options
def command(
    runs: Runs,
    *,
    output: Annotated[
        Path, option("FILE", "The HTML file; - is standard output.", "-o", "--output")
    ] = Path("report.html"),
    title: Annotated[str | None, option("TEXT", "Title; by default the tasks' names.")] = None,
    text_bytes: Annotated[
        int, option("N", "The most bytes of the attempts' texts in the page.", panel=MORE)
    ] = 4_000_000,
    no_texts: Annotated[
        bool, option(None, "Leave out the texts of the attempts.", "--no-texts")
    ] = False,
    overwrite: Annotated[
        bool, option(None, "Replace existing files that are not reports.", "--overwrite")
    ] = False,
    reading: ReadingOptions,
    intervals: IntervalOptions,
    as_json: Json = False,
) -> None:
    """Write an HTML report of saved runs.

    The report has the scores as an interval chart, the pairs of models that are distinguishable,
    every question with every model's right answers, curves of Pass@k and Pass^k, the convergence
    of the scores with N, their cost, and how it was made. A question opens: its text, the right
    answer, and every attempt with verdict, extracted answer, tokens and, from the harness's
    samples or a trial store, its text. The report is one self-contained file that loads nothing.
    Texts of models and datasets are escaped, and keys and tokens in the settings of a run are
    hidden.

    An earlier report of the same name is replaced; any other file only with --overwrite.

    \b
    Examples:
      lm-eval-bayes report runs/qwen runs/phi -o report.html
      lm-eval-bayes report runs/* --task aime25_bayes --scope population
    """
    from lm_eval_bayes._util.validation import check_count

    spec = intervals.spec()
    check_count("--text-bytes", text_bytes, 0)
    to_stdout = str(output) in STANDARD_OUTPUT
    if to_stdout:
        check_standard_output(as_json=as_json)
    else:
        _check_output(output, overwrite)
    saved = reading.read(runs)
    if not to_stdout:
        check_not_read([output], runs, saved)

    from lm_eval_bayes.analysis.report_data import report_data
    from lm_eval_bayes.cli.ui.output import Progress
    from lm_eval_bayes.report.page.render import render

    many = len(saved.runs) >= _MANY_RUNS
    with Progress("runs summarized", len(saved.runs) if many else 0) as progress:
        data = report_data(saved, spec, progress=lambda n: progress.advance(n - progress.done))
    n_bytes = 0 if no_texts else text_bytes
    words = ["lm-eval-bayes", "report", *map(str, runs), *reading.words(), "-o", str(output)]
    page = render(
        data,
        title=title or "",
        now=time.time(),
        text_bytes=n_bytes,
        command=shlex.join(words),
    ).encode("utf-8")
    if to_stdout:
        sys.stdout.buffer.write(page)
        sys.stdout.buffer.flush()
    else:
        from lm_eval_bayes.export.files import write_files

        write_files({output: page}, overwrite=True)
    if as_json:
        content = {
            "path": str(output),
            "bytes": len(page),
            "models": data.models,
            "tasks": data.tasks,
            "questions": data.n_questions,
            "trials": data.n_trials,
            **{"level": spec.level, "scope": spec.scope, "seed": spec.seed},
            "leaderboards": [
                {
                    "task": panel.board.task,
                    "models": panel.board.models,
                    "distinguishable": panel.board.ranking.distinguishable.tolist(),
                }
                for panel in data.panels
            ],
        }
        say_json(content)
    elif not to_stdout:
        board = data.overall or data.panels[0].scores
        sentence = board.headline() if board.n_pairs < 2 else board.rank_sentence()
        if data.overall is None and len(data.panels) > 1:
            about = f"{data.panels[0].board.task}, the first of {len(data.panels)} boards"
            sentence = f"{about} (not all models answered the same questions): {sentence}"
        say_sentence(sentence, Form.of_output())
        models, tasks = plural(len(data.models), "model"), plural(len(data.tasks), "task")
        say(f"Wrote {output}: {models}, {tasks}, {format_bytes(len(page))}. Open it in a browser.")


# -- files ---------------------------------------------------------------------------------------


def _check_output(path: Path, overwrite: bool) -> None:
    """Refuse, before any run is read, a file that the report may not replace."""
    from lm_eval_bayes.export.files import check_targets
    from lm_eval_bayes.report.page.render import MARK

    check_targets([path], overwrite=True)
    if overwrite or not path.exists():
        return
    with suppress(OSError), open(path, "rb") as file:
        if MARK.encode() in file.read(4096):
            return
    rule = "be a new file or an earlier report; --overwrite replaces any other"
    raise InvalidInputError.of("--output", "path", rule, str(path))
