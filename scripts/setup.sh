#!/usr/bin/env bash
# Makes this clone ready to run: Python packages, Java, jars, the class archive.
# Each step leaves a stamp in .venv, so a second run is quick and needs no network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/tools.sh
source scripts/tools.sh

readonly VENV=.venv
readonly PYTHON=$VENV/bin/python
readonly STAMPS=$VENV/.headrace
export UV_PYTHON_PREFERENCE=only-system
# Where a company signs its own traffic, the system knows the certificate and uv does not.
export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-1}"

done_for() { [ -x "$PYTHON" ] && [ "$(cat "$STAMPS/$1" 2>/dev/null)" = "$2" ]; }
stamp() { mkdir -p "$STAMPS" && printf '%s\n' "$2" >"$STAMPS/$1"; }
digest() { cat "$@" | cksum | tr -d ' \n'; }

install_packages() {
  local wanted
  wanted="$(digest requirements-dev.txt)"
  if done_for packages "$wanted"; then return; fi
  find_uv
  if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    say "making .venv"
    "$UV" venv --quiet --clear --python '>=3.11' "$VENV" || fail "found no Python 3.11 or newer." \
      "Install one (Debian: apt-get install python3 python3-venv) and run make setup again."
  fi
  say "installing Python packages from requirements-dev.txt"
  # Where Python may write no bytecode, as in many images, each start would compile all anew.
  VIRTUAL_ENV=$VENV "$UV" pip sync --quiet --compile-bytecode requirements-dev.txt ||
    fail "could not install the Python packages." "Check the network and run make setup again."
  rm -f "$STAMPS/project"
  stamp packages "$wanted"
}

install_project() {
  local wanted
  wanted="$(digest pyproject.toml)"
  if done_for project "$wanted"; then return; fi
  find_uv
  say "installing headrace itself"
  VIRTUAL_ENV=$VENV "$UV" pip install --quiet --offline --no-deps --no-build-isolation -e . ||
    fail "could not install headrace itself."
  stamp project "$wanted"
}

compile_sources() { "$PYTHON" -m compileall -q src packages tests; }

install_java() {
  if "$PYTHON" scripts/prepare.py java >/dev/null 2>&1; then return; fi
  local package=openjdk-17-jre-headless
  if ! command -v apt-get >/dev/null; then
    fail "found no Java 17 or 21." "Install one, and set JAVA_HOME if it is not on PATH."
  fi
  as_root true 2>/dev/null || fail "found no Java 17 or 21." \
    "Run: sudo apt-get install $package" "or install another and set JAVA_HOME."
  if ! apt-cache show "$package" >/dev/null 2>&1 && ! apt-cache show openjdk-21-jre-headless >/dev/null 2>&1; then
    as_root apt-get update -qq
  fi
  apt-cache show "$package" >/dev/null 2>&1 || package=openjdk-21-jre-headless
  say "installing Java ($package)"
  install_debian "$package" || fail "apt-get could not install $package." \
    "Install Java 17 or 21 yourself and set JAVA_HOME."
}

prepare_spark() { "$PYTHON" scripts/prepare.py || exit 3; }

install_packages
install_project
compile_sources
install_java
prepare_spark
say "ready"
