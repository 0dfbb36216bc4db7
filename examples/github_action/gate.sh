#!/usr/bin/env bash
# The step of action.yml: its inputs are environment variables.
set -euo pipefail
options=(--on "$GATE_ON" --junit "$JUNIT")
if [ -n "${MARGIN:-}" ]; then options+=(--margin "$MARGIN"); fi
if [ -n "${FLOOR:-}" ]; then options+=(--floor "$FLOOR"); fi
if [ "${FAIL_IF_UNKNOWN:-false}" = true ]; then options+=(--fail-if-unknown); fi
runs=("$NEW")
if [ -n "${OLD:-}" ]; then runs+=("$OLD"); fi
exec lm-eval-bayes gate "${runs[@]}" "${options[@]}"
