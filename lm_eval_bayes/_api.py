"""What `import lm_eval_bayes` offers, gathered from the rooms it lives in."""

from lm_eval_bayes.errors import (
    DatasetUnavailableError,
    InvalidInputError,
    LmEvalBayesError,
    ModelConfigError,
    TaskConfigError,
)
from lm_eval_bayes.stats.anchors.capability import (
    CapabilityPosterior,
    PeakSweep,
    capability_intervals,
    sample_size_sweep,
)
from lm_eval_bayes.stats.anchors.checks import (
    IndependenceCheck,
    OrderingReport,
    QueryFilter,
    Violation,
    filter_queries,
    ordering_violations,
    query_independence,
)
from lm_eval_bayes.stats.anchors.matrix import AnchorMatrix, take_queries
from lm_eval_bayes.stats.bayes_at_n import (
    PriorAdvice,
    avg_at_n,
    bayes_at_n,
    check_prior_weight,
    prior_advice,
)
from lm_eval_bayes.stats.clustered import clustered_posterior
from lm_eval_bayes.stats.comparison.compare import Comparison, compare
from lm_eval_bayes.stats.comparison.pass_curves import (
    PassCurveComparison,
    Turn,
    compare_pass_curves,
)
from lm_eval_bayes.stats.comparison.single_trial import (
    SingleTrialComparison,
    compare_paired,
    compare_unpaired,
)
from lm_eval_bayes.stats.confusion import (
    ConfusionPosterior,
    confusion_confidence,
    confusion_posterior,
)
from lm_eval_bayes.stats.confusion_scores import f_score
from lm_eval_bayes.stats.convergence.convergence import Convergence, Trajectory, convergence_at_n
from lm_eval_bayes.stats.convergence.kendall import KendallCurve, kendall_curve, kendall_tau_b
from lm_eval_bayes.stats.convergence.prefix_scores import prefix_scores
from lm_eval_bayes.stats.frequentist.binomial import (
    clopper_pearson_interval,
    odds_ratio_interval,
    wilson_interval,
)
from lm_eval_bayes.stats.frequentist.interval import ConfidenceInterval
from lm_eval_bayes.stats.frequentist.means import (
    bootstrap_interval,
    clt_interval,
    clustered_interval,
    difference_interval,
    t_interval,
    within_question_clt,
)
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.intervals import Interval
from lm_eval_bayes.stats.maj_at_k import maj_at_k
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.pass_family import (
    g_pass_at_k,
    g_pass_at_k_posterior,
    mg_pass_at_k,
    mg_pass_at_k_posterior,
    naive_pass_at_k,
    naive_pass_hat_k,
    pass_at_k,
    pass_at_k_posterior,
    pass_hat_k,
    pass_hat_k_posterior,
    strict_majority_at_k,
    strict_majority_at_k_posterior,
)
from lm_eval_bayes.stats.ranking import Ranking, rank
from lm_eval_bayes.stats.results import (
    Estimate,
    LearnedPrior,
    PerQuestion,
    Posterior,
    credible_interval,
)
from lm_eval_bayes.stats.sequential.decision import DecisionReached
from lm_eval_bayes.stats.sequential.stopping_rules import (
    AnyOf,
    BudgetSpent,
    StoppingRule,
    StopVerdict,
    WidthReached,
)
from lm_eval_bayes.stats.sequential.trials_needed import (
    TrialsForecast,
    allocate_trials,
    trials_needed,
)
from lm_eval_bayes.stats.simulation import (
    PriorStudy,
    beta_mimics,
    expected_z,
    mimics_with_means,
    prior_study,
    simulate_outcomes,
    trials_until_z,
    update_mimics,
)

__all__ = [
    "AnchorMatrix",
    "AnyOf",
    "BudgetSpent",
    "CapabilityPosterior",
    "Comparison",
    "ConfidenceInterval",
    "ConfusionPosterior",
    "Convergence",
    "DatasetUnavailableError",
    "DecisionReached",
    "Estimate",
    "IndependenceCheck",
    "Interval",
    "InvalidInputError",
    "KendallCurve",
    "LearnedPrior",
    "LmEvalBayesError",
    "ModelConfigError",
    "OrderingReport",
    "Outcomes",
    "PassCurveComparison",
    "PeakSweep",
    "PerQuestion",
    "Posterior",
    "PriorAdvice",
    "PriorStudy",
    "QueryFilter",
    "Ranking",
    "SingleTrialComparison",
    "StopVerdict",
    "StoppingRule",
    "TaskConfigError",
    "Trajectory",
    "TrialsForecast",
    "Turn",
    "Violation",
    "WidthReached",
    "allocate_trials",
    "avg_at_n",
    "bayes_at_n",
    "beta_mimics",
    "bootstrap_interval",
    "capability_intervals",
    "check_prior_weight",
    "clopper_pearson_interval",
    "clt_interval",
    "clustered_interval",
    "clustered_posterior",
    "compare",
    "compare_paired",
    "compare_pass_curves",
    "compare_unpaired",
    "confusion_confidence",
    "confusion_posterior",
    "convergence_at_n",
    "credible_interval",
    "difference_interval",
    "expected_z",
    "f_score",
    "filter_queries",
    "g_pass_at_k",
    "g_pass_at_k_posterior",
    "hbayes_at_n",
    "kendall_curve",
    "kendall_tau_b",
    "maj_at_k",
    "mg_pass_at_k",
    "mg_pass_at_k_posterior",
    "mimics_with_means",
    "naive_pass_at_k",
    "naive_pass_hat_k",
    "odds_ratio_interval",
    "ordering_violations",
    "pass_at_k",
    "pass_at_k_posterior",
    "pass_hat_k",
    "pass_hat_k_posterior",
    "prefix_scores",
    "prior_advice",
    "prior_study",
    "query_independence",
    "rank",
    "sample_size_sweep",
    "simulate_outcomes",
    "strict_majority_at_k",
    "strict_majority_at_k_posterior",
    "t_interval",
    "take_queries",
    "trials_needed",
    "trials_until_z",
    "update_mimics",
    "wilson_interval",
    "within_question_clt",
]
