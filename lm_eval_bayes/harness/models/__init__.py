"""Model backends: a folder for each, and the recording of their trials as `--model trials`.

In each folder `sampling.py` generates trials from requests; `read_trial` reads a response of the
backend as a trial with its signals.
"""

import lm_eval.models  # noqa: F401  first: the harness fills a registry only while it is empty
