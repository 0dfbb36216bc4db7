from __future__ import annotations

import inspect

import pytest

import lm_eval_bayes


def takes_outcomes():
    for name in lm_eval_bayes.__all__:
        function = getattr(lm_eval_bayes, name)
        if inspect.isfunction(function):
            parameters = inspect.signature(function).parameters.values()
            typed = [p.name for p in parameters if p.annotation == "Outcomes"]
            if typed:
                yield pytest.param(function, typed, id=name)


@pytest.mark.parametrize(("function", "typed"), list(takes_outcomes()))
def test_a_bare_matrix_is_refused(function, typed):
    # the first mistake of a newcomer
    parameters = inspect.signature(function).parameters
    needed = [p for p in parameters.values() if p.default is p.empty]
    arguments = {p.name: [[0, 1], [1, 1]] if p.name in typed else 1 for p in needed}
    with pytest.raises(lm_eval_bayes.InvalidInputError) as caught:
        function(**arguments)
    assert caught.value.rule == "type"
