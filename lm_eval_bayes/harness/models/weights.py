"""The identity of a model's files: a hash of their content, or the commit of the hub.

A copy in another folder, on another mount or in the cache of the hub is the same model, and a
commit that changes only the README is no other one. The hub names the SHA-256 of every large file,
and its cache names the files by it, so that those are not read. Hashes of other files are kept in
the user's cache folder (``$XDG_CACHE_HOME/lm-eval-bayes/weights``, by default in ``~/.cache``).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lm_eval_bayes._util.files import write_atomic
from lm_eval_bayes._util.hashing import (
    SHA256,
    canonical_json,
    hash_bytes,
    hash_json,
    hash_text,
    sha256_text,
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
    valid = same and isinstance(digest, str) and digest.startswith(CONTENT)
    return digest if valid else None


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
_COMMIT = re.compile(r"[0-9a-f]{40}")
_BLOB = re.compile(r"[0-9a-f]{64}")

#: The files that transformers loads if a folder has others of the same kind too.
_WHOLE = re.compile(r"(model|pytorch_model)\.(safetensors|bin)")
_SHARD = re.compile(r"(model|pytorch_model)-\d{5}-of-(\d{5})\.(safetensors|bin)")

#: What the identity of a file's content starts with.
CONTENT = f"{SHA256}:"

#: Name, size in bytes and hash of one file.
_File = tuple[str, int, str]


def is_content(identity: object) -> bool:
    """Whether an identity is that of the content of files, wherever they lie."""
    return isinstance(identity, str) and identity.startswith(CONTENT)


def joined(identities: Sequence[str | None]) -> str:
    """Return the identity of weights with adapters; of their content if all are.

    Examples
    --------
    >>> is_content(joined(["sha256:aa", "sha256:bb"])), is_content(joined(["sha256:aa", None]))
    (True, False)
    """
    if all(map(is_content, identities)):
        return CONTENT + sha256_text(canonical_json(list(identities)))
    return hash_json(list(identities))


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
        ``sha256:`` and a hash of name, size and SHA-256 of every file that is loaded; ``hub:`` and
        the commit, if the hub does not tell these and the files are not there; None if there is no
        such model.

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
    if local is not None:
        return hash_files(weight_files(local, gguf_file))
    commit = hub_commit(pretrained, revision)
    if commit is None:
        return None
    repository, _, quantization = pretrained.partition(":")
    content = None
    if not quantization:
        content = _hub_weights(repository, commit.removeprefix("hub:"), subfolder, gguf_file)
    return content or commit


def loaded_names(names: Sequence[str]) -> list[str]:
    """Return the names that are loaded of the files of a folder.

    Examples
    --------
    >>> loaded_names(["consolidated.safetensors", "model.safetensors", "pytorch_model.bin"])
    ['model.safetensors']
    >>> loaded_names(["a.gguf", "b.gguf", "README.md"])
    ['a.gguf', 'b.gguf']
    """
    weights = [name for name in names if not _NOT_WEIGHTS.match(name)]
    by_kind = ([name for name in weights if name.endswith(kind)] for kind in _KINDS)
    of_kind: list[str] = next(filter(None, by_kind), [])
    for form in (_WHOLE, _SHARD):
        matching = [name for name in of_kind if form.fullmatch(name)]
        if matching:
            return matching
    return of_kind


def _hub_weights(
    repository: str, commit: str, subfolder: str | None, gguf_file: str | None
) -> str | None:
    """Return the identity of a commit's weights: of the cached files, or as the hub tells it."""
    folder = _snapshot(repository, commit)
    for files in (_cached_files, _listed_files):
        found = files(repository, commit, folder, subfolder or "")
        if gguf_file:
            chosen = [entry for entry in found if entry[0] == gguf_file]
        else:
            loaded = loaded_names([name for name, _, _ in found])
            chosen = sorted(entry for entry in found if entry[0] in loaded)
        if chosen and _is_complete([name for name, _, _ in chosen]):
            return _content(chosen)
    return None


def _is_complete(names: Sequence[str]) -> bool:
    """Whether no shard is missing, as in a cache into which a model is being downloaded."""
    shards = [match for match in map(_SHARD.fullmatch, names) if match]
    return not shards or len(shards) == int(shards[0][2])


def _cached_files(repository: str, commit: str, folder: Path | None, subfolder: str) -> list[_File]:
    """Return the files of a commit in the cache; those of the hub's large storage are not read."""
    if folder is None or not (folder / subfolder).is_dir():
        return []
    paths = [path for path in sorted((folder / subfolder).iterdir()) if path.is_file()]
    kinds = tuple(ending for kind in _KINDS for ending in kind)
    paths = [path for path in paths if path.name.endswith(kinds)]
    try:
        return [(path.name, path.stat().st_size, _digest(path)) for path in paths]
    except OSError as error:
        raise ModelConfigError(
            f"a file of the model cannot be read: {error}", "path", "pretrained", repository
        ) from None


def _digest(path: Path) -> str:
    """Return the hash of a file; the cache of the hub names a large one by it."""
    real = Path(os.path.realpath(path))
    is_named = real.parent.name == "blobs" and _BLOB.fullmatch(real.name)
    return f"{SHA256}:{real.name}" if is_named else file_digest(path)


def _listed_files(repository: str, commit: str, folder: Path | None, subfolder: str) -> list[_File]:
    """Return the large files of a commit as the hub lists them; none without a network."""
    from huggingface_hub import HfApi
    from huggingface_hub.constants import HF_HUB_OFFLINE

    if HF_HUB_OFFLINE:
        return []
    try:
        listed = HfApi().model_info(repository, revision=commit, timeout=10, files_metadata=True)
        siblings = listed.siblings or []
    except Exception:  # no network, no permission
        log.debug("the hub did not list the files of %s", repository, exc_info=True)
        return []
    prefix = f"{subfolder.strip('/')}/" if subfolder else ""
    files = []
    for sibling in siblings:
        name = sibling.rfilename.removeprefix(prefix)
        if sibling.rfilename.startswith(prefix) and "/" not in name and sibling.lfs is not None:
            files.append((name, int(sibling.lfs.size), f"{SHA256}:{sibling.lfs.sha256}"))
    return files


def _snapshot(repository: str, revision: str) -> Path | None:
    """Return the folder of a revision in the cache of the hub, None if there is none."""
    from huggingface_hub import try_to_load_from_cache

    for name in _PROBES:
        try:
            path = try_to_load_from_cache(repository, name, revision=revision)
        except Exception:  # not a valid name for the hub
            return None
        if isinstance(path, str):
            return Path(path).parent
    return None


def local_folder(pretrained: str, subfolder: str | None = None) -> Path | None:
    """Return the path of a local model, or None if the name is not an existing path."""
    if not isinstance(pretrained, str) or not pretrained:
        rule = "be a path or the name of a model"
        raise InvalidInputError.of("pretrained", "path", rule, pretrained)
    path = Path(pretrained).expanduser()
    if not path.exists():
        return None
    return path / subfolder if subfolder else path


def weight_files(path: Path, gguf_file: str | None = None) -> list[Path]:
    """Return the files of a model's weights that are loaded, sorted by name."""
    if path.is_file():
        return [path]
    if gguf_file:
        return [path / gguf_file]
    try:
        names = sorted(file.name for file in path.iterdir() if file.is_file())
    except OSError as error:
        raise ModelConfigError(
            f"the model folder {path} cannot be read: {error}", "path", "pretrained", path
        ) from None
    return [path / name for name in loaded_names(names)]


def settings_of(
    pretrained: str, revision: str | None = None, subfolder: str | None = None
) -> str | None:
    """Return a hash of config.json and the model code, or the commit of the hub without them.

    The version of transformers and the path in config.json are left out.
    """
    local, commit = _folder_or_commit(pretrained, revision, subfolder)
    if local is None or (commit and not (local / "config.json").is_file()):
        return commit
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
    """Return a hash of a tokenizer's files, or the commit of the hub; None without files."""
    local, commit = _folder_or_commit(tokenizer, revision, subfolder)
    if local is None:
        return commit
    folder = local if local.is_dir() else local.parent
    files = [p for name in _TOKENIZER_FILES if (p := folder / name).is_file()]
    return hash_files(files) or commit


def _folder_or_commit(
    name: str, revision: str | None, subfolder: str | None
) -> tuple[Path | None, str | None]:
    """Return the folder of a model's small files, and its commit if it is on the hub."""
    local = local_folder(name, subfolder)
    if local is not None:
        return local, None
    commit = hub_commit(name, revision)
    if commit is None:
        return None, commit
    folder = _snapshot(name.partition(":")[0], commit.removeprefix("hub:"))
    return (folder / subfolder if folder and subfolder else folder), commit


def _content(files: Sequence[_File]) -> str:
    return CONTENT + sha256_text(canonical_json([list(entry) for entry in files]))


def hash_files(files: list[Path]) -> str | None:
    """Return a hash of names, sizes and contents; None without files."""
    if not files:
        return None
    try:
        sizes = [path.stat().st_size for path in files]
        with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
            digests = list(pool.map(_digest, files))
    except OSError as error:
        raise ModelConfigError(
            f"a file of the model cannot be read: {error}", "path", "pretrained", tuple(files)
        ) from None
    return _content(list(zip([path.name for path in files], sizes, digests, strict=True)))


def file_digest(path: Path) -> str:
    """Return the hash of a file's content, as ``sha256sum`` prints it.

    It is that of the cache, if the file has not changed since.
    """
    before = path.stat()
    cached = cached_digest(path, before)
    if cached is not None:
        return cached
    hashed = hashlib.sha256()
    logged, done = time.monotonic(), 0
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            hashed.update(chunk)
            done += len(chunk)
            if time.monotonic() - logged > 20:
                logged = time.monotonic()
                log.info("hashing %s: %.0f%%", path.name, 100 * done / max(before.st_size, 1))
    digest = f"{SHA256}:{hashed.hexdigest()}"
    if state_of(path.stat()) == state_of(before):
        keep_digest(path, before, digest)
    return digest


#: Small files, one of which every model has.
_PROBES = ("config.json", "params.json", "tokenizer_config.json", "adapter_config.json")


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
    folder = _snapshot(repository, revision)
    commit = "" if folder is None else folder.name  # …/snapshots/<commit>
    return f"hub:{commit}" if _COMMIT.fullmatch(commit) else None
