"""What `import lm_eval_bayes` offers, gathered from the rooms it lives in.

`import X as X` makes a name public, for type checkers and in `lm_eval_bayes.__all__`.
"""

from lm_eval_bayes.errors import InvalidInputError as InvalidInputError
from lm_eval_bayes.errors import LmEvalBayesError as LmEvalBayesError
from lm_eval_bayes.errors import ModelConfigError as ModelConfigError
from lm_eval_bayes.errors import TaskConfigError as TaskConfigError
from lm_eval_bayes.stats.anchors.capability import capability_intervals as capability_intervals
from lm_eval_bayes.stats.anchors.checks import filter_queries as filter_queries
from lm_eval_bayes.stats.anchors.checks import ordering_violations as ordering_violations
from lm_eval_bayes.stats.anchors.checks import query_independence as query_independence
from lm_eval_bayes.stats.anchors.matrix import AnchorMatrix as AnchorMatrix
from lm_eval_bayes.stats.bayes_at_n import avg_at_n as avg_at_n
from lm_eval_bayes.stats.bayes_at_n import bayes_at_n as bayes_at_n
from lm_eval_bayes.stats.bayes_at_n import single_trial_posterior as single_trial_posterior
from lm_eval_bayes.stats.clustered import clustered_posterior as clustered_posterior
from lm_eval_bayes.stats.comparison.compare import compare as compare
from lm_eval_bayes.stats.comparison.pass_curves import compare_pass_curves as compare_pass_curves
from lm_eval_bayes.stats.comparison.single_trial import compare_paired as compare_paired
from lm_eval_bayes.stats.comparison.single_trial import compare_unpaired as compare_unpaired
from lm_eval_bayes.stats.confusion import confusion_posterior as confusion_posterior
from lm_eval_bayes.stats.confusion_scores import f_score as f_score
from lm_eval_bayes.stats.convergence.convergence import convergence_at_n as convergence_at_n
from lm_eval_bayes.stats.convergence.kendall import kendall_curve as kendall_curve
from lm_eval_bayes.stats.convergence.kendall import kendall_tau_b as kendall_tau_b
from lm_eval_bayes.stats.detectable_difference import detectable_difference as detectable_difference
from lm_eval_bayes.stats.detectable_difference import size_for_difference as size_for_difference
from lm_eval_bayes.stats.frequentist.binomial import (
    clopper_pearson_interval as clopper_pearson_interval,
)
from lm_eval_bayes.stats.frequentist.binomial import odds_ratio_interval as odds_ratio_interval
from lm_eval_bayes.stats.frequentist.binomial import wilson_interval as wilson_interval
from lm_eval_bayes.stats.frequentist.means import bootstrap_interval as bootstrap_interval
from lm_eval_bayes.stats.frequentist.means import clt_interval as clt_interval
from lm_eval_bayes.stats.frequentist.means import clustered_interval as clustered_interval
from lm_eval_bayes.stats.frequentist.means import difference_interval as difference_interval
from lm_eval_bayes.stats.frequentist.means import t_interval as t_interval
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n as hbayes_at_n
from lm_eval_bayes.stats.hierarchical.mean_over_tasks import mean_over_tasks as mean_over_tasks
from lm_eval_bayes.stats.intervals import IntervalSpec as IntervalSpec
from lm_eval_bayes.stats.maj_at_k import maj_at_k as maj_at_k
from lm_eval_bayes.stats.maj_at_k_posterior import maj_at_k_posterior as maj_at_k_posterior
from lm_eval_bayes.stats.outcomes import Outcomes as Outcomes
from lm_eval_bayes.stats.pass_family.estimators import g_pass_at_k as g_pass_at_k
from lm_eval_bayes.stats.pass_family.estimators import mg_pass_at_k as mg_pass_at_k
from lm_eval_bayes.stats.pass_family.estimators import naive_pass_at_k as naive_pass_at_k
from lm_eval_bayes.stats.pass_family.estimators import naive_pass_hat_k as naive_pass_hat_k
from lm_eval_bayes.stats.pass_family.estimators import pass_at_k as pass_at_k
from lm_eval_bayes.stats.pass_family.estimators import pass_hat_k as pass_hat_k
from lm_eval_bayes.stats.pass_family.posteriors import (
    g_pass_at_k_posterior as g_pass_at_k_posterior,
)
from lm_eval_bayes.stats.pass_family.posteriors import (
    mg_pass_at_k_posterior as mg_pass_at_k_posterior,
)
from lm_eval_bayes.stats.pass_family.posteriors import pass_at_k_posterior as pass_at_k_posterior
from lm_eval_bayes.stats.pass_family.posteriors import pass_hat_k_posterior as pass_hat_k_posterior
from lm_eval_bayes.stats.prior_evidence import learn_shift as learn_shift
from lm_eval_bayes.stats.ranking.rank import rank as rank
from lm_eval_bayes.stats.ranking.shared_scores import shared_scores as shared_scores
from lm_eval_bayes.stats.results import Posterior as Posterior
from lm_eval_bayes.stats.score_outcomes import ScoreOutcomes as ScoreOutcomes
from lm_eval_bayes.stats.sequential.decision import DecisionReached as DecisionReached
from lm_eval_bayes.stats.sequential.stopping_rules import WidthReached as WidthReached
from lm_eval_bayes.stats.sequential.trials_needed import allocate_trials as allocate_trials
from lm_eval_bayes.stats.sequential.trials_needed import trials_needed as trials_needed
from lm_eval_bayes.stats.simulation import simulate_outcomes as simulate_outcomes
from lm_eval_bayes.stats.variance_components import variance_components as variance_components
