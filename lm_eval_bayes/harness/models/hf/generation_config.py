"""What a model's generation_config.json says: its end tokens count, its sampling does not."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lm_eval_bayes.harness.logs import get_logger
from lm_eval_bayes.harness.models.hf.settings import DOING_NOTHING, does_nothing

log = get_logger(__name__)

#: What a run always says itself, and the value at which it does nothing.
_ALWAYS_SAID = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}


def generation_config_of(
    pretrained: Any, config: Any, revision: str | None, subfolder: str | None
) -> Any:
    """Return the generation config that a model would have, without its weights.

    Parameters
    ----------
    pretrained : str or PreTrainedModel
        As given to the backend.
    config : PretrainedConfig
        The model's configuration, which stands in where there is no generation_config.json.
    revision, subfolder : str or None
        Where on the hub.
    """
    from transformers import GenerationConfig

    if not isinstance(pretrained, str):
        return getattr(pretrained, "generation_config", None) or GenerationConfig()
    try:
        return GenerationConfig.from_pretrained(
            pretrained, revision=revision or "main", subfolder=subfolder or ""
        )
    except (OSError, TypeError, ValueError):  # there is none, or not one that can be read
        log.debug("%s has no generation_config.json", pretrained, exc_info=True)
        return GenerationConfig.from_model_config(config)


def end_tokens(generation_config: Any, tokenizer: Any) -> dict[int, int | None]:
    """Return the tokens that end a sequence, each with the stop_reason that it is.

    The tokenizer's own end of the sequence has none; further ones, such as the end of a turn,
    are told by their id.
    """
    said = getattr(generation_config, "eos_token_id", None)
    ids = said if isinstance(said, (list, tuple)) else [said]
    own = tokenizer.eos_token_id
    ends: dict[int, int | None] = {int(i): int(i) for i in ids if i is not None}
    if own is not None:
        ends[int(own)] = None
    return ends


def not_applied(generation_config: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a generation config would change, and a run's settings do not say."""
    try:
        said: Mapping[str, Any] = generation_config.to_diff_dict()
    except Exception:  # not a config of transformers
        return {}
    wanted = {}
    for name, value in said.items():
        if name in _ALWAYS_SAID:
            now = kwargs.get(name, _ALWAYS_SAID[name])
            # another temperature or top_p is what a task's own settings are for
            matters = name in ("top_k", "min_p") and value not in (None, now, _ALWAYS_SAID[name])
        else:
            matters = name in DOING_NOTHING and name != "use_cache"
            matters = matters and not does_nothing(name, value)
            matters = matters and kwargs.get(name) != value
        if matters:
            wanted[name] = value
    return wanted


@contextmanager
def without_sampling_defaults(model: Any) -> Iterator[None]:
    """Let `model.generate` know end tokens and the like, but no sampling of its own.

    Settings that a request passes to `generate` count as ever. What a sequence has to begin or
    end with stays, since it is part of how some translation models work.
    """
    theirs = getattr(model, "generation_config", None)
    if theirs is None:
        yield
        return
    ours = copy.deepcopy(theirs)
    for name, neutral in _ALWAYS_SAID.items():
        setattr(ours, name, neutral)
    for name, neutrals in DOING_NOTHING.items():
        if hasattr(ours, name) and name != "use_cache":
            setattr(ours, name, neutrals[0] if neutrals else None)
    model.generation_config = ours
    try:
        yield
    finally:
        model.generation_config = theirs
