"""Saved runs of any format, read into :class:`~lm_eval_bayes.runs.task_run.TaskRun`.

`reader` is the one entrance: `readers` recognise and read files, `merging` joins what belongs
together, `provenance` names the models. Numbers about runs belong to `lm_eval_bayes.analysis`.
"""
