r"""Grade saved responses again as mathematical answers.

A run of a task that never heard of us may have sampled every question many times and graded
it once; its texts are in the logged samples, and so are the right answers.
"""

from __future__ import annotations

from collections.abc import Sequence

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.harness.grading.grade import grade
from lm_eval_bayes.rubric.answers import boxed_answer

#: What stands before the answer in a worked solution of GSM8K and of tasks made like it.
_MARK = "####"


def regraded(
    texts: Sequence[str], target: str, think_end_token: str | None = None
) -> list[tuple[bool, str | None]]:
    r"""Grade the texts of one question, as :mod:`lm_eval_bayes.harness.grading.grade` grades.

    Parameters
    ----------
    texts : sequence of str
        The complete responses, one per trial.
    target : str
        The right answer as the harness logged it, see :func:`gold`.
    think_end_token : str, optional
        The model's own marker of the end of its reasoning.

    Returns
    -------
    list of (bool, str or None)
        For every text whether it is right, and the answer that was found in it.

    Raises
    ------
    InvalidInputError
        If there is no answer in `target`.

    Examples
    --------
    >>> regraded([r"so \boxed{18}", "The answer is 17."], "9 * 2 = <<9*2=18>>18\n#### 18")
    [(True, '18'), (False, '17')]
    """
    right = gold(target)
    grades = (grade(text, right, think_end_token=think_end_token) for text in texts)
    return [(graded.correct, graded.answer) for graded in grades]


def gold(target: str) -> str:
    r"""Return the answer in a target.

    Of a worked solution that is what is in its last box, or what follows its last ``####``;
    otherwise it is the target itself.

    Raises
    ------
    InvalidInputError
        If nothing is left.

    Examples
    --------
    >>> gold(r"We get $x = \boxed{\frac{1}{2}}$."), gold("5 + 5 = 10\n#### 10"), gold(" 033 ")
    ('\\frac{1}{2}', '10', '033')
    """
    answer = boxed_answer(target)
    if answer is None:
        answer = target.rpartition(_MARK)[2].strip()
    if not answer:
        raise InvalidInputError.of("target", "hold the right answer", target)
    return answer
