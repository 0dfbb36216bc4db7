"""Which standard error a published ± is: the usual candidates, and the one that it matches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray
from lm_eval_bayes.stats.outcomes import Outcomes, check_outcomes
from lm_eval_bayes.stats.validation import check_positive
from lm_eval_bayes.stats.variance_components import moment_estimates, question_moments

#: A published number matches a candidate up to this share.
TOLERANCE = 0.05
#: A half width of 95% is so many standard errors.
_Z = float(special.ndtri(0.975))

#: The candidates: key, what it is, and what it is the error of.
MEANINGS = {
    "questions, one run": (
        "SE over questions, one run",
        "of a single run's score about the population of questions",
    ),
    "question means": (
        "SE over questions, means",
        "of the mean of the runs about the population of questions",
    ),
    "these questions": (
        "SE, these questions",
        "of the mean of the runs about these questions",
    ),
    "pooled trials": (
        "SE, trials as independent",
        "of nothing: trials of one question are not independent draws of questions, so it is too "
        "small about the population, and too large about these questions",
    ),
    "sd of runs": (
        "sd of the runs' scores",
        "of a single run's score about these questions",
    ),
    "mean of runs": (
        "SE of the runs' mean",
        "of the mean of the runs about these questions",
    ),
}


@dataclass(frozen=True)
class StandardError(Record):
    """A standard error that a published ± may be.

    Attributes
    ----------
    name : str
        One of `MEANINGS`.
    label, meaning : str
        What it is, and what it is the error of.
    value : float
        The standard error, with divisor n − 1 in the sample variances.
    half_width : float
        1.96 times it, half a 95% interval.
    value_n : float or None
        The same with divisor n, where that is usual too.
    """

    name: str
    label: str
    meaning: str
    value: float
    half_width: float
    value_n: float | None = None


@dataclass(frozen=True)
class PublishedError(Record):
    """What a published ± is.

    Attributes
    ----------
    published : float
        The number.
    candidates : tuple of StandardError
        Those that the trials have.
    best : str or None
        The name of the nearest candidate; None where all candidates are 0.
    is_half_width : bool
        Whether it is nearest to the candidate's half width.
    ratio : float or None
        The published number over the nearest one.
    matches : bool
        Whether they agree up to 5%.
    also : tuple of str
        The labels of further candidates that it agrees with up to 5%.
    """

    published: float
    candidates: tuple[StandardError, ...]
    best: str | None
    is_half_width: bool
    ratio: float | None
    matches: bool
    also: tuple[str, ...] = ()

    @property
    def nearest(self) -> StandardError | None:
        """The nearest candidate."""
        return next((c for c in self.candidates if c.name == self.best), None)


def standard_errors(
    outcomes: Outcomes, run_scores: FloatArray | None = None
) -> tuple[StandardError, ...]:
    """Return the standard errors that are published for such trials.

    With ȳ_α the mean score of question α, s²_α the sample variance of its scores, and t² the
    sample variance of single trials over questions:

    - over questions of one run, t/√M; the harness's `stderr`, for right and wrong trials
      sqrt(p (1 − p)/(M − 1));
    - over questions of their means, sd(ȳ_α)/√M [Miller 2024, §3.1];
    - about these questions, sqrt(Σ s²_α/N_α)/M;
    - of all trials as if they were independent, sd(trials)/√(Σ N_α);
    - the sd of the N runs' scores, run i being the i-th trials of all questions, and that over √N.

    Parameters
    ----------
    outcomes : Outcomes
        Of M questions, or `ScoreOutcomes`. Questions without a trial are left out.
    run_scores : array, shape (N,), optional
        The score of every run, where the order of the trials is known.

    Returns
    -------
    tuple of StandardError
        Those about these questions and of the runs only where questions have two trials.

    Raises
    ------
    InvalidInputError
        If fewer than two questions have a trial.

    Examples
    --------
    Half the questions always right, half always wrong, 4 trials each:

    >>> outcomes = Outcomes.from_counts([[4, 0]] * 8 + [[0, 4]] * 8)
    >>> {error.name: round(error.value, 3) for error in standard_errors(outcomes)}
    ... # doctest: +NORMALIZE_WHITESPACE
    {'questions, one run': 0.129, 'question means': 0.129, 'these questions': 0.0,
     'pooled trials': 0.063}
    """
    check_outcomes("outcomes", outcomes, scores=True)
    n, mean, variance = question_moments(outcomes)
    tried = n > 0
    n, mean, variance = n[tried], mean[tried], variance[tried]
    m, total = n.size, float(n.sum())
    if m < 2:
        raise InvalidInputError.of("outcomes", "empty", "hold trials of at least two questions", m)
    # of a trial of a question drawn at random, and of a trial drawn at random
    squares = np.where(n > 1, variance, 0.0) * (n - 1.0)
    single = float((squares / n).mean() + mean.var())
    pooled = float((squares.sum() + n @ np.square(mean - n @ mean / total)) / total)
    of_means = float(mean.var())
    found = [
        _candidate("questions, one run", np.sqrt(single / (m - 1)), np.sqrt(single / m)),
    ]
    estimates = moment_estimates(outcomes)
    if estimates is not None:
        own = np.where(n > 1, variance, estimates[0])
        found += [
            _candidate("question means", np.sqrt(of_means / (m - 1)), np.sqrt(of_means / m)),
            _candidate("these questions", np.sqrt((own / n).sum()) / m),
            _candidate("pooled trials", np.sqrt(pooled / (total - 1)), np.sqrt(pooled / total)),
        ]
    if run_scores is not None and run_scores.size > 1:
        sd, sd_n = run_scores.std(ddof=1), run_scores.std()
        root = np.sqrt(run_scores.size)
        found += [
            _candidate("sd of runs", sd, sd_n),
            _candidate("mean of runs", sd / root, sd_n / root),
        ]
    return tuple(found)


def _candidate(name: str, value: float, value_n: float | None = None) -> StandardError:
    label, meaning = MEANINGS[name]
    return StandardError(
        name,
        label,
        meaning,
        float(value),
        _Z * float(value),
        None if value_n is None else float(value_n),
    )


def audit_standard_error(published: float, candidates: tuple[StandardError, ...]) -> PublishedError:
    """Return which candidate a published ± is nearest to, by their ratio.

    It is compared with every candidate and its half width, with either divisor.

    Parameters
    ----------
    published : float
        Above 0, on the scale of the score: .034 and not 3.4.
    candidates : tuple of StandardError
        From `standard_errors`.

    Raises
    ------
    InvalidInputError
        If `published` is not a number above 0.

    Examples
    --------
    >>> candidates = standard_errors(Outcomes.from_counts([[4, 0]] * 8 + [[0, 4]] * 8))
    >>> audit = audit_standard_error(0.25, candidates)
    >>> audit.best, audit.is_half_width, audit.matches
    ('questions, one run', True, True)
    >>> audit_standard_error(0.09, candidates).matches
    False
    """
    published = check_positive("published", published)
    ratios: list[tuple[float, str, bool, float]] = []
    for candidate in candidates:
        for factor in (1.0, _Z):
            values = [value for value in (candidate.value, candidate.value_n) if value]
            own = [published / (factor * value) for value in values]
            # ties go to the first, and to the standard error
            distances = [round(abs(float(np.log(ratio))), 12) for ratio in own]
            if own:
                best = int(np.argmin(distances))
                ratios.append((distances[best], candidate.name, factor != 1.0, own[best]))
    if not ratios:
        return PublishedError(published, candidates, None, False, None, False)
    ratios.sort(key=lambda entry: entry[0])
    within = [entry for entry in ratios if entry[0] <= float(np.log1p(TOLERANCE)) + 1e-9]
    _, name, is_half_width, ratio = ratios[0]
    also = tuple(
        f"{'1.96 ' if half else ''}{MEANINGS[other][0]}" for _, other, half, _ in within[1:]
    )
    return PublishedError(published, candidates, name, is_half_width, ratio, bool(within), also)
