"""Writes tables with one row per trial, in the format that the ending of the path names."""

from __future__ import annotations

import csv
import gzip
import io
import json

import pyarrow
import pyarrow.feather
import pyarrow.parquet


def write_rows(path, rows, encoding="utf-8", row_group_size=None):
    """Write mappings as CSV, TSV, JSON (lines), also compressed, as Parquet, Arrow or Feather."""
    suffix = path.suffixes[0]
    if suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size)
    elif suffix == ".arrow":
        table = pyarrow.Table.from_pylist(rows)
        with pyarrow.ipc.new_stream(path, table.schema) as file:
            file.write_table(table)
    elif suffix == ".feather":
        pyarrow.feather.write_feather(pyarrow.Table.from_pylist(rows), path)
    else:
        write = {".json": json.dumps, ".jsonl": _json_lines}.get(suffix)
        text = _separated(rows, suffix) if write is None else write(rows)
        path.write_bytes(_compressed(text.encode(encoding), path.suffix))
    return path


def _json_lines(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _separated(rows, suffix):
    output = io.StringIO()
    delimiter = "\t" if suffix == ".tsv" else ","
    writer = csv.DictWriter(output, list(rows[0]), delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return output.getvalue()


def _compressed(content, suffix):
    if suffix == ".gz":
        return gzip.compress(content)
    return pyarrow.compress(content, "zstd", asbytes=True) if suffix == ".zst" else content
