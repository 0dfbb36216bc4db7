"""What a trial store holds, for comparisons of two stores."""

from __future__ import annotations

import io
import json

from lm_eval_bayes.store.export import export_lines


def stored_trials(path, *without):
    """Return the trials of a store by prompt, sampling and number.

    The times, and further fields that are named, are left out: they differ from draw to draw.
    """
    output = io.StringIO()
    export_lines(path, output)
    trials = {}
    for line in output.getvalue().splitlines():
        record = json.loads(line)
        if record["kind"] == "trial":
            for name in ("created", "queued_s", "generated_s", "concurrency", *without):
                del record[name]
            identity = record["model"], record["prompt"], record["sampling"], record["trial"]
            assert identity not in trials
            trials[identity] = record
    return trials
