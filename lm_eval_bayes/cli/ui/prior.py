"""Earlier runs as prior evidence: the options of commands, and the tables of the effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from lm_eval_bayes._util.text import format_interval, format_score, interval_label
from lm_eval_bayes.cli.screens.layout import say_table
from lm_eval_bayes.cli.ui.options import MORE, option
from lm_eval_bayes.cli.ui.output import say
from lm_eval_bayes.cli.ui.reading import ReadingOptions
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.prior_runs import (
        GivenPrior,
        PriorEffect,
        PriorRuns,
    )
    from lm_eval_bayes.runs.task_run import TaskRun
    from lm_eval_bayes.stats import IntervalSpec, Strength


@dataclass(frozen=True)
class PriorOptions:
    """Earlier runs whose trials are prior evidence."""

    prior: Annotated[
        list[str] | None,
        option(
            "[MODEL=]RUN",
            "An earlier run of the same questions whose trials are prior evidence for MODEL, else "
            "for the model of the same name, or the only one; can be repeated.",
            panel=MORE,
        ),
    ] = None
    prior_strength: Annotated[
        str | None,
        option(
            "P|auto",
            "With a prior: auto, to learn how far scores shift between the runs, or the weight of "
            "a prior trial, from 0 to 1 (1 is the paper's), for runs of the same chances.",
            panel=MORE,
        ),
    ] = None

    def strength(self) -> Strength:
        """Check the options, before any run is read.

        Raises
        ------
        InvalidInputError
            If the weight breaks its rule, is given without a prior, or left out with one.
        """
        from lm_eval_bayes.stats import STRENGTHS, check_strength

        strength: str | float | None = self.prior_strength
        if strength is None and not self.prior:
            return 1.0  # of no trial
        if strength is None or not self.prior:
            rule = f"be given where an earlier run is, and only there: {STRENGTHS}"
            raise InvalidInputError.of("--prior-strength", "conflict", rule, strength or "none")
        with suppress(ValueError):
            strength = float(strength)
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

        priors = _read(self.prior or (), runs, reading, sides or {})
        return assign_priors(runs, priors, self.strength(), seed=seed)


def _read(
    texts: Sequence[str],
    runs: Sequence[TaskRun],
    reading: ReadingOptions,
    sides: Mapping[str, str],
) -> list[GivenPrior]:
    """Read the priors given as RUN, as MODEL=RUN, or by a further name of a model in `sides`."""
    from lm_eval_bayes.analysis.prior_runs import GivenPrior

    names = {**sides, **{run.model: run.model for run in runs}}
    priors = []
    for text in texts:
        model, sign, path = text.rpartition("=")
        if not sign or Path(text).exists():
            model, path = "", text
        saved = reading.read([Path(path)], argument="--prior", settings="none", labels={})
        priors.append(GivenPrior(saved, names.get(model, model) or None))
    return priors


def say_effects(effects: Sequence[PriorEffect], spec: IntervalSpec) -> None:
    """Show hbayes@N with and without prior trials; nothing where there are none."""
    if not effects:
        return
    say()
    learned = effects[0].shift is not None
    rows = [
        (
            *(effect.task, effect.model),
            f"{effect.n_trials:,}",
            format_score(effect.shift if learned else effect.strength),
            *(format_score(effect.informed.mu), format_interval(effect.informed.interval())),
            format_score(effect.without.mu),
        )
        for effect in effects
    ]
    interval = interval_label(spec.level, spec.method)
    weight = "shift" if learned else "weight"
    head = ("task", "model", "trials", weight, "with", interval, "without")
    say_table("Prior trials: hbayes@N with them and without", head, rows)
    if effects[0].note is not None:
        say(effects[0].note)
