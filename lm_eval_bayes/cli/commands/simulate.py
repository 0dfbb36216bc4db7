"""`lm-eval-bayes simulate`: intervals and rankings of simulated models with known true scores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from lm_eval_bayes._util.text import (
    NO_VALUE,
    format_bytes,
    format_integer,
    format_score,
    interval_label,
    plural,
    scope_label,
)
from lm_eval_bayes.cli.ui.errors import named_as_options
from lm_eval_bayes.cli.ui.options import (
    IntervalOptions,
    Json,
    Overwrite,
    expand_options,
    option,
    parse_integers,
    parse_numbers,
    parse_pair,
    prints_tables,
)
from lm_eval_bayes.cli.ui.output import Progress, say, say_json, say_records, say_table, warn
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.simulation import IntervalStudy, Separation, SimulatedBenchmark
    from lm_eval_bayes.stats.intervals import IntervalSpec

#: Defaults: benchmarks simulated for each N, models, distance of their scores, Beta(A, B).
_REPLICATES, _MODELS, _GAP, _BETA = 200, 5, 0.03, (0.3, 1.2)


@prints_tables
@expand_options
def command(
    *,
    models: Annotated[int | None, option("L", f"Number of models; {_MODELS} by default.")] = None,
    gap: Annotated[
        float | None,
        option("D", f"Distance between the true scores of neighbours; {_GAP:g} by default."),
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
            f"Benchmarks simulated for each N; {_REPLICATES} by default, and none if a file "
            "is written.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        option(
            "FILE",
            "Write the outcomes of the largest N as a matrix, .npz or .csv, that summary, "
            "rank and convergence read.",
            "-o",
            "--output",
        ),
    ] = None,
    html: Annotated[
        Path | None, option("FILE", "Write an interactive page, one offline HTML file.")
    ] = None,
    overwrite: Overwrite = False,
    intervals: IntervalOptions,
    as_json: Json = False,
) -> None:
    """Simulate models with known scores, and test intervals and rankings.

    Every question has a probability of being solved, drawn from a Beta distribution. The first
    table shows for each kind of interval how often it contains the true score (of the simulated
    questions, or with --scope population of their population), its width, and the bias and error
    of its estimate. The second shows how many trials it takes to distinguish neighbouring
    models, the third how often all models are ranked in the true order.

    The page of --html has sliders for these settings and shows how estimates, intervals and
    ranks change as trials are added. It needs no network.

    \b
    Examples:
      lm-eval-bayes simulate --means .608,.6213 --questions 30 --trials 16,64,256
      lm-eval-bayes simulate --models 6 --beta .2:2 --html demo.html -o coins.npz
    """
    from lm_eval_bayes.analysis.simulation import (
        check_trials,
        interval_study,
        matrix_file,
        separation_study,
    )
    from lm_eval_bayes.stats.validation import check_size

    with named_as_options("trials"):
        lengths = check_trials(parse_integers("--trials", trials))
    spec = intervals.spec()
    benchmark = _benchmark(models, gap, means, questions, beta)
    if replicates is not None:
        with named_as_options("replicates"):
            check_size("replicates", replicates, 1)
    files: dict[Path, bytes] = {}
    if output is not None:
        with named_as_options("output"):
            suffix = output.suffix.lower()
            files[output] = matrix_file(benchmark, lengths[-1], spec.seed, suffix)
    if html is not None:
        if html in files:
            raise InvalidInputError.of(
                "--html", "conflict", "be another file than --output", html.name
            )
        if means is not None:
            rule = "be left out with --html, whose models have equal distances (--models, --gap)"
            raise InvalidInputError.of("--means", "conflict", rule, means)
        files[html] = _page(benchmark, lengths[0], spec, html)
    if files:
        from lm_eval_bayes.export.files import write_files

        write_files(files, overwrite, "--html" if output is None else "--output")
    studies: Sequence[IntervalStudy] = ()
    separation = None
    if replicates is not None or not files:
        n = replicates or _REPLICATES
        with Progress("benchmarks simulated", n * len(lengths)) as progress:
            studies = interval_study(
                benchmark, lengths, spec, replicates=n, progress=progress.advance
            )
        if len(benchmark.means) > 1:
            separation = separation_study(benchmark, lengths, seed=spec.seed)
    if as_json:
        say_json(
            {
                "benchmark": benchmark,
                **vars(intervals),
                "intervals": studies,
                "separation": separation,
                "files": [str(path) for path in files],
            }
        )
    elif studies:
        _show(benchmark, studies, separation, spec)
    for path, content in files.items():
        message = f"{path}: {format_bytes(len(content))}"
        warn(message) if as_json or studies else say(message)


# -- the benchmark -------------------------------------------------------------------------------


def _benchmark(
    models: int | None, gap: float | None, means: str | None, questions: int, beta: str | None
) -> SimulatedBenchmark:
    from lm_eval_bayes.analysis.simulation import SimulatedBenchmark

    a, b = _BETA
    if beta is not None:
        rule = "be two numbers from 0.001 to 100,000 separated by a colon, as in 0.2:2"
        a, b = parse_pair("--beta", beta, rule, lambda *ab: all(1e-3 <= x <= 1e5 for x in ab))
    with named_as_options("models", "gap", "means", "questions"):
        if means is None:
            n_models, distance = _MODELS if models is None else models, _GAP if gap is None else gap
            return SimulatedBenchmark.even(n_models, a / (a + b), distance, a + b, questions)
        for option, value in (("--models", models), ("--gap", gap)):
            if value is not None:
                raise InvalidInputError.of(option, "conflict", "be left out with --means", value)
        return SimulatedBenchmark(tuple(parse_numbers("--means", means)), a + b, questions)


# -- the page ------------------------------------------------------------------------------------


def _page(benchmark: SimulatedBenchmark, n_trials: int, spec: IntervalSpec, path: Path) -> bytes:
    from lm_eval_bayes.report.demo_page import DemoSettings, demo_page

    if path.suffix.lower() not in (".html", ".htm"):
        raise InvalidInputError.of("--html", "format", "end with .html", path.name)
    means = benchmark.means
    of_beta = {"mean": "beta (A/(A + B), with --html)", "strength": "beta (A + B, with --html)"}
    with named_as_options("models", "questions", "trials", "gap", "level", "seed", **of_beta):
        settings = DemoSettings(
            models=len(means),
            questions=benchmark.n_questions,
            trials=n_trials,
            mean=sum(means) / len(means),
            gap=means[0] - means[1] if len(means) > 1 else 0.0,
            strength=benchmark.strength,
            level=spec.level,
            seed=spec.seed,
        )
    return demo_page(settings).encode()


# -- tables --------------------------------------------------------------------------------------


def _show(
    benchmark: SimulatedBenchmark,
    studies: Sequence[IntervalStudy],
    separation: Separation | None,
    spec: IntervalSpec,
) -> None:
    say(
        f"{plural(len(benchmark.means), 'model')} with true scores "
        f"{', '.join(map(format_score, benchmark.means))}; "
        f"{plural(benchmark.n_questions, 'question')}, A + B = {benchmark.strength:g}"
    )
    title = (
        f"{interval_label(spec.level, spec.method)} for {scope_label(spec.scope)}, in "
        f"{plural(studies[0].replicates, 'simulated benchmark')} for each N"
    )
    say_records(
        title,
        studies,
        {
            "N": lambda study: study.n_trials,
            "interval": lambda study: study.method,
            "coverage": lambda study: f"{study.coverage:.1%} ± {100 * study.error:.1f}",
            "width": lambda study: format_score(study.width),
            "bias": lambda study: f"{study.bias:+.3f}",
            "rms error": lambda study: format_score(study.rmse),
        },
    )
    if separation is not None:
        _show_separation(separation)


def _show_separation(separation: Separation) -> None:
    lengths = [order.n_trials for order in separation.orders]
    rows = [
        (
            pair.better,
            pair.worse,
            format_score(pair.gap),
            format_integer(pair.trials),
            *(f"{z:.2f}" for z in pair.z),
            *(
                f"{right:.0%}, {wrong:.0%}"
                for right, wrong in zip(pair.surely, pair.wrongly, strict=True)
            ),
        )
        for pair in separation.pairs
    ]
    head = ["better", "worse", "gap", "N needed", *(f"z at {n}" for n in lengths)]
    head += [f"right, wrong at {n}" for n in lengths]
    title = (
        "distinguishing neighbours with one-sided confidence 0.95: N needed, and how often the "
        "better model is found better (right) or worse (wrong)"
    )
    say_table(title, head, rows)
    say_records(
        f"ranking of all models by bayes@N, in {plural(separation.tossed, 'simulated benchmark')}",
        separation.orders,
        {
            "N": lambda order: order.n_trials,
            "true order": lambda order: f"{order.right:.1%}",
            "Kendall's tau": lambda order: NO_VALUE if order.tau is None else f"{order.tau:.3f}",
        },
    )
