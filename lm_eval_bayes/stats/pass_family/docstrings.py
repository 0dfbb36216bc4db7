"""The sections of docstrings that the functions of the family share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_TAU = """
tau : float, Fraction or Decimal
    In [0, 1]. The ceiling is exact: .28 · 25 asks for 7, see `successes_needed`."""
_ESTIMATOR = """\
Parameters
----------
outcomes : Outcomes
    Binary outcomes of M questions.
k : int
    1 <= k <= N, the smallest N_α where they differ.{tau}

Returns
-------
Estimate
    In [0, 1]; the mean over questions.

Raises
------
InvalidInputError
    If the outcomes are not binary, or an argument is out of range.
"""
_POSTERIOR = """\
Parameters
----------
outcomes : Outcomes
    Binary outcomes of M questions; N_α may differ.
k : int
    From 1 to 10⁷.{tau}
prior : "learned", "uniform", "jeffreys", float or (float, float)
    See `pass_posteriors`.
scope : {{"benchmark", "population"}}
    See `pass_posteriors`.

Returns
-------
Posterior
    In [0, 1]; of mG-Pass@k, in [0, (k − 1)/k] for an odd k.

Raises
------
InvalidInputError
    If the outcomes are not binary, or an argument breaks its rule.
"""
#: Parameters, Returns and Raises of an estimator and of a posterior, and of those with a threshold.
ESTIMATOR, ESTIMATOR_WITH_TAU = _ESTIMATOR.format(tau=""), _ESTIMATOR.format(tau=_TAU)
POSTERIOR, POSTERIOR_WITH_TAU = _POSTERIOR.format(tau=""), _POSTERIOR.format(tau=_TAU)


def documented(sections: str) -> Callable[[F], F]:
    """Return a decorator that puts sections into a docstring, before its examples.

    Parameters
    ----------
    sections : str
        Sections of a numpydoc docstring, without indentation.

    Examples
    --------
    >>> @documented("Returns\\n-------\\nint\\n")
    ... def two():
    ...     '''Return 2.
    ...
    ...     Examples
    ...     --------
    ...     '''
    >>> print(two.__doc__)
    Return 2.
    <BLANKLINE>
    Returns
    -------
    int
    <BLANKLINE>
    Examples
    --------
    """

    def decorate(function: F) -> F:
        # python -OO leaves no docstring
        if function.__doc__ is not None:
            text, heading, examples = inspect.cleandoc(function.__doc__).partition("Examples\n---")
            function.__doc__ = f"{text}{sections}\n{heading}{examples}"
        return function

    return decorate
