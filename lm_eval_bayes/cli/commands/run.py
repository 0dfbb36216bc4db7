"""`lm-eval-bayes run`: the harness's run with adaptive stopping."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lm_eval_bayes._util.packages import pip_install_extra
from lm_eval_bayes._util.text import (
    error_line,
    format_duration,
    format_range,
    format_score,
    one_line,
)
from lm_eval_bayes.cli.screens.bars import Axis
from lm_eval_bayes.cli.screens.layout import Form
from lm_eval_bayes.cli.ui.errors import exit_code
from lm_eval_bayes.cli.ui.options import MORE, Correction, Level, expand_options, option
from lm_eval_bayes.cli.ui.output import warn
from lm_eval_bayes.cli.ui.reading import ReadingOptions
from lm_eval_bayes.errors import InvalidInputError, LmEvalBayesError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lm_eval_bayes.harness.adaptive.rounds import Round, Rounds
    from lm_eval_bayes.harness.adaptive.stopping import Goal, InterimAnalysis

#: The default correction of `--decide` for interim analyses.
CORRECTION: Correction = "pocock"


@dataclass(frozen=True)
class StoppingOptions:
    """When a run stops, and which trials its rounds add."""

    width: Annotated[
        float | None, option("W", "Stop once the interval of every task is at most W wide.")
    ] = None
    decide: Annotated[
        str | None,
        option(
            "RUN",
            "Stop once every score on these questions is above or below that of a finished run: "
            "its output folder, one of its files, or its trial store.",
        ),
    ] = None
    budget: Annotated[
        str | None,
        option(
            "B",
            "Stop before the run costs more: 64 (trials per question), 2e6tokens, 8h or "
            "90min. At least one round is sampled.",
        ),
    ] = None
    batch_trials: Annotated[
        int, option("N", "Trials per question that a round adds.", panel=MORE)
    ] = 4
    max_trials: Annotated[int, option("N", "Maximum number of trials per question.")] = 80
    store: Annotated[
        str | None,
        option("FILE", "The trial store. By default trials.sqlite in the folder of --output_path."),
    ] = None
    level: Level = 0.95
    correction: Annotated[
        Correction | None,
        option(
            None,
            "Correction of --decide for interim analyses: pocock (stops early at large "
            "differences), obrien-fleming (little loss of power at the last analysis), anytime "
            f"(stays valid if --max-trials is raised later), none.  [default: {CORRECTION}]",
            panel=MORE,
        ),
    ] = None
    allocate: Annotated[
        Literal["questions"] | None,
        option(
            "questions",
            "Give further trials to the questions with the largest posterior variance, "
            "instead of to all questions.",
            panel=MORE,
        ),
    ] = None


def run(harness_arguments: Sequence[str], options: StoppingOptions) -> int:
    """Run the harness until the goal is reached; return the exit code.

    Raises
    ------
    LmEvalBayesError
        If an argument breaks its rule or a task cannot be run, before a model is loaded; if the
        harness cannot build its requests; or if it could not write the results.
    """
    from lm_eval_bayes.harness.adaptive.rounds import Rounds, baseline_runs
    from lm_eval_bayes.harness.adaptive.stopping import Budget, Goal
    from lm_eval_bayes.harness.plugin import patches, registration

    baseline = None
    if options.decide is not None:
        saved = ReadingOptions().read([Path(options.decide)], argument="--decide", dedupe=None)
        baseline = baseline_runs(saved.runs, options.decide)
    goal = Goal(
        width=options.width,
        baseline=baseline,
        baseline_name=str(options.decide),
        budget=None if options.budget is None else Budget.parse(options.budget),
        batch_trials=options.batch_trials,
        max_trials=options.max_trials,
        level=options.level,
        correction=options.correction or CORRECTION,
        allocate=options.allocate is not None,
    )
    if options.correction is not None and options.decide is None:
        got = options.correction
        raise InvalidInputError.of("--correction", "conflict", "be given with --decide", got)
    registration.register_all()
    from lm_eval._cli.harness import HarnessCLI
    from lm_eval.evaluator import simple_evaluate

    args = _parsed(HarnessCLI, harness_arguments)
    with _setup_errors():
        configured = {**_of_config_file(args), **{k: v for k, v in vars(args).items() if v}}
    if configured.get("use_cache"):
        rule = "be left out: the trial store keeps every response"
        raise InvalidInputError.of("--use_cache", "conflict", rule, configured["use_cache"])
    metadata = configured.get("metadata") or {}
    if "bayes_n" in metadata:
        rule = "leave out bayes_n: the run raises N itself, by --batch-trials up to --max-trials"
        raise InvalidInputError.of("--metadata", "conflict", rule, metadata["bayes_n"])
    args.metadata = {**metadata, "bayes_n": goal.most_trials}
    output_path = configured.get("output_path")
    make_model = partial(_make_model, options.store, output_path)
    rounds = Rounds(goal, simple_evaluate, make_model, _reporter(goal))
    if problem := patches.problem_of(patches.SIMPLE_EVALUATE):
        message = f"this harness cannot evaluate with a stopping rule: {problem}"
        raise LmEvalBayesError(message, "unsupported")
    with registration.in_place_of_simple_evaluate(rounds), _setup_errors(rounds):
        args.func(args)
    _check_written(rounds, output_path, options.store)
    return 0 if rounds.interruption is None else exit_code(rounds.interruption)


@expand_options
def command(context: typer.Context, options: StoppingOptions) -> None:
    """Sample until a stopping rule holds.

    Takes every argument of `lm_eval run` and the options below. The model and the tasks are loaded
    once. Trials are sampled in one stream: those of the next round start as slots fall free. A
    round is complete once every question has --batch-trials more, by their numbers and not by
    which came first; then the stopping rule is checked. All trials go to a store, so a stopped or
    killed run can be resumed with the same command. The harness writes its results and samples at
    the end, also after Ctrl-C.

    After every round one line per task shows the posterior and a forecast of the remaining
    trials, on standard error. At least one of --width, --decide and --budget is required;
    --max-trials always applies.

    \b
    Examples:
      lm-eval-bayes run --width 0.05 --store aime.sqlite --model vllm \\
        --model_args pretrained=Qwen/Qwen3-4B --tasks aime25_bayes
      lm-eval-bayes run --decide runs/other --budget 8h --output_path runs/new --log_samples \\
        --model hf --model_args pretrained=Qwen/Qwen3-4B --tasks aime25_bayes
    """
    code = run(context.args, options)
    if code:
        raise typer.Exit(code)


def _parsed(harness: Any, arguments: Sequence[str]) -> Any:
    before = sys.argv
    sys.argv = ["lm-eval-bayes", "run", *arguments]
    try:
        return harness().parse_args()
    finally:
        sys.argv = before


def _of_config_file(args: Any) -> Mapping[str, Any]:
    """Return what the file of the harness's `--config` sets."""
    if not getattr(args, "config", None):
        return {}
    from lm_eval.config.evaluate_config import EvaluatorConfig
    from lm_eval.utils import simple_parse_args_string

    config: dict[str, Any] = EvaluatorConfig.load_yaml_config(args.config)
    if isinstance(config.get("metadata"), str):
        config["metadata"] = simple_parse_args_string(config["metadata"])
    return config


def _make_model(store: str | None, output_path: str | None, arguments: Mapping[str, Any]) -> Any:
    """Load the model of the harness's arguments on a trial store."""
    from lm_eval.utils import simple_parse_args_string

    from lm_eval_bayes.harness.models.trials import TrialsLM

    given = arguments.get("model_args") or {}
    model_args = dict(simple_parse_args_string(given) if isinstance(given, str) else given)
    if arguments["model"] != "trials":
        model_args = {"backend": arguments["model"], **model_args}
    model_args["store"] = model_args.get("store") or _store_path(store, output_path)
    speed = {name: arguments.get(name) for name in ("batch_size", "max_batch_size", "device")}
    return TrialsLM.create_from_arg_obj(model_args, speed)


def _store_path(store: str | None, output_path: str | None) -> str:
    if store is not None:
        return store
    if output_path is None:
        rule = "name the file of the trials, unless --output_path names a folder for it"
        raise InvalidInputError.of("--store", "missing", rule, "neither of them")
    folder = Path(output_path)
    folder = folder.parent if folder.suffix == ".json" else folder
    folder.mkdir(parents=True, exist_ok=True)
    return str(folder / "trials.sqlite")


def _reporter(goal: Goal) -> Callable[[Round | str], None]:
    """Return a function that reports every round on standard error."""
    from tqdm import tqdm

    lines = RoundLines(goal, Form.of_output(sys.stderr))
    notes: dict[str, None] = {}
    total = ""

    def report(event: Round | str) -> None:
        nonlocal total
        # the progress bar is drawn again below what is printed
        with tqdm.external_write_mode(file=sys.stderr):
            if isinstance(event, str):
                warn(f"Stopped: {event}; {total}")
                for note in notes:
                    warn(note)
                return
            for line in lines.of(event):
                warn(line)
            total = lines.total(event)
            for analysis in event.analyses:
                if analysis.note is not None:
                    notes[f"note: {analysis.task}: {analysis.note}"] = None

    return report


# -- errors --------------------------------------------------------------------------------------


@contextmanager
def _setup_errors(rounds: Rounds | None = None) -> Iterator[None]:
    """Report errors that the harness raises before sampling starts in one sentence.

    Errors while a model is loaded or sampled keep their traceback; the log has the traceback of
    the others at level DEBUG.
    """
    from lm_eval_bayes.harness import get_logger
    from lm_eval_bayes.harness.plugin.installed import EXTRAS

    try:
        yield
    except LmEvalBayesError:
        raise
    except Exception as error:
        stage = "tasks" if rounds is None else rounds.stage
        name = error.name if isinstance(error, ModuleNotFoundError) else None
        if stage in ("model", "requests") and name in EXTRAS:
            sentence = (
                f"the model's backend needs the package `{name}`, which is not installed; "
                f"run {pip_install_extra(EXTRAS[name])}"
            )
            raise LmEvalBayesError(sentence, "not-installed", "--model", name) from error
        if stage not in ("tasks", "requests"):
            raise
        get_logger("lm_eval_bayes.harness.run").debug(
            "the run stopped before sampling", exc_info=error
        )
        message, kind = error_line(error), type(error).__name__
        plain = isinstance(error, (ValueError, OSError, AssertionError)) or message == kind
        message = message if plain else f"{kind}: {message}"
        raise LmEvalBayesError(message, "failed") from error


def _check_written(rounds: Rounds, output_path: str | None, store: str | None) -> None:
    """Check that the harness wrote its files: it only logs an error.

    Raises
    ------
    LmEvalBayesError
        If the results or logged samples are missing or cut off.
    """
    missing = rounds.missing_output()
    if missing is None:
        return
    options = "another --output_path" + (f" and --store {rounds.store}" if store is None else "")
    sentence = (
        f"results could not be written to {output_path} ({missing} is missing or cut off); all "
        f"trials are in {rounds.store}: run the same command again with {options}"
    )
    raise LmEvalBayesError(sentence, "failed", "--output_path", output_path)


# -- the screen: a line for every task and round --------------------------------------------------

#: Columns of a bar, and of a task's name.
_BAR, _NAME = 26, 18


class RoundLines:
    """The lines of a run's rounds.

    Parameters
    ----------
    goal : Goal
        What the run stops at.
    form : Form
        The form of the screen.
    """

    def __init__(self, goal: Goal, form: Form) -> None:
        self._goal, self._form = goal, form
        self._axis: Axis | None = None

    def of(self, event: Round) -> Iterator[str]:
        """Yield the lines of a round; before the first, the goal and the headings."""
        several = len(event.analyses) > 1
        if self._axis is None:
            intervals = [(analysis.low, analysis.high) for analysis in event.analyses]
            self._axis = Axis.of(intervals, _BAR, self._form.drawn)
            yield self._goal_line([analysis.task for analysis in event.analyses])
            head = f"{'N':>6}  score  {100 * self._goal.level:g}% interval  width  "
            head += f"{self._axis.heading():<{_BAR}}  more"
            yield f"{'task':<{_NAME}}  {head}" if several else head
        for analysis in event.analyses:
            line = self._line(analysis, self._axis)
            yield f"{one_line(analysis.task, _NAME):<{_NAME}}  {line}" if several else line

    def total(self, event: Round) -> str:
        """Return what the run has sampled so far."""
        tokens = "" if event.tokens is None else f", {self._form.number(event.tokens)} tokens"
        trials = f"{self._form.number(event.n_trials)} trials"
        return f"{trials}{tokens}, {format_duration(3600 * event.hours)}"

    def _goal_line(self, tasks: list[str]) -> str:
        goal, parts = self._goal, []
        if goal.width is not None:
            parts.append(f"an interval at most {goal.width:g} wide")
        if goal.baseline is not None:
            parts.append(f"distinguishable from {one_line(goal.baseline_name)}")
        if goal.budget is not None:
            parts.append(f"{goal.budget} at most")
        parts.append(f"at most {goal.rounds[-1]:,} trials per question")
        return f"Goal for {', '.join(map(one_line, tasks))}: {', '.join(parts)}"

    def _line(self, analysis: InterimAnalysis, axis: Axis) -> str:
        ends = analysis.low, analysis.high
        more = "done" if analysis.reached else ""
        if not analysis.reached and analysis.further is not None:
            more = self._form.number(analysis.further)
        elif self._goal.baseline is not None:
            more = f"{more} {one_line(analysis.reason)}".strip()
        n = format_range((analysis.fewest, analysis.most)).replace(" to ", "-")
        numbers = f"{n:>6}  {format_score(analysis.mu)}  {self._form.ends(ends):<12}"
        width = format_score(analysis.high - analysis.low)
        return f"{numbers}  {width}  {axis.bar(analysis.mu, ends):<{_BAR}}  {more}".rstrip()
