"""What a model's reading of a prompt measured, in a table of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from lm_eval_bayes._util.hashing import hash_bytes
from lm_eval_bayes.store.errors import readable
from lm_eval_bayes.store.file import StoreFile
from lm_eval_bayes.store.migrations import PROMPT_SIGNALS_SCHEMA
from lm_eval_bayes.store.queries import chunks, find_ids, known_id, marks
from lm_eval_bayes.store.rows import (
    INSERT_PROMPT_SIGNALS,
    find_id,
    prompt_signals_hashed,
    signals_json,
)


def put_prompt_signals(
    file: StoreFile, model: str, prompt: str, signals: Mapping[str, Any], now: float
) -> bool:
    """Store signals of a prompt unless there are some; return whether they were new."""
    text = signals_json(signals)
    digest = hash_bytes(prompt_signals_hashed(model, prompt, now, text))
    with file.writing() as connection:
        ids = [
            known_id(connection, "models", model, file.path),
            known_id(connection, "prompts", prompt, file.path),
        ]
        added = connection.execute(INSERT_PROMPT_SIGNALS, (*ids, now, text, digest))
        return added.rowcount == 1


def read_prompt_signals(
    file: StoreFile, model: str, prompts: Iterable[str]
) -> dict[str, dict[str, Any]]:
    """Return the signals of those of the prompts that have some, by the prompt's hash."""
    if file.schema < PROMPT_SIGNALS_SCHEMA:
        return {}
    found: dict[str, dict[str, Any]] = {}
    with file.reading() as connection:
        model_id = find_id(connection, "models", model)
        ids = find_ids(connection, "prompts", prompts)
        hashes = {number: digest for digest, number in ids.items()}
        for chunk in chunks(list(hashes)):
            statement = (
                "SELECT prompt, signals FROM prompt_signals "
                f"WHERE model = ? AND prompt IN ({marks(chunk)})"
            )
            for number, text in connection.execute(statement, (model_id, *chunk)):
                with readable(file.path, f"what was measured of prompt {hashes[number]}"):
                    found[hashes[number]] = dict(json.loads(text))
    return found
