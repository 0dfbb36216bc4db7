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
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model

from lm_eval_bayes import __version__
from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.biased_coin.probabilities import (
    BetaProbabilities,
    FixedProbability,
    Question,
    SuccessProbabilities,
    probability_of,
    read_file,
    refusal,
    uniforms,
)
from lm_eval_bayes.harness.models.biased_coin.responses import (
    measured,
    read_trial,
    response_text,
    wrong_answers,
)
from lm_eval_bayes.harness.models.interface import Completion, SamplingMixin, TrialRequest
from lm_eval_bayes.store.trial import Trial

log = get_logger(__name__)

#: Arguments that the harness passes to every model; they are ignored.
_IGNORED = frozenset({"batch_size", "max_batch_size", "device", "trust_remote_code"})

#: Longer than any final answer: the field holds a whole solution.
_LONGEST_ANSWER = 200


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
    file : str, optional
        A .jsonl, .csv or .txt file of probabilities, in one of the forms of
        `lm_eval_bayes.harness.models.biased_coin.probabilities.read_file`. Exactly one of
        p, beta and file must be given.
    seed : int, default 1234
        Seeds everything. Trial i of a question draws from a digest of seed, task,
        prompt and i.
    boxed : float, default 1.0
        The share of responses, in [0, 1], that state the answer in ``\boxed{}``; the
        others state it in prose. This package's graders read both; a grader that reads only
        the former gives a lower score than the recorded true one.
    answer_field : str, default "answer"
        The field of the questions that holds the correct final answer, as a number or text.
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
    >>> lm = BiasedCoinLM(p=0.6)
    >>> doc = {"problem": "What is 7 + 5?", "answer": "12"}
    >>> request = Instance("generate_until", doc, ("What is 7 + 5?", {}), 0, ("demo", 0, 8))
    >>> answers = lm.generate_until([request] * 8)
    >>> [answer.split("answer is ")[1] for answer in answers[2:5]]
    ['$\\boxed{7}$.', '$\\boxed{12}$.', '$\\boxed{17}$.']
    >>> lm.get_model_info()["biased_coin"]["true_score"]
    {'demo': 0.6}
    """

    cannot_record: tuple[str, ...] = ("completion_bpt", "prompt_bpt")

    def __init__(
        self,
        p: float | None = None,
        beta: str | None = None,
        file: str | None = None,
        seed: int = 1234,
        boxed: float = 1.0,
        answer_field: str = "answer",
        **others: Any,
    ) -> None:
        super().__init__()
        unknown = sorted(set(others) - _IGNORED)
        if unknown:
            raise ModelConfigError(
                f"biased_coin has no argument `{unknown[0]}`; "
                "its arguments are p, beta, file, seed, boxed and answer_field"
            )
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise refusal("seed", "be an integer", seed)
        if not isinstance(answer_field, str) or not answer_field:
            raise refusal("answer_field", "be the name of a field", answer_field)
        given = {"p": p, "beta": beta, "file": file}
        named = [name for name, value in given.items() if value is not None]
        if len(named) != 1:
            raise ModelConfigError(
                "biased_coin takes exactly one of p (p=0.6), beta (beta=2:3) and file "
                f"(file=p.csv); got {' and '.join(named) or 'none of them'}"
            )
        self.probabilities: SuccessProbabilities
        if p is not None:
            self.probabilities = FixedProbability(probability_of(p, "p"))
        elif beta is not None:
            self.probabilities = BetaProbabilities.parse(beta, seed)
        else:
            self.probabilities = read_file(file)
        self.seed = seed
        self.boxed = probability_of(boxed, "boxed")
        self.answer_field = answer_field
        self._true_p: dict[str, dict[str, float]] = {}

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
            If a question has no final answer or no probability. Raised before the first response.
        """
        questions = [question_of(request) for request in requests]
        prepared = self.prepared(requests)
        self.record_truth(prepared)

        # Trials are counted by prompt, so that a question which occurs twice in a
        # task does not get the same draws twice.
        trials: Counter[tuple[str, str]] = Counter()
        responses: list[str] = []
        for question in questions:
            text = self.respond(question, trials[question.id], prepared[question])
            responses.append(Completion(text, measured(question.prompt, text)))
            trials[question.id] += 1
        return responses

    def prepared(
        self, requests: Sequence[Instance]
    ) -> dict[Question, tuple[str, tuple[str, ...], float]]:
        """Return each question's correct answer, wrong answers and success probability.

        Raises
        ------
        ModelConfigError
            If a question has no final answer or no probability.
        """
        prepared: dict[Question, tuple[str, tuple[str, ...], float]] = {}
        for request in requests:
            question = question_of(request)
            if question not in prepared:
                gold = self._gold(question, request.doc)
                key = ("mistakes", self.seed, question.task, question.prompt)
                mistakes = wrong_answers(gold, int(uniforms(*key)[0] * 8))
                prepared[question] = gold, mistakes, self.probabilities.probability(question)
        return prepared

    def respond(
        self, question: Question, trial: int, prepared: tuple[str, tuple[str, ...], float]
    ) -> str:
        """Write the response to one trial of a question, from what `prepared` returns for it."""
        return response_text(
            uniforms("trial", self.seed, *question.id, trial), *prepared, self.boxed
        )

    def _gold(self, question: Question, doc: dict[str, Any]) -> str:
        where = f"question {question.doc_id} of task {question.task}"
        if self.answer_field not in doc:
            raise ModelConfigError(
                f"{where} has no field `{self.answer_field}`; pass answer_field= with the field "
                f"that holds the final answer (it has {', '.join(map(str, doc))})"
            )
        gold = doc[self.answer_field]
        if isinstance(gold, (list, tuple)) and len(gold) == 1:
            gold = gold[0]
        text = str(gold).strip().strip("$").strip()
        number_or_text = isinstance(gold, (int, float, str)) and not isinstance(gold, bool)
        if not number_or_text or not text or "\n" in text or len(text) > _LONGEST_ANSWER:
            raise ModelConfigError(
                f"{where}: biased_coin needs the final answer alone in the field "
                f"`{self.answer_field}`, one number or one line of up to {_LONGEST_ANSWER} "
                f"characters; got {str(gold)[:60]!r}"
            )
        return text

    def record_truth(self, prepared: dict[Question, tuple[str, tuple[str, ...], float]]) -> None:
        """Record the success probability of every question, of all ranks, and log the score."""
        own: dict[str, dict[str, float]] = {}
        for question, (_, _, p) in prepared.items():
            own.setdefault(question.task, {})[str(question.doc_id)] = p
        ranks = self.gather_object(own, dst=0) if self.world_size > 1 else [own]
        self._true_p = {}
        for part in ranks or []:
            for task, truths in part.items():
                self._true_p.setdefault(task, {}).update(truths)
        for task, score in self._true_scores().items():
            log.info("%s: the true score, which the interval should contain, is %.4f", task, score)

    def _true_scores(self) -> dict[str, float]:
        return {task: math.fsum(p.values()) / len(p) for task, p in self._true_p.items()}

    def get_model_info(self) -> dict[str, Any]:
        """Return the truth about the last run, which the harness stores under ``config``.

        Returns
        -------
        dict
            One key, ``biased_coin``: ``seed``, ``boxed``, ``law``, and per task
            ``true_score`` (the mean success probability of the questions),
            ``questions`` (how many) and ``true_p`` (question's position -> probability).
        """
        return {
            "biased_coin": {
                "seed": self.seed,
                "boxed": self.boxed,
                "law": self.probabilities.to_dict(),
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
        raise _only_generates(requests)

    def loglikelihood_rolling(
        self, requests: Sequence[Instance], disable_tqdm: bool = False
    ) -> Any:
        """Raise: the model has no likelihoods."""
        raise _only_generates(requests)


def question_of(request: Instance) -> Question:
    """Return the question of a request."""
    return Question(str(request.task_name), request.doc_id, str(request.args[0]))


def _only_generates(requests: Sequence[Instance]) -> ModelConfigError:
    task = requests[0].task_name if requests else None
    return ModelConfigError(
        f"biased_coin only generates text, and task {task} asks for log-likelihoods; "
        "use a task with `output_type: generate_until`"
    )


class CoinSampling(SamplingMixin):
    """The sampling mixin of `--model trials` for the biased self."""

    takes_seed = True
    cannot_record = BiasedCoinLM.cannot_record

    def notice(self, requests: Sequence[Any]) -> None:
        """Record the true score of all questions, also of those whose trials are stored."""
        self.record_truth(self.prepared(requests))

    def sample(
        self, requests: Sequence[TrialRequest], measure: frozenset[str]
    ) -> Iterator[tuple[TrialRequest, Trial]]:
        """Yield the trials in the order of the requests."""
        prepared = self.prepared([request.instance for request in requests])
        for request in requests:
            question = question_of(request.instance)
            yield (
                request,
                read_trial(request, self.respond(question, request.trial, prepared[question])),
            )

    def stops_sent(self, kwargs: Mapping[str, Any]) -> list[str]:
        """Return no stop strings: they are ignored."""
        return []

    def fingerprint(self) -> dict[str, Any]:
        """Return the settings that the responses depend on."""
        return {
            "backend": "biased_coin",
            "law": self.probabilities.to_dict(),
            "seed": self.seed,
            "boxed": self.boxed,
            "answer_field": self.answer_field,
        }

    def versions(self) -> dict[str, str]:
        """Return this package's version."""
        return {"lm_eval_bayes": __version__}
