"""The statistics: outcomes in; posteriors, estimates, comparisons and rankings out.

This room depends on numpy and scipy only. Every function takes validated arrays or
:class:`~lm_eval_bayes.stats.outcomes.Outcomes` and returns frozen records; randomness comes from
an explicit seed. Files, saved runs, models and the harness do not belong here.

The layers import downwards only: simulation, convergence and sequential; ranking; comparison;
hierarchical; results; intervals; distributions; outcomes and tie rules; validation.
"""
