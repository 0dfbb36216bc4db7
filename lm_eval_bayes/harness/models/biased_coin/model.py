r"""A simulated model for the harness whose true score is known.

[Hariri 2026] checks its estimators on simulated models, "biased coins" with a success
probability for every question. This is such a simulation as a model of the harness, so that
everything from the prompt to the printed interval can be compared with the truth::

    lm_eval --model biased_coin --model_args beta=2:3,seed=7 --tasks demo_arithmetic_bayes

For every trial it writes a short solution that ends in the right answer with the
question's probability, else in one of four wrong ones. The run's JSON holds the true score
under ``config -> biased_coin -> true_score``.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from scipy.special import ndtri

from lm_eval_bayes import __version__
from lm_eval_bayes._util.validation import as_real
from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.evaluation import current_evaluation, setting_of
from lm_eval_bayes.harness.models.biased_coin.responses import (
    law_of,
    probability_of,
    response_text,
    success_probability,
    uniforms,
    wrong_answers,
)
from lm_eval_bayes.harness.models.interface import Completion, SamplingMixin, TrialRequest
from lm_eval_bayes.store.trial import Trial

log = get_logger(__name__)

#: Arguments that the harness passes to every model; they are ignored.
_IGNORED = frozenset({"batch_size", "max_batch_size", "device", "trust_remote_code"})

#: Longer than any final answer: the field holds a whole solution.
_LONGEST_ANSWER = 200

DEFAULT_SEED = 1


@dataclass(frozen=True)
class Question:
    """A question in a setting: its right answer, wrong ones and the probability of the former."""

    task: str
    doc_id: int
    prompt: str
    setting: tuple[str, ...]
    gold: str
    mistakes: tuple[str, ...]
    p: float

    @property
    def id(self) -> tuple[str, ...]:
        """Task, prompt and setting, which the draws depend on."""
        return self.task, self.prompt, *self.setting


@register_model("biased_coin")
class BiasedCoinLM(LM):
    r"""A model that answers correctly with a known probability.

    Parameters
    ----------
    p : float, optional
        One success probability in [0, 1] for every question.
    beta : str, optional
        ``a:b`` with a, b > 0: every question draws its own from Beta(a, b). The draw
        depends on seed, task and prompt alone, not on request, ``--limit`` or rank.
        Exactly one of p and beta must be given.
    seed : int, default 1
        Seeds everything. Trial i of a question draws from a digest of seed, task, prompt,
        setting and i. The key of a stored trial has no task, as that of a language model: another
        task with the same prompts takes the trials of the first one from a store, and their true
        score is that of the first task.
    boxed : float, default 1.0
        The share of responses, in [0, 1], that state the answer in ``\boxed{}``; the
        others state it in prose. This package's graders read both; a grader that reads only
        the former gives a lower score than the recorded true one.
    answer_field : str, default "answer"
        The field of the questions that holds the correct final answer, as a number or text.
    seconds : float, default 0
        The mean time of a trial, to rehearse a run. Times are log-normal (of their logarithms,
        the sd between questions is 0.8, and that between trials of one 0.6) and depend on the
        seed, task, prompt and trial. They change no response.
    **others
        `batch_size`, `device` and the like, which the harness passes to every model.

    Raises
    ------
    ModelConfigError
        If an argument breaks its rule or is unknown.

    Notes
    -----
    Sampling settings (temperature, stop strings, length) have no effect: the response is
    always one complete line.

    Examples
    --------
    >>> from lm_eval_bayes.harness.evaluation import new_instance
    >>> lm = BiasedCoinLM(p=0.6)
    >>> doc = {"problem": "What is 7 + 5?", "answer": "12"}
    >>> request = new_instance(doc, ("What is 7 + 5?", {}), task="demo", repeats=8)
    >>> answers = lm.generate_until([request] * 8)
    >>> [answer.split("answer is ")[1] for answer in answers[4:7]]
    ['$\\boxed{12}$.', '$\\boxed{2}$.', '$\\boxed{12}$.']
    >>> lm.get_model_info()["biased_coin"]["true_score"]
    {'demo': 0.6}
    """

    cannot_record: tuple[str, ...] = ("completion_bpt", "prompt_bpt")

    def __init__(
        self,
        p: float | None = None,
        beta: str | None = None,
        seed: int = DEFAULT_SEED,
        boxed: float = 1.0,
        answer_field: str = "answer",
        seconds: float = 0.0,
        **others: Any,
    ) -> None:
        super().__init__()
        for name in sorted(set(others) - _IGNORED):
            sentence = (
                f"biased_coin has no argument `{name}`; "
                "its arguments are p, beta, seed, boxed, answer_field and seconds"
            )
            raise ModelConfigError(sentence, "unknown-key", name, others[name])
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise ModelConfigError.of("seed", "type", "be an integer", seed)
        if not isinstance(answer_field, str) or not answer_field:
            rule = "be the name of a field"
            raise ModelConfigError.of("answer_field", "type", rule, answer_field)
        mean_s = as_real(seconds)
        if mean_s is None or not 0.0 <= mean_s < math.inf:
            raise ModelConfigError.of("seconds", "range", "be a number of at least 0", seconds)
        self.law = law_of(p, beta)
        self.seed, self.answer_field, self.seconds = seed, answer_field, mean_s
        self.boxed = probability_of(boxed, "boxed")
        self._questions: dict[tuple[str, int, str, tuple[str, ...]], Question] = {}
        self._true_p: dict[str, dict[str, float]] = {}
        self._unconfirmed: set[str] = set()

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[str]:
        """Write one response for each request.

        Parameters
        ----------
        requests : sequence of Instance
            The harness's requests; a question's trials are equal requests.
        disable_tqdm : bool
            Not used.

        Raises
        ------
        ModelConfigError
            If a question has no final answer. Raised before the first response.
        """
        self.record_truth(requests)
        # Trials are counted by prompt, so that a question which occurs twice in a
        # task does not get the same draws twice.
        trials: Counter[tuple[str, ...]] = Counter()
        responses: list[str] = []
        for question in map(self.question_of, requests):
            responses.append(Completion(*self.answer(question, trials[question.id])))
            trials[question.id] += 1
        return responses

    def question_of(self, request: Instance) -> Question:
        """Return the question of a request.

        Raises
        ------
        ModelConfigError
            If it has no final answer.
        """
        task, prompt = str(request.task_name), str(request.args[0])
        key = task, int(request.doc_id), prompt, setting_of(request)
        if key not in self._questions:
            gold = self._gold(request)
            turn = int(uniforms("mistakes", self.seed, task, prompt)[0] * 8)
            p = success_probability(self.law, self.seed, task, prompt)
            self._questions[key] = Question(*key, gold, wrong_answers(gold, turn), p)
        return self._questions[key]

    def answer(self, question: Question, trial: int) -> tuple[str, dict[str, Any]]:
        """Write the response to one trial of a question; return it and what was measured.

        Words count as tokens; there are no log-probabilities.
        """
        text = self.respond(question, trial)
        measured: dict[str, Any] = {
            "prompt_tokens": len(question.prompt.split()),
            "completion_tokens": len(text.split()),
            "finish_reason": "stop",
        }
        if self.seconds:
            measured["generated_s"] = self.time_of(question, trial)
            time.sleep(measured["generated_s"])
        return text, measured

    def respond(self, question: Question, trial: int) -> str:
        """Return the text of one trial of a question."""
        drawn = uniforms("trial", self.seed, *question.id, trial)
        return response_text(drawn, question.gold, question.mistakes, question.p, self.boxed)

    def time_of(self, question: Question, trial: int) -> float:
        """Return how many seconds a trial takes; their mean is `seconds`."""
        of_question = uniforms("time", self.seed, *question.id)[0]
        of_trial = uniforms("time", self.seed, *question.id, trial)[0]
        # a half step inside (0, 1), where the quantiles are finite
        z, z_trial = (float(ndtri(u + 2.0**-54)) for u in (of_question, of_trial))
        return self.seconds * math.exp(0.8 * z + 0.6 * z_trial - 0.5 * (0.8**2 + 0.6**2))

    def _gold(self, request: Instance) -> str:
        doc, where = request.doc, f"question {request.doc_id} of task {request.task_name}"
        if self.answer_field not in doc:
            sentence = (
                f"{where} has no field `{self.answer_field}`; pass answer_field= with the field "
                f"that holds the final answer (it has {', '.join(map(str, doc))})"
            )
            raise ModelConfigError(sentence, "missing-key", "answer_field", self.answer_field)
        gold = doc[self.answer_field]
        if isinstance(gold, (list, tuple)) and len(gold) == 1:
            gold = gold[0]
        text = str(gold).strip().strip("$").strip()
        number_or_text = isinstance(gold, (int, float, str)) and not isinstance(gold, bool)
        if not number_or_text or not text or "\n" in text or len(text) > _LONGEST_ANSWER:
            sentence = (
                f"{where}: biased_coin needs the final answer alone in the field "
                f"`{self.answer_field}`, one number or one line of up to {_LONGEST_ANSWER} "
                f"characters; got {str(gold)[:60]!r}"
            )
            raise ModelConfigError(sentence, "format", self.answer_field, gold)
        return text

    def record_truth(self, requests: Sequence[Instance]) -> None:
        """Record the success probability of every question, of all ranks, and log the score.

        It is the true score where the task's grader gives 1 to a right response to the task's
        first question and 0 to a wrong one.

        Raises
        ------
        ModelConfigError
            If a question has no final answer.
        """
        self._questions = {}
        first: dict[str, tuple[Question, Any]] = {}
        for request in requests:
            question = self.question_of(request)
            first.setdefault(question.task, (question, request.doc))
        own = [(q.task, str(q.doc_id), q.p) for q in self._questions.values()]
        ranks = self.gather_object(own, dst=0) if self.world_size > 1 else [own]
        self._true_p, variants = {}, dict[tuple[str, str], list[float]]()
        for task, doc_id, p in chain.from_iterable(ranks or []):
            variants.setdefault((task, doc_id), []).append(p)
        for (task, doc_id), probabilities in variants.items():
            self._true_p.setdefault(task, {})[doc_id] = fmean(probabilities)
        self._unconfirmed = {task for task, pair in first.items() if not self._is_confirmed(*pair)}
        for task, score in self._true_scores().items():
            log.info(
                "%s: the true score of trials that are sampled for this task, which their interval "
                "should contain, is %.4f",
                task,
                score,
            )
        for task in sorted(self._unconfirmed):
            log.warning(
                "%s: the true score is not known: the task's grader does not give 1 to a right "
                "response to the first question and 0 to a wrong one",
                task,
            )

    def _is_confirmed(self, question: Question, doc: Any) -> bool:
        """Return whether the task grades right and wrong responses as this model means them."""
        evaluation = current_evaluation()
        if evaluation is None or question.task not in evaluation.tasks:
            return True  # there is no grader
        # the forms of responses that this model writes: with a box, without one
        forms = [0.0] * (self.boxed > 0.0) + [1.0 - 2**-53] * (self.boxed < 1.0)
        return all(
            score == p
            for form in forms
            for p in (1.0, 0.0)
            for score in evaluation.grades(
                question.task,
                doc,
                response_text(
                    (0.0, 0.0, form, 0.0), question.gold, question.mistakes, p, self.boxed
                ),
            )
        )

    def _true_scores(self) -> dict[str, float]:
        return {
            task: math.fsum(p.values()) / len(p)
            for task, p in self._true_p.items()
            if task not in self._unconfirmed
        }

    def get_model_info(self) -> dict[str, Any]:
        """Return the truth about the last run, which the harness stores under ``config``.

        Returns
        -------
        dict
            One key, ``biased_coin``: ``seed``, ``boxed``, ``law``, and per task
            ``true_score`` (the mean success probability of the questions, for tasks whose grader
            confirms it on the first question),
            ``questions`` (how many) and ``true_p`` (question's position -> probability).
        """
        return {
            "biased_coin": {
                "seed": self.seed,
                "boxed": self.boxed,
                "law": self.law,
                "true_score": self._true_scores(),
                "questions": {task: len(p) for task, p in self._true_p.items()},
                "true_p": {task: dict(p) for task, p in self._true_p.items()},
            }
        }

    def apply_chat_template(
        self, chat_history: list[dict[str, Any]], add_generation_prompt: bool = True
    ) -> str:
        """Return the messages' text unchanged: the model has no chat format."""
        return "\n\n".join(str(message["content"]) for message in chat_history)

    @property
    def tokenizer_name(self) -> str:
        """A name for the harness's request cache; there is no tokenizer."""
        return "biased_coin"

    def loglikelihood(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> Any:
        """Raise: the model has no likelihoods."""
        task = requests[0].task_name if requests else None
        sentence = (
            f"biased_coin only generates text, and task {task} asks for log-likelihoods; "
            "use a task with `output_type: generate_until`"
        )
        raise ModelConfigError(sentence, "unsupported", "output_type", task)

    loglikelihood_rolling = loglikelihood


class CoinSampling(SamplingMixin):
    """How `--model trials` samples from `biased_coin`."""

    takes_seed = True
    default_seed = DEFAULT_SEED
    cannot_record = BiasedCoinLM.cannot_record

    def notice(self, requests: Sequence[Any]) -> None:
        """Record the true score of all questions, also of those whose trials are stored."""
        self.record_truth(requests)

    def sample(
        self, requests: Iterable[TrialRequest | None], measure: frozenset[str]
    ) -> Iterator[tuple[TrialRequest, Trial]]:
        """Yield the trials in the order of the requests, until there is none at present."""
        for request in requests:
            if request is None:
                return
            text, measured = self.answer(self.question_of(request.instance), request.trial)
            yield request, request.result(text, signals={}, **measured)

    def stops_sent(self, kwargs: Mapping[str, Any]) -> list[str]:
        """Return no stop strings: they are ignored."""
        return []

    def fingerprint(self) -> dict[str, Any]:
        """Return the settings that the responses depend on."""
        return {
            "backend": "biased_coin",
            "law": self.law,
            "seed": self.seed,
            "boxed": self.boxed,
            "answer_field": self.answer_field,
        }

    def versions(self) -> dict[str, str]:
        """Return this package's version."""
        return {"lm_eval_bayes": __version__}
