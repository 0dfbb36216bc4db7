"""What a test asserts of an error: its class, the argument, the rule and what came."""

from __future__ import annotations

from contextlib import contextmanager
from unittest.mock import ANY

import pytest

from lm_eval_bayes.errors import InvalidInputError


@contextmanager
def refused(argument, rule, value=ANY, *, error=InvalidInputError):
    """Expect the error of an argument that breaks a rule; `error` is its class."""
    with pytest.raises(error) as caught:
        yield caught
    assert (caught.value.argument, caught.value.rule) == (argument, rule), caught.value
    assert value is ANY or caught.value.value == value, caught.value


def refusals(*rows):
    """Return a test of calls that are refused.

    Parameters
    ----------
    *rows : (callable, str, str)
        The call, the argument that its error names and the id of the broken rule.
    """

    @pytest.mark.parametrize(("call", "argument", "rule"), rows)
    def test(call, argument, rule):
        with refused(argument, rule):
            call()

    return test
