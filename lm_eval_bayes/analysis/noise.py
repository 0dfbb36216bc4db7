"""How far apart runs of the same model lie, and the differences of models that runs can show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np

from lm_eval_bayes._util.plain import NOT_IN_JSON, Record, json_name
from lm_eval_bayes._util.text import plural
from lm_eval_bayes._util.validation import check_fraction, check_level, check_positive, check_seed
from lm_eval_bayes.analysis.comparability import (
    aligned_rows,
    check_comparable,
    repeat_note,
)
from lm_eval_bayes.analysis.settings import settings_posterior
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats import (
    ASSUMED_CORRELATION,
    DESIGNS,
    LEVEL,
    POWER,
    Design,
    IntervalSpec,
    NeededSize,
    Spread,
    VarianceComponents,
    correlation_interval,
    covariance_of_questions,
    detectable_difference,
    size_for_difference,
    variance_components,
)

#: Where the correlation of two models over questions is from.
CorrelationSource: TypeAlias = Literal["models", "single trials", "assumed"]


@dataclass(frozen=True)
class NoiseSettings(Record):
    """What is asked about the noise of runs, checked once.

    Parameters
    ----------
    level : float
        Posterior mass of the intervals, share of the pairs of runs that lie within the distance,
        and 1 − α of the tests; in (0, 1).
    power : float
        1 − β of the tests, in (0, 1).
    difference : float, optional
        A difference above 0 whose trials and questions are asked for.
    seed : int
        Of the posterior draws.

    Raises
    ------
    InvalidInputError
        If a setting breaks its rule.
    """

    level: float = LEVEL
    power: float = POWER
    difference: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_level(self.level)
        check_fraction("power", self.power)
        check_seed(self.seed)
        if self.difference is not None:
            check_positive("difference", self.difference)


DEFAULT_NOISE = NoiseSettings()
_AT_BOUND = (
    "The correlation of two models over questions is estimated at its bound, {:g}, so that paired "
    "differences are as small (1) or as large (-1) as they can be."
)
#: What a difference is about, in words.
DESIGN_WORDS: Mapping[Design, str] = {
    "benchmark": "these questions",
    "paired": "the population, paired",
    "unpaired": "the population, unpaired",
}


@dataclass(frozen=True, eq=False)
class RunNoise(Record):
    """How noisy a run with N trials per question is.

    Attributes
    ----------
    trials : float
        N.
    standard_error : float
        The sd of its score about these questions.
    population_standard_error : float or None
        About the population of questions; None where it is not known.
    mean_distance, distance : float
        How far apart two such runs of the same model lie, in the mean, and with the share `level`
        at most.
    is_bound : bool
        Whether these three are upper bounds, as the questions have single trials.
    detectable : mapping of design to float or None
        The smallest difference of two models, see `detectable_difference`; None where it is not
        known, or not possible.
    not_detectable : tuple of designs
        Those in which no difference on the scale of the score is large enough to be shown.
    """

    trials: float
    standard_error: float
    population_standard_error: float | None
    mean_distance: float
    distance: float
    is_bound: bool
    detectable: Mapping[Design, float | None]
    not_detectable: tuple[Design, ...]

    def shown(self, design: Design) -> float | None:
        """Return the smallest difference that is shown; infinite if none on the scale is."""
        return math.inf if design in self.not_detectable else self.detectable[design]


@dataclass(frozen=True, eq=False)
class ModelNoise(Record):
    """The noise of a model's scores on a task.

    Attributes
    ----------
    run : TaskRun
        The run.
    model : str
        The model.
    components : VarianceComponents
        The variance of a trial's score.
    runs : tuple of RunNoise
        Of single runs, N = 1, and of runs with as many trials as this one where that is more.
    needed : tuple of NeededSize
        What shows the difference that was asked for, by design; else empty.
    spread : Spread or None
        How much the settings of the run differ; None for one setting.
    notes : tuple of str
        Warnings.
    """

    run: TaskRun = field(metadata=NOT_IN_JSON)
    model: str
    components: VarianceComponents
    runs: tuple[RunNoise, ...]
    needed: tuple[NeededSize, ...]
    spread: Spread | None = field(metadata=json_name("settings"))
    notes: tuple[str, ...]

    @property
    def single(self) -> RunNoise:
        """Of single runs, N = 1."""
        return self.runs[0]

    @property
    def full(self) -> RunNoise:
        """Of runs with as many trials per question as this one."""
        return self.runs[-1]


@dataclass(frozen=True, eq=False)
class TaskNoise(Record):
    """The noise of the scores of a task's models.

    Attributes
    ----------
    task : str
        The task.
    n_questions : int
        M.
    settings : NoiseSettings
        What was asked.
    correlation : float
        Of two models' p_α over questions.
    correlation_source : {"models", "single trials", "assumed"}
        Whether it was estimated from the models, or assumed to be .5. Of models with single
        trials it is that of two models' trials of a question, which is smaller.
    correlation_interval : tuple of float or None
        The interval of an estimated correlation, by resampling the questions; None where it is
        assumed.
    covariance : float or None
        The covariance of two models' p_α over questions, the mean over pairs of models; None for
        one model.
    models : tuple of ModelNoise
        The models, in the order of the runs.
    notes : tuple of str
        Warnings about all models.
    """

    task: str
    n_questions: int = field(metadata=json_name("questions"))
    settings: NoiseSettings
    correlation: float
    correlation_source: CorrelationSource
    correlation_interval: tuple[float, float] | None
    covariance: float | None
    models: tuple[ModelNoise, ...]
    notes: tuple[str, ...] = ()


def task_noise(runs: Sequence[TaskRun], settings: NoiseSettings = DEFAULT_NOISE) -> TaskNoise:
    """Return how far apart runs of the same model lie, for every model of a task.

    Parameters
    ----------
    runs : sequence of TaskRun
        One per model, of the same questions.
    settings : NoiseSettings
        What is asked.

    Raises
    ------
    InvalidInputError
        If the runs cannot be compared, there are fewer than two questions, or the difference that
        is asked for is larger than the range of scores.

    Examples
    --------
    >>> ids = [f"q{i}" for i in range(20)]
    >>> trials = [[1, 1, 0, 1]] * 10 + [[0, 0, 0, 0]] * 5 + [[1, 1, 1, 1]] * 5
    >>> noise = task_noise([TaskRun.from_trials("A", "aime", trials, ids)])
    >>> (model,) = noise.models
    >>> model.components.flipped, model.single.trials, model.full.trials
    (0.5, 1.0, 4.0)
    >>> model.single.distance > model.full.distance > model.full.standard_error
    True
    """
    check_comparable(runs)
    task, first = runs[0].task, runs[0]
    for run in runs:
        if run.n_questions < 2 or int((run.outcomes.n_trials > 0).sum()) < 2:
            rule = f"have trials of at least two questions of {task}"
            n_asked = int((run.outcomes.n_trials > 0).sum())
            got = f"{n_asked} of {run.model}"
            raise InvalidInputError.of("RUN", "empty", rule, got)
    low, high = first.outcomes.bounds
    if settings.difference is not None and settings.difference > high - low:
        rule = f"be at most the range of scores, {high - low:g}, on the scale of the score"
        raise InvalidInputError.of("difference", "range", rule, settings.difference)
    components = [
        variance_components(run.outcomes, settings.level, seed=settings.seed) for run in runs
    ]
    aligned = [run.outcomes.take(aligned_rows(run, first)) for run in runs]
    covariance = covariance_of_questions(aligned)
    correlation, source = _correlation(components, covariance)
    single = source == "single trials"
    models = tuple(
        _model_noise(run, of_run, correlation, single, settings)
        for run, of_run in zip(runs, components, strict=True)
    )
    interval = None
    notes: tuple[str, ...] = ()
    if source != "assumed":
        interval = correlation_interval(aligned, settings.level, single=single, seed=settings.seed)
        if abs(correlation) == 1.0:
            notes = (_AT_BOUND.format(correlation),)
    return TaskNoise(
        task, first.n_questions, settings, correlation, source, interval, covariance, models, notes
    )


def _correlation(
    components: Sequence[VarianceComponents], covariance: float | None
) -> tuple[float, CorrelationSource]:
    """Return the correlation of two models' p_α over questions, and where it is from.

    Of several models it is the mean covariance of pairs over the mean of sqrt(B B') of pairs; of
    single trials T stands in the place of B.
    """
    separable = [c.between.mu for c in components if c.between is not None]
    single = not separable and covariance is not None
    variances = [c.total.mu for c in components] if single else separable
    if covariance is None or len(variances) < len(components):
        return ASSUMED_CORRELATION, "assumed"
    root = np.sqrt(variances)
    n = len(variances)
    of_pairs = float((root.sum() ** 2 - np.square(root).sum()) / (n * (n - 1)))
    if of_pairs <= 0.0:
        return ASSUMED_CORRELATION, "assumed"
    correlation = float(np.clip(covariance / of_pairs, -1.0, 1.0))
    return correlation, "single trials" if single else "models"


def _model_noise(
    run: TaskRun,
    components: VarianceComponents,
    correlation: float,
    single: bool,
    settings: NoiseSettings,
) -> ModelNoise:
    """Return the noise of a model's scores; `single` is of single trials."""
    test: dict[str, Any] = {
        "correlation": correlation,
        "covariance": correlation * components.total.mu if single else None,
        "level": settings.level,
        "power": settings.power,
    }
    needed: tuple[NeededSize, ...] = ()
    if settings.difference is not None:
        needed = tuple(
            size_for_difference(components, settings.difference, design, **test)
            for design in DESIGNS
        )
    low, high = run.outcomes.bounds
    of_runs = tuple(
        _run_noise(components, n, high - low, test) for n in dict.fromkeys((1.0, components.trials))
    )
    impossible = _impossible_note(of_runs, run.n_questions, high - low)
    spec = IntervalSpec(settings.level, seed=settings.seed)
    posterior, note = settings_posterior(run, spec) if run.settings else (None, "")
    spread = None if posterior is None else posterior.spread
    notes = (components.note, impossible, repeat_note(run), note)
    shown = tuple(note for note in notes if note)
    return ModelNoise(run, run.model, components, of_runs, needed, spread, shown)


def _run_noise(
    components: VarianceComponents, trials: float, largest: float, test: Mapping[str, Any]
) -> RunNoise:
    """Return the noise of runs with N trials; no difference is above `largest`."""
    detectable: dict[Design, float | None] = {
        design: detectable_difference(components, trials, design, **test) for design in DESIGNS
    }
    impossible = tuple(d for d, size in detectable.items() if size is not None and size > largest)
    return RunNoise(
        trials=trials,
        standard_error=components.standard_error(trials),
        population_standard_error=components.population_standard_error(trials),
        mean_distance=components.mean_distance(trials),
        distance=components.distance(trials, test["level"]),
        is_bound=not components.separable,
        detectable=MappingProxyType(detectable | dict.fromkeys(impossible)),
        not_detectable=impossible,
    )


def _impossible_note(runs: Sequence[RunNoise], n_questions: int, largest: float) -> str | None:
    """Return that no difference can be shown, in which designs, with how many trials."""
    cases = [
        f"with N = {format_trials(run.trials)} about "
        f"{'; '.join(DESIGN_WORDS[design] for design in run.not_detectable)}"
        for run in runs
        if run.not_detectable
    ]
    if not cases:
        return None
    return (
        f"No difference on this scale, where the largest is {largest:g}, can be shown with "
        f"{plural(n_questions, 'question')} and these trials: {', and '.join(cases)}."
    )


def format_trials(n: float) -> str:
    """Return N as text; it is the mean over questions, and may be a fraction.

    Examples
    --------
    >>> format_trials(8.0), format_trials(6.666)
    ('8', '6.67')
    """
    return f"{n:.3g}" if n != int(n) else f"{n:.0f}"
