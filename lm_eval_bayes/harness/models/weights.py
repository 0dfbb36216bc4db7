"""The identity of a model's files: a commit of the hub or a hash of their content."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lm_eval_bayes._util.files import write_atomic
from lm_eval_bayes._util.hashing import (
    ALGORITHM,
    hash_bytes,
    hash_json,
    hash_text,
    weight_hash_folder,
)
from lm_eval_bayes.errors import InvalidInputError, ModelConfigError
from lm_eval_bayes.harness import get_logger

log = get_logger(__name__)

#: A file that changed more recently may change again within one tick of the file system's clock.
SETTLED_NS = 2_000_000_000


def state_of(stat: os.stat_result) -> list[int]:
    """Return the properties of a file that change when it is replaced or rewritten."""
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev]


def cached_digest(path: Path, stat: os.stat_result) -> str | None:
    """Return the stored hash of a file that has not changed since, else None."""
    real = os.path.realpath(path)
    try:
        entry = json.loads(_entry(real).read_bytes())
        same = entry["path"] == real and entry["state"] == state_of(stat)
        digest = entry["digest"]
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        return None
    return digest if same and isinstance(digest, str) and digest.startswith(ALGORITHM) else None


def keep_digest(path: Path, stat: os.stat_result, digest: str) -> None:
    """Store the hash of a file that has not changed recently; a full disk is no error."""
    if time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) < SETTLED_NS:
        return
    real = os.path.realpath(path)
    text = json.dumps({"path": real, "state": state_of(stat), "digest": digest})
    with contextlib.suppress(OSError, RuntimeError):
        write_atomic(_entry(real), text.encode("utf-8", "surrogateescape"))


def _entry(real: str) -> Path:
    return weight_hash_folder() / f"{hash_text(real).partition(':')[2]}.json"


#: Kinds of weight files; the first existing kind is loaded, as by transformers and vLLM.
_KINDS = ((".safetensors",), (".bin",), (".pt", ".pth"), (".gguf",))

#: Files of a training run, which are not part of the model.
_NOT_WEIGHTS = re.compile(r"(training_args|optimizer|scheduler|scaler|rng_state|random_states)")

_TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json"),
    *("added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "spiece.model"),
    *("sentencepiece.bpe.model", "tekken.json"),
)

_CHUNK = 1 << 24
_LARGE = 2 << 30
_COMMIT = re.compile(r"[0-9a-f]{40}")


def weights_of(
    pretrained: str,
    revision: str | None = None,
    subfolder: str | None = None,
    gguf_file: str | None = None,
) -> str | None:
    """Return the identity of the weights of a name, without loading them.

    Parameters
    ----------
    pretrained : str
        A local folder, a local file, or the name of a model on the Hugging Face hub.
    revision : str or None
        Branch, tag or commit on the hub; not used for what is local.
    subfolder : str or None
        The folder of the weights inside the model's.
    gguf_file : str or None
        The only file that is loaded, if not all are.

    Returns
    -------
    str or None
        ``hub:`` and the commit; or ``blake2b-128:`` and a hash of name, size and content of
        every weight file; None if there is no such model.

    Raises
    ------
    ModelConfigError
        If a weight file cannot be read.

    Notes
    -----
    A file is read once: its hash is stored in the user's cache folder, and used while size,
    times and inode of the file stay the same.
    """
    local = local_folder(pretrained, subfolder)
    if local is None:
        return hub_commit(pretrained, revision)
    return hash_files(weight_files(local, gguf_file))


def local_folder(pretrained: str, subfolder: str | None = None) -> Path | None:
    """Return the path of a local model, or None if the name is not an existing path."""
    if not isinstance(pretrained, str) or not pretrained:
        raise InvalidInputError.of("pretrained", "be a path or the name of a model", pretrained)
    path = Path(pretrained).expanduser()
    if not path.exists():
        return None
    return path / subfolder if subfolder else path


def weight_files(path: Path, gguf_file: str | None = None) -> list[Path]:
    """Return the files of a model's weights, sorted by name."""
    if path.is_file():
        return [path]
    if gguf_file:
        return [path / gguf_file]
    try:
        listed = sorted(path.iterdir())
    except OSError as error:
        raise ModelConfigError(f"the model folder {path} cannot be read: {error}") from None
    files = [p for p in listed if p.is_file() and not _NOT_WEIGHTS.match(p.name)]
    by_kind = ([p for p in files if p.suffix in kind] for kind in _KINDS)
    return next(filter(None, by_kind), [])


def settings_of(
    pretrained: str, revision: str | None = None, subfolder: str | None = None
) -> str | None:
    """Return a hash of config.json and the model code, or the commit of the hub.

    The version of transformers and the path in config.json are left out.
    """
    local = local_folder(pretrained, subfolder)
    if local is None:
        return hub_commit(pretrained, revision)
    try:
        config = json.loads((local / "config.json").read_bytes())
    except (OSError, ValueError):
        return None
    if isinstance(config, dict):
        config = {k: v for k, v in config.items() if k not in _IGNORED_ENTRIES}
    code = [[p.name, hash_bytes(p.read_bytes())] for p in sorted(local.glob("*.py"))]
    return hash_bytes(json.dumps([config, code], sort_keys=True).encode())


#: Entries of config.json that do not change the distribution.
_IGNORED_ENTRIES = ("transformers_version", "_name_or_path")


def tokenizer_of(
    tokenizer: str, revision: str | None = None, subfolder: str | None = None
) -> str | None:
    """Return a hash of a local tokenizer's files or the commit of the hub; None without files."""
    local = local_folder(tokenizer, subfolder)
    if local is None:
        return hub_commit(tokenizer, revision)
    folder = local if local.is_dir() else local.parent
    return hash_files([p for name in _TOKENIZER_FILES if (p := folder / name).is_file()])


def hash_files(files: list[Path]) -> str | None:
    """Return a hash of names, sizes and contents; None without files."""
    if not files:
        return None
    try:
        sizes = [path.stat().st_size for path in files]
        if sum(sizes) > _LARGE and any(cached_digest(p, p.stat()) is None for p in files):
            log.info(
                "hashing %d weight files (%.1f GB) of %s, once; later they are recognized by "
                "size, times and inode",
                *(len(files), sum(sizes) / 1e9, files[0].parent),
            )
        with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
            digests = list(pool.map(file_digest, files))
    except OSError as error:
        raise ModelConfigError(f"a file of the model cannot be read: {error}") from None
    entries = zip(files, sizes, digests, strict=True)
    return hash_json([[path.name, size, digest] for path, size, digest in entries])


def file_digest(path: Path) -> str:
    """Return the hash of a file's content, as ``b2sum --length 128``, from the cache if stored."""
    before = path.stat()
    cached = cached_digest(path, before)
    if cached is not None:
        return cached
    hashed = hashlib.blake2b(digest_size=16)
    logged, done = time.monotonic(), 0
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            hashed.update(chunk)
            done += len(chunk)
            if time.monotonic() - logged > 20:
                logged = time.monotonic()
                log.info("hashing %s: %.0f%%", path.name, 100 * done / max(before.st_size, 1))
    digest = f"{ALGORITHM}:{hashed.hexdigest()}"
    if state_of(path.stat()) == state_of(before):
        keep_digest(path, before, digest)
    return digest


def hub_commit(name: str, revision: str | None = None) -> str | None:
    """Return ``hub:`` and the commit of a model's revision on the hub.

    The hub is queried first, because a branch moves; without a network, or with
    ``HF_HUB_OFFLINE=1``, it is the commit of the local cache.
    """
    revision = revision or "main"
    if _COMMIT.fullmatch(revision):
        return f"hub:{revision}"
    from huggingface_hub import HfApi
    from huggingface_hub.constants import HF_HUB_OFFLINE

    # vLLM names one file of a repository of GGUF files as org/model:Q4_K_M.
    repository = name.partition(":")[0]
    if not HF_HUB_OFFLINE:
        try:
            sha = HfApi().model_info(repository, revision=revision, timeout=10).sha
        except Exception:  # no network, no such model, no permission: try the cache
            log.debug("the hub did not return the commit of %s", name, exc_info=True)
        else:
            return f"hub:{sha}" if sha else None
    return _cached_commit(repository, revision)


def _cached_commit(repository: str, revision: str) -> str | None:
    from huggingface_hub import try_to_load_from_cache

    for name in ("config.json", "params.json", "tokenizer_config.json", "adapter_config.json"):
        try:
            path = try_to_load_from_cache(repository, name, revision=revision)
        except Exception:  # not a valid name for the hub
            return None
        if isinstance(path, str):
            # …/snapshots/<commit>/config.json
            commit = Path(path).parent.name
            return f"hub:{commit}" if _COMMIT.fullmatch(commit) else None
    return None
