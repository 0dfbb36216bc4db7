"""Records as plain JSON types."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from lm_eval_bayes._util.plain import NOT_IN_JSON, Record, to_plain


class State(enum.Enum):
    OK = "ok"


@dataclass(frozen=True)
class Inner(Record):
    values: np.ndarray
    hidden: object = field(default=None, metadata=NOT_IN_JSON)


@dataclass(frozen=True)
class Outer(Record):
    inner: Inner
    pair: tuple[float, float]
    state: State = State.OK

    def to_dict(self):
        return {**super().to_dict(), "added": 1}


def test_nested_records_arrays_and_left_out_fields():
    outer = Outer(Inner(np.array([[1, 2], [3, 4]]), hidden=object()), (0.5, float("nan")))
    assert to_plain([outer]) == [
        {"inner": {"values": [[1, 2], [3, 4]]}, "pair": [0.5, None], "state": "ok", "added": 1}
    ]


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.float64(2.5), 2.5),
        (np.bool_(True), True),
        (np.array([np.inf, 1.0]), [None, 1.0]),
        (Path("a") / "b", "a/b"),
        ({("a", 1): {3, 2}}, {"('a', 1)": [2, 3]}),
        (frozenset({"b", "a"}), ["a", "b"]),
    ],
)
def test_values(value, plain):
    assert to_plain(value) == plain
    json.dumps(to_plain(value), allow_nan=False)
