"""Model backends that this package adds to the harness."""

import lm_eval.models  # noqa: F401  first: the harness fills a registry only while it is empty
