"""Verdicts and probabilities in words that say no more than is known."""

from __future__ import annotations


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
            f"probability {share(p_rope)}"
        )
        if p >= confidence:
            told += f", though {better} is better than {worse} with probability {share(p)}"
        return f"{told}."
    if p >= confidence:
        return f"{better} is better than {worse}, with probability {share(p)}."
    if p < 0.5005:  # which would be told as 0.500
        return "Undecided: either is better with the same probability."
    return (
        f"Undecided: {better} is better than {worse} with probability {share(p)}, which is below "
        f"{confidence:g}."
    )


def share(probability: float) -> str:
    """Return a probability with three digits that never says more than it knows.

    Examples
    --------
    >>> share(0.99987), share(0.0), share(0.25)
    ('above 0.999', 'below 0.001', '0.250')
    """
    if probability > 0.9995:
        return "above 0.999"
    return "below 0.001" if probability < 0.0005 else f"{probability:.3f}"


def chance(probability: float) -> str:
    """Return the same for a cell of a table.

    Examples
    --------
    >>> chance(1.0), chance(0.25), chance(0.0001)
    ('>0.999', '0.250', '<0.001')
    """
    return share(probability).replace("above ", ">").replace("below ", "<")


def equation(event: str, probability: float) -> str:
    """Return the same for an event in symbols.

    Examples
    --------
    >>> equation("P(A > B)", 1.0), equation("P(A > B)", 0.25)
    ('P(A > B) > 0.999', 'P(A > B) = 0.250')
    """
    told = chance(probability)
    return f"{event} {told[0]} {told[1:]}" if told[0] in "<>" else f"{event} = {told}"
