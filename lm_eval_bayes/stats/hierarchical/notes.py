"""What a reader must know before using a posterior's numbers."""

from __future__ import annotations

from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.results import Scope

#: What a benchmark's posterior says where no question was tried twice.
PRIOR_ALONE = (
    "With one trial a question nothing tells a question's luck from its difficulty: what this "
    'posterior says of these very questions rests on the prior alone. Scope "population" does not.'
)

#: What any posterior says where there was no trial at all.
NO_TRIALS = "There is no trial: this posterior is what the prior says."


def note_on_trials(outcomes: Outcomes, scope: Scope) -> str | None:
    """Return `NO_TRIALS` where nothing was tried, `PRIOR_ALONE` where no question was twice.

    The latter is about scope "benchmark" only.
    """
    trials = outcomes.n_trials
    if outcomes.prior_strength > 0.0:
        trials = trials + outcomes.prior_counts.sum(axis=1)
    if trials.max() == 0:
        return NO_TRIALS
    return PRIOR_ALONE if scope == "benchmark" and trials.max() <= 1 else None
