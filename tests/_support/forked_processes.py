"""Child processes that are forked, so that a start and a kill cost milliseconds."""

from __future__ import annotations

import json
import os
import sys
import time


def fork(work):
    """Call a function in a child process; return its id."""
    child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.stderr.flush()
        os._exit(1)


def wait_for(children):
    """Return the exit codes of child processes, once they have ended."""
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def run_together(n_children, work):
    """Call `work(number)` in several children at one moment; print their exit codes as JSON."""
    start = time.time() + 0.3

    def run_child(number):
        time.sleep(max(0.0, start - time.time()))
        work(number)

    children = [fork(lambda number=number: run_child(number)) for number in range(n_children)]
    print(json.dumps(wait_for(children)))
