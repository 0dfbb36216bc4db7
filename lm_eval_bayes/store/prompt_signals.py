"""The table of prompt signals: what a model's forward pass over a prompt measured."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lm_eval_bayes._util.hashing import agrees, hash_bytes
from lm_eval_bayes.store.descriptions import find_id, find_ids, require_id
from lm_eval_bayes.store.errors import readable
from lm_eval_bayes.store.file import StoreFile, chunks, marks
from lm_eval_bayes.store.migrations import PROMPT_SIGNALS_SCHEMA
from lm_eval_bayes.store.trial import compact_json, signals_json

INSERT = (
    "INSERT INTO prompt_signals (model, prompt, created, signals, hash) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (model, prompt) DO NOTHING"
)


def put_prompt_signals(
    file: StoreFile, model: str, prompt: str, signals: Mapping[str, Any], now: float
) -> bool:
    """Store the signals of a prompt unless it has some; return whether they were stored."""
    text = signals_json("signals", signals)
    digest = hash_bytes(_hashed_bytes(model, prompt, now, text))
    with file.writing() as connection:
        ids = [
            require_id(connection, "models", model, file.path),
            require_id(connection, "prompts", prompt, file.path),
        ]
        return connection.execute(INSERT, (*ids, now, text, digest)).rowcount == 1


def read_prompt_signals(
    file: StoreFile, model: str, prompts: Iterable[str]
) -> dict[str, dict[str, Any]]:
    """Return the signals of those prompts that have some, by the prompt's hash."""
    if file.schema < PROMPT_SIGNALS_SCHEMA:
        return {}
    signals: dict[str, dict[str, Any]] = {}
    with file.reading() as connection:
        model_id = find_id(connection, "models", model)
        ids = find_ids(connection, "prompts", prompts)
        hashes = {prompt_id: digest for digest, prompt_id in ids.items()}
        for chunk in chunks(list(hashes)):
            statement = (
                "SELECT prompt, signals FROM prompt_signals "
                f"WHERE model = ? AND prompt IN ({marks(chunk)})"
            )
            for prompt_id, text in connection.execute(statement, (model_id, *chunk)):
                with readable(file.path, f"the signals of prompt {hashes[prompt_id]}"):
                    signals[hashes[prompt_id]] = dict(json.loads(text))
    return signals


def prompt_signals_intact(digest: object, model: str, prompt: str, values: Sequence[Any]) -> bool:
    """Whether created and signals, the `values`, have the hash that they are stored with."""
    try:
        return agrees(digest, _hashed_bytes(model, prompt, *values))
    except (TypeError, ValueError):
        return False


def _hashed_bytes(model: str, prompt: str, created: float, signals: str) -> bytes:
    return compact_json([model, prompt, created, signals]).encode("ascii")
