"""Names of models on the page."""

import pytest

from lm_eval_bayes.report.page.text import short_names


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (("a/one (user=x/y)", "b/two (user=x/z)"), ("one (user=x/y)", "two (user=x/z)")),
        (("a/m (user=x/y)", "b/m (user=x/y)"), ("a/m (user=x/y)", "b/m (user=x/y)")),
        (("a/m", "b/m", "c"), ("a/m", "b/m", "c")),
        (("m", "lab/m"), ("m", "lab/m")),
    ],
)
def test_short_names_stay_distinct(names, short):
    assert short_names(names) == short


def test_long_names_stay_distinct():
    ends = [f"{'x' * 500}{i}" for i in range(3)]
    assert [name[-1] for name in short_names(ends)] == ["0", "1", "2"]
    middles = [f"{'x' * 500}{i}{'y' * 500}" for i in range(3)]
    ends = [name.rpartition("y ")[2] for name in short_names([*middles, "z"])]
    assert ends == ["(1 of 3 like it)", "(2 of 3 like it)", "(3 of 3 like it)", "z"]
