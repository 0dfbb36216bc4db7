"""Saved runs of any kind, read into :class:`~lm_eval_bayes.runs.task_run.TaskRun`."""
