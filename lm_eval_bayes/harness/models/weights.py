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
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

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
from lm_eval_bayes.runs.model_arguments import is_content

log = get_logger(__name__)

#: A file that changed more recently may change again within one tick of the file system's clock.
SETTLED_NS = 2_000_000_000


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


def files_identity(
    pretrained: str,
    commit: str | None,
    tokenizer: tuple[str, str | None],
    adapters: Sequence[tuple[str, str | None]] = (),
    subfolder: str | None = None,
    gguf_file: str | None = None,
) -> dict[str, str | None]:
    """Return the identity of a model's weights, settings and tokenizer, for its fingerprint.

    Parameters
    ----------
    pretrained, subfolder, gguf_file : str
        See :func:`weights_of`.
    commit : str or None
        The revision of the model; it is added where it is not the identity itself.
    tokenizer : (str, str or None)
        Name and revision of the tokenizer.
    adapters : sequence of (str, str or None)
        Names and revisions of further weights.
    """
    weights = weights_of(pretrained, commit, subfolder, gguf_file)
    identities = [weights, *[weights_of(*adapter) for adapter in adapters]]
    if adapters:
        of_content = all(map(is_content, identities))
        text = CONTENT + sha256_text(canonical_json(identities))
        weights = text if of_content else hash_json(identities)
    return {
        "weights": weights,
        "settings": settings_of(pretrained, commit, subfolder),
        "tokenizer_files": tokenizer_of(*tokenizer, subfolder),
        **({"commit": commit} if commit and is_content(weights) else {}),
    }


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
    folder, commit = _locate(pretrained, revision, subfolder)
    try:
        if commit is None:
            return hash_files(weight_files(folder, gguf_file)) if folder else None
        if ":" in pretrained:  # vLLM's name of one file of a repository
            return commit
        if folder is not None and folder.is_dir():
            paths = [path for path in weight_files(folder, gguf_file) if path.is_file()]
            if _is_complete([path.name for path in paths]):
                return hash_files(paths)
        listed = _listed_files(pretrained, commit, subfolder or "")
        names = [gguf_file] if gguf_file else loaded_names(list(listed))
        chosen = sorted((name, *listed[name]) for name in names if name in listed)
        return _content(chosen) if _is_complete([name for name, *_ in chosen]) else commit
    except OSError as error:
        raise ModelConfigError(
            f"the files of the model {pretrained} cannot be read: {error}",
            "path",
            "pretrained",
            pretrained,
        ) from None


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


def _is_complete(names: Sequence[str]) -> bool:
    """Whether no file is missing, as in a cache into which a model is being downloaded."""
    shards = [match for match in map(_SHARD.fullmatch, names) if match]
    return bool(names) and (not shards or len(shards) == int(shards[0][2]))


def _listed_files(repository: str, commit: str, subfolder: str) -> dict[str, tuple[int, str]]:
    """Return size and hash of a commit's large files, as the hub lists them; none without it."""
    listed = _model_info(repository, commit.removeprefix("hub:"), files_metadata=True)
    large = {
        sibling.rfilename: (int(sibling.lfs.size), f"{SHA256}:{sibling.lfs.sha256}")
        for sibling in (listed and listed.siblings) or []
        if sibling.lfs is not None
    }
    inside = (name for name in large if name.rpartition("/")[0] == subfolder.strip("/"))
    return {name.rpartition("/")[2]: large[name] for name in inside}


def _snapshot(repository: str, revision: str) -> Path | None:
    """Return the folder of a revision in the cache of the hub, None if there is none."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(repository, revision=revision, local_files_only=True))
    except Exception:  # not there, or not a valid name for the hub
        return None


def _locate(
    name: str, revision: str | None, subfolder: str | None
) -> tuple[Path | None, str | None]:
    """Return the folder or file of a model and, if it is on the hub, its commit.

    The folder is None if the files of the hub are not there.
    """
    if not isinstance(name, str) or not name:
        rule = "be a path or the name of a model"
        raise InvalidInputError.of("pretrained", "path", rule, name)
    path, commit = Path(name).expanduser(), None
    if not path.exists():
        commit = hub_commit(name, revision)
        snapshot = commit and _snapshot(name.partition(":")[0], commit.removeprefix("hub:"))
        if not snapshot:
            return None, commit
        path = snapshot
    return path / subfolder if subfolder else path, commit


def weight_files(path: Path, gguf_file: str | None = None) -> list[Path]:
    """Return the files of a model's weights that are loaded, sorted by name."""
    if path.is_file():
        return [path]
    if gguf_file:
        return [path / gguf_file]
    names = sorted(file.name for file in path.iterdir() if file.is_file())
    return [path / name for name in loaded_names(names)]


def settings_of(
    pretrained: str, revision: str | None = None, subfolder: str | None = None
) -> str | None:
    """Return a hash of config.json and the model code, or the commit of the hub without them.

    The version of transformers and the path in config.json are left out.
    """
    local, commit = _locate(pretrained, revision, subfolder)
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
    local, commit = _locate(tokenizer, revision, subfolder)
    if local is None:
        return commit
    folder = local if local.is_dir() else local.parent
    files = [p for name in _TOKENIZER_FILES if (p := folder / name).is_file()]
    return hash_files(files) or commit


def _content(files: Iterable[tuple[str, int, str]]) -> str:
    """Return the identity of files by name, size in bytes and hash."""
    return CONTENT + sha256_text(canonical_json([list(entry) for entry in files]))


def _digest(path: Path) -> str:
    """Return the hash of a file; the cache of the hub names a large one by it."""
    real = Path(os.path.realpath(path))
    is_named = real.parent.name == "blobs" and _BLOB.fullmatch(real.name)
    return f"{SHA256}:{real.name}" if is_named else file_digest(path)


def hash_files(files: list[Path]) -> str | None:
    """Return a hash of names, sizes and contents; None without files."""
    if not files:
        return None
    sizes = [path.stat().st_size for path in files]
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        digests = list(pool.map(_digest, files))
    return _content(zip([path.name for path in files], sizes, digests, strict=True))


def file_digest(path: Path) -> str:
    """Return the hash of a file's content, as ``sha256sum`` prints it.

    It is that of the cache, if the file has not changed since.
    """
    real = os.path.realpath(path)
    entry = weight_hash_folder() / f"{hash_text(real).partition(':')[2]}.json"
    before = _state(path)
    try:
        cached = json.loads(entry.read_bytes())
        if cached["path"] == real and cached["state"] == before and is_content(cached["digest"]):
            return str(cached["digest"])
    except (OSError, ValueError, LookupError, TypeError):
        log.debug("the hash of %s is not known", path, exc_info=True)
    log.info("hashing %s, %.1f GB", path.name, before[0] / 1e9)
    hashed = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            hashed.update(chunk)
    digest = f"{SHA256}:{hashed.hexdigest()}"
    settled = time.time_ns() - max(before[1:3]) >= SETTLED_NS
    if settled and _state(path) == before:
        text = json.dumps({"path": real, "state": before, "digest": digest})
        with contextlib.suppress(OSError):
            write_atomic(entry, text.encode("utf-8", "surrogateescape"))
    return digest


def _state(path: Path) -> list[int]:
    """Return the properties of a file that change when it is replaced or rewritten."""
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev]


def hub_commit(name: str, revision: str | None = None) -> str | None:
    """Return ``hub:`` and the commit of a model's revision on the hub.

    The hub is queried first, because a branch moves; without a network, or with
    ``HF_HUB_OFFLINE=1``, it is the commit of the local cache.
    """
    revision = revision or "main"
    if _COMMIT.fullmatch(revision):
        return f"hub:{revision}"
    # vLLM names one file of a repository of GGUF files as org/model:Q4_K_M.
    repository = name.partition(":")[0]
    info = _model_info(repository, revision)
    if info is not None:
        return f"hub:{info.sha}" if info.sha else None
    folder = _snapshot(repository, revision)
    commit = "" if folder is None else folder.name  # …/snapshots/<commit>
    return f"hub:{commit}" if _COMMIT.fullmatch(commit) else None


def _model_info(repository: str, revision: str, **options: Any) -> Any:
    """Return what the hub tells of a model's revision; None without a network or permission."""
    from huggingface_hub import HfApi
    from huggingface_hub.constants import HF_HUB_OFFLINE

    if HF_HUB_OFFLINE:
        return None
    try:
        return HfApi().model_info(repository, revision=revision, timeout=10, **options)
    except Exception:
        log.debug("the hub does not tell of %s", repository, exc_info=True)
        return None
