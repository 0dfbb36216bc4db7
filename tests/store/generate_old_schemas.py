"""Write old_schemas/schema_N.sql, a small store of each schema that was ever released.

Run it once, when a schema is new: `python generate_old_schemas.py N`. A file that is there
already is never written again, because stores like it are in the world.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from lm_eval_bayes.store import file, migrations
from lm_eval_bayes.store.outcomes import GradedQuestion, GradedTask, GradedTrial
from lm_eval_bayes.store.questions import Cluster
from lm_eval_bayes.store.trial import Trial, TrialKey
from lm_eval_bayes.store.trial_store import TrialStore

FOLDER = Path(__file__).parent / "old_schemas"
ODD = "NUL \x00, surrogate \ud83d, 😀"


def write(schema: int) -> None:
    target = FOLDER / f"schema_{schema}.sql"
    if target.exists():
        raise SystemExit(f"{target} is there already")
    migrations.MIGRATIONS = migrations.MIGRATIONS[:schema]
    migrations.SCHEMA = file.SCHEMA = schema
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.sqlite"
        with TrialStore.open(path) as store:
            fill(store)
        with closing(sqlite3.connect(path)) as connection:
            lines = list(connection.iterdump())
    header = [
        f"PRAGMA application_id = {migrations.TRIAL_STORE_ID};",
        f"PRAGMA user_version = {schema};",
    ]
    target.write_text("\n".join([*header, *lines]) + "\n", encoding="utf-8")


def fill(store: TrialStore) -> None:
    for pretrained, temperature in (("some/model", 0.6), ("other/model", 1)):
        model = store.describe_model({"pretrained": pretrained, "weights": "sha256:aa"})
        sampling = store.describe_sampling({"temperature": temperature, "until": ["\n"]})
        for question in ("What is 6 times 7?", ODD):
            key = TrialKey(model=model, prompt=store.describe_prompt(question), sampling=sampling)
            bare = Trial(key, 0, "42", created=1_790_000_000.25)
            full = Trial(
                key,
                1,
                ODD,
                seed=-7,
                signals={"bits": 1.5, "lowest": float("-inf")},
                prompt_tokens=9,
                completion_tokens=4,
                finish_reason="stop",
                stop_reason=128_009,
                queued_s=0.5,
                generated_s=2.25,
                concurrency=64,
                versions={"vllm": "0.32.0"},
                created=1_790_000_001.5,
            )
            store.add([bare, full])
            if store.schema >= migrations.PROMPT_SIGNALS_SCHEMA:
                store.add_prompt_signals(key.model, key.prompt, {"bits": 0.5})
            if store.schema >= migrations.OUTCOMES_SCHEMA:
                graded = (GradedTrial(key, 0, 1, "42"), GradedTrial(key, 1, 0, None, ODD))
                has_clusters = store.schema >= migrations.CLUSTERS_SCHEMA
                graded_question = GradedQuestion(
                    int(question == ODD),
                    f"{len(question):064x}",
                    graded,
                    Cluster("contest", question) if has_clusters else None,
                )
                store.add_outcomes([GradedTask("aime", "1.0", "none", 2, (graded_question,))])


if __name__ == "__main__":
    write(int(sys.argv[1]))
