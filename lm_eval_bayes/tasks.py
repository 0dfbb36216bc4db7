"""What the YAML files of tasks name.

.. code-block:: yaml

    class: !function lm_eval_bayes.tasks.RepeatedSamplingTask
    process_results: !function lm_eval_bayes.tasks.process_results_math

Importing it prepares the harness for these tasks, also where no start-up file has done so.
"""

from lm_eval_bayes.harness.grading.grade import process_results_aime, process_results_math
from lm_eval_bayes.harness.plugin import registration
from lm_eval_bayes.harness.rubrics.rubric_task import RubricTask
from lm_eval_bayes.harness.task.questions import demo_questions
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask
from lm_eval_bayes.harness.task.result_rows import AVG_AT_N, BAYES_AT_N, HBAYES_AT_N

__all__ = [
    "AVG_AT_N",
    "BAYES_AT_N",
    "HBAYES_AT_N",
    "RepeatedSamplingTask",
    "RubricTask",
    "demo_questions",
    "process_results_aime",
    "process_results_math",
]

registration.register_all()
