"""Honest posteriors for repeated sampling in the lm-evaluation-harness.

The numeric API, numpy and scipy only: outcomes in, posteriors and estimates out.

>>> import lm_eval_bayes as leb
>>> outcomes = leb.Outcomes.from_matrix([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]])
>>> posterior = leb.bayes_at_n(outcomes)
>>> interval = posterior.interval(0.95, method="exact")
>>> round(posterior.mu, 3), round(interval.low, 3), round(interval.high, 3)
(0.643, 0.398, 0.856)
"""

from lm_eval_bayes.core.frequentist import within_question_clt
from lm_eval_bayes.core.hierarchical import hbayes_at_n
from lm_eval_bayes.core.intervals import credible_interval
from lm_eval_bayes.core.majority import maj_at_k
from lm_eval_bayes.core.outcomes import Outcomes
from lm_eval_bayes.core.pass_at_k import (
    g_pass_at_k,
    mg_pass_at_k,
    naive_pass_at_k,
    naive_pass_hat_k,
    pass_at_k,
    pass_hat_k,
    strict_majority_at_k,
)
from lm_eval_bayes.core.pass_posterior import (
    g_pass_at_k_posterior,
    mg_pass_at_k_posterior,
    pass_at_k_posterior,
    pass_hat_k_posterior,
    strict_majority_at_k_posterior,
)
from lm_eval_bayes.core.posterior import avg_at_n, bayes_at_n
from lm_eval_bayes.core.results import Estimate, Interval, LearnedPrior, Posterior
from lm_eval_bayes.errors import (
    DatasetUnavailableError,
    InvalidInputError,
    LmEvalBayesError,
    ModelConfigError,
    TaskConfigError,
)

__version__ = "0.1.0"

__all__ = [
    "DatasetUnavailableError",
    "Estimate",
    "Interval",
    "InvalidInputError",
    "LearnedPrior",
    "LmEvalBayesError",
    "ModelConfigError",
    "Outcomes",
    "Posterior",
    "TaskConfigError",
    "__version__",
    "avg_at_n",
    "bayes_at_n",
    "credible_interval",
    "g_pass_at_k",
    "g_pass_at_k_posterior",
    "hbayes_at_n",
    "maj_at_k",
    "mg_pass_at_k",
    "mg_pass_at_k_posterior",
    "naive_pass_at_k",
    "naive_pass_hat_k",
    "pass_at_k",
    "pass_at_k_posterior",
    "pass_hat_k",
    "pass_hat_k_posterior",
    "strict_majority_at_k",
    "strict_majority_at_k_posterior",
    "within_question_clt",
]
