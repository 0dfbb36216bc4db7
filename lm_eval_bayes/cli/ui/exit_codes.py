"""Exit codes of the commands."""

#: A check failed: a worse model, a damaged store, a missing requirement.
CHECK_FAILED = 1
#: Wrong arguments, or an error.
ERROR = 2
#: Ctrl-C.
INTERRUPTED = 130
#: The reader of standard output has ended; a shell reports SIGPIPE by this code.
CLOSED_PIPE = 141
#: SIGTERM.
TERMINATED = 143

EXIT_CODES = """\b
Exit codes:
  0    success
  1    success, but a check failed (see the command's help)
  2    wrong arguments, or an error, reported in one sentence
  130  interrupted by Ctrl-C
  141  the program that reads the output has ended (such as `head`)
  143  terminated by SIGTERM
"""
