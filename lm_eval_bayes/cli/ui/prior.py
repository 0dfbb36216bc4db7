"""Other runs as prior evidence: the options of commands, and the tables of the effects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from lm_eval_bayes._util.text import (
    NO_VALUE,
    format_interval,
    format_mean_sd,
    format_probability,
    interval_label,
    scope_label,
)
from lm_eval_bayes.cli.ui.errors import named_as_options
from lm_eval_bayes.cli.ui.options import option
from lm_eval_bayes.cli.ui.output import say, say_prose, say_records
from lm_eval_bayes.cli.ui.reading import ReadingOptions
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.prior_runs import (
        GivenPrior,
        MeanPriorEffect,
        PriorEffect,
        PriorRuns,
        ScoreEstimate,
    )
    from lm_eval_bayes.runs.task_run import TaskRun
    from lm_eval_bayes.stats.intervals import IntervalSpec
    from lm_eval_bayes.stats.prior_evidence import Strength


@dataclass(frozen=True)
class PriorOptions:
    """Earlier runs whose trials are prior evidence."""

    prior: Annotated[
        list[str] | None,
        option(
            "[MODEL=]RUN",
            "An earlier run of the same questions whose trials are prior evidence: an older "
            "version, a greedy run, an unquantized or a base model. It belongs to MODEL, else to "
            "the model of the same name, or to the only one; can be repeated.",
        ),
    ] = None
    prior_strength: Annotated[
        str | None,
        option(
            "P|auto",
            "The weight of a prior trial, from 0 to 1, to be given with a prior: 1, the paper's, "
            "assumes that every question had the same chance in the earlier run, auto the same up "
            "to a weight that is learned from the agreement with the new trials.",
        ),
    ] = None

    def _given(self) -> bool:
        """Return whether there is a prior."""
        return bool(self.prior)

    def strength(self) -> Strength:
        """Check the options, before any run is read.

        Raises
        ------
        InvalidInputError
            If the weight breaks its rule, is given without a prior, or left out with one.
        """
        from lm_eval_bayes.stats.prior_evidence import STRENGTHS, check_strength

        strength: str | float | None = self.prior_strength
        if strength is None and not self._given():
            return 1.0  # of no trial
        if strength is None or not self._given():
            rule = f"be given where an earlier run is, and only there: {STRENGTHS}"
            raise InvalidInputError.of("--prior-strength", "conflict", rule, strength or "none")
        with suppress(ValueError):
            strength = float(strength)
        with named_as_options("prior_strength"):
            return check_strength(strength)

    def apply(
        self,
        runs: Sequence[TaskRun],
        reading: ReadingOptions,
        *,
        seed: int = 0,
        sides: Mapping[str, str] | None = None,
    ) -> PriorRuns:
        """Read the earlier runs, and give the runs their trials as prior trials.

        Parameters
        ----------
        runs : sequence of TaskRun
            The runs.
        reading : ReadingOptions
            Which trials are counted, also of the earlier runs.
        seed : int
            Seed of the draws, if there are any.
        sides : mapping of str to str, optional
            Further names of models, such as A.

        Raises
        ------
        InvalidInputError
            If an earlier run cannot be read, or is no prior of the runs.
        """
        from lm_eval_bayes.analysis.prior_runs import assign_priors

        priors = _read(self.prior or (), runs, reading, "--prior", sides)
        with named_as_options("prior"):
            return assign_priors(runs, priors, self.strength(), seed=seed)


@dataclass(frozen=True)
class MeanPriorOptions(PriorOptions):
    """Other runs as prior evidence: of the same questions, or of another benchmark."""

    prior_mean: Annotated[
        list[str] | None,
        option(
            "[MODEL=]RUN",
            "A run of another benchmark, with other questions, as prior of the mean of the "
            "population that the questions are a sample of. A table shows hbayes@N with it and "
            "without; no other number uses it. --prior-strength is its weight, of which auto "
            "takes at most what makes it count as much as the run itself. MODEL as for --prior.",
        ),
    ] = None

    def _given(self) -> bool:
        """Return whether there is a prior."""
        return bool(self.prior or self.prior_mean)

    def strength(self) -> Strength:
        """Check the options, before any run is read.

        Raises
        ------
        InvalidInputError
            If the weight breaks its rule, is given without a prior, or would be that of both
            kinds of prior.
        """
        if self.prior and self.prior_mean:
            raise InvalidInputError.of(
                "--prior-mean", "conflict", "be given without --prior", self.prior_mean
            )
        return super().strength()

    def mean_effects(
        self, runs: Sequence[TaskRun], reading: ReadingOptions, spec: IntervalSpec
    ) -> tuple[MeanPriorEffect, ...]:
        """Read the runs of other benchmarks, and return their effects on hbayes@N.

        Parameters
        ----------
        runs : sequence of TaskRun
            The runs.
        reading : ReadingOptions
            Which trials are counted, also of the other benchmarks; its task is that of `runs`.
        spec : IntervalSpec
            Settings of the intervals.

        Raises
        ------
        InvalidInputError
            If a run cannot be read, or is no prior of the runs.
        """
        from lm_eval_bayes.analysis.prior_runs import mean_prior_effects

        of_any_task = replace(reading, task=None)
        priors = _read(self.prior_mean or (), runs, of_any_task, "--prior-mean")
        with named_as_options("prior_mean"):
            return mean_prior_effects(runs, priors, self.strength(), spec)


def _read(
    texts: Sequence[str],
    runs: Sequence[TaskRun],
    reading: ReadingOptions,
    argument: str,
    sides: Mapping[str, str] | None = None,
) -> list[GivenPrior]:
    """Read the priors given as RUN, as MODEL=RUN, or by a further name of a model in `sides`."""
    from lm_eval_bayes.analysis.prior_runs import GivenPrior

    names = {**(sides or {}), **{run.model: run.model for run in runs}}
    priors = []
    for text in texts:
        model, path = _split(text, names)
        saved = reading.read([path], argument=argument)
        priors.append(GivenPrior(saved, None if model is None else names.get(model, model)))
    return priors


def _split(text: str, names: Mapping[str, str]) -> tuple[str | None, Path]:
    """Split MODEL=RUN; a path that exists, and one without a model's name, is a path."""
    for name in names:
        if text.startswith(f"{name}=") and not Path(text).exists():
            return name, Path(text[len(name) + 1 :])
    model, sign, path = text.partition("=")
    if sign and not Path(text).exists() and Path(path).exists():
        return model, Path(path)
    return None, Path(text)


def say_effects(effects: Sequence[PriorEffect], spec: IntervalSpec) -> None:
    """Show hbayes@N with and without prior trials; nothing where there are none."""
    if not effects:
        return
    interval = interval_label(spec.level, spec.method)
    say()
    say_records(
        f"Prior evidence: hbayes@N with the prior trials and without, {interval}s",
        effects,
        {
            "task": lambda effect: effect.task,
            "model": lambda effect: effect.model,
            "prior": lambda effect: effect.prior_model,
            "questions": lambda effect: f"{effect.n_questions:,}",
            "prior trials": lambda effect: f"{effect.n_trials:,}",
            **_EFFECT,
        },
        optional=_OPTIONAL,
    )
    say_prose(effects[0].note)


def say_mean_effects(effects: Sequence[MeanPriorEffect], spec: IntervalSpec) -> None:
    """Show hbayes@N with and without another benchmark; nothing where there is none."""
    if not effects:
        return
    label = f"{scope_label(spec.scope)}, {interval_label(spec.level, spec.method)}s"
    say()
    say_records(
        f"Another benchmark as prior of the mean: hbayes@N with it and without, {label}",
        effects,
        {
            "task": lambda effect: effect.task,
            "model": lambda effect: effect.model,
            "prior": lambda effect: f"{effect.prior_model}, {effect.prior_task}",
            "questions": lambda effect: f"{effect.n_questions:,}",
            "pseudo-trials": lambda effect: f"{effect.pseudo_trials:,.0f}",
            **_EFFECT,
        },
        optional=_OPTIONAL,
    )
    say_prose(effects[0].note)


def _weight(effect: PriorEffect | MeanPriorEffect) -> str:
    if effect.left_out and effect.p_unrelated is not None:
        return "left out"
    return f"{effect.strength:.2f}"


def _mean_sd(score: ScoreEstimate) -> str:
    return format_mean_sd(score.mu, score.sigma)


def _p_unrelated(effect: PriorEffect | MeanPriorEffect) -> str:
    return NO_VALUE if effect.p_unrelated is None else format_probability(effect.p_unrelated)


#: Columns of an effect that may be left out, the least important first.
_OPTIONAL = (
    "questions",
    "prior trials",
    "pseudo-trials",
    "prior",
    "P(unrelated)",
    "its interval",
    "interval",
)
#: The columns of an effect: the weight of the prior, and the posterior with it and without.
_EFFECT: Mapping[str, Callable[[Any], str]] = {
    "weight": _weight,
    "P(unrelated)": _p_unrelated,
    "with": lambda effect: _mean_sd(effect.informed),
    "interval": lambda effect: format_interval(effect.informed.interval),
    "without": lambda effect: _mean_sd(effect.without),
    "its interval": lambda effect: format_interval(effect.without.interval),
}
