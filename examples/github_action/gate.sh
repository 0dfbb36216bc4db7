#!/usr/bin/env bash
# The step of action.yml: its inputs are environment variables.
set -euo pipefail
options=(--margin "$MARGIN" --gate-on "$GATE_ON")
options+=(--junit "$JUNIT")
if [ -n "${FAIL_IF_BELOW:-}" ]; then options+=(--fail-if-below "$FAIL_IF_BELOW"); fi
if [ "${FAIL_IF_UNKNOWN:-false}" = true ]; then options+=(--fail-if-unknown); fi
runs=("$NEW")
if [ -n "${OLD:-}" ]; then runs+=("$OLD"); fi
exec lm-eval-bayes compare "${runs[@]}" "${options[@]}"
