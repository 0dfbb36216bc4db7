"""Rubrics: signals of a trial become a category with a weight.

:class:`SignalTable` holds the signals of every trial, :func:`task_thresholds` divides them into
high and low, a :class:`Schema` (one of the twelve in :data:`SCHEMATA`, or a custom one) assigns
every trial to a category, and :func:`score` counts them for a posterior [Hariri 2026, §3.4,
App. D]. Reading the signals of saved runs belongs to `runs`, asking a verifier to `verifiers`.

Examples
--------
>>> run = SignalTable.from_questions(
...     [
...         {"is_correct": [1, 1, 0], "has_box": [1, 0, 1], "repeated_pattern": [0, 0, 0]},
...         {"is_correct": [0, 1, 1], "has_box": [0, 1, 1], "repeated_pattern": [1, 0, 0]},
...     ]
... )
>>> result = score(SCHEMATA["format_aware"], run, task_thresholds([run]))
>>> result.categories["correct, boxed"]
3
>>> posterior = result.posterior("bayes")
>>> round(posterior.mu, 3), round(posterior.sigma, 3)
(0.5, 0.096)
"""

from lm_eval_bayes.rubric.schemata import SCHEMATA, Category, Schema
from lm_eval_bayes.rubric.scoring import RubricScore, score
from lm_eval_bayes.rubric.signals import SIGNALS, SignalTable, trial_signals
from lm_eval_bayes.rubric.thresholds import TaskThresholds, Thresholds, task_thresholds

__all__ = [
    "SCHEMATA",
    "SIGNALS",
    "Category",
    "RubricScore",
    "Schema",
    "SignalTable",
    "TaskThresholds",
    "Thresholds",
    "score",
    "task_thresholds",
    "trial_signals",
]
