"""OpenAI-compatible servers, one trial a request."""
