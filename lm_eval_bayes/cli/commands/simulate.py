"""`lm-eval-bayes simulate`: try intervals and rankings where the true scores are known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from lm_eval_bayes._util.text import NO_VALUE, format_bytes, interval_label, plural, scope_label
from lm_eval_bayes.cli.ui.errors import named_as_options
from lm_eval_bayes.cli.ui.output import say, say_json, say_table, warn
from lm_eval_bayes.cli.ui.reading import (
    Interval,
    IntervalKind,
    Json,
    Level,
    Scope,
    ScopeOption,
    Seed,
    check_level_and_seed,
    interval_spec,
)
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.simulation.interval_study import IntervalStudy
    from lm_eval_bayes.analysis.simulation.separation_study import Separation
    from lm_eval_bayes.analysis.simulation.simulated_benchmark import SimulatedBenchmark

#: Benchmarks drawn for each N, and models, where nothing is asked for.
_REPLICATES, _MODELS, _GAP, _BETA = 200, 5, 0.03, (0.3, 1.2)


def command(
    models: Annotated[
        Optional[int],  # noqa: UP045  typer reads this on Python 3.10 too
        typer.Option(metavar="L", help=f"How many models; {_MODELS} by default."),
    ] = None,
    gap: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            metavar="D",
            help=f"Distance between the true scores of neighbours; {_GAP:g} by default.",
        ),
    ] = None,
    means: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="P,P,...", help="The models' true scores, instead of --models and --gap."
        ),
    ] = None,
    questions: Annotated[int, typer.Option(metavar="M", help="Questions of the benchmark.")] = 30,
    trials: Annotated[str, typer.Option(metavar="N,N,...", help="Trials a question.")] = "4,16,64",
    beta: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="A:B",
            help="The benchmark's shape: questions are solved with probabilities from "
            f"Beta(A, B); {_BETA[0]:g}:{_BETA[1]:g} by default, hard and mixed. Models around its "
            "mean keep A + B.",
        ),
    ] = None,
    replicates: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            metavar="N",
            help=f"Benchmarks drawn for each N; {_REPLICATES} by default. Where a file is written "
            "nothing is drawn unless this is given.",
        ),
    ] = None,
    confidence: Annotated[
        float, typer.Option(metavar="P", help="One-sided, from which two models are told apart.")
    ] = 0.95,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write the outcomes of the largest N as a matrix, .npz or .csv, that summary, "
            "rank and convergence read.",
        ),
    ] = None,
    html: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="Write the interactive page, one offline HTML file."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files that are there.")
    ] = False,
    level: Level = 0.95,
    scope: ScopeOption = Scope.benchmark,
    interval: Interval = IntervalKind.exact,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Try intervals on made-up models of known true scores.

    Models are biased coins: every question has a probability of being solved, drawn from a Beta
    distribution. The first table says how often each kind of interval holds the true score (of
    the drawn questions, or with --scope population of all questions like them), how wide it is
    and how far its estimate is off. The second says how many trials it takes to tell neighbours
    apart, the third how often all models come out in the true order.

    The page of --html has sliders for all this, and shows how estimates, intervals and ranks
    move as trials come in. It opens with what is set here, and needs no network.

    \b
    Examples:
      lm-eval-bayes simulate --means .608,.6213 --questions 30 --trials 16,64,256
      lm-eval-bayes simulate --models 6 --beta .2:2 --html demo.html -o coins.npz
    """
    from lm_eval_bayes.analysis.simulation.simulated_benchmark import check_trials

    with named_as_options("trials"):
        lengths = check_trials(_whole_numbers("--trials", trials))
    benchmark = _benchmark(models, gap, means, questions, beta)
    _check(replicates, confidence, level, seed)
    files: dict[Path, bytes] = {}
    if output is not None:
        files[output] = _matrix(benchmark, lengths[-1], seed, output)
    if html is not None:
        if html in files:
            raise InvalidInputError.of("--html", "be another file than --output", html.name)
        files[html] = _page(benchmark, lengths[0], level, seed, means is not None, html)
    if files:
        from lm_eval_bayes.export.files import write_files

        write_files(files, overwrite, "--html" if output is None else "--output")
    studies: Sequence[IntervalStudy] = ()
    separation = None
    if replicates is not None or not files:
        studies, separation = _study(
            benchmark,
            lengths,
            replicates or _REPLICATES,
            confidence,
            level,
            scope,
            interval,
            seed,
        )
    if as_json:
        say_json(
            {
                "benchmark": benchmark.to_dict(),
                "level": level,
                "scope": scope.value,
                "interval": interval.value,
                "seed": seed,
                "intervals": [one.to_dict() for one in studies],
                "separation": None if separation is None else separation.to_dict(),
                "files": [str(path) for path in files],
            }
        )
    elif studies:
        _show(benchmark, studies, separation, level, scope, interval)
    for path, content in files.items():
        told = f"{path}: {format_bytes(len(content))}"
        warn(told) if as_json or studies else say(told)


# -- what was asked for --------------------------------------------------------------------------


def _benchmark(
    models: int | None, gap: float | None, means: str | None, questions: int, beta: str | None
) -> SimulatedBenchmark:
    from lm_eval_bayes.analysis.simulation.simulated_benchmark import SimulatedBenchmark

    a, b = _BETA if beta is None else _shape(beta)
    with named_as_options("models", "gap", "means", "questions"):
        if means is None:
            return SimulatedBenchmark.even(
                _MODELS if models is None else models,
                a / (a + b),
                _GAP if gap is None else gap,
                a + b,
                questions,
            )
        for option, value in (("--models", models), ("--gap", gap)):
            if value is not None:
                raise InvalidInputError.of(option, "be left out where --means is given", value)
        return SimulatedBenchmark(tuple(_numbers("--means", means)), a + b, questions)


def _shape(text: str) -> tuple[float, float]:
    rule = "be two numbers from 0.001 to 100,000 with a colon between them, as in 0.2:2"
    first, _, second = text.partition(":")
    try:
        a, b = float(first), float(second)
    except ValueError:
        raise InvalidInputError.of("--beta", rule, text) from None
    if not (1e-3 <= a <= 1e5 and 1e-3 <= b <= 1e5):
        raise InvalidInputError.of("--beta", rule, text)
    return a, b


def _numbers(option: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        rule = "be numbers with commas between them, as in .4,.45"
        raise InvalidInputError.of(option, rule, text) from None


def _whole_numbers(option: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        rule = "be whole numbers with commas between them, as in 4,16"
        raise InvalidInputError.of(option, rule, text) from None


def _check(replicates: int | None, confidence: float, level: float, seed: int) -> None:
    """Refuse wrong options before anything is drawn."""
    from lm_eval_bayes.stats.ranking.rank import check_confidence
    from lm_eval_bayes.stats.validation import check_size

    with named_as_options("replicates", "confidence", "level", "seed"):
        if replicates is not None:
            check_size("replicates", replicates, 1)
        check_confidence(confidence)
        check_level_and_seed(level, seed)


def _matrix(benchmark: SimulatedBenchmark, n_trials: int, seed: int, path: Path) -> bytes:
    from lm_eval_bayes.analysis.simulation.simulated_benchmark import matrix_file

    suffix = path.suffix.lower()
    if suffix not in (".npz", ".csv"):
        raise InvalidInputError.of("--output", "end with .npz or .csv", path.name)
    with named_as_options("output"):
        return matrix_file(benchmark, n_trials, seed, suffix)


def _page(
    benchmark: SimulatedBenchmark, n_trials: int, level: float, seed: int, given: bool, path: Path
) -> bytes:
    from lm_eval_bayes.report.demo_page.page import DemoSettings, demo_page

    if path.suffix.lower() not in (".html", ".htm"):
        raise InvalidInputError.of("--html", "end with .html", path.name)
    if given:
        rule = (
            "be left out with --html, whose models lie at even distances: --models, --gap, --beta"
        )
        raise InvalidInputError.of("--means", rule, ",".join(map(str, benchmark.means)))
    means = benchmark.means
    with named_as_options("models", "questions", "trials", "gap", "level", "seed"):
        try:
            settings = DemoSettings(
                models=len(means),
                questions=benchmark.n_questions,
                trials=n_trials,
                mean=sum(means) / len(means),
                gap=means[0] - means[1] if len(means) > 1 else 0.0,
                strength=benchmark.strength,
                level=level,
                seed=seed,
            )
        except InvalidInputError as error:
            raise InvalidInputError(_of_shape(str(error))) from None
    return demo_page(settings).encode()


def _of_shape(told: str) -> str:
    """Say which option mean and strength come from."""
    for name, what in (("mean", "a mean A/(A + B)"), ("strength", "a sum A + B")):
        start = f"`{name}` must be a number "
        if told.startswith(start):
            return f"`--beta` must have {what} {told[len(start) :]}, as the page's sliders do"
    return f"{told} (the page of --html)"


# -- what is drawn, and shown ----------------------------------------------------------------------


def _study(
    benchmark: SimulatedBenchmark,
    lengths: Sequence[int],
    replicates: int,
    confidence: float,
    level: float,
    scope: Scope,
    interval: IntervalKind,
    seed: int,
) -> tuple[Sequence[IntervalStudy], Separation | None]:
    from lm_eval_bayes.analysis.simulation.interval_study import interval_study
    from lm_eval_bayes.analysis.simulation.separation_study import separation_study
    from lm_eval_bayes.cli.ui.progress import Progress

    with Progress("benchmarks drawn", replicates * len(lengths)) as progress:
        studies = interval_study(
            benchmark,
            lengths,
            replicates=replicates,
            spec=interval_spec(level, seed, scope, interval),
            progress=progress.advance,
        )
    if len(benchmark.means) < 2:
        return studies, None
    return studies, separation_study(benchmark, lengths, confidence=confidence, seed=seed)


def _show(
    benchmark: SimulatedBenchmark,
    studies: Sequence[IntervalStudy],
    separation: Separation | None,
    level: float,
    scope: Scope,
    interval: IntervalKind,
) -> None:
    told = plural(len(benchmark.means), "model")
    say(
        f"{told} with true scores {', '.join(f'{mean:.3f}' for mean in benchmark.means)}; "
        f"{plural(benchmark.n_questions, 'question')} of strength {benchmark.strength:g}"
    )
    lines = [
        (
            one.n_trials,
            one.method,
            f"{one.coverage:.1%} ± {100 * one.error:.1f}",
            f"{one.width:.3f}",
            f"{one.bias:+.3f}",
            f"{one.rmse:.3f}",
        )
        for one in studies
    ]
    title = (
        f"{interval_label(level, interval.value)} about {scope_label(scope.value)}, in "
        f"{plural(studies[0].replicates, 'benchmark')} for each N"
    )
    say_table(title, ("N", "interval", "holds the truth", "width", "bias", "rms error"), lines)
    if separation is not None:
        _show_separation(separation)


def _show_separation(found: Separation) -> None:
    lengths = [one.n_trials for one in found.orders]
    rows = [
        (
            one.better,
            one.worse,
            f"{one.gap:.3f}",
            NO_VALUE if one.trials is None else f"{one.trials:,}",
            *(f"{z:.2f}" for z in one.z),
            *(f"{a:.0%}, {b:.0%}" for a, b in zip(one.surely, one.wrongly, strict=True)),
        )
        for one in found.pairs
    ]
    head = ("better", "worse", "gap", "N needed", *(f"z at {n}" for n in lengths))
    told = (f"right, wrong at {n}" for n in lengths)
    title = (
        f"telling neighbours apart with confidence {found.confidence:g}, one-sided: N needed, and "
        "how often the better one comes out ahead (right) or behind (wrong)"
    )
    say_table(title, (*head, *told), rows)
    orders = [
        (one.n_trials, f"{one.right:.1%}", NO_VALUE if one.tau is None else f"{one.tau:.3f}")
        for one in found.orders
    ]
    title = f"the order of all models by bayes@N, {plural(found.tossed, 'benchmark')} tossed"
    say_table(title, ("N", "wholly right", "Kendall's tau"), orders)
