"""Pull requests with results in a model's repository on the Hugging Face hub."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from lm_eval_bayes._util.text import one_line
from lm_eval_bayes.errors import LmEvalBayesError
from lm_eval_bayes.export.hub import FOLDER, HubResult, library

#: The hub, unless HF_ENDPOINT is set.
ENDPOINT = "https://huggingface.co"
_MAX_MESSAGE = 160
#: Of other people's pull requests, so many are read, and files of at most so many bytes.
_MAX_REQUESTS, _MAX_BYTES = 50, 200_000


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
        The hub's token; by default that of HF_TOKEN or of `hf auth login`.
    endpoint : str, optional
        The hub; by default HF_ENDPOINT or huggingface.co.
    overwrite : bool
        Whether the pull request may change existing files.

    Returns
    -------
    str
        The address of the pull request.

    Raises
    ------
    LmEvalBayesError
        If there is no token, the hub cannot be reached or refuses, a file exists, or an open pull
        request has a result on the same benchmark (with `overwrite`: the same result). No pull
        request was opened then, unless the connection failed while it was.
    """
    hub = library()
    token = token or hub.get_token()
    if not token:
        raise LmEvalBayesError(
            "there is no token for the hub, so nothing was sent: set HF_TOKEN, or log in with "
            "`hf auth login`",
            "missing",
            "token",
        )
    url = (endpoint or os.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")
    api = hub.HfApi(endpoint=url, token=token, library_name="lm-eval-bayes")
    title = f"Evaluation results: {', '.join(result.path.split('/')[-1] for result in results)}"
    with _hub_errors(url, "the token was not checked"):
        api.whoami()
    with _hub_errors(url, f"{model_id} was not checked"):
        _check_not_there(api, results, model_id, title, overwrite)
    with _hub_errors(url, f"the pull request to {model_id} was not opened"):
        files = [hub.CommitOperationAdd(result.path, result.text.encode()) for result in results]
        commit = api.create_commit(
            model_id,
            files,
            commit_message=title,
            commit_description=_description(results),
            create_pr=True,
        )
        address = commit.pr_url
    if not address:
        raise LmEvalBayesError(
            f"{model_id} has identical results already, so no pull request was opened",
            "duplicate",
            "model_id",
            model_id,
        )
    return str(address)


def _check_not_there(
    api: Any, results: Sequence[HubResult], model_id: str, title: str, overwrite: bool
) -> None:
    """Raise if a file exists, or an open pull request has such results."""
    opened = api.get_repo_discussions(
        model_id, discussion_type="pull_request", discussion_status="open"
    )
    on_main: dict[str, str] | None = None
    for number, pull_request in enumerate(opened):
        where = f"pull request {pull_request.num} of {model_id} is open and"
        if pull_request.title == title:
            sentence = f'{where} has the title "{title}": nothing was sent'
            raise LmEvalBayesError(sentence, "duplicate", "title", title)
        if number >= _MAX_REQUESTS:
            continue
        if on_main is None:
            on_main = _files(api, model_id, "main")
        for path, value, result in _same_benchmark(
            api, model_id, pull_request.num, results, on_main
        ):
            if value == result.value:
                raise LmEvalBayesError(
                    f"{where} has the same result on {result.dataset_id} ({path}): nothing was "
                    "sent",
                    "duplicate",
                    "results",
                    path,
                )
            if not overwrite:
                raise LmEvalBayesError(
                    f"{where} has a result on {result.dataset_id}, {value:g} ({path}): nothing was "
                    "sent; --overwrite sends another",
                    "duplicate",
                    "overwrite",
                    path,
                )
    if overwrite:
        return
    for result in results:
        if api.file_exists(model_id, result.path):
            raise LmEvalBayesError(
                f"{model_id} has {result.path} already: nothing was sent; --overwrite changes it",
                "duplicate",
                "overwrite",
                result.path,
            )


def _same_benchmark(
    api: Any, model_id: str, number: int, results: Sequence[HubResult], on_main: dict[str, str]
) -> Iterator[tuple[str, float, HubResult]]:
    """Yield the file and the value of results in a pull request on the benchmarks of ours."""
    revision = f"refs/pr/{number}"
    for path, blob in _files(api, model_id, revision).items():
        if on_main.get(path) == blob:
            continue  # the pull request leaves it as it is
        for dataset_id, task_id, value in _entries(api, model_id, revision, path):
            for result in results:
                if (dataset_id, task_id) == (result.dataset_id, result.task_id):
                    yield one_line(path, 100), value, result


def _files(api: Any, model_id: str, revision: str) -> dict[str, str]:
    """Return the hashes of the files of results by path; none where there is no such folder."""
    from huggingface_hub.errors import EntryNotFoundError, RevisionNotFoundError

    try:
        entries = list(api.list_repo_tree(model_id, FOLDER, revision=revision))
    except (EntryNotFoundError, RevisionNotFoundError):
        return {}
    return {
        entry.path: entry.blob_id
        for entry in entries
        if getattr(entry, "size", _MAX_BYTES + 1) <= _MAX_BYTES
        and entry.path.endswith((".yaml", ".yml"))
    }


def _entries(api: Any, model_id: str, revision: str, path: str) -> Iterator[tuple[str, str, float]]:
    """Yield the dataset, the task and the value of the results in a file; it is untrusted."""
    with tempfile.TemporaryDirectory() as folder:
        file = api.hf_hub_download(model_id, path, revision=revision, local_dir=folder)
        content = Path(file).read_bytes()
    try:
        entries = library().parse_eval_result_entries(yaml.safe_load(content))
    except (yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return  # no results
    for entry in entries:
        if type(entry.value) in (int, float):
            yield str(entry.dataset_id), str(entry.task_id), float(entry.value)


def _description(results: Sequence[HubResult]) -> str:
    lines = [
        f"- `{result.path}`: {result.value:g}. {one_line(result.details).replace('`', chr(39))}"
        for result in results
    ]
    return "\n".join([*lines, "", "Written by lm-eval-bayes from a run's logged trials."])


@contextmanager
def _hub_errors(endpoint: str, consequence: str) -> Iterator[None]:
    """Convert errors of the hub and of the network into this package's error."""
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    # its bases are the network errors of the HTTP library that huggingface_hub uses
    network: tuple[type[Exception], ...] = HfHubHTTPError.__bases__
    try:
        yield
    except LmEvalBayesError:
        raise
    except OfflineModeIsEnabled:
        raise LmEvalBayesError(
            f"{consequence}: HF_HUB_OFFLINE is set, so {endpoint} is not used; unset it for --push",
            "conflict",
            "HF_HUB_OFFLINE",
            endpoint,
        ) from None
    except HfHubHTTPError as error:
        sentence = f"{consequence}: {endpoint} {_response_text(error)}"
        raise LmEvalBayesError(sentence, "failed", "endpoint", _status(error)) from None
    except network as error:
        message = one_line(str(error).split("\n")[0], _MAX_MESSAGE) or type(error).__name__
        sentence = f"{consequence}: {endpoint} cannot be reached ({message})"
        raise LmEvalBayesError(sentence, "failed", "endpoint", endpoint) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise LmEvalBayesError(
            f"{endpoint} gave an unexpected response; probably {consequence}",
            "failed",
            "endpoint",
            endpoint,
        ) from None


def _status(error: Any) -> int | None:
    """Return the status code of the hub's response, if there was one."""
    return getattr(getattr(error, "response", None), "status_code", None)


def _response_text(error: Any) -> str:
    """Return the status code of the hub's response and its meaning, if known."""
    status = _status(error)
    message = str(getattr(error, "server_message", None) or "")
    meaning = {
        401: "the token is not valid",
        403: "the token may not do this; it needs the right to write",
        404: "there is no such model, or the token may not see it",
        429: "too many requests; try again later",
    }.get(status or 0, one_line(" ".join(message.split()), _MAX_MESSAGE))
    return f"answered {status}" + (f": {meaning}" if meaning else "")
