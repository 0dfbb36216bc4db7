"""A pull request with results on the hub, opened only where somebody asks for it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lm_eval_bayes._util.text import one_line
from lm_eval_bayes.errors import LmEvalBayesError
from lm_eval_bayes.export.hub_results import HubResult, library

#: Where results go unless HF_ENDPOINT says otherwise.
ENDPOINT = "https://huggingface.co"
_LONGEST_ANSWER = 160


def open_pull_request(
    results: Sequence[HubResult],
    model_id: str,
    *,
    token: str | None = None,
    endpoint: str | None = None,
    overwrite: bool = False,
) -> str:
    """Open one pull request with all results in a model's repository.

    Parameters
    ----------
    results : sequence of HubResult
        The files.
    model_id : str
        The repository.
    token : str, optional
        The hub's token; left out, the one of HF_TOKEN or of `hf auth login`.
    endpoint : str, optional
        The hub; left out, HF_ENDPOINT or huggingface.co.
    overwrite : bool
        Whether the pull request may change files that are there.

    Returns
    -------
    str
        The address of the pull request.

    Raises
    ------
    LmEvalBayesError
        If there is no token, the hub cannot be reached or refuses, a file is there already, or
        a pull request of the same title is open. No pull request was opened then, unless the
        hub broke off while it did so.
    """
    hub = library()
    token = token or hub.get_token()
    if not token:
        raise LmEvalBayesError(
            "there is no token for the hub, so nothing was sent: set HF_TOKEN, or log in with "
            "`hf auth login`"
        )
    where = (endpoint or os.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")
    api = hub.HfApi(endpoint=where, token=token, library_name="lm-eval-bayes")
    title = f"Evaluation results: {', '.join(one.path.split('/')[-1] for one in results)}"
    with _told(where, "the token was not checked"):
        api.whoami()
    with _told(where, f"{model_id} could not be looked at"):
        _refuse_second(api, results, model_id, title, overwrite)
    with _told(where, f"the pull request to {model_id} was not opened"):
        commit = api.create_commit(
            model_id,
            [hub.CommitOperationAdd(one.path, one.text.encode("utf-8")) for one in results],
            commit_message=title,
            commit_description=_description(results),
            create_pr=True,
        )
        address = commit.pr_url
    if not address:
        raise LmEvalBayesError(
            f"{model_id} has these results already, word for word, so no pull request was opened"
        )
    return str(address)


def _refuse_second(
    api: Any, results: Sequence[HubResult], model_id: str, title: str, overwrite: bool
) -> None:
    """Refuse what is there already: files, or an open pull request of the same title."""
    opened = api.get_repo_discussions(
        model_id, discussion_type="pull_request", discussion_status="open"
    )
    for one in opened:
        if one.title == title:
            raise LmEvalBayesError(
                f'pull request {one.num} of {model_id} is open and has the title "{title}": '
                "nothing was sent"
            )
    if overwrite:
        return
    for result in results:
        if api.file_exists(model_id, result.path):
            raise LmEvalBayesError(
                f"{model_id} has {result.path} already: nothing was sent; --overwrite asks for it "
                "to be changed"
            )


def _description(results: Sequence[HubResult]) -> str:
    lines = [
        f"- `{one.path}`: {one.value:g}. {one_line(one.notes).replace('`', chr(39))}"
        for one in results
    ]
    return "\n".join([*lines, "", "Written by lm-eval-bayes from a run's logged trials."])


@contextmanager
def _told(endpoint: str, undone: str) -> Iterator[None]:
    """Turn whatever the hub or the network does into one sentence."""
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    # The network's own errors are among its bases, whatever library the hub's own speaks with.
    network: tuple[type[Exception], ...] = HfHubHTTPError.__bases__
    try:
        yield
    except LmEvalBayesError:
        raise
    except OfflineModeIsEnabled:
        raise LmEvalBayesError(
            f"{undone}: HF_HUB_OFFLINE forbids to reach {endpoint}; unset it for --push"
        ) from None
    except HfHubHTTPError as error:
        raise LmEvalBayesError(f"{undone}: {endpoint} {_answer(error)}") from None
    except network as error:
        told = one_line(str(error).split("\n")[0], _LONGEST_ANSWER) or type(error).__name__
        raise LmEvalBayesError(f"{undone}: {endpoint} cannot be reached ({told})") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise LmEvalBayesError(
            f"{endpoint} answered something that the hub would not say; as far as can be told, "
            f"{undone}"
        ) from None


def _answer(error: Any) -> str:
    """Tell what the hub answered, by its number, and why where that is known."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    meaning = {
        401: "the token is not valid",
        403: "the token may not do this; it needs the right to write",
        404: "there is no such model, or the token may not see it",
        429: "too many requests; try again later",
    }.get(status or 0)
    if meaning is None:
        said = getattr(error, "server_message", None) or ""
        meaning = one_line(" ".join(str(said).split()), _LONGEST_ANSWER)
    return f"answered {status}" + (f": {meaning}" if meaning else "")
