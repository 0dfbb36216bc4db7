"""The rubric variables of [Hariri 2026, Table 4]: yes, no or unknown for each trial.

===============  ==================================================================================
variable         holds where
===============  ==================================================================================
invalid          repeated_pattern, or C >= .50 where a verifier has judged
correct          is_correct >= .5
wrong            not correct
boxed            has_box >= .5
unboxed          not boxed
high_conf        completion_bpt <= tau_high, the 40th percentile
low_conf         not high_conf
wrong_high_conf  wrong, and completion_bpt <= tau_low_wrong, the 60th percentile among wrong trials
ood              prompt_bpt >= tau_prompt, the 90th percentile
ind              not ood
economical       token_ratio <= ratio_p33, the 33rd percentile
moderate         token_ratio above ratio_p33 and <= ratio_p66, the 66th percentile
verbose          token_ratio > ratio_p66
corr_high        completion_bpt <= corr_p33, the 33rd percentile among correct trials
corr_mid         completion_bpt above corr_p33 and <= corr_p66, the 66th percentile
corr_low         completion_bpt > corr_p66
A_high           A >= .6
B_leads          B >= C, so that the verifier's doubt is about the answer, not its form
===============  ==================================================================================
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lm_eval_bayes.rubric.signals import SignalTable
from lm_eval_bayes.rubric.thresholds import TaskThresholds
from lm_eval_bayes.stats import FloatArray

#: One number per trial: 1 yes, 0 no, ½ unknown. In Kleene's logic `and` is then the minimum, `or`
#: the maximum, and `not` what is missing to 1.
Truth: TypeAlias = FloatArray

#: The verifier's probability from which an answer counts as invalid (C) or as right (A).
C_INVALID, A_HIGH = 0.5, 0.6


def compared(values: FloatArray, holds: npt.ArrayLike) -> Truth:
    """Return whether a comparison holds; unknown where the value is missing."""
    return np.where(np.isnan(values), 0.5, holds)


def variable(name: str, table: SignalTable, thresholds: TaskThresholds) -> Truth:
    """Compute one rubric variable.

    Parameters
    ----------
    name : str
        One of `VARIABLES`.
    table : SignalTable
        The trials.
    thresholds : TaskThresholds
        The percentiles of the task.

    Returns
    -------
    array, shape (T,)
        1 yes, 0 no, ½ unknown: a signal or a threshold is missing.

    Examples
    --------
    >>> table = SignalTable.from_questions([{"prompt_bpt": [2.0, None, 4.0]}])
    >>> variable("ood", table, TaskThresholds(tau_prompt=3.0))
    array([0. , 0.5, 1. ])
    """
    return _RULES[name].compute(table, thresholds)


@dataclass(frozen=True)
class _Rule:
    """Where a variable holds, and the signals that it is computed from."""

    signals: tuple[str, ...]
    compute: Callable[[SignalTable, TaskThresholds], Truth]


def _signal(name: str, compare: Callable[[Any, Any], Any], bound: float | str) -> _Rule:
    """Return the comparison of a signal with a number, or with the threshold of this name."""

    def compute(table: SignalTable, thresholds: TaskThresholds) -> Truth:
        values = table.column(name)
        limit = thresholds.value(bound) if isinstance(bound, str) else bound
        return compared(values + 0.0 * limit, compare(values, limit))

    return _Rule((name,), compute)


def _not(rule: _Rule) -> _Rule:
    return _Rule(rule.signals, lambda *case: 1.0 - rule.compute(*case))


def _both(first: _Rule, second: _Rule) -> _Rule:
    return _Rule(
        tuple(dict.fromkeys((*first.signals, *second.signals))),
        lambda *case: np.minimum(first.compute(*case), second.compute(*case)),
    )


def _invalid(table: SignalTable, _: TaskThresholds) -> Truth:
    repeated, c = table.column("repeated_pattern"), table.column("verifier_c")
    # without a verdict only the end of generation counts; a comparison with NaN is false
    return np.maximum(compared(repeated, repeated == 1), c >= C_INVALID)


def _b_leads(table: SignalTable, _: TaskThresholds) -> Truth:
    b, c = table.column("verifier_b"), table.column("verifier_c")
    return compared(b + c, b >= c)


_CORRECT = _signal("is_correct", operator.ge, 0.5)
_BOXED = _signal("has_box", operator.ge, 0.5)
_HIGH_CONF = _signal("completion_bpt", operator.le, "tau_high")
_OOD = _signal("prompt_bpt", operator.ge, "tau_prompt")
_ECONOMICAL = _signal("token_ratio", operator.le, "ratio_p33")
_NOT_VERBOSE = _signal("token_ratio", operator.le, "ratio_p66")
_CORR_HIGH = _signal("completion_bpt", operator.le, "corr_p33")
_NOT_CORR_LOW = _signal("completion_bpt", operator.le, "corr_p66")

_RULES: Mapping[str, _Rule] = {
    "invalid": _Rule(("repeated_pattern",), _invalid),
    "correct": _CORRECT,
    "wrong": _not(_CORRECT),
    "boxed": _BOXED,
    "unboxed": _not(_BOXED),
    "high_conf": _HIGH_CONF,
    "low_conf": _not(_HIGH_CONF),
    "wrong_high_conf": _both(
        _not(_CORRECT), _signal("completion_bpt", operator.le, "tau_low_wrong")
    ),
    "ood": _OOD,
    "ind": _not(_OOD),
    "economical": _ECONOMICAL,
    "moderate": _both(_not(_ECONOMICAL), _NOT_VERBOSE),
    "verbose": _not(_NOT_VERBOSE),
    "corr_high": _CORR_HIGH,
    "corr_mid": _both(_not(_CORR_HIGH), _NOT_CORR_LOW),
    "corr_low": _not(_NOT_CORR_LOW),
    "A_high": _signal("verifier_a", operator.ge, A_HIGH),
    "B_leads": _Rule(("verifier_b", "verifier_c"), _b_leads),
}

VARIABLES = tuple(_RULES)

#: The signals that each variable is computed from.
SIGNALS_OF = {name: rule.signals for name, rule in _RULES.items()}
