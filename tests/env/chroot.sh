#!/usr/bin/env bash
# chroot.sh trixie|forky: a Debian with PostgreSQL 17 or 18 and its librdkafka, in $OUTBOX_ENV/chroot/<suite>.
# Idempotent; needs root; leaves no mounts and no caches behind. Exits with 77 where it cannot be had.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

suite=${1:?usage: chroot.sh trixie|forky}
case $suite in
    trixie) version=17 ;;
    forky) version=18 ;;
    *) die "unknown suite: $suite" ;;
esac

packages="g++ make ccache pkg-config librdkafka-dev libcurl4-openssl-dev libkrb5-dev
          postgresql-$version postgresql-server-dev-$version postgresql-$version-pgtap"

is_root || skip "a chroot needs root"
command -v debootstrap >/dev/null || skip "debootstrap is not installed"
uid=$(id -u "$TEST_USER") || skip "no user $TEST_USER: run tests/env/install.sh"

# In a mount namespace of its own, where the machine lets us have one: then no mount outlives the script.
if [ -z "${OUTBOX_NAMESPACE:-}" ]; then
    export OUTBOX_NAMESPACE=none
    if unshare --mount true 2>/dev/null; then OUTBOX_NAMESPACE=own exec unshare --mount --propagation private "$0" "$@"; fi
fi

root=$OUTBOX_ENV/chroot/$suite
# Raise the first number when a chroot must be made anew for another reason than its packages.
key=$(echo "1 $uid" $packages | sha256sum | cut -c1-16)
lock "chroot-$suite"
if [ "$(cat "$root/.outbox-ready" 2>/dev/null)" = "$key" ]; then exit 0; fi

tmp=$OUTBOX_ENV/chroot/.$suite.new
log=$OUTBOX_ENV/chroot/$suite.log
scripts=$(mktemp -d)
unmount() {
    local m
    # shellcheck disable=SC2016
    awk -v t="$tmp/" 'index($2, t) == 1 {print $2}' /proc/self/mounts | sort -r | while read -r m; do umount -l "$m"; done
}
# Nothing is deleted while something is mounted below it.
discard() { unmount; rm -rf --one-file-system "$1"; }
trap 'rm -rf "$scripts"; unmount' EXIT

mkdir -p "$OUTBOX_ENV/chroot"
discard "$tmp"

say "making the $suite chroot, log in $log"
# Old debootstraps do not know the names of newer suites; they are all made as sid is.
cp -a /usr/share/debootstrap/. "$scripts/"
[ -e "$scripts/scripts/$suite" ] || ln -s sid "$scripts/scripts/$suite"
if ! DEBOOTSTRAP_DIR=$scripts debootstrap --variant=minbase "$suite" "$tmp" >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    die "debootstrap $suite failed"
fi

in_chroot() {
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
        chroot "$tmp" "$@" </dev/null >>"$log" 2>&1
}
install_packages() {
    in_chroot apt-get -q -y -o Dpkg::Options::=--force-unsafe-io -o Acquire::Retries=3 install --no-install-recommends "$@" ||
        { tail -n 15 "$log" >&2; die "installing into the $suite chroot failed"; }
}

printf '#!/bin/sh\nexit 101\n' >"$tmp/usr/sbin/policy-rc.d"
chmod 755 "$tmp/usr/sbin/policy-rc.d"
# Some packages want /proc when they are installed; the tests do not need it.
mount -t proc proc "$tmp/proc" || say "no /proc in the $suite chroot"
# A mirror of a testing suite may be a snapshot that is older than its date of expiry; its signature is checked all the same.
echo 'Acquire::Check-Valid-Until "false";' >"$tmp/etc/apt/apt.conf.d/90outbox"
in_chroot apt-get -q update || { tail -n 5 "$log" >&2; die "apt-get update failed in the $suite chroot"; }
# No default cluster: the tests make their own.
install_packages postgresql-common
sed -i 's/^#\?create_main_cluster.*/create_main_cluster = false/' "$tmp/etc/postgresql-common/createcluster.conf"
# shellcheck disable=SC2086
install_packages $packages
in_chroot useradd --uid "$uid" --user-group --create-home "$TEST_USER"
in_chroot apt-get clean
rm -rf "$tmp"/var/lib/apt/lists/* "$tmp"/usr/share/doc/* "$tmp"/usr/share/man/*
# POSIX shared memory wants the directory, not a file system of its own.
mkdir -p "$tmp/dev/shm" "$tmp/outbox/tmp" "$tmp/outbox/pg" "$tmp/outbox/build"
chmod 1777 "$tmp/dev/shm" "$tmp/outbox/tmp"
echo "$key" >"$tmp/.outbox-ready"

unmount
discard "$root"
mv "$tmp" "$root"
say "$suite: PostgreSQL $(chroot "$root" /usr/lib/postgresql/$version/bin/postgres -V | awk '{print $3}'), librdkafka $(chroot "$root" dpkg-query -W -f '${Version}' librdkafka1)"
