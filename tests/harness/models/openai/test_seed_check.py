"""Whether a server honours seeds: what the check finds, and what a run says of it."""

from __future__ import annotations

import random
from itertools import count

import pytest
from _support.errors import refused
from _support.openai_models import OfficialChat, chat, completions, requests_of
from _support.scripted_server import Act, error, serving

from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness.models.openai.client import ServerError
from lm_eval_bayes.harness.models.openai.server_checks import Verdict, check_seeds

pytestmark = pytest.mark.filterwarnings("default:.*:DeprecationWarning")

WORDS = [f"word{number}" for number in range(64)]


def model_text(rng, words=16, peak=0.0):
    """Draw words; one of them has the probability `peak`, the others share the rest."""
    drawn = (WORDS[0] if rng.random() < peak else rng.choice(WORDS) for _ in range(words))
    return " ".join(drawn)


def seeded(prompt, seed):
    return model_text(random.Random(f"{prompt} {seed}"))


def test_seeds_that_are_honoured_take_nine_texts():
    asked = []

    def text_of(prompt, seed):
        asked.append(seed)
        return seeded(prompt, seed)

    assert check_seeds(text_of, 7) is Verdict.HONOURED
    assert asked == [7, 7, 8, 9, 9, 10, 11, 11, 12]


@pytest.mark.parametrize("peak", [0.0, 0.6])
def test_seeds_that_are_ignored_are_found(peak):
    """Also where a model says nearly the same thing, in 98% of 300 checks or more."""
    rng = random.Random(1)
    verdicts = [check_seeds(lambda prompt, seed: model_text(rng, peak=peak), 7) for _ in range(300)]
    assert verdicts.count(Verdict.IGNORED) >= 294


def test_texts_that_begin_alike_are_no_honoured_seeds():
    """Those of a small instruct model begin with a line break, a quote or the same word."""
    rng = random.Random(3)
    beginnings = ["\n\n", '\n\n"', ' "', ' "I ', "\n\nThe ", "\n\nHere's a ", " I'll ", ""]

    def text_of(prompt, seed):
        letters = "".join(rng.choice("etaoinshrdlu ") for _ in range(40))
        return rng.choice(beginnings) + letters

    verdicts = [check_seeds(text_of, 7) for _ in range(500)]
    assert verdicts.count(Verdict.IGNORED) >= 499


def test_an_equal_draw_is_no_honoured_seed():
    """A model that gives one of ten texts draws equal ones in a tenth of all rounds."""
    rng = random.Random(4)
    texts = [model_text(random.Random(number)) for number in range(10)]
    verdicts = [check_seeds(lambda prompt, seed: rng.choice(texts), 7) for _ in range(500)]
    assert verdicts.count(Verdict.HONOURED) <= 18  # 1.6% in theory


@pytest.mark.parametrize(("noise", "most"), [(0.01, 0), (0.03, 9)])
def test_numerical_noise_is_no_ignored_seed(noise, most):
    """Each word changes, and with it all that follow, with this probability; of 300 checks."""
    rng = random.Random(2)

    def text_of(prompt, seed):
        words = seeded(prompt, seed).split()
        for place in range(len(words)):
            if rng.random() < noise:
                return " ".join([*words[:place], *model_text(rng, len(words) - place).split()])
        return " ".join(words)

    verdicts = [check_seeds(text_of, 7) for _ in range(300)]
    assert len(verdicts) - verdicts.count(Verdict.HONOURED) <= most


def test_one_text_for_all_seeds_and_none_at_all():
    assert check_seeds(lambda prompt, seed: seeded(prompt, 42), 7) is Verdict.ONE_TEXT
    assert check_seeds(lambda prompt, seed: "", 7) is Verdict.UNKNOWN


def without_seeds():
    """Return a script of a server that draws every text afresh."""
    draws = count()

    def script(number, body):
        def edit(answer):
            choice = answer["choices"][0]
            text = model_text(random.Random(next(draws)))
            if "message" in choice:
                choice["message"]["content"] = text
            else:
                choice["text"] = text

        return Act(edit=edit)

    return script


@pytest.mark.parametrize("kind", [completions, chat], ids=["completions", "chat"])
def test_a_server_that_ignores_seeds_is_an_error(kind):
    with serving(without_seeds()) as server:
        model = kind(server)
        requests = requests_of(2, 2, model if kind is chat else None)
        with refused("seeds", "unsupported", error=ModelConfigError):
            model.prepare(requests)
        assert len(server.requests) == 12
        assert {body["temperature"] for body in server.requests} == {1.0}


def test_seeds_ignored_sends_none_and_records_none():
    with serving(without_seeds()) as server:
        model = completions(server, seeds="ignored")
        model.prepare(requests_of(2, 2))
        trials = [trial for _, trial in model.sample(requests_of(2, 2))]
        assert not any("seed" in body for body in server.requests)
    assert model.seeded is False
    assert "seed" in model.cannot_record
    assert [trial.seed for trial in trials] == [None] * 4


@pytest.mark.parametrize("seeds", [None, "ignored"])
def test_one_text_for_all_requests_is_an_error(seeds):
    def script(number, body):
        return Act(edit=lambda answer: answer["choices"][0].update(text="always this"))

    with serving(script) as server, refused("seeds", "unsupported", error=ModelConfigError):
        completions(server, seeds=seeds).prepare(requests_of(1, 1))


def test_a_server_that_refuses_seeds_is_an_error():
    def script(number, body):
        return (
            error(400, "Unrecognized request argument supplied: seed") if "seed" in body else None
        )

    with serving(script) as server:
        with refused("seeds", "unsupported", error=ModelConfigError):
            completions(server).prepare(requests_of(1, 1))
        model = completions(server, seeds="ignored")
        model.prepare(requests_of(1, 1))
        assert len(list(model.sample(requests_of(1, 1)))) == 1


@pytest.mark.parametrize(
    "act",
    [
        error(401, "Incorrect API key provided: sk-secret-of-the-tests"),
        error(404, "The model `hash` does not exist."),
    ],
    ids=["key", "model"],
)
def test_a_wrong_key_or_model_is_an_error_before_anything_is_sampled(act):
    with serving(lambda number, body: act) as server:
        with refused(None, "failed", None, error=ServerError) as caught:
            completions(server).prepare(requests_of(9, 2))
        assert len(server.requests) == 1
    assert "sk-secret" not in str(caught.value)


def test_a_server_that_fails_the_check_is_said_and_sampled(caplog):
    def script(number, body):
        return error(400, "a list of random words is not allowed") if number < 3 else None

    with serving(script) as server:
        completions(server).prepare(requests_of(1, 1))
    assert "honours seeds is not known: HTTP 400" in caplog.text


def test_neither_greedy_runs_nor_openai_are_checked():
    with serving() as server:
        completions(server).prepare(requests_of(1, 1, temperature=0.0))
        official = chat(server, cls=OfficialChat)
        official.prepare(requests_of(1, 1, official))
        assert server.requests == []
