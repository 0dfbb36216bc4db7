"""`lm-eval-bayes study simulate`: intervals of simulated models with known true scores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from lm_eval_bayes._util.text import first_names, format_bytes, format_score, plural
from lm_eval_bayes.cli.screens.layout import Form, say_next, say_sentence, say_table
from lm_eval_bayes.cli.ui.options import (
    MORE,
    IntervalOptions,
    Json,
    Overwrite,
    option,
    parse_integers,
    parse_numbers,
    parse_pair,
    prints_tables,
)
from lm_eval_bayes.cli.ui.output import Progress, say, say_json
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.simulation import IntervalStudy, SimulatedBenchmark
    from lm_eval_bayes.report.tables_page import PageTable
    from lm_eval_bayes.stats import IntervalSpec

#: Trials of a question at most.
_MOST_TRIALS = 100_000
#: Defaults: benchmarks simulated for each N, models, distance of their scores, Beta(A, B).
_REPLICATES, _MODELS, _GAP, _BETA = 200, 5, 0.03, (0.3, 1.2)


@prints_tables
def command(
    *,
    models: Annotated[int | None, option("L", f"Number of models; {_MODELS} by default.")] = None,
    gap: Annotated[
        float | None,
        option(
            "D", f"Distance between the true scores of neighbours; {_GAP:g} by default.", panel=MORE
        ),
    ] = None,
    means: Annotated[
        str | None, option("P,P,...", "The models' true scores, instead of --models and --gap.")
    ] = None,
    questions: Annotated[int, option("M", "Number of questions of the benchmark.")] = 30,
    trials: Annotated[str, option("N,N,...", "Numbers of trials per question.")] = "4,16,64",
    beta: Annotated[
        str | None,
        option(
            "A:B",
            "The probabilities of solving a question are drawn from Beta(A, B); "
            f"{_BETA[0]:g}:{_BETA[1]:g} by default, a hard benchmark with large differences. All "
            "models have the same A + B.",
        ),
    ] = None,
    replicates: Annotated[
        int | None,
        option(
            "N",
            f"Benchmarks simulated for each N; {_REPLICATES} by default, and none if only a matrix "
            "is written.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        option(
            "FILE",
            "Write the outcomes of the largest N as a matrix, .csv, that commands read.",
            "-o",
            "--output",
        ),
    ] = None,
    html: Annotated[
        Path | None, option("FILE", "Write the tables as a page, one offline HTML file.")
    ] = None,
    overwrite: Overwrite = False,
    intervals: IntervalOptions,
    as_json: Json = False,
) -> None:
    """Simulate models with known scores, and test intervals.

    The probabilities of solving the questions are drawn from a Beta distribution. The table shows
    for each kind of interval how often it contains the true score, its width, and the bias and
    error of its estimate.

    \b
    Examples:
      lm-eval-bayes study simulate --means .608,.6213 --questions 30 --trials 16,64,256
      lm-eval-bayes study simulate --models 6 --beta .2:2 --html study.html -o coins.csv
    """
    from lm_eval_bayes._util.validation import check_integer, check_size
    from lm_eval_bayes.analysis.simulation import interval_study, matrix_file
    from lm_eval_bayes.export.files import write_files
    from lm_eval_bayes.report.tables_page import tables_page

    lengths = [
        check_integer("--trials", n, 1, _MOST_TRIALS) for n in parse_integers("--trials", trials)
    ]
    spec = intervals.spec()
    benchmark = _benchmark(models, gap, means, questions, beta)
    if replicates is not None:
        check_size("--replicates", replicates, 1)
    argument = "--html" if output is None else "--output"
    _check_files(output, html, overwrite, argument)
    files: dict[Path, bytes] = {}
    if output is not None:
        files[output] = matrix_file(benchmark, lengths[-1], spec.seed)
    studies: Sequence[IntervalStudy] = ()
    if replicates is not None or html is not None or not files:
        n = replicates or _REPLICATES
        with Progress("benchmarks simulated", n * len(lengths)) as progress:
            studies = interval_study(
                benchmark, lengths, spec, replicates=n, progress=progress.advance
            )
    if html is not None:
        page = tables_page("Simulated models", _in_words(benchmark), [_table(studies, spec)])
        files[html] = page.encode()
    write_files(files, overwrite, argument)
    if as_json:
        say_json(
            {
                "benchmark": benchmark,
                **{"level": spec.level, "scope": spec.scope, "seed": spec.seed},
                "intervals": studies,
                "files": [str(path) for path in files],
            }
        )
        return
    if studies:
        form = Form.of_output()
        say_sentence(_sentence(studies, spec), form)
        say()
        table = _table(studies, spec)
        say_table("", table.head, table.rows)
        say_sentence(_in_words(benchmark), form)
    for path, content in files.items():
        say(f"{path}: {format_bytes(len(content))}")
    if output is not None:
        say_next(["lm-eval-bayes", "summary", str(output)])


# -- the benchmark -------------------------------------------------------------------------------


def _benchmark(
    models: int | None, gap: float | None, means: str | None, questions: int, beta: str | None
) -> SimulatedBenchmark:
    from lm_eval_bayes.analysis.simulation import SimulatedBenchmark

    a, b = _BETA
    if beta is not None:
        rule = "be two numbers from 0.001 to 100,000 separated by a colon, as in 0.2:2"
        a, b = parse_pair("--beta", beta, rule, lambda *ab: all(1e-3 <= x <= 1e5 for x in ab))
    if means is None:
        n_models, distance = _MODELS if models is None else models, _GAP if gap is None else gap
        return SimulatedBenchmark.even(n_models, a / (a + b), distance, a + b, questions)
    for name, value in (("--models", models), ("--gap", gap)):
        if value is not None:
            raise InvalidInputError.of(name, "conflict", "be left out with --means", value)
    return SimulatedBenchmark(tuple(parse_numbers("--means", means)), a + b, questions)


# -- files ---------------------------------------------------------------------------------------


def _check_files(output: Path | None, html: Path | None, overwrite: bool, argument: str) -> None:
    """Refuse wrong files before any work."""
    from lm_eval_bayes.export.files import check_targets

    if output is not None and output.suffix.lower() != ".csv":
        raise InvalidInputError.of("--output", "format", "end with .csv", output.name)
    if html is not None and html.suffix.lower() not in (".html", ".htm"):
        raise InvalidInputError.of("--html", "format", "end with .html", html.name)
    check_targets([path for path in (output, html) if path is not None], overwrite, argument)


# -- the table ------------------------------------------------------------------------------------


def _in_words(benchmark: SimulatedBenchmark) -> str:
    return (
        f"True scores: {first_names([*map(format_score, benchmark.means)], 6)}; "
        f"{plural(benchmark.n_questions, 'question')}, A + B = {benchmark.strength:g}."
    )


def _sentence(studies: Sequence[IntervalStudy], spec: IntervalSpec) -> str:
    """Return how often the first kind of interval contains the true score."""
    shares = sorted(study.coverage for study in studies if study.method == studies[0].method)
    ends = dict.fromkeys(f"{share:.1%}" for share in (shares[0], shares[-1]))
    score = "the true score" + " of the population" * (spec.scope == "population")
    return (
        f"{100 * spec.level:g}% intervals of {studies[0].method} contain {score} in "
        f"{' to '.join(ends)} of {studies[0].replicates:,} simulated benchmarks at each N."
    )


def _table(studies: Sequence[IntervalStudy], spec: IntervalSpec) -> PageTable:
    from lm_eval_bayes.report.tables_page import PageTable

    rows = [
        (
            study.n_trials,
            study.method,
            f"{study.coverage:.1%}",
            f"{study.error:.1%}",
            format_score(study.width),
            f"{study.bias:+.3f}",
            format_score(study.rmse),
        )
        for study in studies
    ]
    head = ("N", "interval", "coverage", "its error", "width", "bias", "rms error")
    return PageTable(_sentence(studies, spec), head, rows)
