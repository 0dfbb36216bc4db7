"""Whether the trials of a run are independent of each other."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from lm_eval_bayes.runs.provenance import greedy
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats import FloatArray, ScoreOutcomes, moment_estimates, serial_note

#: The probability of independent trials below which a note says that they are dependent.
_DEPENDENT = 1e-4
#: Random orders of the trials that are compared with theirs, and fewer where there are many trials:
#: at most so many numbers in all, and in a block.
_ORDERS, _LEAST_ORDERS = 2_000, 100
_MOST_NUMBERS, _BLOCK = 50_000_000, 1_000_000


def _scores_of_trials(run: TaskRun) -> FloatArray | None:
    """Return the score of every trial, shape (M, N).

    None where questions have different numbers of trials, or the order is not known.
    """
    fewest, most = run.outcomes.trials_range
    if fewest != most or not fewest:
        return None
    if isinstance(run.outcomes, ScoreOutcomes):
        return np.stack(run.outcomes.scores)
    return None if run.trials is None else run.outcomes.weights[np.stack(run.trials)]


def dependence_note(run: TaskRun) -> str | None:
    """Return a warning of trials that depend on each other: over questions, else within them.

    The check within questions takes these as independent, so that it says nothing of runs whose
    questions share a shift.

    Examples
    --------
    >>> ids = [f"q{i}" for i in range(30)]
    >>> trials = [[0, 1, 0, 1]] * 20 + [[0, 1, 1, 0]] * 10
    >>> note = dependence_note(TaskRun.from_trials("A", "aime", trials, ids))
    >>> note[:53]
    'The scores of the 4 runs differ more (sd 0.430) than '
    """
    trials = run.trials
    if isinstance(run.outcomes, ScoreOutcomes):
        trials = tuple(
            (scores > scores.mean()) * 1 for scores in run.outcomes.scores if scores.size
        )
    return _shared_shift_note(run) or (None if trials is None else serial_note(trials))


def _shared_shift_note(run: TaskRun) -> str | None:
    """Return a warning if the runs of a model differ more than independent trials would.

    An analysis of variance of trials by questions and runs: F = MS_runs/MS_residual, with N − 1 and
    (M − 1)(N − 1) degrees of freedom. The note appears from a probability below 1e-4 on, if also
    none of up to 2,000 random orders of the trials of each question lets the runs differ as much:
    with few questions or rare errors F alone is too small.
    """
    of_trials, estimates = _scores_of_trials(run), moment_estimates(run.outcomes)
    if of_trials is None or estimates is None or min(of_trials.shape) < 2:
        return None
    (m, n), scores = of_trials.shape, of_trials.mean(axis=0)
    of_runs = m * float(scores.var(ddof=1))
    residual = (m * estimates[0] - of_runs) / (m - 1)
    if of_runs == 0.0:
        return None
    p = 0.0
    if residual > 0.0:
        p = float(special.fdtrc(n - 1, (m - 1) * (n - 1), of_runs / residual))
    if p >= _DEPENDENT or _may_be_chance(of_trials):
        return None
    expected = math.sqrt(estimates[0] / m)
    return (
        f"The scores of the {n} runs differ more (sd {scores.std(ddof=1):.3f}) than those of "
        f"independent trials would ({expected:.3f}): the trials of different questions seem to "
        "depend on each other, so that intervals about these questions are too narrow."
    )


def _may_be_chance(scores: FloatArray) -> bool:
    """Return whether runs differ as much after the trials of each question are put in any order.

    Parameters
    ----------
    scores : array, shape (M, N)
        The score of every trial.
    """
    rng = np.random.default_rng(0)
    observed = float(scores.mean(axis=0).var()) * (1.0 - 1e-9)
    n_orders = int(np.clip(_MOST_NUMBERS / scores.size, _LEAST_ORDERS, _ORDERS))
    block = max(1, min(n_orders, _BLOCK // scores.size))
    for _ in range(0, n_orders, block):
        orders = rng.permuted(np.broadcast_to(scores, (block, *scores.shape)), axis=2)
        if (orders.mean(axis=1).var(axis=1) >= observed).any():
            return True
    return False


def repeat_note(run: TaskRun) -> str | None:
    """Return a warning if further trials would repeat the present ones, else None.

    An agent's trials differ also where the agent decodes greedily, since those of its simulated
    user and its tools do.
    """
    output_type, kwargs = run.provenance.config.get("output_type"), run.provenance.generation_kwargs
    likelihoods = output_type is not None and output_type != "generate_until"
    if not likelihoods and not (kwargs and greedy(kwargs)):
        return None
    if run.provenance.setup is not None or _trials_differ(run):
        return None
    reason = "compares likelihoods" if likelihoods else "decodes greedily"
    return (
        f"{run.model} {reason} on {run.task}: a further trial would repeat the first. More "
        "questions would help, or sampling at a temperature."
    )


def _trials_differ(run: TaskRun) -> bool:
    """Return whether a question has trials with different outcomes."""
    if isinstance(run.outcomes, ScoreOutcomes):
        return any(np.unique(scores).size > 1 for scores in run.outcomes.scores)
    return bool(((run.outcomes.counts > 0).sum(axis=1) > 1).any())
