"""`--model trials`: numbering, seeds, what is generated and what is taken from the store."""

import copy
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from _support.errors import refused
from _support.trial_requests import instances_of
from lm_eval.api.model import LM, CacheHook

from lm_eval_bayes.errors import ModelConfigError, TaskConfigError
from lm_eval_bayes.harness.models.generation_settings import explicit_kwargs
from lm_eval_bayes.harness.models.interface import Completion, SamplingMixin, signals_of
from lm_eval_bayes.harness.models.trial_sink import rank_path, rank_paths
from lm_eval_bayes.harness.models.trials import RecordingMixin, TrialsLM

KWARGS = {"temperature": 1.0, "until": ["STOP"], "max_gen_toks": 16}


class ToyLM(LM):
    """A backend that must never be asked itself."""

    def __init__(self, pretrained="toy", weights="sha:1", rank=0, die_after=None, **kwargs):
        super().__init__()
        self.pretrained, self.weights, self.die_after = pretrained, weights, die_after
        self._rank, self.kwargs = rank, kwargs

    def loglikelihood(self, requests):
        raise AssertionError

    loglikelihood_rolling = generate_until = loglikelihood


class ToySampling(SamplingMixin):
    """Draws a number from the trial's seed, as a model draws its tokens from it."""

    def sample(self, orders, measure):
        orders = list(orders)
        self.asked = [(order.trial, order.prompt) for order in orders]
        measured = set()
        for i, order in enumerate(orders):
            if i == self.die_after:
                raise KeyboardInterrupt
            u = np.random.default_rng(order.seed).random()
            signals = {"completion_bpt": u}
            if order.prompt in measure and order.prompt not in measured:
                measured.add(order.prompt)
                signals["prompt_bpt"] = float(len(order.prompt))
            text = f" {u:.6f} STOP and more"
            yield order, order.result(text, signals=signals, finish_reason="stop")

    def finished_text(self, raw, kwargs, signals):
        return raw.split(kwargs["until"][0])[0].strip()

    def stops_sent(self, kwargs):
        return []

    def fingerprint(self):
        return {"backend": "toy", "pretrained": self.pretrained, "weights": self.weights}

    def versions(self):
        return {"toy": "1"}


Toy = type("Toy", (RecordingMixin, ToySampling, ToyLM), {"backend_name": "toy"})


def requests_for(prompts, n, kwargs=KWARGS):
    return instances_of(prompts, n, kwargs)


def ask(lm, prompts, n, **more):
    return lm.generate_until(requests_for(prompts, n, **more), disable_tqdm=True)


def closed(lm):
    lm.sink.store.close()
    return lm


@pytest.fixture
def store(tmp_path):
    return str(tmp_path / "a folder that is made" / "toy.sqlite")


def test_every_trial_is_asked_lowest_numbers_first(store):
    lm = Toy(store=store)
    ask(lm, ["a", "b", "c"], 2)
    assert lm.asked == [(0, "a"), (0, "b"), (0, "c"), (1, "a"), (1, "b"), (1, "c")]


def test_stored_trials_are_not_asked_again_and_stay_byte_for_byte(store):
    first = ask(closed_after := Toy(store=store), ["a", "b"], 8)
    closed(closed_after)
    lm = Toy(store=store)
    more = ask(lm, ["a", "b"], 16)
    assert [more[i] for i in (*range(8), *range(16, 24))] == first
    assert lm.asked == [(t, p) for t in range(8, 16) for p in ("a", "b")]
    assert lm.get_model_info()["trials"]["from_store"] == 16
    again = Toy(store=store)
    assert ask(again, ["a", "b"], 16) == more
    assert not hasattr(again, "asked"), "nothing was missing, so the backend was not asked"


@pytest.mark.parametrize("die_after", [1, 30])
def test_a_run_that_dies_is_resumed_to_the_same_results(tmp_path, die_after):
    complete = ask(Toy(store=str(tmp_path / "whole.sqlite")), ["a", "b", "c"], 16)
    broken = Toy(store=str(tmp_path / "b.sqlite"), die_after=die_after)
    with pytest.raises(KeyboardInterrupt):
        ask(broken, ["a", "b", "c"], 16)
    closed(broken)
    resumed = Toy(store=str(tmp_path / "b.sqlite"))
    texts = ask(resumed, ["a", "b", "c"], 16)
    assert texts == complete
    assert [t.signals for t in texts] == [t.signals for t in complete]
    assert texts[1] == f"{texts[1].signals['completion_bpt']:.6f}"
    assert texts[1].signals["trial"] == 1
    assert texts[1].signals["prompt_bpt"] == 1.0
    assert len(resumed.asked) == 48 - die_after


def test_stop_strings_that_the_engine_never_gets_can_change_without_sampling_again(store):
    closed(lm := Toy(store=store))
    lm = Toy(store=store)
    before = ask(lm, ["a"], 2)
    after = ask(lm, ["a"], 2, kwargs={**KWARGS, "until": ["."]})
    assert [b.split(".")[0] for b in before] == after
    assert lm.get_model_info()["trials"]["generated"] == 2
    ask(lm, ["a"], 2, kwargs={**KWARGS, "temperature": 0.5})
    assert lm.get_model_info()["trials"]["generated"] == 4


def test_a_question_that_stands_twice_is_sampled_once(store):
    # with several ranks the harness pads the short rank with its last question again
    requests = requests_for(["a"], 2)
    lm = Toy(store=store)
    texts = lm.generate_until([*requests, *requests_for(["a"], 2), *requests], disable_tqdm=True)
    assert texts[:2] == texts[2:4] == texts[4:]
    assert len(lm.asked) == 2


# -- seeds ---------------------------------------------------------------------------------


def variance_ratio(scheme):
    """Variance of per-trial means over that of independent questions, 24 x 64 trials."""
    lm = Toy(seed_scheme=scheme)
    prompts = [f"What is 17 plus {i}?" for i in range(24)]
    right = np.array([float(t) < 0.5 for t in ask(lm, prompts, 64)], float).reshape(24, 64)
    p = right.mean(axis=1)
    return right.mean(axis=0).var(ddof=1) / (p * (1 - p)).mean() * 24


def test_hashed_seeds_keep_questions_independent():
    # 24 times the variance in theory where all questions draw alike; 1 where they do not
    assert variance_ratio("plain") > 15
    assert 0.6 < variance_ratio("hash") < 1.5


def test_how_many_trials_were_stored_is_printed(store, capsys):
    ask(Toy(store=store), ["p", "q"], 2)
    assert "stored" not in capsys.readouterr().err
    ask(Toy(store=store), ["p", "q", "r"], 8)
    assert "4 of 24 trials were stored\n" in capsys.readouterr().err


def test_plain_seeds_are_the_papers(store, caplog):
    with caplog.at_level("WARNING"):
        lm = Toy(store=store, seed_scheme="plain")
    assert "too narrow" in caplog.text
    texts = ask(lm, ["a", "b"], 3)
    assert [t.signals["seed"] for t in texts] == [1234, 1235, 1236] * 2


def test_trials_of_other_seeds_are_kept_and_said(store, caplog):
    ask(closed_after := Toy(store=store), ["a"], 2)
    closed(closed_after)
    with caplog.at_level("WARNING"):
        texts = ask(Toy(store=store, seed=1), ["a"], 2)
    assert "stored trials were drawn with other seeds" in caplog.text
    assert signals_of(texts[0])["seed"] != 1


# -- slices and ranks ------------------------------------------------------------------------


def test_jobs_of_an_array_make_the_trials_of_one_run(tmp_path):
    complete = ask(Toy(store=str(tmp_path / "w.sqlite")), ["a", "b"], 4)
    jobs = [
        ask(Toy(store=str(tmp_path / f"{s[0]}.sqlite"), trials=s), ["a", "b"], 2)
        for s in ("0:2", "2:4")
    ]
    assert [*jobs[0][:2], *jobs[1][:2], *jobs[0][2:], *jobs[1][2:]] == complete


def test_a_slice_must_be_as_long_as_n(store):
    with refused("trials", "mismatch", 4, error=ModelConfigError):
        ask(Toy(store=store, trials="8:16"), ["a"], 4)


def test_every_rank_writes_its_own_file_and_reads_all(store):
    ask(closed_after := Toy(store=store, rank=1), ["a"], 2)
    closed(closed_after)
    assert rank_paths(Path(store)) == [rank_path(Path(store), 1)]
    lm = Toy(store=store, rank=0)
    ask(lm, ["a", "b"], 2)
    assert lm.asked == [(0, "b"), (1, "b")]


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "broken"),
    [
        ({"store": "/dev/null/folder/a.sqlite"}, ("store", "path", "/dev/null/folder/a.sqlite")),
        ({"seed": 2**31}, ("seed", "range", 2**31)),
        ({"seed_scheme": "fixed"}, ("seed_scheme", "choice", "fixed")),
        ({"trials": "3:3"}, ("trials", "format", "3:3")),
    ],
)
def test_bad_arguments_are_named_before_anything_is_loaded(store, arguments, broken):
    with refused(*broken, error=ModelConfigError):
        Toy(**{"store": store, **arguments})


@pytest.mark.parametrize(
    ("arguments", "broken"),
    [
        ("store=a.sqlite", ("backend", "missing", None)),
        ("backend=dummy", ("store", "missing", None)),
        ("backend=nothing,store=a.sqlite", ("backend", "choice", "nothing")),
        ("backend=biased_coin,store=a.sqlite,bayes_n=4", ("bayes_n", "conflict", 4)),
    ],
)
def test_bad_arguments_of_the_harness_s_model_are_named(arguments, broken):
    with refused(*broken, error=ModelConfigError):
        TrialsLM.create_from_arg_string(arguments)


def test_use_cache_is_refused(store):
    lm = Toy(store=store)
    lm.set_cache_hook(CacheHook(None))
    hook = CacheHook(None)
    hook.dbdict = {}
    with refused("use_cache", "conflict", None, error=ModelConfigError):
        lm.set_cache_hook(hook)


# -- settings ----------------------------------------------------------------------------


def test_every_setting_is_explicit_and_greedy_is_never_guessed():
    explicit = explicit_kwargs({"do_sample": True, "top_k": -1, "until": "x"}, 256, "t")
    assert explicit["temperature"] == explicit["top_p"] == 1.0
    assert (explicit["top_k"], explicit["min_p"], explicit["until"]) == (0, 0.0, ["x"])
    greedy = explicit_kwargs({"temperature": 0, "top_p": 0.9}, 256, "t")
    assert (greedy["top_p"], greedy["do_sample"]) == (1.0, False)
    with refused("temperature", "missing", None, error=ModelConfigError):
        explicit_kwargs({"until": ["x"]}, 256, "t")
    with refused("seed", "conflict", 3, error=TaskConfigError):
        explicit_kwargs({"temperature": 1.0, "seed": 3}, 256, "t")


# -- completions -------------------------------------------------------------------------


def test_parts_of_a_completion_keep_its_signals():
    response = Completion("  a b\nc  ", {"seed": 7})
    parts = [
        response.strip(),
        response[2:],
        response.split("b")[0],
        response.partition("b")[2],
        response + "!",
        copy.copy(response),
        copy.deepcopy(response),
        pickle.loads(pickle.dumps(response)),
    ]
    assert [signals_of(p) for p in parts] == [{"seed": 7}] * len(parts)
    plain = "  a b\nc  "
    assert [str(p) for p in parts[:4]] == [plain.strip(), plain[2:], "  a ", "\nc  "]
    assert json.dumps(response) == json.dumps(plain)
    assert hash(response) == hash(plain)
    assert {response: 1}[plain] == 1


def test_a_server_that_is_down_can_still_be_scored(store, caplog):
    first = ask(toy := Toy(store=store), ["a"], 2)
    closed(toy)

    class Down(Toy):
        def fingerprint(self):
            raise ModelConfigError("the server does not answer", "failed", "base_url")

        def fingerprint_among(self, stored):
            return next((other for other in stored if other["pretrained"] == self.pretrained), None)

    with caplog.at_level("WARNING"):
        lm = Down(store=store)
    assert "continuing with the stored trials" in caplog.text
    assert ask(lm, ["a"], 2) == first
    with refused("base_url", "failed", error=ModelConfigError):
        Down(store=store, pretrained="other")


def test_model_args_count_for_more_than_the_command_line(tmp_path):
    arguments = {"backend": "biased_coin", "store": str(tmp_path / "c.sqlite"), "p": 0.5}
    lm = TrialsLM.create_from_arg_obj({**arguments, "device": "cpu"}, {"device": "cuda:0"})
    assert lm.given_arguments["p"] == 0.5
