"""Names of files and folders that stand for names of models, tasks and data sets."""

from __future__ import annotations

import hashlib
import re

#: What may be in the name of a file, after everything else has become "_".
_NOT_IN_NAMES = re.compile(r"[^a-z0-9_.-]+")
_LONGEST_SLUG = 64
#: Names that some systems keep for devices, whatever follows their first point.
_RESERVED = frozenset(
    ["con", "prn", "aux", "nul", *(f"{kind}{i}" for kind in ("com", "lpt") for i in range(10))]
)


def slug(name: str) -> str:
    """Return a name of a file, or of a folder, that stands for any name.

    What is lower-case letters, digits, ``_``, ``-`` and single points already stays as it is.
    Anything else also gets eight digits of its hash, so that no two names share a file.

    Examples
    --------
    >>> slug("aime25_bayes"), slug("Qwen/Qwen3-8B"), slug("../../etc/passwd")
    ('aime25_bayes', 'qwen_qwen3-8b-bf316469', 'etc_passwd-830a08e2')
    """
    plain = _NOT_IN_NAMES.sub("_", name.lower())
    plain = re.sub(r"\.{2,}", "_", plain).strip("._-")[:_LONGEST_SLUG].rstrip("._-")
    if plain and plain == name and not is_reserved(plain):
        return plain
    digits = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    if is_reserved(plain):
        plain = plain.replace(".", "_")
    return f"{plain or 'unnamed'}-{digits}"


def is_reserved(name: str) -> bool:
    """Return whether a name means something else to a system, or to a datastore of results.

    Examples
    --------
    >>> is_reserved("NUL.tar"), is_reserved("data"), is_reserved("aime_2025")
    (True, True, False)
    """
    plain = name.lower()
    return plain.split(".")[0] in _RESERVED or plain in ("data", "unknown")
