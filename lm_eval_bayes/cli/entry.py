"""Entry point of the installed command; Ctrl-C ends it without a traceback from the start."""


def main() -> None:
    """Load the command line and run it."""
    try:
        from lm_eval_bayes.cli.main import main as run

        run()
    except KeyboardInterrupt:
        import sys

        from lm_eval_bayes.cli.ui.exit_codes import INTERRUPTED

        print("stopped", file=sys.stderr)
        sys.exit(INTERRUPTED)
