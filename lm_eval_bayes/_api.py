"""What `import lm_eval_bayes` offers, gathered from the rooms it lives in.

`import X as X` makes a name public, for type checkers and in `lm_eval_bayes.__all__`.
"""

from lm_eval_bayes.errors import DatasetUnavailableError as DatasetUnavailableError
from lm_eval_bayes.errors import InvalidInputError as InvalidInputError
from lm_eval_bayes.errors import LmEvalBayesError as LmEvalBayesError
from lm_eval_bayes.errors import ModelConfigError as ModelConfigError
from lm_eval_bayes.errors import TaskConfigError as TaskConfigError
from lm_eval_bayes.stats.anchors.capability import CapabilityPosterior as CapabilityPosterior
from lm_eval_bayes.stats.anchors.capability import PeakSweep as PeakSweep
from lm_eval_bayes.stats.anchors.capability import capability_intervals as capability_intervals
from lm_eval_bayes.stats.anchors.capability import sample_size_sweep as sample_size_sweep
from lm_eval_bayes.stats.anchors.checks import IndependenceCheck as IndependenceCheck
from lm_eval_bayes.stats.anchors.checks import OrderingReport as OrderingReport
from lm_eval_bayes.stats.anchors.checks import QueryFilter as QueryFilter
from lm_eval_bayes.stats.anchors.checks import Violation as Violation
from lm_eval_bayes.stats.anchors.checks import filter_queries as filter_queries
from lm_eval_bayes.stats.anchors.checks import ordering_violations as ordering_violations
from lm_eval_bayes.stats.anchors.checks import query_independence as query_independence
from lm_eval_bayes.stats.anchors.matrix import AnchorMatrix as AnchorMatrix
from lm_eval_bayes.stats.anchors.matrix import take_queries as take_queries
from lm_eval_bayes.stats.bayes_at_n import PriorAdvice as PriorAdvice
from lm_eval_bayes.stats.bayes_at_n import avg_at_n as avg_at_n
from lm_eval_bayes.stats.bayes_at_n import bayes_at_n as bayes_at_n
from lm_eval_bayes.stats.bayes_at_n import check_prior_weight as check_prior_weight
from lm_eval_bayes.stats.bayes_at_n import prior_advice as prior_advice
from lm_eval_bayes.stats.bayes_at_n import single_trial_posterior as single_trial_posterior
from lm_eval_bayes.stats.clustered import clustered_posterior as clustered_posterior
from lm_eval_bayes.stats.comparison.compare import Comparison as Comparison
from lm_eval_bayes.stats.comparison.compare import compare as compare
from lm_eval_bayes.stats.comparison.pass_curves import PassCurveComparison as PassCurveComparison
from lm_eval_bayes.stats.comparison.pass_curves import Turn as Turn
from lm_eval_bayes.stats.comparison.pass_curves import compare_pass_curves as compare_pass_curves
from lm_eval_bayes.stats.comparison.single_trial import (
    SingleTrialComparison as SingleTrialComparison,
)
from lm_eval_bayes.stats.comparison.single_trial import compare_paired as compare_paired
from lm_eval_bayes.stats.comparison.single_trial import compare_unpaired as compare_unpaired
from lm_eval_bayes.stats.confusion import ConfusionPosterior as ConfusionPosterior
from lm_eval_bayes.stats.confusion import confusion_posterior as confusion_posterior
from lm_eval_bayes.stats.confusion_scores import f_score as f_score
from lm_eval_bayes.stats.convergence.convergence import Convergence as Convergence
from lm_eval_bayes.stats.convergence.convergence import Trajectory as Trajectory
from lm_eval_bayes.stats.convergence.convergence import convergence_at_n as convergence_at_n
from lm_eval_bayes.stats.convergence.kendall import KendallCurve as KendallCurve
from lm_eval_bayes.stats.convergence.kendall import kendall_curve as kendall_curve
from lm_eval_bayes.stats.convergence.kendall import kendall_tau_b as kendall_tau_b
from lm_eval_bayes.stats.convergence.prefix_scores import prefix_scores as prefix_scores
from lm_eval_bayes.stats.detectable_difference import NeededSize as NeededSize
from lm_eval_bayes.stats.detectable_difference import (
    detectable_difference as detectable_difference,
)
from lm_eval_bayes.stats.detectable_difference import size_for_difference as size_for_difference
from lm_eval_bayes.stats.frequentist.binomial import (
    clopper_pearson_interval as clopper_pearson_interval,
)
from lm_eval_bayes.stats.frequentist.binomial import odds_ratio_interval as odds_ratio_interval
from lm_eval_bayes.stats.frequentist.binomial import wilson_interval as wilson_interval
from lm_eval_bayes.stats.frequentist.interval import ConfidenceInterval as ConfidenceInterval
from lm_eval_bayes.stats.frequentist.means import bootstrap_interval as bootstrap_interval
from lm_eval_bayes.stats.frequentist.means import clt_interval as clt_interval
from lm_eval_bayes.stats.frequentist.means import clustered_interval as clustered_interval
from lm_eval_bayes.stats.frequentist.means import difference_interval as difference_interval
from lm_eval_bayes.stats.frequentist.means import t_interval as t_interval
from lm_eval_bayes.stats.frequentist.means import within_question_clt as within_question_clt
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n as hbayes_at_n
from lm_eval_bayes.stats.hierarchical.mean_over_tasks import mean_over_tasks as mean_over_tasks
from lm_eval_bayes.stats.intervals import Interval as Interval
from lm_eval_bayes.stats.maj_at_k import maj_at_k as maj_at_k
from lm_eval_bayes.stats.maj_at_k_posterior import maj_at_k_posterior as maj_at_k_posterior
from lm_eval_bayes.stats.mean_evidence import MeanEvidence as MeanEvidence
from lm_eval_bayes.stats.mean_evidence import mean_evidence as mean_evidence
from lm_eval_bayes.stats.mean_evidence import mean_pseudo_trials as mean_pseudo_trials
from lm_eval_bayes.stats.outcomes import Outcomes as Outcomes
from lm_eval_bayes.stats.pass_family.estimators import g_pass_at_k as g_pass_at_k
from lm_eval_bayes.stats.pass_family.estimators import mg_pass_at_k as mg_pass_at_k
from lm_eval_bayes.stats.pass_family.estimators import naive_pass_at_k as naive_pass_at_k
from lm_eval_bayes.stats.pass_family.estimators import naive_pass_hat_k as naive_pass_hat_k
from lm_eval_bayes.stats.pass_family.estimators import pass_at_k as pass_at_k
from lm_eval_bayes.stats.pass_family.estimators import pass_hat_k as pass_hat_k
from lm_eval_bayes.stats.pass_family.estimators import strict_majority_at_k as strict_majority_at_k
from lm_eval_bayes.stats.pass_family.posteriors import (
    g_pass_at_k_posterior as g_pass_at_k_posterior,
)
from lm_eval_bayes.stats.pass_family.posteriors import (
    mg_pass_at_k_posterior as mg_pass_at_k_posterior,
)
from lm_eval_bayes.stats.pass_family.posteriors import pass_at_k_posterior as pass_at_k_posterior
from lm_eval_bayes.stats.pass_family.posteriors import pass_hat_k_posterior as pass_hat_k_posterior
from lm_eval_bayes.stats.pass_family.posteriors import (
    strict_majority_at_k_posterior as strict_majority_at_k_posterior,
)
from lm_eval_bayes.stats.prior_evidence import PriorEvidence as PriorEvidence
from lm_eval_bayes.stats.prior_evidence import learn_prior_strength as learn_prior_strength
from lm_eval_bayes.stats.prior_evidence import prior_evidence as prior_evidence
from lm_eval_bayes.stats.prior_strength import LearnedStrength as LearnedStrength
from lm_eval_bayes.stats.ranking.agreement import RankingAgreement as RankingAgreement
from lm_eval_bayes.stats.ranking.agreement import compare_rankings as compare_rankings
from lm_eval_bayes.stats.ranking.rank import Ranking as Ranking
from lm_eval_bayes.stats.ranking.rank import rank as rank
from lm_eval_bayes.stats.ranking.shared_scores import SharedScores as SharedScores
from lm_eval_bayes.stats.ranking.shared_scores import shared_scores as shared_scores
from lm_eval_bayes.stats.ranking.simultaneous import (
    SimultaneousComparisons as SimultaneousComparisons,
)
from lm_eval_bayes.stats.results import Estimate as Estimate
from lm_eval_bayes.stats.results import LearnedPrior as LearnedPrior
from lm_eval_bayes.stats.results import PerQuestion as PerQuestion
from lm_eval_bayes.stats.results import Posterior as Posterior
from lm_eval_bayes.stats.results import credible_interval as credible_interval
from lm_eval_bayes.stats.score_outcomes import ScoreOutcomes as ScoreOutcomes
from lm_eval_bayes.stats.sequential.decision import DecisionReached as DecisionReached
from lm_eval_bayes.stats.sequential.decision_forecast import (
    trials_to_decision as trials_to_decision,
)
from lm_eval_bayes.stats.sequential.stopping_rules import AnyOf as AnyOf
from lm_eval_bayes.stats.sequential.stopping_rules import BudgetSpent as BudgetSpent
from lm_eval_bayes.stats.sequential.stopping_rules import StoppingRule as StoppingRule
from lm_eval_bayes.stats.sequential.stopping_rules import StopVerdict as StopVerdict
from lm_eval_bayes.stats.sequential.stopping_rules import WidthReached as WidthReached
from lm_eval_bayes.stats.sequential.trials_needed import TrialsForecast as TrialsForecast
from lm_eval_bayes.stats.sequential.trials_needed import allocate_trials as allocate_trials
from lm_eval_bayes.stats.sequential.trials_needed import trials_needed as trials_needed
from lm_eval_bayes.stats.simulation import PriorStudy as PriorStudy
from lm_eval_bayes.stats.simulation import beta_mimics as beta_mimics
from lm_eval_bayes.stats.simulation import expected_z as expected_z
from lm_eval_bayes.stats.simulation import mimics_with_means as mimics_with_means
from lm_eval_bayes.stats.simulation import prior_study as prior_study
from lm_eval_bayes.stats.simulation import simulate_outcomes as simulate_outcomes
from lm_eval_bayes.stats.simulation import trials_until_z as trials_until_z
from lm_eval_bayes.stats.simulation import update_mimics as update_mimics
from lm_eval_bayes.stats.variance_components import VarianceComponents as VarianceComponents
from lm_eval_bayes.stats.variance_components import variance_components as variance_components
