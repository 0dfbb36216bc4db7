"""`lm-eval-bayes study verify`: a language model judges the saved answers of runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lm_eval_bayes._util.text import plural
from lm_eval_bayes.cli.screens.layout import say_table
from lm_eval_bayes.cli.ui.errors import CHECK_FAILED
from lm_eval_bayes.cli.ui.options import MORE, Json, expand_options, option
from lm_eval_bayes.cli.ui.output import say, say_json, warn
from lm_eval_bayes.cli.ui.reading import TaskOptions

if TYPE_CHECKING:
    from lm_eval_bayes.verifiers.verification import Tally

#: Total probability of the labels below which a model does not answer with a label.
LOW_LABEL_MASS = 0.01


@expand_options
def command(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="Output folders of runs with logged samples, or samples_*.jsonl files.",
            show_default=False,
        ),
    ],
    *,
    verifier: Annotated[
        str, option("MODEL", "The verifier: a folder, a name on the hub, or that of the server.")
    ],
    base_url: Annotated[
        str | None,
        option(
            "URL",
            "Address of an OpenAI-compatible server: http://host:port/v1 for chat, "
            ".../v1/completions for text completion. The key is read from OPENAI_API_KEY.",
        ),
    ] = None,
    revision: Annotated[str | None, option("REV", "Its commit on the hub.", panel=MORE)] = None,
    device: Annotated[str | None, option("DEVICE", "cpu, cuda or cuda:1.", panel=MORE)] = None,
    batch_size: Annotated[int, option("N", "Number of answers in a batch.")] = 8,
    max_length: Annotated[
        int | None,
        option("N", "The longest prompt, in tokens, of a server in bytes.", panel=MORE),
    ] = None,
    reading: TaskOptions,
    limit: Annotated[int | None, option("N", "Only the first N questions of each task.")] = None,
    out: Annotated[
        Path | None,
        option("PATH", "The file of verdicts, or a folder; by default beside the samples."),
    ] = None,
    restart: Annotated[
        bool, option(None, "Judge all again; the earlier file becomes FILE.before.", "--restart")
    ] = False,
    as_json: Json = False,
) -> None:
    """Judge the saved answers of runs with a verifier model.

    Writes for every logged trial the probabilities that it is correct (A), incorrect (B) and
    invalid (C), which `lm-eval-bayes study rubric` reads. The verifier gets the question, the
    reference answer and the candidate's answer. The logits of the labels A, B and C as the next
    token, minus those of a prompt without content, become probabilities. Equal answers are judged
    once. Every batch is saved when it is done, and the same command resumes a stopped or killed
    run.

    The exit code is 1 if some answers could not be judged.

    \b
    Examples:
      lm-eval-bayes study verify runs/qwen --verifier opencompass/CompassVerifier-3B
      lm-eval-bayes study verify runs/* --verifier judge --base-url http://127.0.0.1:8000/v1
    """
    from lm_eval_bayes._util.validation import check_integer
    from lm_eval_bayes.cli.ui.output import Progress
    from lm_eval_bayes.verifiers.judged_trials import files_to_judge, verdict_targets
    from lm_eval_bayes.verifiers.verification import Verification, judge_maker

    check_integer("--batch-size", batch_size, 1)
    for name, number in (("--max-length", max_length), ("--limit", limit)):
        if number is not None:
            check_integer(name, number, 1)
    make_judge = judge_maker(
        verifier,
        _hash_weights,
        base_url=base_url,
        revision=revision,
        device=device,
        max_length=max_length,
        batch_size=batch_size,
    )
    saved = reading.read(runs)
    files = files_to_judge(saved.runs, limit)
    plans = [
        replace(file, target=target)
        for file, target in zip(files, verdict_targets(files, out), strict=True)
    ]
    with closing(make_judge()) as judge:
        verification = Verification(judge, plans, batch_size=batch_size, restart=restart)
        trials = plural(sum(len(plan.trials) for plan in plans), "trial")
        answers = plural(verification.distinct, "different answer")
        warn(f"{trials} of {plural(len(plans), 'task')}; to be judged: {answers}")
        with Progress("answers judged", verification.distinct) as progress:
            try:
                tallies = verification.run(progress.advance)
            except BaseException:
                if progress.done:
                    warn("the verdicts so far are saved; run the same command again to resume")
                raise
    _report(tallies, as_json)
    raise typer.Exit(CHECK_FAILED if any(tally.failed for tally in tallies) else 0)


def _hash_weights(folder: str) -> str | None:
    from lm_eval_bayes.harness.models.weights import weights_of

    return weights_of(folder)


def _report(tallies: Sequence[Tally], as_json: bool) -> None:
    from lm_eval_bayes.verifiers.judge import label_mass

    mass = min(label_mass(tally.baseline) for tally in tallies)
    if mass < LOW_LABEL_MASS:
        warn(
            f"note: on a prompt without content the labels A, B and C have a total probability of "
            f"{mass:.2g} as the next token; verdicts of a model that does not answer with a label "
            "are not reliable"
        )
    for tally in tallies:
        for reason, n in tally.failures.items():
            warn(f"{tally.plan.target}: {plural(n, 'trial')} could not be judged: {reason}")
    if as_json:
        say_json([tally.to_dict() for tally in tallies])
        return
    head = ("model", "task", "trials", "A", "B", "C", "not judged")
    rows = []
    for tally in tallies:
        counts = (len(tally.plan.trials), *tally.labels.values(), tally.failed)
        rows.append((tally.plan.model, tally.plan.task, *(f"{n:,}" for n in counts)))
    say_table("verdicts: trials by their most probable label", head, rows)
    for tally in tallies:
        earlier = f" ({tally.kept:,} judged before)" if tally.kept else ""
        say(f"{tally.plan.target}: {plural(len(tally.plan.trials), 'trial')}{earlier}")
