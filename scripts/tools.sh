# Sourced by the other scripts: messages, and where uv is.

say() { printf 'setup: %s\n' "$*"; }

# The project could not be set up: exit code 3, as the `headrace` command uses for the same.
fail() {
  printf 'setup: %s\n' "$1" >&2
  shift
  for line in "$@"; do printf '       %s\n' "$line" >&2; done
  exit 3
}

# Sets UV: the user's own, or one of ours in .tools.
find_uv() {
  if uv --version >/dev/null 2>&1; then
    UV=uv
    return
  fi
  UV=.tools/bin/uv
  if "$UV" --version >/dev/null 2>&1; then return; fi
  say "uv is not on PATH: installing it into .tools"
  python3 -m venv .tools || fail "cannot make a virtual environment with python3." \
    "Install uv, or Python 3.11 or newer with its venv module (Debian: apt-get install python3-venv)."
  .tools/bin/python -m pip install --quiet --disable-pip-version-check uv ||
    fail "pip could not install uv." "Check the network, or install uv yourself and put it on PATH."
}

as_root() {
  if [ "$(id -u)" = 0 ]; then env DEBIAN_FRONTEND=noninteractive "$@"
  else sudo -n env DEBIAN_FRONTEND=noninteractive "$@"; fi
}

# Installs a package of Debian; the lists of packages are brought up to date if need be.
install_debian() {
  local install=(apt-get install -y -qq --no-install-recommends "$1")
  as_root "${install[@]}" </dev/null >/dev/null 2>&1 ||
    { as_root apt-get update -qq && as_root "${install[@]}" </dev/null >/dev/null; }
}
