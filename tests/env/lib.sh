# Sourced by the scripts beside it: where things are, and the few verbs that they share.
# shellcheck shell=bash disable=SC2034

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# Everything that the tests download, build or write lives below this directory; delete it to start afresh.
if [ -z "${OUTBOX_ENV:-}" ]; then
    OUTBOX_ENV=/var/tmp/outbox-env
    [ "$(id -u)" -eq 0 ] || OUTBOX_ENV=$OUTBOX_ENV-$(id -un)
fi
export OUTBOX_ENV
TEST_USER=outboxtest
# Skipped, with the reason as the last line of the output (the convention of automake).
SKIP=77

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
die() { say "$*"; exit 1; }
skip() { say "skipped: $*"; exit "$SKIP"; }
is_root() { [ "$(id -u)" -eq 0 ]; }

as_root() {
    if is_root; then "$@"
    elif command -v sudo >/dev/null; then sudo -n "$@"
    else die "needs root or sudo for: $*"
    fi
}

# Serialises whatever builds one thing in the cache: `lock name` holds until the script ends.
lock() {
    mkdir -p "$OUTBOX_ENV/locks"
    exec 9>"$OUTBOX_ENV/locks/$1"
    flock 9
}

suite_of() {  # suite_of VERSION: the chroot that a PostgreSQL version lives in; empty for the host's own
    if [ "$1" = "$(host_version)" ]; then return 0; fi
    case $1 in
        17) echo trixie ;;
        18) echo forky ;;
        *) die "no PostgreSQL $1 here: the host has $(host_version), the chroots have 17 and 18" ;;
    esac
}

# The newest PostgreSQL of the host that an extension can be built against; empty when there is none.
host_version() {
    local d
    for d in $(printf '%s\n' /usr/lib/postgresql/*/ | sort -rV); do
        if [ -x "$d/bin/postgres" ] && [ -x "$d/bin/pg_config" ]; then basename "$d"; return 0; fi
    done
}

# base_of VERSION: the directory, as the host sees it, that a version's trees and builds live in.
base_of() {
    local suite
    suite=$(suite_of "$1")
    if [ -n "$suite" ]; then echo "$OUTBOX_ENV/chroot/$suite/outbox"; else echo "$OUTBOX_ENV"; fi
}

# inside VERSION COMMAND...: runs it where that version lives.
inside() {
    local suite
    suite=$(suite_of "$1")
    shift
    if [ -n "$suite" ]; then
        env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 chroot "$OUTBOX_ENV/chroot/$suite" "$@"
    else
        "$@"
    fi
}
