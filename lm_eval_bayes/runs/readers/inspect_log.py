"""Logs of inspect_ai: `.eval` (a zip of JSON) and `.json`, and folders of them.

Every epoch of a sample is a trial; scorers are metrics. A sample counts where it has a score,
whether or not a limit ended it; one that ended in an error has none, and is left out, as in the
metrics of inspect_ai. Of an `.eval` file the header and the summaries of the samples are read;
texts and messages only of the samples that a report shows, and events never.
"""

from __future__ import annotations

import json
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.files import UNREADABLE
from lm_eval_bayes._util.hashing import hash_text
from lm_eval_bayes._util.text import error_line, one_line
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.log_fields import lookup, mapping, mappings, number
from lm_eval_bayes.runs.logged_texts import TrialText
from lm_eval_bayes.runs.model_arguments import names_a_secret, redacted
from lm_eval_bayes.runs.readers.json_files import (
    LARGEST,
    broken,
    json_text,
    load_json,
    name_of,
    seconds_between,
    timestamp,
)
from lm_eval_bayes.runs.readers.protocol import FileContents, Query
from lm_eval_bayes.runs.readers.tables import LogFile
from lm_eval_bayes.runs.readers.text_files import parsed
from lm_eval_bayes.runs.readers.tool_log import SETTINGS, ToolLog, Trial, call_settings
from lm_eval_bayes.runs.readers.trial_texts import Records, last_message, one_text, written
from lm_eval_bayes.runs.task_run import Provenance

#: Entries of an `.eval` file: header and summaries, and what a log has of them until it ends.
_HEADER, _START, _SUMMARIES = "header.json", "_journal/start.json", "summaries.json"
_JOURNAL = re.compile(r"_journal/summaries/\d{1,9}\.json")

#: The first keys of a log in JSON.
_JSON_LOG = re.compile(rb'\s*\{\s*"version"\s*:\s*\d+\s*,\s*"status"\s*:\s*"[a-z]+"\s*,')

#: The compression by zstd, which Python's zip files lack before Python 3.14.
_ZSTD = 93

#: What reading an entry of a zip file may raise that is broken.
_BROKEN_ZIP = (*UNREADABLE, zipfile.BadZipFile, ValueError, LookupError, RuntimeError, struct.error)

#: Grades and words as inspect_ai counts them; others count 0.
_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}

#: Values of a task's arguments that have more characters are shown as a hash.
_LONGEST_ARGUMENT = 24


def is_mine(file: LogFile) -> bool:
    """Return whether a file is a log."""
    is_archive = file.path.suffix == ".eval" and file.beginning.startswith(b"PK")
    return is_archive or (file.path.suffix == ".json" and bool(_JSON_LOG.match(file.beginning)))


def _content(file: Path, archive: zipfile.ZipFile, name: str) -> Any:
    return parsed(_entry(file, archive, name), file, f" ({name})")


# -- reading -----------------------------------------------------------------------------------


def read(file: Path, query: Query) -> FileContents:
    """Read a log."""
    header: dict[str, Any] = {}
    log = ToolLog(file, query, records=partial(_trials, file, header))
    if file.suffix == ".eval":
        log.texts = _ArchiveTexts(file, [str(trial.key) for trial in log.trials])
    values = (named for trial in log.trials for named in trial.scores.items())
    # NaN is no score
    scored = {k: None for k, (v, _) in values if isinstance(v, (str, int, float)) and v == v}
    metric = query.metric if query.metric in scored else next(iter(scored), "")
    log.trials = [_with_scores(trial, scored, metric) for trial in log.trials]
    if not any(trial.tokens for trial in log.trials):
        log.trials = [replace(trial, tokens=None) for trial in log.trials]
    log.warnings += _incomplete(header, len(log.trials), file)
    return log.contents(
        "inspect_ai",
        version=name_of(lookup(header, "eval", "task_version")),
        folder=file.parent,  # of which a retry holds the samples of the log before it
        stamp=name_of(lookup(header, "eval", "created")),
    )


def _trials(file: Path, header: dict[str, Any], query: Query) -> Iterator[Trial]:
    """Yield the trials, each with the value and the answer of every scorer; fill the header."""
    if file.suffix == ".eval":
        about, samples = _archived(file)
    else:
        about = dict(mapping(load_json(file)))
        if not isinstance(about.get("samples"), list):
            raise broken(file, "no list of samples")
        samples = mappings(about.pop("samples"))
    header.update(about)
    evaluation = mapping(header, "eval")
    common = Trial(
        model=name_of(evaluation.get("model")),
        task=name_of(evaluation.get("task")) or query.task or file.stem,
        run=name_of(evaluation.get("task_id")) or name_of(evaluation.get("eval_id")),
        provenance=_provenance(header),
    )
    for sample in samples:
        limit, seconds = sample.get("limit"), sample.get("working_time")
        kind = name_of(limit) or name_of(lookup(limit, "type"))
        ended = f"the {kind} limit" if limit else ""
        usage = mapping(sample, "model_usage")
        yield replace(
            common,
            question=name_of(sample.get("id")),
            label=sample.get("epoch"),
            key=f"samples/{sample.get('id')}_epoch_{sample.get('epoch')}.json",
            scores=dict(_values(sample)),
            error="an error" if sample.get("error") else ended,
            text=last_message(sample.get("input")),
            document=mapping(sample, "metadata"),
            reply=_reply(sample),
            right=sample.get("target"),
            # a trial that never called the model has no usage at all
            tokens=lookup(usage, common.model, "output_tokens") if usage else 0,
            time=number(sample.get("total_time") if seconds is None else seconds),
        )


def _incomplete(header: Mapping[str, Any], n: int, file: Path) -> Iterator[str]:
    """Yield a warning where a log did not end well, or holds fewer trials than its header says."""
    planned, status = lookup(header, "results", "total_samples"), header.get("status")
    if type(planned) is int and n < planned:
        yield f"{file} holds {n:,} of {planned:,} samples of its header, epochs counted"
    if status != "success":
        yield f"{file} has the status {one_line(status, 20)}: the samples that it holds count"


def _provenance(header: Mapping[str, Any]) -> Provenance:
    evaluation, stats = mapping(header, "eval"), mapping(header, "stats")
    versions = {**mapping(evaluation, "packages"), "task": evaluation.get("task_version")}
    dataset, config = mapping(evaluation, "dataset"), mapping(header, "plan", "config")
    sent = {**config, **mapping(evaluation, "model_generate_config")}
    return Provenance(
        generation_kwargs=call_settings(sent),
        date=timestamp(stats.get("completed_at")) or timestamp(evaluation.get("created")),
        versions={name: text for name in versions if (text := name_of(versions[name]))},
        seconds=seconds_between(stats, "started_at", "completed_at"),
        dataset=name_of(dataset.get("name")),
        n_questions=n if type(n := dataset.get("samples")) is int else None,
        setup=_task_arguments(evaluation.get("task_args")),
    )


def _task_arguments(arguments: object) -> dict[str, Any]:
    """Return the arguments of a task, of secrets and long values a hash, as settings of a run."""
    printed: dict[str, Any] = {}
    for name, value in mapping(arguments).items():
        text = value if isinstance(value, str) else json_text(value)
        plain = not isinstance(value, (list, Mapping)) and 0 < len(text) <= _LONGEST_ARGUMENT
        shown = plain and text == one_line(text) == redacted(text)
        if not shown or names_a_secret(name, value):
            text = f"hash {hash_text(text).rpartition(':')[2][:12]}"
        printed[f"task_args.{name}" if name in SETTINGS else name] = text
    return printed


# -- scores --------------------------------------------------------------------------------------


def _values(sample: Mapping[str, Any]) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield the scorers of a sample with value and answer, and the parts of values with several."""
    scores = sample.get("scores") or {"score": sample.get("score")}  # that of logs of 2024
    for scorer, score in mapping(scores).items():
        value, answer = lookup(score, "value"), lookup(score, "answer")
        yield scorer, (value, answer)
        parts = dict(enumerate(value)) if isinstance(value, list) else mapping(value)
        yield from ((f"{scorer}/{key}", (part, answer)) for key, part in parts.items())


def _score(value: Any) -> Any:
    """Return a score as inspect_ai does; None for none, and for a word that is no score."""
    if isinstance(value, str):
        return _GRADES.get(value.strip(), _WORDS.get(value.strip().lower(), number(value)))
    return None if value != value else value


def _with_scores(trial: Trial, names: Mapping[str, None], metric: str) -> Trial:
    """Return a trial with the score, the answer and the error by a metric."""
    value, answer = trial.scores.get(metric, (None, None))
    undivided, _ = trial.scores.get(metric.rpartition("/")[0], (None, None))
    score, error = _score(value), trial.error
    if isinstance(value, str) and score is None:
        score, error = 0.0, f"the word {value.strip()} in place of a score"
    if metric not in trial.scores and _score(undivided) is not None:
        score = [undivided]  # one value where others have several parts: it is refused
    scores = {**names, metric: score}
    return replace(trial, scores=scores, answer=name_of(answer), error=error)


# -- archives and texts --------------------------------------------------------------------------


def _archived(file: Path) -> tuple[dict[str, Any], list[Mapping[str, Any]]]:
    """Read the header and the summaries of an `.eval` file."""
    try:
        with zipfile.ZipFile(file) as archive:
            names = set(archive.namelist())
            header = _content(file, archive, _HEADER if _HEADER in names else _START)
            journal = sorted(filter(_JOURNAL.fullmatch, names), key=lambda n: (len(n), n))
            entries = [_SUMMARIES] if _SUMMARIES in names else journal
            parts = [mappings(_content(file, archive, name)) for name in entries]
    except InvalidInputError:
        raise
    except _BROKEN_ZIP as error:
        raise broken(file, error_line(error)) from None
    # a sample that was written again counts once
    samples = {json_text([s.get("id"), s.get("epoch")]): s for part in parts for s in part}
    return dict(mapping(header)), list(samples.values())


class _ArchiveTexts(Records):
    """The texts of the samples of an `.eval` file: a sample is a record.

    Parameters
    ----------
    file : Path
        The file.
    entries : sequence of str
        The names of the samples in it.
    """

    def __init__(self, file: Path, entries: Sequence[str]) -> None:
        super().__init__([file])
        self.entries = entries

    @cached_property
    def _archive(self) -> zipfile.ZipFile:
        return zipfile.ZipFile(self.files[0])

    def record(self, number: int) -> Sequence[TrialText]:
        """Return the text of a sample; none where the log has not kept it."""
        file = self.check()
        try:
            sample = mapping(json.loads(_entry(file, self._archive, self.entries[number])))
        except KeyError:
            return one_text(None)
        except (*_BROKEN_ZIP, RecursionError):
            self.check()
            return [TrialText(None, damaged=True)]
        return one_text(written(_reply(sample)), sample.get("target"))


def _reply(sample: Mapping[str, Any]) -> Any:
    """Return the messages of a sample, else its output, with texts that are stored elsewhere."""
    messages, attached = mappings(sample.get("messages")), mapping(sample, "attachments")
    if not messages:
        return lookup(sample, "output", "completion") or None
    for n, message in enumerate(messages):
        text = str(message.get("content"))
        if text.startswith("attachment://"):
            messages[n] = {**message, "content": attached.get(text[13:], text)}
    return messages


def _entry(file: Path, archive: zipfile.ZipFile, name: str) -> bytes:
    """Return an entry, decompressed in memory; one of :data:`_BROKEN_ZIP` where it is broken."""
    info = archive.getinfo(name)
    if info.file_size > LARGEST:
        raise zipfile.BadZipFile(f"{info.file_size:,} bytes in {name}")
    if info.compress_type != _ZSTD:
        return archive.read(info)
    import pyarrow  # part of the harness's requirement `datasets`

    with file.open("rb") as raw:
        raw.seek(info.header_offset + 26)  # the lengths of the name and of an extra field
        raw.seek(sum(struct.unpack("<HH", raw.read(4))), 1)
        compressed = raw.read(min(info.compress_size, LARGEST))
    content: bytes = pyarrow.decompress(compressed, info.file_size, "zstd", asbytes=True)
    if zlib.crc32(content) != info.CRC:
        raise zipfile.BadZipFile(f"{name} is broken")
    return content
