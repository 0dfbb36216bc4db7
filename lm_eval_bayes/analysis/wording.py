"""Verdicts and probabilities in words that say no more than is known."""

from __future__ import annotations

from lm_eval_bayes._util.text import format_probability


def verdict_in_words(
    p_a_greater: float,
    confidence: float,
    rope: tuple[float, float] | None = None,
    p_rope: float | None = None,
) -> str:
    """Return what a comparison comes to, in one sentence.

    Examples
    --------
    >>> verdict_in_words(0.987, 0.95)
    'A is better than B, with probability 0.987.'
    >>> verdict_in_words(0.7, 0.95)
    'Undecided: A is better than B with probability 0.700, which is below 0.95.'
    >>> verdict_in_words(0.7, 0.95, (-0.02, 0.02), 0.971)
    'A and B are practically equal: they differ by -0.02 to 0.02 with probability 0.971.'
    """
    better, worse, p = (
        ("A", "B", p_a_greater) if p_a_greater >= 0.5 else ("B", "A", 1 - p_a_greater)
    )
    same = rope is not None and p_rope is not None and p_rope >= confidence
    if same and rope is not None and p_rope is not None:
        told = (
            f"A and B are practically equal: they differ by {rope[0]:g} to {rope[1]:g} with "
            f"probability {format_probability(p_rope)}"
        )
        if p >= confidence:
            told += (
                f", though {better} is better than {worse} with probability {format_probability(p)}"
            )
        return f"{told}."
    if p >= confidence:
        return f"{better} is better than {worse}, with probability {format_probability(p)}."
    if p < 0.5005:  # which would be told as 0.500
        return "Undecided: either is better with the same probability."
    return (
        f"Undecided: {better} is better than {worse} with probability "
        f"{format_probability(p)}, which is below {confidence:g}."
    )
