"""The command `lm-eval-bayes`, one file a command.

`run` is the entry point of the installed command.
"""


def run() -> None:
    """Load the command line and run it; Ctrl-C ends it without a traceback from the start."""
    try:
        from lm_eval_bayes._util.interrupts import wait_for_imports

        wait_for_imports()
        from lm_eval_bayes.cli.main import main

        main()
    except KeyboardInterrupt:
        import sys

        print("stopped", file=sys.stderr)
        sys.exit(130)
