"""Where the installed command begins: Ctrl-C ends it in one word from its first moment on."""


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
