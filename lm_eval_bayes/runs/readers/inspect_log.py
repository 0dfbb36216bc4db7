"""Logs of inspect_ai: `.eval` (a zip of JSON) and `.json`, and folders of them.

Every epoch of a sample is a trial. Of an `.eval` file the header and the summaries of the samples
are read; texts and messages only of the samples that a report shows, and events never.
"""

from __future__ import annotations

import json
import math
import re
import struct
import weakref
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.compressed import UNREADABLE
from lm_eval_bayes._util.hashing import hash_text
from lm_eval_bayes._util.text import error_line, one_line, plural
from lm_eval_bayes.runs.logged_texts import TextLog, TrialText
from lm_eval_bayes.runs.model_arguments import names_a_secret, redacted
from lm_eval_bayes.runs.provenance import generation, mapping, number
from lm_eval_bayes.runs.readers.conversations import last_message, written
from lm_eval_bayes.runs.readers.file_access import files_below
from lm_eval_bayes.runs.readers.json_files import (
    LARGEST,
    beginning,
    broken,
    chosen_metric,
    clusters_of,
    json_text,
    load_json,
    name_of,
    nothing_to_count,
    parse_json,
    score_of,
    seconds_between,
    timestamp,
    unusable_score,
)
from lm_eval_bayes.runs.readers.protocol import (
    FileContents,
    Query,
    Sniffed,
)
from lm_eval_bayes.runs.readers.tool_settings import SETTINGS, call_settings
from lm_eval_bayes.runs.readers.trial_columns import TrialColumns, first_number, partial_runs
from lm_eval_bayes.runs.readers.trial_texts import Records, SpooledRecords, one_text
from lm_eval_bayes.runs.task_run import Provenance

#: Entries of an `.eval` file: the header, what a log has until it ends, and the samples.
_HEADER, _START, _SUMMARIES = "header.json", "_journal/start.json", "summaries.json"
_JOURNAL = re.compile(r"_journal/summaries/(\d{1,9})\.json")
_SAMPLE = re.compile(r"samples/[^/]+\.json")

#: What a text begins with that is stored elsewhere in its sample.
_ATTACHMENT = "attachment://"

#: The first keys of a log in JSON.
_JSON_LOG = re.compile(rb'\s*\{\s*"version"\s*:\s*\d+\s*,\s*"status"\s*:\s*"[a-z]+"\s*,')

#: The compression by zstd, which Python's zip files lack before Python 3.14.
_ZSTD = 93

#: Values of a task's arguments that have more characters are shown as a hash.
_LONGEST_ARGUMENT = 24

#: What reading an entry of a zip file may raise that is broken.
_BROKEN_ZIP = (*UNREADABLE, zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError)


def sniff(path: Path) -> Sniffed | None:
    """Return a log, or the logs in a folder: of those of one task and model the newest."""
    if not path.is_dir():
        return Sniffed([path]) if _is_log(path) else None
    logs = [file for file in sorted(files_below(path)) if _is_log(file)]
    if not logs:
        return None
    identities = {file: _identity(file) for file in logs}
    newest: dict[object, Path] = {}
    for file, (task, age) in identities.items():
        if task not in newest or age > identities[newest[task]][1]:
            newest[task] = file
    warnings = tuple(
        f"{file} was left out: {newest[task].name} is a copy, or a retry, which holds its samples"
        for file, (task, _) in identities.items()
        if newest[task] != file
    )
    return Sniffed([file for file in logs if file in newest.values()], warnings)


def _is_log(file: Path) -> bool:
    if file.suffix == ".json":
        return _JSON_LOG.match(beginning(file)) is not None
    if file.suffix != ".eval" or not beginning(file, 4).startswith(b"PK"):
        return False
    try:
        with zipfile.ZipFile(file) as archive:
            return not {_HEADER, _START}.isdisjoint(archive.namelist())
    except _BROKEN_ZIP:
        return True  # that it is cut off is an error of its own


def _identity(file: Path) -> tuple[object, tuple[float, bool]]:
    """Return the task and the model of a log, and its age: retries keep the id of the task."""
    evaluation = _evaluation(file)
    task = name_of(evaluation.get("task_id")) or name_of(evaluation.get("eval_id"))
    age = timestamp(evaluation.get("created")) or 0.0, file.suffix == ".eval"
    return ((task, name_of(evaluation.get("model"))) if task else file), age


def _evaluation(file: Path) -> Mapping[str, Any]:
    """Return what a log says of the evaluation, for its files in a folder; empty where broken."""
    try:
        if file.suffix == ".eval":
            with zipfile.ZipFile(file) as archive:
                name = _HEADER if _HEADER in archive.namelist() else _START
                content = mapping(json.loads(_entry(file, archive, name).decode()))
            return mapping(content.get("eval"))
        text = beginning(file, 2**20).decode("utf-8-sig", "ignore")
        start = re.search(r'"eval"\s*:\s*', text)
        content = json.JSONDecoder().raw_decode(text, start.end())[0] if start else {}
        return mapping(content)
    except (*_BROKEN_ZIP, RecursionError):
        return {}


# -- reading -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Log:
    """The parts of a log: what was evaluated, how it ended, and one mapping per sample."""

    evaluation: Mapping[str, Any]
    header: Mapping[str, Any]
    samples: Sequence[Mapping[str, Any]]
    texts: TextLog


def read(file: Path, query: Query) -> FileContents:
    """Read a log.

    A sample counts where it has a score, whether or not a limit ended it. One that ended in an
    error has none, and is left out, as in the metrics of inspect_ai.

    Raises
    ------
    NothingToCountError
        If no sample has a score.
    InvalidInputError
        If the log is cut off or broken, or the query names a scorer that it does not have.
    """
    log = _archive(file, query) if file.suffix == ".eval" else _json_log(file, query)
    evaluation = log.evaluation
    task = name_of(evaluation.get("task")) or query.task or file.stem
    if query.task not in (None, task):
        return FileContents((), (task,))
    values = [dict(_values(sample)) for sample in log.samples]
    names = _scorers(log, values)
    if not names:
        n_errors = sum(bool(sample.get("error")) for sample in log.samples)
        got = f"{plural(len(log.samples), 'sample')} without one, {n_errors:,} of them with errors"
        got = got if log.samples else "no sample"
        raise nothing_to_count(file, query, "scores of samples", got)
    metric, notes = chosen_metric(names, query, file)
    scored = [of_sample.get(metric) for of_sample in values]
    columns, more = _columns(log, scored, metric, file, query)
    columns.texts = log.texts
    provenance = _provenance(log)
    settings = generation(provenance.generation_kwargs) | dict(provenance.setup or {})
    runs = partial_runs(
        columns,
        file,
        query,
        metric=metric,
        notes=(*notes, *more),
        provenance=provenance,
        settings=settings,
        version=name_of(evaluation.get("task_version")),
    )
    return FileContents(runs, (task,), warnings=_incomplete(log, file))


def _incomplete(log: _Log, file: Path) -> tuple[str, ...]:
    """Return a warning where a log did not end well, or holds fewer samples than its header says.

    Both numbers count every epoch of a sample. Where the evaluation did not end, the header lists
    the ids of the samples and the number of epochs.
    """
    planned = mapping(log.header.get("results")).get("total_samples")
    if type(planned) is not int:
        config = mapping(log.evaluation.get("config"))
        epochs = config.get("epochs")
        ids = _list(mapping(log.evaluation.get("dataset")).get("sample_ids"))
        planned = len(ids) * (epochs if type(epochs) is int else 1)
    held = ""
    if len(log.samples) < planned:
        held = f"holds {len(log.samples):,} of {planned:,} samples of its header, epochs counted"
    status = name_of(log.header.get("status"))
    ended = ""
    if status != "success":
        ended = f"has the status {one_line(status, 20)}" if status else "does not say how it ended"
    reasons = " and ".join(part for part in (ended, held) if part)
    return (f"{file} {reasons}: the samples that it holds count",) if reasons else ()


def _json_log(file: Path, query: Query) -> _Log:
    content = load_json(file, query)
    samples = _samples(content, file, query)
    header = {key: value for key, value in content.items() if key != "samples"}

    def texts() -> Iterator[Sequence[TrialText]]:
        again = Query(argument=query.argument)
        return map(_texts, _samples(load_json(file, again), file, again))

    return _Log(mapping(header.get("eval")), header, samples, SpooledRecords(file, records=texts))


def _samples(content: object, file: Path, query: Query) -> list[Mapping[str, Any]]:
    samples = content.get("samples") if isinstance(content, dict) else None
    if not isinstance(samples, list):
        raise broken(file, query, "no list of samples")
    return [sample for sample in samples if _is_sample(sample)]


def _is_sample(sample: object) -> bool:
    return isinstance(sample, Mapping) and name_of(sample.get("id")) != ""


def _archive(file: Path, query: Query) -> _Log:
    """Read the header and the summaries of an `.eval` file, or its samples where it has none."""
    try:
        with zipfile.ZipFile(file) as archive:
            names = set(archive.namelist())

            def content(name: str) -> Any:
                return parse_json(_entry(file, archive, name), file, query, f" ({name})")

            header = mapping(content(_HEADER if _HEADER in names else _START))
            journal = [(int(m[1]), m[0]) for name in names if (m := _JOURNAL.fullmatch(name))]
            if _SUMMARIES in names:
                samples = content(_SUMMARIES)
            elif journal:
                samples = [sample for _, name in sorted(journal) for sample in _list(content(name))]
            else:
                samples = [content(name) for name in sorted(filter(_SAMPLE.fullmatch, names))]
        query.advance(file.stat().st_size)
    except KeyError:
        raise broken(file, query, f"no {_HEADER}") from None
    except (zipfile.BadZipFile, *UNREADABLE, NotImplementedError, RuntimeError) as error:
        raise broken(file, query, _damage(file, error)) from None
    except struct.error:
        raise broken(file, query, "a broken zip file") from None
    listed = [sample for sample in _list(samples) if _is_sample(sample)]
    keys = [(name_of(s["id"]), name_of(s.get("epoch")) or i) for i, s in enumerate(listed)]
    unique = dict(zip(keys, listed, strict=True))  # a sample that was written again counts once
    samples = list(unique.values())
    return _Log(mapping(header.get("eval")), header, samples, _ArchiveTexts(file, samples))


# -- texts ---------------------------------------------------------------------------------------


class _ArchiveTexts(Records):
    """The texts of the samples of an `.eval` file: a sample is a record.

    Parameters
    ----------
    file : Path
        The file.
    samples : sequence of mapping
        The summaries of the samples, or the samples.
    """

    def __init__(self, file: Path, samples: Sequence[Mapping[str, Any]]) -> None:
        super().__init__([file])
        self.entries = [f"samples/{s.get('id')}_epoch_{s.get('epoch')}.json" for s in samples]
        self._archive: zipfile.ZipFile | None = None

    def record(self, number: int) -> Sequence[TrialText]:
        """Return the text of a sample; none where the log has not kept it."""
        file = self.check()
        if self._archive is None:
            self._archive = zipfile.ZipFile(file)
            weakref.finalize(self, self._archive.close)
        try:
            content = _entry(file, self._archive, self.entries[number])
            return _texts(mapping(json.loads(content.decode("utf-8"))))
        except KeyError:
            return one_text(None)
        except (*_BROKEN_ZIP, struct.error, RecursionError):
            self.check()
            return [TrialText(None, damaged=True)]


def _texts(sample: Mapping[str, Any]) -> Sequence[TrialText]:
    """Return what was written in a sample, and the right answers."""
    text = written(sample.get("messages"))
    if text is None:
        output = mapping(sample.get("output"))
        first = next(iter(_list(output.get("choices"))), None)
        text = written([mapping(first).get("message")]) or output.get("completion") or None
    attached = mapping(sample.get("attachments"))
    if isinstance(text, str) and text.startswith(_ATTACHMENT):
        text = attached.get(text.removeprefix(_ATTACHMENT), text)
    return one_text(text, sample.get("target"))


def _damage(file: Path, error: Exception) -> str:
    """Return what is wrong with an archive that cannot be read."""
    if beginning(file, 4) == b"PK\x03\x04" and not zipfile.is_zipfile(file):
        return "a file whose end is missing, as of a copy that was cut off"
    return error_line(error)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _entry(file: Path, archive: zipfile.ZipFile, name: str) -> bytes:
    """Return an entry, decompressed in memory.

    Raises
    ------
    KeyError
        If there is none.
    OSError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError
        If it cannot be read.
    """
    info = archive.getinfo(name)
    if info.file_size > LARGEST:
        raise zipfile.BadZipFile(f"{info.file_size:,} bytes in {name}")
    if info.compress_type != _ZSTD:
        with archive.open(info) as entry:
            content = entry.read(info.file_size + 1)
    else:
        content = _decompressed(file, info)
    if len(content) != info.file_size or zlib.crc32(content) != info.CRC:
        raise zipfile.BadZipFile(f"{name} is cut off or broken")
    return content


def _decompressed(file: Path, info: zipfile.ZipInfo) -> bytes:
    """Return an entry that is compressed by zstd."""
    import pyarrow  # part of the harness's requirement `datasets`

    with file.open("rb") as raw:
        raw.seek(info.header_offset)
        local = raw.read(30)  # its last numbers are the lengths of the name and of an extra field
        if len(local) < 30 or local[:4] != b"PK\x03\x04":
            raise zipfile.BadZipFile(f"{info.filename} is not where the zip file says")
        raw.seek(sum(struct.unpack("<HH", local[26:])), 1)
        compressed = raw.read(min(info.compress_size, LARGEST))
    try:
        source = pyarrow.BufferReader(compressed)
        with pyarrow.CompressedInputStream(source, "zstd") as stream:
            return bytes(stream.read(info.file_size + 1))
    except pyarrow.ArrowException as error:
        reason = f"an incomplete or damaged zstd entry {info.filename} ({error_line(error)})"
        raise zipfile.BadZipFile(reason) from None


# -- scores --------------------------------------------------------------------------------------


def _values(sample: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the scorers of a sample with their scores; one per part of a score with several."""
    scores = sample.get("scores")
    if "score" in sample and not isinstance(scores, Mapping):
        scores = {"score": sample["score"]}  # logs of 2024
    for scorer, score in mapping(scores).items():
        value = mapping(score).get("value")
        answer = mapping(score).get("answer")
        if isinstance(value, Mapping):
            yield from ((f"{scorer}/{key}", (part, answer)) for key, part in value.items())
        elif isinstance(value, list):
            yield from ((f"{scorer}/{i}", (part, answer)) for i, part in enumerate(value))
        else:
            yield scorer, (value, answer)


def _scorers(log: _Log, values: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the scorers that have scored a sample, in the order of the log's results."""
    found = {
        name: None
        for of_sample in values
        for name, (value, _) in of_sample.items()
        if not math.isnan(_score(value))
    }
    listed = _list(mapping(log.header.get("results")).get("scores"))
    order = [name_of(mapping(score).get("scorer")) for score in listed]
    ranks = {name: rank for rank, name in reversed(list(enumerate(order)))}
    return sorted(found, key=lambda name: ranks.get(name.partition("/")[0], len(ranks)))


def _score(value: object) -> float:
    """Return a score as inspect_ai does: C is 1, P is 0.5, I and N are 0; NaN for none."""
    if value is None or isinstance(value, (bool, int, float)):
        real = score_of(value)
        return math.nan if real is None else real
    text = name_of(value)
    if text in ("C", "I", "P", "N"):
        return {"C": 1.0, "P": 0.5}.get(text, 0.0)
    if text.lower() in ("yes", "true"):
        return 1.0
    return number(text) or 0.0


def _usable_score(
    sample: Mapping[str, Any],
    scored: tuple[Any, Any] | None,
    metric: str,
    file: Path,
    query: Query,
) -> float:
    """Return the score of a sample; NaN where it has none, as inspect_ai itself writes it.

    Raises
    ------
    InvalidInputError
        If the score is infinite, or a list or an object where others are single values, or the
        other way round.
    """
    what = f"{metric} of sample {one_line(name_of(sample.get('id')), 40)}"
    if scored is None:
        for scorer, score in mapping(sample.get("scores")).items():
            value = mapping(score).get("value")
            if scorer != metric and not metric.startswith(f"{scorer}/"):
                continue
            is_unscored = value is None or (isinstance(value, float) and math.isnan(value))
            if not is_unscored and isinstance(value, (list, Mapping)) == (scorer == metric):
                raise unusable_score(value, what, file, query)
        return math.nan
    value = scored[0]
    is_too_large = isinstance(value, (int, float)) and score_of(value) is None and value == value
    if is_too_large or isinstance(value, (list, Mapping)):
        raise unusable_score(value, what, file, query)
    return _score(value)


def _columns(
    log: _Log,
    values: Sequence[tuple[Any, Any] | None],
    metric: str,
    file: Path,
    query: Query,
) -> tuple[TrialColumns, list[str]]:
    """Return the trials of one scorer, and notes."""
    evaluation = log.evaluation
    model = name_of(evaluation.get("model"))
    run = name_of(evaluation.get("task_id")) or name_of(evaluation.get("eval_id"))
    first = first_number(run) if run else 0
    rows: list[tuple[Any, ...]] = []
    epochs: dict[str, int] = {}
    n_errors = n_limits = n_words = 0
    for sample, scored in zip(log.samples, values, strict=True):
        value, answer = scored or (None, None)
        score = _usable_score(sample, scored, metric, file, query)
        id, epoch = name_of(sample.get("id")), sample.get("epoch")
        epochs[id] = epochs.get(id, 0) + 1
        if type(epoch) is not int or not 0 <= epoch < 2**20:
            epoch = epochs[id]
        usage = sample.get("model_usage")
        tokens = mapping(mapping(usage).get(model)).get("output_tokens")
        working, asked = sample.get("working_time"), usage != {}
        seconds = sample.get("total_time") if working is None else working
        text = last_message(sample.get("input"))
        trial = first + epoch
        rows.append((id, score, trial, name_of(answer), text, tokens, seconds, asked))
        unscored = math.isnan(score)
        n_errors += bool(sample.get("error")) and unscored
        n_limits += bool(sample.get("limit")) and not unscored
        n_words += isinstance(value, str) and score == 0 and _is_word(value)
    ids, scores, trials, answers, texts, counts, times, were_asked = map(
        list, zip(*rows, strict=True)
    )
    if any(count is not None for count in counts):
        # a trial that never called the model has no usage at all
        counts = [count if sent else 0 for count, sent in zip(counts, were_asked, strict=True)]
    documents = (sample.get("metadata") for sample in log.samples)
    columns = TrialColumns(
        question=ids,
        score=scores,
        model=model,
        task=name_of(evaluation.get("task")),
        trial=trials,
        cluster=clusters_of(documents, query, f"the samples' metadata in {file.name}"),
        text=texts,
        answer=answers,
        measured={"tokens": counts, "time": times},
    )
    notes = []
    if n_errors and query.unscored == "left-out":
        ended = plural(n_errors, "trial") + " ended in an error, without a score"
        notes.append(f"{ended}, and did not count, as in inspect_ai's own metrics")
    if n_limits:
        ended = plural(n_limits, "trial") + " ended by a limit"
        notes.append(f"{ended}, and counted by the score, as in inspect_ai's own metrics")
    if n_words:
        notes.append(
            f"{plural(n_words, 'word')} in place of a score of {metric} counted as 0, as in "
            "inspect_ai"
        )
    reducers = _list(mapping(evaluation.get("config")).get("epochs_reducer"))
    if reducers and reducers != ["mean"]:
        names = one_line(", ".join(map(name_of, reducers)), 60)
        notes.append(f"every epoch is a trial; inspect_ai's own metrics reduce epochs by {names}")
    return columns, notes


def _is_word(value: str) -> bool:
    known = value in ("I", "N") or value.strip().lower() in ("no", "false")
    return not known and number(value) is None


def _task_arguments(arguments: object) -> dict[str, Any]:
    """Return the arguments of a task, of secrets and long values a hash, as settings of a run."""
    printed: dict[str, Any] = {}
    for name, value in mapping(arguments).items():
        text = value if isinstance(value, str) else json_text(value)
        known = name in SETTINGS or not name_of(name)
        plain = value is None or isinstance(value, (str, bool, int, float))
        plain = plain and 0 < len(text) <= _LONGEST_ARGUMENT and text == one_line(text)
        if not plain or names_a_secret(name, value) or redacted(text) != text:
            text = f"hash {hash_text(text).rpartition(':')[2][:12]}"
        printed[f"task_args.{name}" if known else name] = text
    return printed


def _provenance(log: _Log) -> Provenance:
    evaluation, header = log.evaluation, log.header
    config = mapping(mapping(header.get("plan")).get("config"))
    sent = {**config, **mapping(evaluation.get("model_generate_config"))}
    packages = mapping(evaluation.get("packages"))
    versions = {name: text for name in packages if (text := name_of(packages[name]))}
    version = name_of(evaluation.get("task_version"))
    if version:
        versions["task"] = version
    dataset = mapping(evaluation.get("dataset"))
    n_samples = dataset.get("samples")
    stats = mapping(header.get("stats"))
    ended = timestamp(stats.get("completed_at"))
    return Provenance(
        generation_kwargs=call_settings(sent),
        date=timestamp(evaluation.get("created")) if ended is None else ended,
        versions=versions,
        seconds=seconds_between(stats, "started_at", "completed_at"),
        dataset=name_of(dataset.get("name")),
        n_questions=n_samples if type(n_samples) is int else None,
        setup=_task_arguments(evaluation.get("task_args")),
    )
