#!/usr/bin/env bash
# install.sh: whatever the build and the tests need and this machine lacks. Made for Debian 12 and 13; idempotent, and
# quick when there is nothing to do. Uses sudo when not root, and only if a package is missing.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@" >/dev/null; }
installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
available() { apt-cache show "$1" >/dev/null 2>&1; }

lock install
mkdir -p "$OUTBOX_ENV"
chmod 755 "$OUTBOX_ENV"

# ---- packages ------------------------------------------------------------------------------------------------------
# The distribution's own PostgreSQL: 15 on Debian 12, 17 on Debian 13.
. /etc/os-release
case "${ID:-}-${VERSION_ID:-}" in
    debian-12) pg=15 ;;
    debian-13) pg=17 ;;
    *) pg=$(host_version) ;;
esac
if [ -z "$pg" ]; then
    pg=$(apt-cache depends postgresql 2>/dev/null | sed -n 's/.*Depends: postgresql-\([0-9]*\)$/\1/p')
    [ -n "$pg" ] || die "which PostgreSQL does this system have? (made for Debian 12 and 13)"
fi

# OUTBOX_NO_KAFKA: for what needs no broker.
kafka=(kcat default-jre-headless maven)
[ -z "${OUTBOX_NO_KAFKA:-}" ] || kafka=()

missing=()
# The clang and llvm that the bitcode wants come with postgresql-server-dev; clang and libclang-rt-dev are for the fuzzers.
for p in g++ make cmake ccache git pkg-config "postgresql-$pg" "postgresql-server-dev-$pg" "postgresql-$pg-pgtap" librdkafka-dev \
         libcurl4-openssl-dev libgtest-dev clang libclang-rt-dev python3-venv "${kafka[@]}" debootstrap debian-archive-keyring \
         util-linux ca-certificates; do
    installed "$p" || missing+=("$p")
done
if [ ${#missing[@]} -gt 0 ]; then
    say "installing ${missing[*]}"
    apt update
    # No default cluster: the tests make their own.
    if ! installed postgresql-common; then
        apt install -y --no-install-recommends postgresql-common
        as_root sed -i 's/^#\?create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
    fi
    apt install -y --no-install-recommends "${missing[@]}"
fi
# Nice to have: the leg that uses it says when it is not there.
if ! installed valgrind && available valgrind; then apt install -y --no-install-recommends valgrind || say "no valgrind"; fi

# ---- the user that servers run as ------------------------------------------------------------------------------------
if is_root && ! id -u "$TEST_USER" >/dev/null 2>&1; then
    useradd --system --user-group --create-home --home-dir "/var/lib/$TEST_USER" --shell /usr/sbin/nologin "$TEST_USER"
fi

# ---- Python ----------------------------------------------------------------------------------------------------------
# Marked with what it holds when that is complete. What changes is installed in place, since tests may be running from it.
venv=$OUTBOX_ENV/venv
holds=$(python3 -V; cat "$REPO/tests/requirements.txt")
if [ "$(cat "$venv/.holds" 2>/dev/null)" != "$holds" ]; then
    say "making the virtual environment"
    [ "$("$venv/bin/python" -V 2>/dev/null)" = "$(python3 -V)" ] || rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" -q install --disable-pip-version-check --only-binary :all: -r "$REPO/tests/requirements.txt"
    echo "$holds" >"$venv/.holds"
fi

[ -z "${OUTBOX_NO_KAFKA:-}" ] || exit 0
# ---- Kafka -----------------------------------------------------------------------------------------------------------
# kafka/ is a link to the set of jars that tests/env/pom.xml asks for.
key=$(cat "$REPO/tests/env/pom.xml" "$REPO/tests/env/log4j2.properties" | sha256sum | cut -c1-16)
if [ ! -d "$OUTBOX_ENV/kafka-$key" ]; then
    say "fetching the jars of Kafka"
    rm -rf "$OUTBOX_ENV/kafka.new" "$OUTBOX_ENV/pom.new"
    mkdir -p "$OUTBOX_ENV/pom.new"
    cp "$REPO/tests/env/pom.xml" "$OUTBOX_ENV/pom.new/"
    (cd "$OUTBOX_ENV/pom.new" && mvn -q -B -Dstyle.color=never dependency:copy-dependencies -DincludeScope=runtime \
        -DoutputDirectory="$OUTBOX_ENV/kafka.new") >&2
    rm -rf "$OUTBOX_ENV/pom.new"
    cp "$REPO/tests/env/log4j2.properties" "$OUTBOX_ENV/kafka.new/"
    chmod -R a+rX "$OUTBOX_ENV/kafka.new"
    mv "$OUTBOX_ENV/kafka.new" "$OUTBOX_ENV/kafka-$key"
fi
ln -sfn "kafka-$key" "$OUTBOX_ENV/kafka"

# ---- Prometheus ------------------------------------------------------------------------------------------------------
# Unpacked, not installed: nothing is to be started as a service. prometheus with promtool, and the exporter for PostgreSQL.
if [ ! -x "$OUTBOX_ENV/prometheus/usr/bin/promtool" ] || [ ! -x "$OUTBOX_ENV/prometheus/usr/bin/prometheus-postgres-exporter" ]; then
    say "fetching Prometheus"
    rm -rf "$OUTBOX_ENV/prometheus.new" "$OUTBOX_ENV/prometheus"
    mkdir -p "$OUTBOX_ENV/prometheus.new/debs"
    fetch() { (cd "$OUTBOX_ENV/prometheus.new/debs" && apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 download prometheus prometheus-postgres-exporter) >/dev/null; }
    fetch || { apt update && fetch; }
    for deb in "$OUTBOX_ENV"/prometheus.new/debs/*.deb; do dpkg-deb -x "$deb" "$OUTBOX_ENV/prometheus.new"; done
    rm -rf "$OUTBOX_ENV/prometheus.new/debs"
    mv "$OUTBOX_ENV/prometheus.new" "$OUTBOX_ENV/prometheus"
fi
