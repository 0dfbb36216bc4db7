"""How far a long command is: a bar on a terminal, a plain line now and then in a pipe."""

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
    """Tells on standard error how much of something is done.

    Parameters
    ----------
    what : str
        What is being counted, such as "answers judged".
    total : int
        How much there is to do.

    Attributes
    ----------
    done : int
        How much of it is done.
    """

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done = one_line(what), total, 0
        self._bar: Any = None
        self._began = self._told = time.monotonic()

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
        """Say that so much more is done."""
        self.done += n
        if self._bar is not None:
            self._bar.advance(self._task, n)
            return
        now = time.monotonic()
        if now - self._told >= EVERY_S or self.done >= self.total:
            self._told = now
            rate = self.done / max(now - self._began, 1e-9)
            share = self.done / max(self.total, 1)
            warn(f"{self.what}: {self.done:,} of {self.total:,} ({share:.0%}, {rate:.2g} a second)")
