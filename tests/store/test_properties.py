"""Whatever is stored comes back, whatever the order, and equal values hash equal."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from lm_eval_bayes._util.hashing import hash_json
from lm_eval_bayes.store.merge import merge
from lm_eval_bayes.store.prune import verify
from lm_eval_bayes.store.trial import Trial, TrialKey
from lm_eval_bayes.store.trial_store import TrialStore

# Lone surrogates included, which hypothesis leaves out of st.text() by itself.
any_text = st.text(st.characters(exclude_categories=()), max_size=40)
plain_text = st.text(max_size=10)
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**30), 10**30)
values = st.recursive(
    st.none() | st.booleans() | numbers | plain_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain_text, inner, max_size=3),
    max_leaves=8,
)
counts = st.none() | st.integers(0, 2**63 - 1)
seconds = st.none() | st.floats(allow_nan=False, allow_infinity=False)
trials = st.builds(
    dict,
    text=any_text,
    seed=st.none() | st.integers(-(2**63), 2**63 - 1),
    signals=st.none() | st.dictionaries(plain_text, values, max_size=3),
    prompt_tokens=counts,
    completion_tokens=counts,
    finish_reason=st.none() | plain_text,
    stop_reason=st.none()
    | any_text.filter(lambda text: not has_pair(text))
    | st.integers(0, 10**6),
    queued_s=seconds,
    generated_s=seconds,
    concurrency=counts,
    versions=st.dictionaries(plain_text, plain_text, max_size=2),
    created=st.floats(0, 1e12),
)


def has_pair(text):
    """Two surrogates in a row, which JSON cannot tell from the character they stand for."""
    return json.loads(json.dumps(text)) != text


def opened(folder, name):
    store = TrialStore.open(Path(folder) / name)
    key = TrialKey(
        model=store.describe_model({}),
        prompt=store.describe_prompts(["q"])[0],
        sampling=store.describe_sampling({}),
    )
    return store, key


@settings(max_examples=15, deadline=None)
@given(st.dictionaries(st.integers(0, 2**63 - 1), trials, max_size=5))
def test_trials_come_back(drawn):
    with tempfile.TemporaryDirectory() as folder:
        store, key = opened(folder, "a.sqlite")
        with store:
            wanted = {i: Trial(key, i, **fields) for i, fields in drawn.items()}
            assert store.add(wanted.values()) == len(wanted)
            assert store.add(wanted.values()) == 0
            assert store.trials(key) == wanted
        assert verify(Path(folder) / "a.sqlite").ok


@settings(max_examples=4, deadline=None)
@given(st.lists(st.sets(st.integers(0, 12)), min_size=1, max_size=4), st.randoms())
def test_a_merge_is_the_union(shards, rng):
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for number, trials in enumerate(shards):
            names.append(Path(folder) / f"{number}.sqlite")
            store, key = opened(folder, names[-1].name)
            with store:
                store.add([Trial(key, i, f"text {i}", seed=i) for i in trials])
        rng.shuffle(names)
        report = merge(names, Path(folder) / "all.sqlite")
        union = set().union(*shards)
        assert report.added == len(union)
        assert report.known == sum(map(len, shards)) - len(union)
        with TrialStore.open(Path(folder) / "all.sqlite", mode="read") as store:
            assert store.numbers_of([key]) == {key: union}


@given(values, values)
def test_equal_hashes_mean_equal_values(value, other_value):
    def typed(item):
        # In Python True == 1; in JSON it is not.
        if isinstance(item, dict):
            return {key: typed(part) for key, part in item.items()}
        if isinstance(item, list):
            return [typed(part) for part in item]
        return (isinstance(item, bool), item)

    assert (hash_json(value) == hash_json(other_value)) == (typed(value) == typed(other_value))
