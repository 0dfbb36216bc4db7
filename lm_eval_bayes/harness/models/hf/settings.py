"""Generation settings, read for the token loop of the transformers backend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lm_eval_bayes.errors import ModelConfigError

#: Settings of transformers' `generate` that do nothing at this value.
DOING_NOTHING: Mapping[str, tuple[Any, ...]] = {
    "repetition_penalty": (1,),
    "encoder_repetition_penalty": (1,),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "typical_p": (1,),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "top_h": (),
    "num_beams": (1,),
    "num_beam_groups": (1,),
    "diversity_penalty": (0,),
    "length_penalty": (1,),
    "num_return_sequences": (1,),
    "guidance_scale": (1,),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "penalty_alpha": (0,),
    "use_cache": (True,),
    "renormalize_logits": (True, False),
    "remove_invalid_values": (False,),
    "exponential_decay_length_penalty": (),
    "bad_words_ids": (),
    "suppress_tokens": (),
    "begin_suppress_tokens": (),
    "sequence_bias": (),
}

_READ = frozenset(
    (
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "do_sample",
        "until",
        "max_gen_toks",
        "seed",
        "max_new_tokens",
        "max_tokens",
        "max_completion_tokens",
    )
)


@dataclass(frozen=True)
class Recipe:
    """How a token is drawn from logits: temperature, then top_k, top_p and min_p.

    ``temperature`` 0 takes the likeliest token; ``top_k`` 0 keeps all.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        for name, value, good, rule in self._rules():
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not good(value):
                raise ModelConfigError(f"`{name}` must {rule}; got {value!r}")

    def _rules(self) -> Iterator[tuple[str, Any, Any, str]]:
        yield "temperature", self.temperature, lambda v: 0 <= v < float("inf"), "be 0 or more"
        yield "top_k", self.top_k, lambda v: v == int(v) >= 0, "be a whole number, 0 for all tokens"
        yield "top_p", self.top_p, lambda v: 0 < v <= 1, "be in (0, 1]"
        yield "min_p", self.min_p, lambda v: 0 <= v <= 1, "be in [0, 1]"

    @property
    def greedy(self) -> bool:
        """Whether nothing is left to chance."""
        return self.temperature == 0

    @property
    def keeps_all(self) -> bool:
        """Whether no token is filtered out."""
        return self.top_k == 0 and self.top_p == 1 and self.min_p == 0


@dataclass(frozen=True)
class Settings:
    """Everything that an order's `kwargs` say to the token loop.

    Attributes
    ----------
    recipe : Recipe
        How tokens are drawn.
    max_new_tokens : int
        Where a completion is cut.
    others : dict
        What only transformers' own `generate` understands; empty for the token loop.
    """

    recipe: Recipe
    max_new_tokens: int
    others: Mapping[str, Any]

    @classmethod
    def of(cls, kwargs: Mapping[str, Any], default_length: int) -> Settings:
        """Read an order's settings.

        Raises
        ------
        ModelConfigError
            If one of them is outside its range.

        Examples
        --------
        >>> Settings.of({"temperature": 0.6, "top_k": 20, "max_gen_toks": 9}, 256).recipe
        Recipe(temperature=0.6, top_k=20, top_p=1.0, min_p=0.0)
        """
        sampled = kwargs.get("do_sample") is not False
        temperature = kwargs.get("temperature")
        if temperature is None:
            temperature = 1.0 if kwargs.get("do_sample") else 0.0
        top_k = kwargs.get("top_k")
        recipe = Recipe(
            temperature if sampled else 0.0,
            0 if top_k is None or top_k == -1 else top_k,
            1.0 if kwargs.get("top_p") is None else kwargs["top_p"],
            0.0 if kwargs.get("min_p") is None else kwargs["min_p"],
        )
        length = kwargs.get("max_gen_toks", default_length)
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise ModelConfigError(f"`max_gen_toks` must be a whole number >= 1; got {length!r}")
        others = {k: v for k, v in kwargs.items() if k not in _READ and not does_nothing(k, v)}
        if others.get("num_return_sequences") is not None:
            raise ModelConfigError(
                "`num_return_sequences` must be left out, since each trial is a request of its "
                f"own; got {others['num_return_sequences']!r}"
            )
        return cls(recipe, length, others)


def does_nothing(name: str, value: Any) -> bool:
    """Whether a setting of transformers' `generate` leaves everything as it is.

    Examples
    --------
    >>> does_nothing("repetition_penalty", 1.0), does_nothing("repetition_penalty", 1.1)
    (True, False)
    """
    if name not in DOING_NOTHING:
        return False
    return value is None or value in DOING_NOTHING[name]
