"""Decisions between two models."""
