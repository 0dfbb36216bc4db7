"""What waits to be drawn, and what goes into the next batch."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple

from lm_eval_bayes.harness.models.hf.rows import Row
from lm_eval_bayes.harness.models.hf.settings import Settings


class _Waiting(NamedTuple):
    round: int
    minus_length: int
    number: int
    row: Row


class Queue:
    """Trials in rounds, one trial number after the other, with one set of settings a batch.

    In a round the longest prompts go first: a batch then has little to fill up, and what does
    not fit into memory shows at once.
    """

    def __init__(self) -> None:
        self._heaps: dict[str, list[_Waiting]] = {}
        self._kinds: dict[str, tuple[Settings, Mapping[str, Any]]] = {}
        self._taken: dict[int, tuple[str, _Waiting]] = {}
        self._rounds = self._added = 0
        self._last_trial: int | None = None
        self._kind = ""

    def __len__(self) -> int:
        return sum(map(len, self._heaps.values()))

    def add(self, row: Row, kind: str, settings: Settings, kwargs: Mapping[str, Any]) -> None:
        """Append a trial; those of one `kind` may share a batch."""
        if row.order.trial != self._last_trial:
            self._rounds, self._last_trial = self._rounds + 1, row.order.trial
        self._kinds.setdefault(kind, (settings, kwargs))
        waiting = _Waiting(self._rounds, -len(row.prompt), self._added, row)
        heapq.heappush(self._heaps.setdefault(kind, []), waiting)
        self._added += 1

    def first_of(self, prompts: Set[str]) -> dict[int, float | None]:
        """Return the place of each prompt's first trial, without bits yet; none for a cut one."""
        waiting = sorted(one for heap in self._heaps.values() for one in heap)
        first: dict[str, int] = {}
        for row in (one.row for one in waiting if not one.row.cut):
            if row.order.prompt in prompts:
                first.setdefault(row.order.prompt, row.order.place)
        return dict.fromkeys(first.values())

    def next_settings(self) -> tuple[Settings, Mapping[str, Any]]:
        """Turn to the settings whose trials are due, and return them."""
        due = [kind for kind, heap in self._heaps.items() if heap]
        self._kind = min(due, key=lambda kind: self._heaps[kind][0].round)
        return self._kinds[self._kind]

    def take(self, count: int) -> list[Row]:
        """Take at most `count` trials of the settings that `next_settings` turned to."""
        heap = self._heaps[self._kind]
        taken = [heapq.heappop(heap) for _ in range(min(count, len(heap)))]
        self._taken = {id(waiting.row): (self._kind, waiting) for waiting in taken}
        return [waiting.row for waiting in taken]

    def give_back(self, rows: Sequence[Row]) -> None:
        """Put trials that were just taken, and have not ended, back to where they were."""
        for row in rows:
            kind, waiting = self._taken[id(row)]
            row.start_over()
            heapq.heappush(self._heaps[kind], waiting)
