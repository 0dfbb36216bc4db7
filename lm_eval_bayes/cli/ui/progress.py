"""Progress of a long command: a bar on a terminal, a line every few seconds in a pipe."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

from lm_eval_bayes._util.text import one_line
from lm_eval_bayes.cli.ui.output import warn

#: Seconds between two lines in a pipe.
EVERY_S = 15.0


class Progress:
    """Progress on standard error.

    Parameters
    ----------
    what : str
        The label, such as "answers judged".
    total : int
        The number of steps.

    Attributes
    ----------
    done : int
        The number of steps done.
    """

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done = one_line(what), total, 0
        self._bar: Any = None
        self._started = self._last_line = time.monotonic()

    def __enter__(self) -> Progress:
        if self.total and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bars

            self._bar = Bars(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task(self.what, total=self.total)
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, n: int) -> None:
        """Add `n` steps to those done."""
        self.done += n
        if self._bar is not None:
            self._bar.advance(self._task, n)
            return
        now = time.monotonic()
        if now - self._last_line >= EVERY_S or self.done >= self.total:
            self._last_line = now
            rate = self.done / max(now - self._started, 1e-9)
            share = self.done / max(self.total, 1)
            warn(f"{self.what}: {self.done:,} of {self.total:,} ({share:.0%}, {rate:.2g} a second)")
