#!/usr/bin/env bash
# Makes the results of promptfoo in this folder: npm install promptfoo@0.121.20, then this script
# with the folder of node_modules as its argument. The providers are in provider.js beside.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
promptfoo="node $1/.bin/promptfoo"
work=$(mktemp -d)
cp "$here"/*.yaml "$here/provider.js" "$work"
cd "$work"
export PROMPTFOO_CONFIG_DIR="$work/home" PROMPTFOO_DISABLE_TELEMETRY=1 PROMPTFOO_DISABLE_UPDATE=1
$promptfoo eval -c sums.yaml --repeat 3 -j 1 --no-cache --no-table -o sums.json || true
$promptfoo eval -c prompts.yaml --repeat 2 -j 1 --no-cache --no-table -o prompts.json -o prompts.jsonl || true
node "$here/strip.js" sums.json prompts.json prompts.jsonl
cp sums.json prompts.json prompts.jsonl "$here"
rm -rf "$work"
