#!/usr/bin/env bash
# Chooses package versions anew: requirements.txt to run, requirements-dev.txt to develop.
# The files name no index or host, so that each user's own package index serves them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/tools.sh
source scripts/tools.sh
find_uv

compile() {
  local target=$1
  shift
  {
    echo "# Made by make lock from pyproject.toml; do not edit."
    "$UV" pip compile --quiet --universal --upgrade --generate-hashes --no-header \
      --no-emit-package headrace-sdk --no-emit-index-url --no-emit-find-links --python-version 3.11 pyproject.toml "$@"
  } >"$target.new"
  if grep -n '://' "$target.new"; then
    rm "$target.new"
    fail "$target would name an address."
  fi
  mv "$target.new" "$target"
}

compile requirements.txt
compile requirements-dev.txt --group dev
say "wrote requirements.txt and requirements-dev.txt"
