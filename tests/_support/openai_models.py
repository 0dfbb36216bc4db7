"""The harness's OpenAI-compatible backends as recording models, and requests for them."""

from lm_eval.models import openai_completions

from _support.scripted_server import Act
from _support.trial_requests import trial_request
from lm_eval_bayes.harness.models.openai.sampling import OpenAISampling

KWARGS = {
    "temperature": 0.6,
    "top_p": 0.95,
    "top_k": 0,
    "min_p": 0.0,
    "until": ["Question:"],
    "max_gen_toks": 64,
    "do_sample": True,
}


class Completions(OpenAISampling, openai_completions.LocalCompletionsAPI):
    pass


class Chat(OpenAISampling, openai_completions.LocalChatCompletion):
    pass


class OfficialChat(OpenAISampling, openai_completions.OpenAIChatCompletion):
    pass


def completions(server, concurrent=4, **arguments):
    arguments = {"model": "hash", "tokenizer_backend": None, **arguments}
    return Completions(base_url=server.url(), num_concurrent=concurrent, **arguments)


def chat(server, concurrent=4, cls=Chat, **arguments):
    arguments = {"model": "hash", **arguments}
    return cls(base_url=server.url(chat=True), num_concurrent=concurrent, **arguments)


def requests_of(prompts=3, trials=2, model=None, **changes):
    kwargs = {k: v for k, v in {**KWARGS, **changes}.items() if v is not ...}
    requests = []
    for trial in range(trials):
        for number in range(prompts):
            context = prompt = f"What is {number} + 2?"
            if model is not None:
                context = model.apply_chat_template([{"role": "user", "content": prompt}])
                prompt = context.prompt
            seed = 100 * number + trial
            requests.append(trial_request(len(requests), context, prompt, trial, seed, kwargs))
    return requests


def edit_every(edit):
    """Return a script that edits every answer."""
    return lambda number, body: Act(edit=edit)


class Words:
    """A tokenizer: a word is a token."""

    eos_token, eos_token_id, bos_token_id = "</s>", 0, None

    def __call__(self, texts, **kwargs):
        ids = [[len(word) for word in text.split()] for text in texts]
        return type("Encoding", (), {"input_ids": ids})


def tokenized(server, **arguments):
    model = completions(server, **arguments)
    model.tokenizer, model.tokenizer_backend = Words(), "huggingface"
    model.tokenized_requests = True
    return model


def recorded(server, store):
    """Run the toy task with `--model trials`; return the texts and what the model says of them."""
    from _support.toy import evaluate, toy_config
    from lm_eval_bayes.harness.models.trials import TrialsLM
    from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask

    model = TrialsLM.create_from_arg_obj(
        {
            **{"backend": "local-completions", "store": str(store), "model": "hash"},
            **{"base_url": server.url(), "tokenizer_backend": None, "num_concurrent": 4},
        }
    )
    result = evaluate(model, RepeatedSamplingTask(config=toy_config(metadata={"bayes_k": [1]})))
    model.trial_store.close()
    texts = [sample["resps"][0] for sample in result["samples"]["toy"]]
    return texts, model.get_model_info()["trials"]
