"""What the readers of other tools' JSON files have in common."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.files import UNREADABLE, open_bytes
from lm_eval_bayes._util.text import first_names, one_line, replace_surrogates
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.log_fields import cluster_label, mapping, number
from lm_eval_bayes.runs.readers.protocol import Query, unreadable
from lm_eval_bayes.runs.readers.text_files import parsed

#: Content of more bytes than this is refused.
LARGEST = 2 * 10**9

#: The fraction of a second and the zone of a time.
_FRACTION = re.compile(r"\.(\d{1,6})\d*")


def beginning(file: Path, n_bytes: int = 4096) -> bytes:
    """Return the first bytes of a file without a byte order mark; none where it is broken.

    Raises
    ------
    PermissionError
        If the user may not read the file.
    """
    try:
        with open_bytes(file) as opened:
            return opened.read(n_bytes + 3).removeprefix(codecs.BOM_UTF8)[:n_bytes]
    except PermissionError:
        raise
    except UNREADABLE:
        return b""


def load_json(file: Path) -> Any:
    """Return the content of a JSON file.

    Raises
    ------
    InvalidInputError
        If it cannot be read, is too large, or is no JSON.
    """
    try:
        if file.stat().st_size > LARGEST:
            raise broken(file, f"more than {LARGEST:,} bytes")
        with open_bytes(file) as opened:
            raw = opened.read()
    except UNREADABLE as error:
        raise unreadable(error, file) from None
    return parsed(raw, file)


def broken(file: Path, got: str) -> InvalidInputError:
    """Return the error of a file that is cut off or broken."""
    return InvalidInputError.of("RUN", "damaged", f"have a complete {file}", got)


def name_of(value: object) -> str:
    """Return a name as text, "" for what is neither text nor a number.

    Examples
    --------
    >>> [name_of(value) for value in ("a ", 7, 7.0, None, True, ["x"])]
    ['a', '7', '7', '', '', '']
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return ""
    return replace_surrogates(str(value)).strip()


def text_of(value: object) -> str:
    """Return a text without the blanks around it, "" for what is no text.

    Examples
    --------
    >>> text_of(" 1+1? "), text_of(None)
    ('1+1?', '')
    """
    return replace_surrogates(value).strip() if isinstance(value, str) else ""


def score_of(value: object) -> float | None:
    """Return a score, which may be written as true or false; None for what is no finite number.

    Examples
    --------
    >>> [score_of(value) for value in (True, 0.5, "1", float("nan"), None)]
    [1.0, 0.5, 1.0, None, None]
    """
    return float(value) if isinstance(value, bool) else number(value)


def total(values: Iterable[object]) -> float | None:
    """Return the sum of those values that are numbers; None where there is none."""
    numbers = [value for value in map(number, values) if value is not None]
    return sum(numbers) if numbers else None


def json_text(value: object) -> str:
    """Return a value of a JSON file as JSON; "…" for what is nested too deeply.

    Examples
    --------
    >>> json_text({"b": [1], "a": None})
    '{"a": null, "b": [1]}'
    """
    try:
        return json.dumps(value, sort_keys=True)
    except RecursionError:
        return "…"


def timestamp(text: object) -> float | None:
    """Return a time in ISO 8601, of UTC where it names no zone, in seconds since 1970.

    Examples
    --------
    >>> timestamp("1970-01-01T01:00:00.5Z"), timestamp("1970-01-01T01:00:00+01:00")
    (3600.5, 0.0)
    >>> timestamp("yesterday"), timestamp(None)
    (None, None)
    """
    if not isinstance(text, str):
        return None
    plain = _FRACTION.sub(lambda match: f".{match[1]:0<6}", text.strip().replace("Z", "+00:00"))
    try:
        time = datetime.fromisoformat(plain)
        return (time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        return None


def seconds_between(span: Mapping[str, Any], start: str, end: str) -> float | None:
    """Return the time between two moments that a mapping names; None where one is missing."""
    started, ended = timestamp(span.get(start)), timestamp(span.get(end))
    return None if started is None or ended is None else max(ended - started, 0.0)


def clusters_of(documents: Iterable[object], query: Query, where: str) -> list[str] | None:
    """Return the cluster of every document, by the field that the query names; None without one.

    Parameters
    ----------
    documents : iterable of mapping
        The fields of the questions.
    query : Query
        What is read.
    where : str
        Where the fields are.

    Raises
    ------
    InvalidInputError
        If no document has a value of the field.
    """
    if query.cluster is None:
        return None
    listed = list(documents)
    labels = [cluster_label(document, query.cluster) or "" for document in listed]
    if any(labels) or not labels:
        return labels
    fields = [name for name in mapping(listed[0]) if cluster_label(listed[0], name)]
    choice = one_line(first_names(fields, 12), 400) or "which have none"
    rule = f"be a field of {where} that is a text or a number, {choice}"
    raise InvalidInputError.of("cluster", "choice", rule, query.cluster)


def after_last(folder: str, file: Path) -> tuple[Path, Path] | None:
    """Split a path at the last of its folders of a name; None where it has none.

    Returns
    -------
    tuple of Path or None
        What stands before the folder, and what is below it.

    Examples
    --------
    >>> [part.as_posix() for part in after_last("b", Path("/a/b/c/b/d.json"))]
    ['/a/b/c', 'd.json']
    """
    parts = file.absolute().parts
    if folder not in parts[:-1]:
        return None
    at = len(parts) - 2 - parts[-2::-1].index(folder)
    return Path(*parts[:at]), Path(*parts[at + 1 :])
