"""Model backends: a folder for each, and the recording of their trials as `--model trials`."""

import lm_eval.models  # noqa: F401  first: the harness fills a registry only while it is empty
