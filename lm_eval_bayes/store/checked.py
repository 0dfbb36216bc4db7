"""Trials read one question at a time, each checked against its hash."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence

from lm_eval_bayes.store.trial import READ, Trial, TrialKey, decode, is_intact


class CheckedTrials:
    """The trials of a store.

    Parameters
    ----------
    connection : sqlite3.Connection
        Inside one view of the store.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._texts: dict[int, str] = dict(
            connection.execute("SELECT id, description FROM versions").fetchall()
        )
        self._versions = {number: json.loads(text) for number, text in self._texts.items()}

    def of(self, key: TrialKey, ids: Sequence[int]) -> Iterator[tuple[Trial, bool]]:
        """Give a question's trials by number, and whether each is what was written.

        Parameters
        ----------
        key : TrialKey
            The hashes of model, prompt and sampling.
        ids : sequence of int
            The rows of model, sampling and prompt, in this order.

        Raises
        ------
        TypeError, ValueError, LookupError
            If a row is damaged such that it cannot be read.
        """
        rows = self._connection.execute(
            f"SELECT {READ}, hash FROM trials "
            "WHERE model = ? AND sampling = ? AND prompt = ? ORDER BY trial",
            tuple(ids),
        )
        for *row, digest in rows:
            trial = decode(key, self._versions, row)
            _, number, versions, *measurements, text = row
            values = (*measurements, digest, text)
            yield trial, is_intact(key, number, self._texts[versions], values)
