"""Helpers that every room may use: files, hashes, retries, records as JSON, text."""
