"""Generation settings of the transformers backend, and the model's generation_config.json."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness import get_logger

log = get_logger(__name__)

#: Settings of transformers' `generate` with the values at which they have no effect.
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
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

_KNOWN = frozenset(
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
class TokenSampling:
    """How tokens are drawn from logits: temperature, then top_k, top_p and min_p.

    ``temperature`` 0 is greedy; ``top_k`` 0 is off.
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
        """Whether the likeliest token is always taken."""
        return self.temperature == 0

    @property
    def unfiltered(self) -> bool:
        """Whether all filters are off."""
        return self.top_k == 0 and self.top_p == 1 and self.min_p == 0


@dataclass(frozen=True)
class Settings:
    """The settings of a request for the token loop.

    Attributes
    ----------
    sampling : TokenSampling
        How tokens are drawn.
    max_new_tokens : int
        The maximal length of a completion.
    others : dict
        Settings for transformers' own `generate` only; empty for the token loop.
    """

    sampling: TokenSampling
    max_new_tokens: int
    others: Mapping[str, Any]

    @classmethod
    def of(cls, kwargs: Mapping[str, Any], default_length: int) -> Settings:
        """Return the settings of a request's `kwargs`.

        Raises
        ------
        ModelConfigError
            If one of them is outside its range.

        Examples
        --------
        >>> Settings.of({"temperature": 0.6, "top_k": 20, "max_gen_toks": 9}, 256).sampling
        TokenSampling(temperature=0.6, top_k=20, top_p=1.0, min_p=0.0)
        """
        samples = kwargs.get("do_sample") is not False
        temperature = kwargs.get("temperature")
        if temperature is None:
            temperature = 1.0 if kwargs.get("do_sample") else 0.0
        top_k = kwargs.get("top_k")
        sampling = TokenSampling(
            temperature if samples else 0.0,
            0 if top_k is None or top_k == -1 else top_k,
            1.0 if kwargs.get("top_p") is None else kwargs["top_p"],
            0.0 if kwargs.get("min_p") is None else kwargs["min_p"],
        )
        length = kwargs.get("max_gen_toks", default_length)
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise ModelConfigError(f"`max_gen_toks` must be a whole number >= 1; got {length!r}")
        others = {k: v for k, v in kwargs.items() if k not in _KNOWN and not is_neutral(k, v)}
        if others.get("num_return_sequences") is not None:
            raise ModelConfigError(
                "`num_return_sequences` must be left out, since each trial is a request of its "
                f"own; got {others['num_return_sequences']!r}"
            )
        return cls(sampling, length, others)


def is_neutral(name: str, value: Any) -> bool:
    """Return whether a setting of transformers' `generate` has no effect.

    Examples
    --------
    >>> is_neutral("repetition_penalty", 1.0), is_neutral("repetition_penalty", 1.1)
    (True, False)
    """
    if name not in NEUTRAL:
        return False
    return value is None or value in NEUTRAL[name]


#: Settings that every request has, with the values at which they have no effect.
_EXPLICIT = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}


def generation_config_of(
    pretrained: Any, config: Any, revision: str | None, subfolder: str | None
) -> Any:
    """Return the generation config of a model, without its weights.

    Parameters
    ----------
    pretrained : str or PreTrainedModel
        The model argument of the backend.
    config : PretrainedConfig
        The model's configuration, used without a generation_config.json.
    revision, subfolder : str or None
        The revision and folder on the hub.
    """
    from transformers import GenerationConfig

    if not isinstance(pretrained, str):
        return getattr(pretrained, "generation_config", None) or GenerationConfig()
    try:
        return GenerationConfig.from_pretrained(
            pretrained, revision=revision or "main", subfolder=subfolder or ""
        )
    except (OSError, TypeError, ValueError):  # missing or invalid
        log.debug("%s has no generation_config.json", pretrained, exc_info=True)
        return GenerationConfig.from_model_config(config)


def end_tokens(generation_config: Any, tokenizer: Any) -> dict[int, int | None]:
    """Return the tokens that end a sequence, each with its stop_reason.

    The stop_reason of the tokenizer's own end of the sequence is None, that of further ones,
    such as the end of a turn, is their id.
    """
    eos = getattr(generation_config, "eos_token_id", None)
    ids = eos if isinstance(eos, (list, tuple)) else [eos]
    own = tokenizer.eos_token_id
    ends: dict[int, int | None] = {int(i): int(i) for i in ids if i is not None}
    if own is not None:
        ends[int(own)] = None
    return ends


def not_applied(generation_config: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a generation config that the run does not apply."""
    try:
        defaults: Mapping[str, Any] = generation_config.to_diff_dict()
    except Exception:  # not a config of transformers
        return {}
    wanted = {}
    for name, value in defaults.items():
        if name in _EXPLICIT:
            now = kwargs.get(name, _EXPLICIT[name])
            # A task sets temperature and top_p itself.
            matters = name in ("top_k", "min_p") and value not in (None, now, _EXPLICIT[name])
        else:
            matters = name in NEUTRAL and name != "use_cache"
            matters = matters and not is_neutral(name, value)
            matters = matters and kwargs.get(name) != value
        if matters:
            wanted[name] = value
    return wanted


@contextmanager
def without_sampling_defaults(model: Any) -> Iterator[None]:
    """Remove the sampling defaults of `model.generate` inside the block.

    Settings that a request passes to `generate` apply. Forced first and last tokens stay, since
    some translation models need them.
    """
    original = getattr(model, "generation_config", None)
    if original is None:
        yield
        return
    neutral_config = copy.deepcopy(original)
    for name, neutral in _EXPLICIT.items():
        setattr(neutral_config, name, neutral)
    for name, neutrals in NEUTRAL.items():
        if hasattr(neutral_config, name) and name != "use_cache":
            setattr(neutral_config, name, neutrals[0] if neutrals else None)
    model.generation_config = neutral_config
    try:
        yield
    finally:
        model.generation_config = original
