"""What a model's files are told by: a hash that notices every change, and reads a file once."""

import hashlib
import json
import os
import shutil

import pytest

from lm_eval_bayes.errors import InvalidInputError, ModelConfigError
from lm_eval_bayes.harness.models import weights
from lm_eval_bayes.harness.models.weights import (
    file_digest,
    settings_of,
    tokenizer_of,
    weights_of,
)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    # files of a test are younger than any other
    monkeypatch.setattr(weights, "SETTLED_NS", -1)
    return folder / "lm-eval-bayes" / "weights"


@pytest.fixture
def reads(monkeypatch):
    """The files whose content is read."""
    seen = []

    def spy(path, *args, **kwargs):
        seen.append(os.path.basename(path))
        return open(path, *args, **kwargs)

    monkeypatch.setattr(weights, "open", spy, raising=False)
    return seen


@pytest.fixture
def folder(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "model-1.safetensors").write_bytes(b"first" * 1000)
    (model / "model-2.safetensors").write_bytes(b"second" * 1000)
    (model / "pytorch_model.bin").write_bytes(b"old")
    (model / "training_args.bin").write_bytes(b"lr")
    (model / "config.json").write_text('{"hidden_size": 8, "transformers_version": "4.1"}')
    return model


def test_a_file_is_hashed_as_b2sum_does(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"abc")
    # printf abc | b2sum --length 128
    assert file_digest(path) == "blake2b-128:cf4ab791c62b8d2b2109c90275287816"


def test_a_folder_is_hashed_by_name_size_and_content(folder, tmp_path):
    got = weights_of(str(folder))
    entries = []
    for name in ("model-1.safetensors", "model-2.safetensors"):
        data = (folder / name).read_bytes()
        digest = hashlib.blake2b(data, digest_size=16).hexdigest()
        entries.append([name, len(data), f"blake2b-128:{digest}"])
    text = json.dumps(entries, separators=(",", ":")).encode()
    assert got == "blake2b-128:" + hashlib.blake2b(text, digest_size=16).hexdigest()
    shutil.copytree(folder, tmp_path / "elsewhere")
    assert weights_of(str(tmp_path / "elsewhere")) == got


def test_only_what_is_loaded_counts(folder):
    got = weights_of(str(folder))
    for name in ("pytorch_model.bin", "training_args.bin", "optimizer.pt", "README.md"):
        (folder / name).write_bytes(b"something else")
    assert weights_of(str(folder)) == got
    for path in folder.glob("*.safetensors"):
        path.unlink()
    old = weights_of(str(folder))
    assert old != got
    (folder / "training_args.bin").write_bytes(b"again")
    assert weights_of(str(folder)) == old
    (folder / "pytorch_model.bin").write_bytes(b"again")
    assert weights_of(str(folder)) != old


def test_one_file_a_subfolder_and_a_gguf_file(folder):
    (folder / "deep").mkdir()
    shutil.copy(folder / "model-1.safetensors", folder / "deep" / "model-1.safetensors")
    (folder / "q4.gguf").write_bytes(b"GGUF4")
    (folder / "q8.gguf").write_bytes(b"GGUF8")
    kinds = {
        weights_of(str(folder)),
        weights_of(str(folder), subfolder="deep"),
        weights_of(str(folder), gguf_file="q4.gguf"),
        weights_of(str(folder), gguf_file="q8.gguf"),
    }
    assert len(kinds) == 4
    assert weights_of(str(folder / "q4.gguf")) == weights_of(str(folder), gguf_file="q4.gguf")
    with pytest.raises(ModelConfigError, match=r"cannot be read: .*q5\.gguf"):
        weights_of(str(folder), gguf_file="q5.gguf")


def test_an_unchanged_file_is_read_once(folder, reads, cache):
    got = weights_of(str(folder))
    assert sorted(reads) == ["model-1.safetensors", "model-2.safetensors"]
    assert weights_of(str(folder)) == got
    assert len(reads) == 2
    assert len(list(cache.glob("*.json"))) == 2
    assert not list(cache.glob(".*"))


def test_other_bytes_of_the_same_size_and_time_are_noticed(folder):
    got = weights_of(str(folder))
    path = folder / "model-1.safetensors"
    stat = path.stat()
    # another file in its place: another inode
    other = folder / "new"
    other.write_bytes(b"FIRST" * 1000)
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    os.replace(other, path)
    assert path.stat().st_size == stat.st_size
    assert path.stat().st_mtime_ns == stat.st_mtime_ns
    swapped = weights_of(str(folder))
    assert swapped != got
    # and other bytes in the same file, its time put back
    with open(path, "r+b") as file:
        file.write(b"f")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert weights_of(str(folder)) not in (got, swapped)


def test_a_file_that_was_just_written_is_not_trusted_to_stay(folder, reads, monkeypatch):
    monkeypatch.setattr(weights, "SETTLED_NS", 3_600_000_000_000)
    weights_of(str(folder))
    weights_of(str(folder))
    assert len(reads) == 4


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"path": 1}', "\x00"])
def test_a_damaged_cache_is_ignored(folder, cache, reads, damage):
    got = weights_of(str(folder))
    for entry in cache.glob("*.json"):
        entry.write_text(damage)
    assert weights_of(str(folder)) == got
    assert len(reads) == 4


def test_a_cache_that_cannot_be_written_is_no_error(folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert weights_of(str(folder)).startswith("blake2b-128:")


def test_a_folder_without_weights_and_a_name_that_leads_nowhere(tmp_path):
    assert weights_of(str(tmp_path)) is None
    assert weights_of("nobody/has-this-model") is None
    assert weights_of("not a name at all") is None
    assert settings_of(str(tmp_path)) is None
    assert tokenizer_of(str(tmp_path)) is None
    for wrong in ("", None, 7):
        with pytest.raises(InvalidInputError, match="`pretrained` must be a path or the name"):
            weights_of(wrong)


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_a_model_of_the_hub_is_told_by_its_commit(tmp_path, monkeypatch):
    pytest.importorskip("huggingface_hub")
    import huggingface_hub.constants
    import huggingface_hub.file_download

    home = tmp_path / "hub"
    repository = home / "models--some--model"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(home))
    assert weights_of("some/model") == f"hub:{COMMIT}"
    assert weights_of("some/model", "main") == f"hub:{COMMIT}"
    assert weights_of("some/model", COMMIT) == f"hub:{COMMIT}"
    assert weights_of("some/model", "other-branch") is None
    assert weights_of("some/model:Q4_K_M") == f"hub:{COMMIT}"


def test_the_hub_is_asked_before_its_cache(monkeypatch):
    pytest.importorskip("huggingface_hub")
    import huggingface_hub.constants

    class Api:
        def model_info(self, name, revision, timeout):
            assert (name, revision, timeout) == ("some/model", "main", 10)
            return type("Info", (), {"sha": COMMIT})

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    assert weights_of("some/model") == f"hub:{COMMIT}"


def test_settings_are_hashed_by_what_they_say(folder):
    got = settings_of(str(folder))
    (folder / "config.json").write_text(
        '{"transformers_version": "5.0", "_name_or_path": "x",\n "hidden_size": 8}'
    )
    assert settings_of(str(folder)) == got
    (folder / "config.json").write_text('{"hidden_size": 9}')
    other = settings_of(str(folder))
    assert other != got
    (folder / "modeling_own.py").write_text("x = 1")
    assert settings_of(str(folder)) not in (got, other)


def test_a_tokenizer_is_hashed_by_its_files(folder):
    (folder / "tokenizer.json").write_text("{}")
    got = tokenizer_of(str(folder))
    assert got.startswith("blake2b-128:")
    (folder / "model-1.safetensors").write_bytes(b"other weights")
    assert tokenizer_of(str(folder)) == got
    (folder / "tokenizer.json").write_text('{"a": 1}')
    assert tokenizer_of(str(folder)) != got
