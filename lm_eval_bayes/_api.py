"""What `import lm_eval_bayes` offers, in three groups, gathered from the rooms it lives in."""

from lm_eval_bayes.errors import InvalidInputError as InvalidInputError
from lm_eval_bayes.errors import LmEvalBayesError as LmEvalBayesError

# isort: split
# -- runs
from lm_eval_bayes.analysis.settings import interval_of_run as interval_of_run
from lm_eval_bayes.runs.frames import read_frame as read_frame
from lm_eval_bayes.runs.reader import read_runs as read_runs
from lm_eval_bayes.runs.task_run import TaskRun as TaskRun

# isort: split
# -- decisions
from lm_eval_bayes.stats import AnchorMatrix as AnchorMatrix
from lm_eval_bayes.stats import DecisionReached as DecisionReached
from lm_eval_bayes.stats import WidthReached as WidthReached
from lm_eval_bayes.stats import allocate_trials as allocate_trials
from lm_eval_bayes.stats import capability_intervals as capability_intervals
from lm_eval_bayes.stats import compare as compare
from lm_eval_bayes.stats import compare_paired as compare_paired
from lm_eval_bayes.stats import compare_pass_curves as compare_pass_curves
from lm_eval_bayes.stats import compare_unpaired as compare_unpaired
from lm_eval_bayes.stats import convergence_at_n as convergence_at_n
from lm_eval_bayes.stats import detectable_difference as detectable_difference
from lm_eval_bayes.stats import difference_interval as difference_interval
from lm_eval_bayes.stats import filter_queries as filter_queries
from lm_eval_bayes.stats import kendall_curve as kendall_curve
from lm_eval_bayes.stats import kendall_tau_b as kendall_tau_b
from lm_eval_bayes.stats import odds_ratio_interval as odds_ratio_interval
from lm_eval_bayes.stats import ordering_violations as ordering_violations
from lm_eval_bayes.stats import query_independence as query_independence
from lm_eval_bayes.stats import rank as rank
from lm_eval_bayes.stats import shared_scores as shared_scores
from lm_eval_bayes.stats import size_for_difference as size_for_difference
from lm_eval_bayes.stats import trials_needed as trials_needed
from lm_eval_bayes.stats import variance_components as variance_components

# isort: split
# -- outcomes and posteriors
from lm_eval_bayes.stats import IntervalSpec as IntervalSpec
from lm_eval_bayes.stats import Outcomes as Outcomes
from lm_eval_bayes.stats import Posterior as Posterior
from lm_eval_bayes.stats import ScoreOutcomes as ScoreOutcomes
from lm_eval_bayes.stats import avg_at_n as avg_at_n
from lm_eval_bayes.stats import bayes_at_n as bayes_at_n
from lm_eval_bayes.stats import bootstrap_interval as bootstrap_interval
from lm_eval_bayes.stats import clopper_pearson_interval as clopper_pearson_interval
from lm_eval_bayes.stats import clt_interval as clt_interval
from lm_eval_bayes.stats import clustered_interval as clustered_interval
from lm_eval_bayes.stats import clustered_posterior as clustered_posterior
from lm_eval_bayes.stats import confusion_posterior as confusion_posterior
from lm_eval_bayes.stats import f_score as f_score
from lm_eval_bayes.stats import g_pass_at_k as g_pass_at_k
from lm_eval_bayes.stats import g_pass_at_k_posterior as g_pass_at_k_posterior
from lm_eval_bayes.stats import hbayes_at_n as hbayes_at_n
from lm_eval_bayes.stats import learn_shift as learn_shift
from lm_eval_bayes.stats import maj_at_k as maj_at_k
from lm_eval_bayes.stats import maj_at_k_posterior as maj_at_k_posterior
from lm_eval_bayes.stats import mean_over_tasks as mean_over_tasks
from lm_eval_bayes.stats import mg_pass_at_k as mg_pass_at_k
from lm_eval_bayes.stats import mg_pass_at_k_posterior as mg_pass_at_k_posterior
from lm_eval_bayes.stats import pass_at_k as pass_at_k
from lm_eval_bayes.stats import pass_at_k_posterior as pass_at_k_posterior
from lm_eval_bayes.stats import pass_hat_k as pass_hat_k
from lm_eval_bayes.stats import pass_hat_k_posterior as pass_hat_k_posterior
from lm_eval_bayes.stats import simulate_outcomes as simulate_outcomes
from lm_eval_bayes.stats import single_trial_posterior as single_trial_posterior
from lm_eval_bayes.stats import t_interval as t_interval
from lm_eval_bayes.stats import wilson_interval as wilson_interval
