"""`python -m lm_eval_bayes run …`: the harness's own command line, registered by hand.

For `python -S` and sites that forbid start-up files. Every command of
`lm_eval` works: `run`, `ls tasks`, `validate`. So do those of `lm-eval-bayes`, but for its `run`,
whose name the harness has.
"""

from __future__ import annotations

import sys

from lm_eval_bayes.harness.plugin import registration

#: What the harness's command line begins with; an option stands for `run`.
_OF_THE_HARNESS = ("run", "ls", "validate")


def _main() -> None:
    first = sys.argv[1] if len(sys.argv) > 1 else "run"
    if not first.startswith("-") and first not in _OF_THE_HARNESS:
        from lm_eval_bayes.cli.main import COMMANDS, main
        from lm_eval_bayes.cli.ui.errors import REMOVED_COMMANDS

        if first in COMMANDS or first in REMOVED_COMMANDS:
            return main()
    return registration.run_harness()


if __name__ == "__main__":
    _main()
