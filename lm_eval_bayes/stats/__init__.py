"""The statistics: outcomes in; posteriors, estimates, comparisons and rankings out.

This room depends on numpy and scipy only. Every function takes validated arrays or
:class:`~lm_eval_bayes.stats.outcomes.Outcomes` and returns frozen records; randomness comes from
an explicit seed. Files, saved runs, models and the harness do not belong here.

Other rooms import from here alone; `lm_eval_bayes` offers what users need of it. The layers import
downwards only: simulation, convergence and sequential; ranking; comparison; hierarchical; results;
intervals; distributions; outcomes and tie rules.
"""

from lm_eval_bayes.stats.anchor_capability import CapabilityPosterior as CapabilityPosterior
from lm_eval_bayes.stats.anchor_capability import capability_intervals as capability_intervals
from lm_eval_bayes.stats.anchor_matrix import AnchorMatrix as AnchorMatrix
from lm_eval_bayes.stats.anchor_matrix import OrderingReport as OrderingReport
from lm_eval_bayes.stats.anchor_matrix import QueryFilter as QueryFilter
from lm_eval_bayes.stats.anchor_matrix import filter_queries as filter_queries
from lm_eval_bayes.stats.anchor_matrix import ordering_violations as ordering_violations
from lm_eval_bayes.stats.arrays import FloatArray as FloatArray
from lm_eval_bayes.stats.arrays import IntArray as IntArray
from lm_eval_bayes.stats.arrays import check_weights as check_weights
from lm_eval_bayes.stats.comparison.compare import CONFIDENCE as CONFIDENCE
from lm_eval_bayes.stats.comparison.compare import ESTIMATORS as ESTIMATORS
from lm_eval_bayes.stats.comparison.compare import Comparison as Comparison
from lm_eval_bayes.stats.comparison.compare import DifferenceSummary as DifferenceSummary
from lm_eval_bayes.stats.comparison.compare import compare as compare
from lm_eval_bayes.stats.comparison.compare import summarise_difference as summarise_difference
from lm_eval_bayes.stats.comparison.compare import z_threshold as z_threshold
from lm_eval_bayes.stats.comparison.difference import difference_posterior as difference_posterior
from lm_eval_bayes.stats.comparison.difference import p_above as p_above
from lm_eval_bayes.stats.comparison.pass_curves import PassCurveComparison as PassCurveComparison
from lm_eval_bayes.stats.comparison.pass_curves import compare_pass_curves as compare_pass_curves
from lm_eval_bayes.stats.comparison.shared_questions import UNPAIRED as UNPAIRED
from lm_eval_bayes.stats.comparison.shared_questions import Align as Align
from lm_eval_bayes.stats.comparison.shared_questions import Aligned as Aligned
from lm_eval_bayes.stats.comparison.shared_questions import align_questions as align_questions
from lm_eval_bayes.stats.comparison.shared_questions import pair_posterior as pair_posterior
from lm_eval_bayes.stats.comparison.single_trial import (
    SingleTrialComparison as SingleTrialComparison,
)
from lm_eval_bayes.stats.comparison.single_trial import compare_paired as compare_paired
from lm_eval_bayes.stats.comparison.single_trial import compare_unpaired as compare_unpaired
from lm_eval_bayes.stats.confusion import confusion_posterior as confusion_posterior
from lm_eval_bayes.stats.confusion import f_score as f_score
from lm_eval_bayes.stats.convergence import Convergence as Convergence
from lm_eval_bayes.stats.convergence import convergence_at_n as convergence_at_n
from lm_eval_bayes.stats.frequentist import (
    clopper_pearson_interval as clopper_pearson_interval,
)
from lm_eval_bayes.stats.frequentist import odds_ratio_interval as odds_ratio_interval
from lm_eval_bayes.stats.frequentist import wilson_interval as wilson_interval
from lm_eval_bayes.stats.frequentist_means import bootstrap_interval as bootstrap_interval
from lm_eval_bayes.stats.frequentist_means import clt_interval as clt_interval
from lm_eval_bayes.stats.frequentist_means import clustered_interval as clustered_interval
from lm_eval_bayes.stats.frequentist_means import difference_interval as difference_interval
from lm_eval_bayes.stats.frequentist_means import t_interval as t_interval
from lm_eval_bayes.stats.frequentist_means import within_question_clt as within_question_clt
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import clustered_posterior as clustered_posterior
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n as hbayes_at_n
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_by as hbayes_by
from lm_eval_bayes.stats.hierarchical.mean_over_tasks import TASK_WEIGHTS as TASK_WEIGHTS
from lm_eval_bayes.stats.hierarchical.mean_over_tasks import TaskMeans as TaskMeans
from lm_eval_bayes.stats.hierarchical.mean_over_tasks import TaskWeights as TaskWeights
from lm_eval_bayes.stats.hierarchical.mean_over_tasks import mean_over_tasks as mean_over_tasks
from lm_eval_bayes.stats.independence import IndependenceCheck as IndependenceCheck
from lm_eval_bayes.stats.independence import query_independence as query_independence
from lm_eval_bayes.stats.independence import serial_note as serial_note
from lm_eval_bayes.stats.intervals import DEFAULT_INTERVAL as DEFAULT_INTERVAL
from lm_eval_bayes.stats.intervals import METHODS as METHODS
from lm_eval_bayes.stats.intervals import SCOPES as SCOPES
from lm_eval_bayes.stats.intervals import Interval as Interval
from lm_eval_bayes.stats.intervals import IntervalMethod as IntervalMethod
from lm_eval_bayes.stats.intervals import IntervalSpec as IntervalSpec
from lm_eval_bayes.stats.intervals import Scope as Scope
from lm_eval_bayes.stats.intervals import score_interval as score_interval
from lm_eval_bayes.stats.kendall import KendallCurve as KendallCurve
from lm_eval_bayes.stats.kendall import kendall_curve as kendall_curve
from lm_eval_bayes.stats.kendall import kendall_tau_b as kendall_tau_b
from lm_eval_bayes.stats.majority import maj_at_k as maj_at_k
from lm_eval_bayes.stats.majority import vote_candidates as vote_candidates
from lm_eval_bayes.stats.majority_posterior import maj_at_k_posterior as maj_at_k_posterior
from lm_eval_bayes.stats.outcomes import BINARY_WEIGHTS as BINARY_WEIGHTS
from lm_eval_bayes.stats.outcomes import LearnedShift as LearnedShift
from lm_eval_bayes.stats.outcomes import Outcomes as Outcomes
from lm_eval_bayes.stats.pass_family_estimators import PassQuantity as PassQuantity
from lm_eval_bayes.stats.pass_family_estimators import estimate as estimate
from lm_eval_bayes.stats.pass_family_estimators import g_pass_at_k as g_pass_at_k
from lm_eval_bayes.stats.pass_family_estimators import mg_pass_at_k as mg_pass_at_k
from lm_eval_bayes.stats.pass_family_estimators import naive_pass_at_k as naive_pass_at_k
from lm_eval_bayes.stats.pass_family_estimators import naive_pass_hat_k as naive_pass_hat_k
from lm_eval_bayes.stats.pass_family_estimators import pass_at_k as pass_at_k
from lm_eval_bayes.stats.pass_family_estimators import pass_hat_k as pass_hat_k
from lm_eval_bayes.stats.pass_family_estimators import posterior_row as posterior_row
from lm_eval_bayes.stats.pass_family_estimators import quantities_by_row as quantities_by_row
from lm_eval_bayes.stats.pass_family_posteriors import Prior as Prior
from lm_eval_bayes.stats.pass_family_posteriors import family_notes as family_notes
from lm_eval_bayes.stats.pass_family_posteriors import (
    g_pass_at_k_posterior as g_pass_at_k_posterior,
)
from lm_eval_bayes.stats.pass_family_posteriors import (
    mg_pass_at_k_posterior as mg_pass_at_k_posterior,
)
from lm_eval_bayes.stats.pass_family_posteriors import pass_at_k_posterior as pass_at_k_posterior
from lm_eval_bayes.stats.pass_family_posteriors import pass_hat_k_posterior as pass_hat_k_posterior
from lm_eval_bayes.stats.pass_family_posteriors import pass_posteriors as pass_posteriors
from lm_eval_bayes.stats.power import ASSUMED_CORRELATION as ASSUMED_CORRELATION
from lm_eval_bayes.stats.power import DESIGNS as DESIGNS
from lm_eval_bayes.stats.power import LEVEL as LEVEL
from lm_eval_bayes.stats.power import POWER as POWER
from lm_eval_bayes.stats.power import Design as Design
from lm_eval_bayes.stats.power import NeededSize as NeededSize
from lm_eval_bayes.stats.power import detectable_difference as detectable_difference
from lm_eval_bayes.stats.power import size_for_difference as size_for_difference
from lm_eval_bayes.stats.prefixes import LINEAR as LINEAR
from lm_eval_bayes.stats.prefixes import Metric as Metric
from lm_eval_bayes.stats.prefixes import prefix_scores as prefix_scores
from lm_eval_bayes.stats.prior_evidence import SAME_CHANCES as SAME_CHANCES
from lm_eval_bayes.stats.prior_evidence import STRENGTHS as STRENGTHS
from lm_eval_bayes.stats.prior_evidence import Strength as Strength
from lm_eval_bayes.stats.prior_evidence import check_strength as check_strength
from lm_eval_bayes.stats.prior_evidence import learn_shift as learn_shift
from lm_eval_bayes.stats.ranking.rank import MODEL_COLUMNS as MODEL_COLUMNS
from lm_eval_bayes.stats.ranking.rank import Ranking as Ranking
from lm_eval_bayes.stats.ranking.rank import are_distinguishable as are_distinguishable
from lm_eval_bayes.stats.ranking.rank import compare_in_order as compare_in_order
from lm_eval_bayes.stats.ranking.rank import rank as rank
from lm_eval_bayes.stats.ranking.rank import simultaneous_ranks as simultaneous_ranks
from lm_eval_bayes.stats.ranking.rank import sort_best_first as sort_best_first
from lm_eval_bayes.stats.ranking.shared_scores import SharedScores as SharedScores
from lm_eval_bayes.stats.ranking.shared_scores import shared_scores as shared_scores
from lm_eval_bayes.stats.ranking.simultaneous import (
    compare_simultaneously as compare_simultaneously,
)
from lm_eval_bayes.stats.results import Estimate as Estimate
from lm_eval_bayes.stats.results import PerQuestion as PerQuestion
from lm_eval_bayes.stats.results import Posterior as Posterior
from lm_eval_bayes.stats.results import joined_notes as joined_notes
from lm_eval_bayes.stats.score_outcomes import ScoreOutcomes as ScoreOutcomes
from lm_eval_bayes.stats.sequential.decision import CORRECTIONS as CORRECTIONS
from lm_eval_bayes.stats.sequential.decision import LEAST_TRIALS as LEAST_TRIALS
from lm_eval_bayes.stats.sequential.decision import Correction as Correction
from lm_eval_bayes.stats.sequential.decision import DecisionReached as DecisionReached
from lm_eval_bayes.stats.sequential.predictive_draws import PredictiveBoard as PredictiveBoard
from lm_eval_bayes.stats.sequential.stopping_rules import WidthReached as WidthReached
from lm_eval_bayes.stats.sequential.stopping_rules import batches as batches
from lm_eval_bayes.stats.sequential.trials_needed import TrialsForecast as TrialsForecast
from lm_eval_bayes.stats.sequential.trials_needed import allocate_trials as allocate_trials
from lm_eval_bayes.stats.sequential.trials_needed import forecast_separation as forecast_separation
from lm_eval_bayes.stats.sequential.trials_needed import trials_needed as trials_needed
from lm_eval_bayes.stats.settings.allocation import half_width as half_width
from lm_eval_bayes.stats.settings.allocation import settings_needed as settings_needed
from lm_eval_bayes.stats.settings.comparison import SettingsDifference as SettingsDifference
from lm_eval_bayes.stats.settings.comparison import (
    difference_over_settings as difference_over_settings,
)
from lm_eval_bayes.stats.settings.comparison import errors_over_settings as errors_over_settings
from lm_eval_bayes.stats.settings.posterior import SettingsPosterior as SettingsPosterior
from lm_eval_bayes.stats.settings.posterior import Spread as Spread
from lm_eval_bayes.stats.settings.posterior import Summary as Summary
from lm_eval_bayes.stats.settings.posterior import score_over_settings as score_over_settings
from lm_eval_bayes.stats.simulation import mimics_with_means as mimics_with_means
from lm_eval_bayes.stats.simulation import simulate_outcomes as simulate_outcomes
from lm_eval_bayes.stats.states import WeightedSum as WeightedSum
from lm_eval_bayes.stats.tie_rules import TieRule as TieRule
from lm_eval_bayes.stats.uniform_prior import avg_at_n as avg_at_n
from lm_eval_bayes.stats.uniform_prior import bayes_at_n as bayes_at_n
from lm_eval_bayes.stats.uniform_prior import single_trial_posterior as single_trial_posterior
from lm_eval_bayes.stats.variance import VarianceComponents as VarianceComponents
from lm_eval_bayes.stats.variance import correlation_interval as correlation_interval
from lm_eval_bayes.stats.variance import (
    covariance_of_questions as covariance_of_questions,
)
from lm_eval_bayes.stats.variance import variance_components as variance_components
