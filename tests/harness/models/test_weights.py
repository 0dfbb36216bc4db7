"""What a model's files are told by: a hash that notices every change, and reads a file once."""

import hashlib
import json
import os
import shutil

import pytest
from _support.errors import refused
from _support.waiting import wait_until

from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness.models import weights
from lm_eval_bayes.harness.models.weights import (
    file_digest,
    is_content,
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


def test_a_file_is_hashed_as_sha256sum_does(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"abc")
    # printf abc | sha256sum
    sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    for _ in range(2):  # the second time from the cache
        assert file_digest(path) == f"sha256:{sha256}"


def test_a_folder_is_hashed_by_name_size_and_content(folder, tmp_path):
    got = weights_of(str(folder))
    entries = []
    for name in ("model-1.safetensors", "model-2.safetensors"):
        data = (folder / name).read_bytes()
        entries.append([name, len(data), f"sha256:{hashlib.sha256(data).hexdigest()}"])
    text = json.dumps(entries, separators=(",", ":")).encode()
    assert got == "sha256:" + hashlib.sha256(text).hexdigest()
    shutil.copytree(folder, tmp_path / "elsewhere")
    assert weights_of(str(tmp_path / "elsewhere")) == got
    for name in ("model-1.safetensors", "model-2.safetensors"):
        (tmp_path / "elsewhere" / name).rename(tmp_path / "elsewhere" / f"other-{name}")
    assert weights_of(str(tmp_path / "elsewhere")) != got


def test_only_what_is_loaded_counts(folder):
    (folder / "model.safetensors").write_bytes(b"whole")
    got = weights_of(str(folder))
    (folder / "consolidated.safetensors").write_bytes(b"the same in another form")
    (folder / "model-1.safetensors").unlink()
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
    with refused("pretrained", "path", error=ModelConfigError):
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
    # and other bytes in the same file, its time put back, a tick of the system's clock later
    changed_ns = path.stat().st_ctime_ns
    with open(path, "r+b") as file:
        file.write(b"f")

    def put_back():
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        return path.stat().st_ctime_ns > changed_ns

    wait_until(put_back)
    assert weights_of(str(folder)) not in (got, swapped)


def test_a_file_that_was_just_written_is_not_trusted_to_stay(folder, reads, monkeypatch):
    monkeypatch.setattr(weights, "SETTLED_NS", 3_600_000_000_000)
    weights_of(str(folder))
    weights_of(str(folder))
    assert len(reads) == 4


@pytest.mark.parametrize("damage", ["{", '{"path": 1}'])
def test_a_damaged_cache_is_ignored(folder, cache, reads, damage):
    got = weights_of(str(folder))
    for entry in cache.glob("*.json"):
        entry.write_text(damage)
    assert weights_of(str(folder)) == got
    assert len(reads) == 4


def test_a_cache_that_cannot_be_written_is_no_error(folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert weights_of(str(folder)).startswith("sha256:")


def test_a_folder_without_weights_and_a_name_that_leads_nowhere(tmp_path):
    assert weights_of(str(tmp_path)) is None
    assert weights_of("nobody/has-this-model") is None
    assert weights_of("not a name at all") is None
    assert settings_of(str(tmp_path)) is None
    assert tokenizer_of(str(tmp_path)) is None
    for wrong in ("", None, 7):
        with refused("pretrained", "path"):
            weights_of(wrong)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A cache of the hub, offline; the function adds a commit of some/model and returns it."""
    pytest.importorskip("huggingface_hub")
    import huggingface_hub.constants

    home = tmp_path / "hub"
    repository = home / "models--some--model"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(home))

    def add(digit, files):
        commit = digit * 40
        snapshot = repository / "snapshots" / commit
        for folder in (snapshot, repository / "blobs", repository / "refs"):
            folder.mkdir(parents=True, exist_ok=True)
        (repository / "refs" / "main").write_text(commit)
        for name, data in files.items():
            digest = hashlib.sha256(data).hexdigest()
            is_large = name.endswith(".safetensors")
            blob = repository / "blobs" / (digest if is_large else digest[:40])
            blob.write_bytes(data)
            (snapshot / name).symlink_to(blob)
        return commit

    return add


FILES = {
    "config.json": b'{"hidden_size": 8}',
    "tokenizer.json": b"{}",
    "model-00001-of-00002.safetensors": b"first" * 100,
    "model-00002-of-00002.safetensors": b"second" * 100,
}


def test_a_model_of_the_hub_is_told_by_its_commit(hub):
    commit = hub("a", {"config.json": b"{}"})
    for name, revision in (("model", None), ("model", "main"), ("model:Q4_K_M", commit)):
        assert weights_of(f"some/{name}", revision) == f"hub:{commit}"
    assert weights_of("some/model", "other-branch") is None


def test_a_copy_of_a_model_of_the_hub_is_the_same_model(hub, tmp_path, reads):
    hub("a", FILES)
    copy = tmp_path / "copy"
    copy.mkdir()
    got = [f("some/model") for f in (weights_of, settings_of, tokenizer_of)]
    assert "model-00001-of-00002.safetensors" not in reads
    for name, data in FILES.items():
        (copy / name).write_bytes(data)
    assert [f(str(copy)) for f in (weights_of, settings_of, tokenizer_of)] == got
    assert is_content(got[0])


def test_a_cache_without_all_shards_is_told_by_the_commit(hub):
    files = {k: v for k, v in FILES.items() if k != "model-00002-of-00002.safetensors"}
    assert weights_of("some/model", hub("a", files)) == f"hub:{'a' * 40}"


def test_the_hub_lists_the_hashes_of_weights_that_are_not_there(hub, tmp_path, monkeypatch):
    import huggingface_hub.constants

    class Lfs:
        def __init__(self, data):
            self.size, self.sha256 = len(data), hashlib.sha256(data).hexdigest()

    class Sibling:
        def __init__(self, name, data):
            self.rfilename, self.lfs = name, Lfs(data) if name.endswith(".safetensors") else None

    class Api:
        def model_info(self, name, revision, timeout, files_metadata=False):
            assert (name, timeout) == ("some/model", 10)
            assert revision == ("a" * 40 if files_metadata else "main")
            siblings = [Sibling(*item) for item in FILES.items()] if files_metadata else None
            siblings and siblings.append(Sibling("onnx/model.safetensors", b"x"))
            return type("Info", (), {"sha": "a" * 40, "siblings": siblings})

    got = weights_of("some/model", hub("a", FILES))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "empty"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    assert weights_of("some/model") == got
    assert weights_of("some/model", gguf_file="absent.gguf") == f"hub:{'a' * 40}"


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
