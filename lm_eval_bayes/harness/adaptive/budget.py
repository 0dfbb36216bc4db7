"""The budget of a run: trials per question, tokens, or hours."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lm_eval_bayes.errors import InvalidInputError

_FORM = re.compile(r"(\d+(?:\.\d+)?(?:e\d+)?)\s*([a-z]*)", re.IGNORECASE)
_UNITS = {
    "": ("trials", 1.0),
    "trials": ("trials", 1.0),
    "tokens": ("tokens", 1.0),
    "ktokens": ("tokens", 1e3),
    "mtokens": ("tokens", 1e6),
    "s": ("hours", 1 / 3600),
    "min": ("hours", 1 / 60),
    "h": ("hours", 1.0),
    "hours": ("hours", 1.0),
}


@dataclass(frozen=True)
class Budget:
    """An amount of trials, tokens or hours.

    Attributes
    ----------
    amount : float
        Above 0.
    unit : str
        "trials" (per question), "tokens" (of all completions) or "hours" (of this run).
    """

    amount: float
    unit: str

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Read "64", "64trials", "2e6tokens", "8h" or "90min".

        Raises
        ------
        InvalidInputError
            If the text has another form, or is less than one trial.

        Examples
        --------
        >>> Budget.parse("90min"), Budget.parse("64")
        (Budget(amount=1.5, unit='hours'), Budget(amount=64.0, unit='trials'))
        >>> print(Budget.parse("2e6tokens"))
        2,000,000 tokens
        """
        match = _FORM.fullmatch(text.strip())
        unit = _UNITS.get(match[2].lower()) if match else None
        if match is None or unit is None or not 0 < float(match[1]) < 1e15:
            rule = "be a number of trials, tokens or hours, such as 64, 2e6tokens, 8h or 90min"
            raise InvalidInputError.of("budget", rule, text)
        amount = float(match[1]) * unit[1]
        if unit[0] == "trials" and amount < 1.0:
            raise InvalidInputError.of("budget", "be at least one trial per question", text)
        return cls(amount, unit[0])

    def __str__(self) -> str:
        return f"{self.amount:,.10g} {self.unit}" + (
            " per question" if self.unit == "trials" else ""
        )
