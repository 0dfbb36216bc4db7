"""The command `lm-eval-bayes`, one file a command.

`run` is the entry point of the installed command.
"""


def run() -> None:
    """Load the command line and run it; Ctrl-C ends it without a traceback from the start."""
    try:
        from lm_eval_bayes.cli.main import main

        main()
    except KeyboardInterrupt:
        import sys

        from lm_eval_bayes.cli.ui.errors import INTERRUPTED

        print("stopped", file=sys.stderr)
        sys.exit(INTERRUPTED)
