"""`python -m lm_eval_bayes run …`: the harness's own command line, registered by hand.

For `pip install --target`, `python -S` and sites that forbid start-up files. Every command of
`lm_eval` works: `run`, `ls tasks`, `validate`.
"""

from __future__ import annotations

from lm_eval_bayes.harness import registration

if __name__ == "__main__":
    registration.run_harness()
