from __future__ import annotations

import os
import threading

import pytest
from _support.errors import refused

from lm_eval_bayes._util.hashing import hash_text, model_hash, sampling_hash
from lm_eval_bayes.store.errors import OtherWeightsError, StoreError
from lm_eval_bayes.store.trial import TrialKey
from lm_eval_bayes.store.trial_store import TrialStore

ODD = "NUL \x00, a lone surrogate \ud83d, a pair kept apart \ud83d\ude00, 😀, \r\n, \ufeff"


def test_texts_of_any_kind_come_back(store, key, make_trial, path, plainly):
    store.add([make_trial(key, 0, ODD, stop_reason="\x00\ud800", signals={"\ud800": "\x00"})])
    trial = store.trials(key)[0]
    assert (trial.text, trial.stop_reason) == (ODD, "\x00\ud800")
    assert trial.signals == {"\ud800": "\x00"}
    assert plainly(path) == {(key.model, key.prompt, key.sampling, 0): (7, ODD)}


def test_numbers_that_json_lacks_are_kept_in_signals(store, key, make_trial):
    store.add([make_trial(key, signals={"bits": float("-inf"), "nan": [float("nan")]})])
    trial = store.trials(key)[0]
    assert trial.signals["bits"] == float("-inf")
    assert trial.signals["nan"][0] != trial.signals["nan"][0]
    assert trial.to_dict()["signals"] == {"bits": None, "nan": [None]}


def test_some_trials_of_many_keys(store, describe, make_trial):
    keys = [describe(store, f"question {q}", sampling={"temperature": q % 2}) for q in range(6)]
    store.add([make_trial(key, i, f"{key.prompt} {i}") for key in keys[::2] for i in range(3)])
    unknown = TrialKey(model="blake2b-128:00", prompt=keys[0].prompt, sampling=keys[0].sampling)
    for first, n, wanted in ((0, 1, [0]), (1, 2, [1]), (1, None, [1, 2])):
        trials = store.trials_of([*keys, unknown], n, first=first)
        assert [list(trials[key]) for key in [*keys, unknown]] == [wanted, []] * 3 + [[]]
        assert all(trials[key][first].text == f"{key.prompt} {first}" for key in keys[::2])
    numbers = store.numbers_of([*keys, unknown])
    assert list(numbers.values()) == [{0, 1, 2}, set()] * 3 + [set()]


def test_adding_again_changes_nothing(store, key, make_trial):
    first = make_trial(key)
    assert store.add([first]) == 1
    again = make_trial(key, generated_s=99.0, signals=None, created=1.0, versions={"vllm": "1"})
    assert store.add([again, again]) == 0
    assert store.trials(key) == {0: first}


@pytest.mark.parametrize("changes", [{"text": "41"}, {"seed": None}])
def test_of_two_texts_or_seeds_of_a_trial_the_first_stays(store, key, make_trial, changes):
    first = make_trial(key, 4)
    assert store.add([first, make_trial(key, 4, **changes)]) == 1
    assert store.add([make_trial(key, 5), make_trial(key, 4, **changes)]) == 1
    assert store.trials(key) == {4: first, 5: make_trial(key, 5)}


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({"trial": -1}, ("trial", "range", -1)),
        ({"trial": 2**63}, ("trial", "range", 9223372036854775808)),
        ({"seed": 1.5}, ("seed", "range", 1.5)),
        ({"signals": [1]}, ("signals", "format")),
        ({"signals": {"a": object()}}, ("signals", "format")),
        ({"prompt_tokens": -3}, ("prompt_tokens", "range", -3)),
        ({"finish_reason": "\ud800"}, ("finish_reason", "format", "\ud800")),
        ({"stop_reason": 1.5}, ("stop_reason", "range", 1.5)),
        ({"queued_s": float("nan")}, ("queued_s", "range")),
        ({"versions": {"a": {1}}}, ('versions["a"]', "type")),
    ],
)
def test_a_field_that_breaks_its_rule_stores_nothing(store, key, make_trial, changes, broken):
    fields = {"key": key, "trial": 0, "text": "42", **changes}
    with refused(*broken):
        store.add([make_trial(key, 1), make_trial(**fields)])
    assert store.trials(key) == {}


@pytest.mark.parametrize("part", ["model", "prompt", "sampling"])
def test_hashes_must_be_described_first(store, key, make_trial, part):
    fields = {**key.to_dict(), part: "blake2b-128:00"}
    with refused(part, "choice", "blake2b-128:00"):
        store.add([make_trial(key), make_trial(TrialKey(**fields))])
    assert store.trials(key) == {}


def test_hashes_are_explained(store, describe):
    key = describe(store, ODD, {"pretrained": "m\ud800", "x": 1.0}, {"temperature": 1.0})
    assert key.model == model_hash({"x": 1, "pretrained": "m\ud800"})
    assert key.prompt == hash_text(ODD)
    assert key.sampling == sampling_hash({"temperature": 1})
    assert store.model(key.model) == {"pretrained": "m\ud800", "x": 1}
    assert store.prompt(key.prompt) == ODD
    assert store.sampling(key.sampling) == {"temperature": 1}
    with refused("digest", "choice"):
        store.prompt(key.model)


def test_signals_of_prompts(store, key):
    assert store.prompt_signals(key.model, [key.prompt]) == {}
    assert store.add_prompt_signals(key.model, key.prompt, {"bits": 0.5, "x": float("inf")})
    assert not store.add_prompt_signals(key.model, key.prompt, {"bits": 0.75})
    wanted = {key.prompt: {"bits": 0.5, "x": float("inf")}}
    assert store.prompt_signals(key.model, [key.prompt, "blake2b-128:00"]) == wanted
    assert store.prompt_signals("blake2b-128:00", [key.prompt]) == {}
    with refused("model", "choice"):
        store.add_prompt_signals(key.prompt, key.prompt, {})


def test_other_weights_under_one_name_are_refused(store):
    store.describe_model({"pretrained": "m", "weights": "sha256:aa", "dtype": "bfloat16"})
    store.check_model({"pretrained": "m", "weights": "sha256:aa", "dtype": "float32"})
    store.check_model({"pretrained": "n", "weights": "sha256:bb"})
    store.check_model({"pretrained": "m"})
    store.check_model({"weights": "sha256:bb"})
    # Asking for another revision is a choice, not an accident.
    store.check_model({"pretrained": "m", "revision": "v2", "weights": "sha256:bb"})
    with refused(None, "mismatch", None, error=OtherWeightsError):
        store.check_model({"pretrained": "m", "weights": "sha256:bb"})


def test_a_store_opened_for_reading_is_not_written(store, key, make_trial, path):
    store.add([make_trial(key)])
    with TrialStore.open(path, mode="read") as reader:
        assert reader.describe_prompts([store.prompt(key.prompt)])[0] == key.prompt
        for write in (
            lambda: reader.add([make_trial(key, 1)]),
            lambda: reader.describe_prompts(["new"]),
            lambda: reader.add_prompt_signals(key.model, key.prompt, {}),
            lambda: reader.prune(trials_from=0, dry_run=False),
        ):
            with refused("mode", "conflict", "read", error=StoreError):
                write()


def test_reading_leaves_nothing_behind(filled, tmp_path):
    path = filled()
    before = path.read_bytes(), path.stat().st_mtime_ns
    with TrialStore.open(path, mode="read") as reader:
        assert reader.info().trials == 6
    assert os.listdir(tmp_path) == [path.name]
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_a_closed_store_says_so(store, key):
    store.close()
    store.close()
    with refused("store", "conflict", error=StoreError):
        store.trials(key)


def test_journal_and_flushing(path):
    with TrialStore.open(path) as store, store.file.reading() as view:
        assert view.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert view.execute("PRAGMA synchronous").fetchone() == (1,)


def test_names_with_odd_characters(tmp_path, describe, make_trial):
    for name in ("a b?mode=memory#%00&é😀.sqlite", ":memory:", "-x'\"; DROP.sqlite", "a\udcff"):
        path = tmp_path / name
        with TrialStore.open(path) as store:
            key = describe(store)
            store.add([make_trial(key)])
        assert path.stat().st_size > 0
        with TrialStore.open(path, mode="read") as store:
            assert list(store.trials(key)) == [0]


def test_a_relative_path_and_a_link_lead_to_the_same_store(tmp_path, monkeypatch, filled):
    path = filled()
    (tmp_path / "link").symlink_to(path)
    monkeypatch.chdir(tmp_path)
    for way in ("link", "trials.sqlite", b"trials.sqlite"):
        with TrialStore.open(way) as store:
            assert store.path == path.resolve()
            assert store.info().trials == 6


def test_threads_may_share_a_store(store, key, make_trial):
    def write(start):
        for i in range(start, 80, 4):
            store.add([make_trial(key, i, str(i))])

    threads = [threading.Thread(target=write, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {i: trial.text for i, trial in store.trials(key).items()} == {
        i: str(i) for i in range(80)
    }


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_must_open_the_store_again(store, key, make_trial):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            store.add([make_trial(key)])
        except StoreError as error:
            os.write(writer, error.rule.encode())
        store.close()
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read() == b"conflict"
    assert store.add([make_trial(key)]) == 1
