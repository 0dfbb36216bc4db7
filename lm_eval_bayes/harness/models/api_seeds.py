"""A seed for every trial on API backends, which otherwise send one seed with every request.

The harness's `local-completions` and its relatives put the model argument `seed` (1234 by default)
into each request, so a server that honours seeds answers the N clones of a question with one text
N times. During an evaluation, the i-th payload of a prompt carries hash(seed + i, prompt, setting)
instead; one that the harness sends again after a failure takes the next number. Requests of other
tasks keep the harness's seed.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.evaluation import RepeatedInstance
from lm_eval_bayes.harness.models.interface import prompt_text
from lm_eval_bayes.harness.plugin import patches

log = get_logger(__name__)


def trial_seed(seed0: int, trial: int, prompt: str, setting: Sequence[str] = ()) -> int:
    """Return the seed of one trial: a 31-bit hash of (seed0 + trial, prompt, setting).

    One seed for all questions of a trial would let the questions share their noise;
    hashing the prompt in keeps them independent. So does the setting: an engine or a day would
    otherwise repeat the draws of another.

    Examples
    --------
    >>> trial_seed(1234, 0, "What is 2 + 2?") == trial_seed(1234, 0, "What is 2 + 2?")
    True
    >>> trial_seed(1234, 0, "What is 2 + 2?") == trial_seed(1234, 1, "What is 2 + 2?")
    False
    >>> trial_seed(1234, 0, "2 + 2?") == trial_seed(1234, 0, "2 + 2?", ["day 2"])
    False
    """
    text = "\0".join((f"{seed0 + trial}", prompt, *setting)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 33


@contextmanager
def seeded_trials(model: Any) -> Iterator[None]:
    """Give each trial that is requested from an API model in this block a seed of its own.

    Parameters
    ----------
    model : LM
        Any model; those whose `generate_until` is not that of the harness's API models, such as
        the recording models of this package, are left as they are.
    """
    api = getattr(sys.modules.get("lm_eval.models.api_models"), "TemplateAPI", None)
    of_api = getattr(api, "generate_until", None)
    if of_api is None or getattr(type(model), "generate_until", None) is not of_api:
        yield
        return

    def wrap(original: Callable[..., list[str]]) -> Callable[..., list[str]]:
        @functools.wraps(original)
        def generate_until(requests: Sequence[Any], *args: Any, **kwargs: Any) -> list[str]:
            ours = [request for request in requests if isinstance(request, RepeatedInstance)]
            trials = [request for request in ours if request.repeats > 1 or request.setting]
            if not trials:
                return original(requests, *args, **kwargs)
            with _seeded_payloads(model, trials):
                return original(requests, *args, **kwargs)

        return generate_until

    with patches.applied(patches.API_GENERATE, wrap, model) as problem:
        if problem is not None:
            _warn(problem)
        yield


def _warn(problem: str) -> None:
    log.warning(
        "%s: every trial of a question may carry the same seed and give the same response", problem
    )


def _key(messages: Any) -> str:
    """Identify a prompt in any of the forms in which a payload gets it."""
    if isinstance(messages, (list, tuple)) and len(messages) == 1:
        only = messages[0]
        messages = messages if isinstance(only, Mapping) else only
    return messages if isinstance(messages, str) else json.dumps(messages, default=str)


def _prompt_keys(model: Any, requests: Sequence[Any]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return prompt and setting of the trials by what identifies the prompt in a payload."""
    distinct = {request.args[0]: request.setting for request in requests}
    keys: dict[str, tuple[str, tuple[str, ...]]] = {}
    for context, setting in distinct.items():
        text = prompt_text(context)
        keys[context if isinstance(context, str) else _key(json.loads(text))] = text, setting
    if getattr(model, "tokenized_requests", False):
        from lm_eval_bayes.harness.models.openai.request import check_room

        encoded = model.tok_encode(list(distinct), add_special_tokens=model.add_bos_token)
        default = getattr(model, "_max_gen_toks", 256)
        wanted = max(r.args[1].get("max_gen_toks", default) for r in requests)
        check_room([(max(map(len, encoded)), wanted)], model.max_length)
        sent = zip(encoded, distinct.items(), strict=True)
        keys |= {_key([tokens]): (str(context), setting) for tokens, (context, setting) in sent}
    return keys


@contextmanager
def _seeded_payloads(model: Any, requests: Sequence[Any]) -> Iterator[None]:
    from lm_eval_bayes.harness.models.openai.request import check_batch_size

    check_batch_size(model)
    keys = _prompt_keys(model, requests)
    issued: Counter[tuple[str, tuple[str, ...]]] = Counter()

    def seeding(create_payload: Callable[..., Any]) -> Callable[..., Any]:
        def seeded_payload(messages: Any, *args: Any, **kwargs: Any) -> Any:
            asked = keys.get(_key(messages))
            if asked is not None and kwargs.get("generate"):
                kwargs["seed"] = trial_seed(int(kwargs.get("seed") or 0), issued[asked], *asked)
                issued[asked] += 1
            return create_payload(messages, *args, **kwargs)

        return seeded_payload

    with patches.applied(patches.API_PAYLOAD, seeding, model) as problem:
        if problem is not None:
            _warn(problem)
        yield
