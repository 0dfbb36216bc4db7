"""Tiny random models of the words and the bytes tokenizer, made once for each test file."""

import pytest


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    from _support.tiny_hf import save_llama

    return save_llama(tmp_path_factory.mktemp("words"))


@pytest.fixture(scope="module")
def lm(words):
    from _support.tiny_hf import tiny_model

    return tiny_model(words)


@pytest.fixture(scope="module")
def byte_folder(tmp_path_factory):
    from _support.tiny_hf import byte_tokenizer, save_llama

    return save_llama(tmp_path_factory.mktemp("bytes"), byte_tokenizer(), seed=3)


@pytest.fixture(scope="module")
def byte_lm(byte_folder):
    from _support.tiny_hf import tiny_model

    return tiny_model(byte_folder)
