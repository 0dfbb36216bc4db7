"""Several files of one model and task: what is merged, refused, left out, kept apart."""

from dataclasses import replace

import numpy as np
import pytest
from _support.errors import refused
from _support.run_files import LATER, SENT, STAMP, TASK, row, seeded, write_run

from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.same_trials import duplicates, merge_trials
from lm_eval_bayes.runs.trials import PartialRun, Question, Trials

# -- one question ----------------------------------------------------------------------------------


def trials(outcomes, seeds=None, numbers=None, texts=None):
    digest = None if texts is None else np.array([hash(text) for text in texts])
    return Trials.of_question(outcomes, numbers, seeds=seeds, digest=digest)


def merged(*files):
    """The trials of one question in two files."""
    runs = [PartialRun("m", "t", ("file",), (Question("q"),), table) for table in files]
    return merge_trials(*runs, by_number=False)[1]


def test_a_seed_tells_a_trial_unless_two_agree_by_accident():
    known = trials([1, 1, 0], seeds=[7, 8, None], texts="abc")
    # the same seed: with another number and text, the same number, the same text; no seed
    more = trials([0, 0, 0, 0], seeds=[7, 8, 7, None], numbers=[9, 1, 4, 2], texts="xyaz")
    assert duplicates(known, more, by_number=False).tolist() == [False, True, True, False]
    assert duplicates(known, more, by_number=True).tolist() == [False, True, True, True]
    # a copy without seeds, and a copy with them: the numbers decide, where they mean the same
    copy = replace(known, seed=None)
    assert duplicates(known, copy, by_number=True).tolist() == [True, True, True]
    assert duplicates(copy, known, by_number=True).tolist() == [True, True, True]
    assert duplicates(known, copy, by_number=False).tolist() == [False, False, False]
    bare = replace(more, digest=None)
    assert duplicates(known, bare, by_number=False).tolist() == [True, True, True, False]


def test_trials_are_united_by_number_where_numbers_tell_them():
    first = trials([0, 1], seeds=[10, 11], numbers=[2, 3], texts="ab")
    second = trials([1, 0, 0], seeds=[8, 9, 10], numbers=[0, 1, 2], texts="cda")
    both = merged(first, second)
    assert both.category.tolist() == [1, 0, 0, 1]
    assert both.number.tolist() == [0, 1, 2, 3]
    assert both.seed.tolist() == [8, 9, 10, 11]
    elsewhere = trials([1, 0], seeds=[50, 51], texts="ef")
    apart = merged(trials([0, 0], seeds=[1, 2], texts="gh"), elsewhere)
    assert apart.category.tolist() == [0, 0, 1, 0]


def test_answers_that_one_file_lacks_are_unknown(tmp_path):
    first = row(0, outcomes=[1, 0], trial=[0, 1], seed=[1, 2], answers=["4", "5"])
    second = row(0, outcomes=[1, 0], trial=[2, 3], seed=[3, 4])
    write_run(tmp_path / "a", [first])
    write_run(tmp_path / "b", [second])
    (run,) = read_runs([tmp_path / "a", tmp_path / "b"]).runs
    assert (run.n_common, run.answers) == (4, None)


# -- several folders -------------------------------------------------------------------------------


def test_two_jobs_of_one_model_are_brought_together(tmp_path):
    first = [
        row(n, outcomes=[1, 0], trial=[0, 1], seed=[10, 11], completion_tokens=[5, 6])
        for n in range(2)
    ]
    second = [row(n, outcomes=[1, 1, 1], trial=[2, 3, 4], seed=[12, 13, 14]) for n in range(3)]
    write_run(tmp_path / "b", second, args={"trials": "2:5", "gpu_memory_utilization": 0.5})
    write_run(tmp_path / "a", first, args={"trials": "0:2", "gpu_memory_utilization": 0.9})
    saved = read_runs([tmp_path / "b", tmp_path / "a"])
    (run,) = saved.runs
    assert (run.model, len(run.sources), saved.warnings) == ("org/model", 2, ())
    assert [trials.tolist() for trials in run.trials] == [[1, 0, 1, 1, 1]] * 2 + [[1, 1, 1]]
    assert run.seeds[0] == (10, 11, 12, 13, 14)
    tokens = run.measured["completion_tokens"][0]
    assert tokens[:2].tolist() == [5, 6]
    assert np.isnan(tokens[2:]).all()
    assert run.provenance.seconds == 5.0


@pytest.fixture
def paths(tmp_path):
    """Two runs that share the first four trials of two questions."""
    write_run(tmp_path / "a", seeded(range(3), 10))
    write_run(tmp_path / "b", seeded(range(2), 10, n=6, outcome=0))
    return [tmp_path / "a", tmp_path / "b"]


def test_a_trial_that_stands_twice_is_refused_unless_it_may_count_once(paths):
    with refused("RUN", "duplicate"):
        read_runs(paths)
    saved = read_runs(paths, dedupe=True)
    assert [trials.tolist() for trials in saved.runs[0].trials] == [[1, 1, 1, 1, 0, 0]] * 2 + [
        [1, 1, 1, 1]
    ]
    (warning,) = saved.warnings
    assert warning.startswith("8 trials of ")


def test_paths_that_are_kept_apart_share_no_trial(tmp_path, paths):
    with refused("RUN", "duplicate"):
        read_runs(paths, merge=False)
    apart = read_runs(paths, merge=False, dedupe=True)
    assert [run.model for run in apart.runs] == ["org/model", "org/model"]
    assert [[run.n_trials for run in apart.of_path(i).runs] for i in (0, 1)] == [[12], [12]]
    (warning,) = apart.warnings
    assert warning.startswith("8 trials of ")
    # two checkpoints at one place: the same seeds, other texts
    write_run(tmp_path / "c", [{**r, "resps": [["else"] * 4]} for r in seeded(range(3), 10)])
    assert read_runs([tmp_path / "a", tmp_path / "c"], merge=False).warnings == ()


def test_sampled_texts_without_seeds_are_the_same_trials_where_all_agree(tmp_path):
    write_run(tmp_path / "a", [row(n, outcomes=[1, 0], texts=["x", "y"]) for n in range(3)])
    write_run(tmp_path / "b", [row(n, outcomes=[1, 0], texts=["x", "y"]) for n in range(3)])
    write_run(tmp_path / "c", [row(n, outcomes=[1, 0], texts=["x", f"{n}"]) for n in range(3)])
    with refused("RUN", "duplicate"):
        read_runs([tmp_path / "a", tmp_path / "b"])
    # short answers agree by chance: not all of them do
    assert read_runs([tmp_path / "a", tmp_path / "c"]).runs[0].n_trials == 12


def test_greedy_answers_are_further_trials_where_other_settings_change_them(tmp_path):
    greedy = {"do_sample": False, "until": []}
    for name, text in (("a", "x"), ("b", "y"), ("c", "x")):
        more = {"sent": greedy, "outcomes": [1], "seed": [None]}
        lines = [row(n, texts=[f"{text * n} ."], **more) for n in range(2)]
        write_run(tmp_path / name, lines)
        write_run(tmp_path / "all", lines, stamp=f"2026-01-0{ord(name) - 96}T10-00-00.000000")
    with refused("RUN", "duplicate"):
        read_runs([tmp_path / "a", tmp_path / "c"])
    (run,) = read_runs([tmp_path / "a", tmp_path / "b"]).runs
    assert (run.n_trials, run.settings) == (4, ("a", "b"))
    with refused("RUN", "duplicate"):  # where they are to be of one setting
        read_runs([tmp_path / "a", tmp_path / "b"], settings="none")
    # of one folder the copy is left out, and named
    (run,) = read_runs(tmp_path / "all").runs
    assert (run.n_trials, run.settings) == (4, ("2026-01-02T10-00-00", "2026-01-03T10-00-00"))
    assert "2026-01-01" in run.notes[0]


@pytest.mark.parametrize(
    ("change", "label"),
    [
        ({"sent": {**SENT, "top_k": 50}}, " (top_k=50)"),
        ({"args": {"dtype": "float16"}}, " (dtype=float16)"),
        ({"chat_template_sha": "0123456789abcdef" * 4}, " (chat_template=01234567…)"),
        ({"n-shot": {TASK: 5}}, " (num_fewshot=5)"),
    ],
)
def test_what_makes_the_model_another_one_keeps_runs_apart(tmp_path, change, label):
    sent = change.pop("sent", SENT)
    write_run(tmp_path / "a", [row(0, outcomes=[1])])
    write_run(tmp_path / "b", [row(0, outcomes=[0], sent=sent)], **change)
    models = read_runs([tmp_path / "a", tmp_path / "b"]).models
    assert models == ("org/model", f"org/model{label}")


def test_settings_that_change_nothing_keep_nothing_apart(tmp_path):
    same = {**SENT, "top_k": 0, "min_p": 0.0, "max_new_tokens": 64, "stop": None}
    del same["max_gen_toks"], same["until"]
    write_run(tmp_path / "a", seeded([0], 1))
    write_run(tmp_path / "b", [{**seeded([0], 9)[0], "arguments": row(0, sent=same)["arguments"]}])
    assert read_runs([tmp_path / "a", tmp_path / "b"]).runs[0].n_trials == 8


def test_a_model_has_one_name_in_all_tasks(tmp_path):
    for place, temperature in (("a", 0.2), ("b", 0.8)):
        for task in ("t", "u"):
            sent = {**SENT, "temperature": temperature, "max_gen_toks": 8 if task == "t" else 9}
            write_run(tmp_path / place, [row(0, outcomes=[1], sent=sent)], task=task)
    (tmp_path / "b" / f"samples_u_{STAMP}.jsonl").unlink()
    saved = read_runs([tmp_path])
    assert [(run.model, run.task) for run in saved.runs] == [
        ("org/model (temperature=0.2)", "t"),
        ("org/model (temperature=0.2)", "u"),
        ("org/model (temperature=0.8)", "t"),
    ]
    (warning,) = saved.warnings
    assert "temperature: 0.2, 0.8" in warning


# -- one folder ------------------------------------------------------------------------------------


def test_a_resumed_run_replaces_the_earlier_one(tmp_path):
    earlier = write_run(tmp_path, seeded(range(2), 1, n=2, outcome=0))
    later = write_run(tmp_path, seeded(range(2), 1, n=4), stamp=LATER)
    saved = read_runs([tmp_path])
    (run,) = saved.runs
    assert [trials.tolist() for trials in run.trials] == [[1] * 4] * 2
    (note,) = run.notes
    assert note.startswith(earlier.name)
    assert saved.warnings == ()
    # and where only some questions were asked again, the others come from the earlier file
    later.write_text(later.read_text().splitlines(keepends=True)[0])
    run = read_runs([tmp_path], dedupe=True).runs[0]
    assert [trials.tolist() for trials in run.trials] == [[1] * 4, [0] * 2]


def test_a_smaller_run_later_takes_nothing_away(tmp_path):
    write_run(tmp_path, seeded(range(2), 1, n=4, outcome=0))
    write_run(tmp_path, seeded(range(1), 1, n=2), stamp=LATER)
    (run,) = read_runs([tmp_path]).runs
    # of a trial in both the newer grade counts
    assert [trials.tolist() for trials in run.trials] == [[1, 1, 0, 0], [0] * 4]


def test_other_trials_in_one_folder_are_added(tmp_path):
    first = write_run(tmp_path, seeded([0], 1, n=2, outcome=0))
    second = write_run(tmp_path, seeded([0], 11, n=2), stamp=LATER)
    (run,) = read_runs([tmp_path]).runs
    assert run.sources == (str(second), str(first))
    assert run.trials[0].tolist() == [1, 1, 0, 0]
    assert run.settings == (STAMP.partition(".")[0], LATER.partition(".")[0])


def test_trials_that_overlap_in_one_folder_are_refused(tmp_path):
    write_run(tmp_path, seeded([0], 1, n=4, outcome=0))
    write_run(tmp_path, seeded([0], 3, n=4), stamp=LATER)
    # seeds 3 and 4 are in both, under other numbers, with the same texts
    with refused("RUN", "duplicate"):
        read_runs([tmp_path])
    assert read_runs([tmp_path], dedupe=True).runs[0].n_trials == 6


def test_what_cannot_be_added_in_one_folder_is_refused(tmp_path):
    write_run(tmp_path, seeded([0], 1), version=0.5)
    new = write_run(tmp_path, seeded([0], 9, n=2), stamp=LATER)
    with refused("RUN", "mismatch") as caught:
        read_runs([tmp_path])
    assert all(text in caught.value.value for text in ("0.5", new.name))
    assert read_runs([new]).runs[0].n_trials == 2


def test_the_trials_that_files_leave_out_are_summed(tmp_path):
    files = []
    for name, first, missing in (("a", 0, 1), ("b", 4, 1), ("c", 8, 2)):
        rows = [f"m,q,{first + i},{'' if i < missing else 1}" for i in range(4)]
        files.append(tmp_path / f"{name}.csv")
        files[-1].write_text("model,question,trial,score\n" + "\n".join(rows) + "\n")
    for order in (files, files[::-1]):
        (run,) = read_runs(order).runs
        assert run.n_trials == 12 - 4
        (note,) = (note for note in run.notes if "left out" in note)
        assert note.startswith("4 trials")


# -- runs of several models ------------------------------------------------------------------------


def test_what_differs_between_models_is_told(tmp_path):
    write_run(tmp_path / "a", [row(0, outcomes=[1])])
    sent = {**SENT, "temperature": 1.0}
    rows = [row(0, filter="boxed", sent=sent, prompt="<user>Q", outcomes=[1])]
    config = {TASK: {"metadata": {"bayes": {"weights": [0, 2]}}}}
    write_run(tmp_path / "b", rows, model="org/other", version=2.0, configs=config)
    together = read_runs([tmp_path])
    differences = (
        "1.0 (org/model), 2.0 (org/other)",
        "graded trials (org/model), graded trials, filter boxed of scores 0, 2 (org/other)",
        "temperature: 0.6, 1.0",
    )
    for warning, difference in zip(together.warnings, differences, strict=True):
        assert difference in warning


def test_mixed_versions_of_a_task_are_refused_for_one_model(tmp_path):
    write_run(tmp_path / "a", seeded([0], 1))
    write_run(tmp_path / "b", seeded([0], 9), version=2.0)
    with refused("RUN", "mismatch"):
        read_runs([tmp_path / "a", tmp_path / "b"])
