"""What a command ends with."""

#: Something that was checked is not as it should be.
FOUND = 1
#: A command was given wrongly, or could not be carried out.
ERROR = 2
#: Ctrl-C.
INTERRUPTED = 130
#: What a shell shows of a program that wrote to a pipe whose reader had gone.
UNREAD = 141
#: SIGTERM.
TERMINATED = 143

EXIT_CODES = """\b
Exit codes:
  0    done
  1    done, and something that was checked is not as it should be
  2    not done: wrong arguments, or an error, told in one sentence
  130  stopped by Ctrl-C
  141  stopped, since what reads the output has ended (as `head` does)
  143  stopped by SIGTERM
"""
