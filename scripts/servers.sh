#!/usr/bin/env bash
# Installs the servers that the tests run, where they are missing: PostgreSQL, MariaDB, MySQL,
# logrotate, and with the argument `long` Prometheus and the jars of Debezium, for the tests that
# take minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/tools.sh
source scripts/tools.sh

has_postgresql() { compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || command -v postgres >/dev/null; }

can_install() { command -v apt-get >/dev/null && as_root true 2>/dev/null; }

install_postgresql() {
  if has_postgresql; then return; fi
  can_install || fail "the tests need PostgreSQL's server, and found none." \
    "Install it (Debian: sudo apt-get install postgresql)."
  say "installing PostgreSQL for the tests"
  # The package would make and start a database of its own, which nobody asked for.
  if [ ! -e /etc/postgresql-common/createcluster.conf ]; then
    as_root mkdir -p /etc/postgresql-common
    echo 'create_main_cluster = false' | as_root tee /etc/postgresql-common/createcluster.conf >/dev/null
  fi
  install_debian postgresql || fail "apt-get could not install postgresql." \
    "Install PostgreSQL's server yourself."
}

has_mariadb() {
  { command -v mariadbd || [ -x /usr/sbin/mariadbd ]; } && command -v mariadb && command -v mariadb-install-db
} >/dev/null

# The packages of the bare server and client: `mariadb-server` would make and start a database.
install_mariadb() {
  if has_mariadb; then return; fi
  can_install || fail "the tests need MariaDB's server, and found none." \
    "Install it (Debian: sudo apt-get install mariadb-server-core mariadb-client-core)."
  say "installing MariaDB for the tests"
  { install_debian mariadb-server-core && install_debian mariadb-client-core; } ||
    fail "apt-get could not install mariadb-server-core and mariadb-client-core." \
      "Install MariaDB's server yourself."
}

install_logrotate() {
  if command -v logrotate >/dev/null || [ -x /usr/sbin/logrotate ]; then return; fi
  say "installing logrotate for the tests"
  install_debian logrotate || fail "apt-get could not install logrotate." "Install logrotate yourself."
}

# Prometheus is unpacked into .tools: its package would start it as a service.
fetch_prometheus() {
  if command -v prometheus >/dev/null || [ -x .tools/prometheus/usr/bin/prometheus ]; then return; fi
  say "fetching Prometheus for the tests"
  local folder
  folder=$(mktemp -d)
  chmod 755 "$folder"
  (cd "$folder" && apt-get download -qq prometheus >/dev/null 2>&1) ||
    { as_root apt-get update -qq && (cd "$folder" && apt-get download -qq prometheus >/dev/null); } ||
    fail "apt-get could not download prometheus." "Put Prometheus and promtool on PATH yourself."
  mkdir -p .tools/prometheus
  dpkg-deb -x "$folder"/prometheus_*.deb .tools/prometheus
  rm -r "$folder"
}

# Neither is among Debian's stable packages: the tests of what cannot be had are skipped.
fetch_mysql() {
  say "checking the MySQL servers for the tests"
  PYTHONPATH=. .venv/bin/python -m tests.mysql_server || fail "could not fetch MySQL." \
    "Check the network and the mirror that spark_conf names, and run make test again."
}

# Its hashes are checked, and what is there already is not fetched again.
fetch_debezium() {
  say "checking the jars of Debezium for the tests"
  PYTHONPATH=. .venv/bin/python -m tests.debezium.engine || fail "could not fetch Debezium." \
    "Check the network and the mirror that spark_conf names, and run make test-long again."
}

install_postgresql
install_mariadb
install_logrotate
fetch_mysql
if [ "${1:-}" = long ]; then
  fetch_prometheus
  fetch_debezium
fi
