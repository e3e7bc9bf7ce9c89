#!/usr/bin/env bash
# build.sh VERSION [normal|faults|plain]: builds the work tree as it is now (committed or not) against a private copy of that
# PostgreSQL and installs it there, so that flavours live side by side, no test needs root to install, and nobody's own
# build in the work tree is disturbed. Does nothing when the sources have not changed. `plain` makes the copy of the server
# and builds nothing.
#
#   <base>/pg/VERSION-FLAVOUR/     the copy of the server; it finds its parts relative to its binaries
#   <base>/build/VERSION-FLAVOUR/  the copy of the work tree
#
# OUTBOX_TAG=x makes both of them `VERSION-FLAVOUR-x`, for who shares the cache and not the build.
# where <base> is $OUTBOX_ENV for the host's own version, and /outbox in the chroot of another.
# REBUILD=1 builds from scratch; MAKEFLAGS_EXTRA is handed to make.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

version=${1:?usage: build.sh VERSION [normal|faults|plain]}
flavour=${2:-normal}
case $flavour in normal|faults|plain) ;; *) die "unknown flavour: $flavour" ;; esac
name=$version-$flavour${OUTBOX_TAG:+-$OUTBOX_TAG}
suite=$(suite_of "$version")
if [ -n "$suite" ]; then "$REPO/tests/env/chroot.sh" "$suite"; fi
base=$(base_of "$version")
tree=$base/pg/$name
build=$base/build/$name
lock "build-$name"

# ---- the server's private copy -----------------------------------------------------------------------------------------
key=$(inside "$version" dpkg-query -W -f '${Version} ' "postgresql-$version" "postgresql-server-dev-$version" | sha256sum | cut -c1-16)
if [ "$(cat "$tree/.outbox-tree" 2>/dev/null)" != "$key" ]; then
    root=${suite:+$OUTBOX_ENV/chroot/$suite}
    rm -rf "$tree" "$tree.new"
    mkdir -p "$tree.new/lib/postgresql" "$tree.new/share/postgresql"
    cp -a "$root/usr/lib/postgresql/$version" "$tree.new/lib/postgresql/"
    cp -a "$root/usr/share/postgresql/$version" "$tree.new/share/postgresql/"
    ln -s /usr/include "$tree.new/include"
    echo "$key" >"$tree.new/.outbox-tree"
    mv "$tree.new" "$tree"
fi

if [ "$flavour" = plain ]; then exit 0; fi

# ---- the work tree's copy ------------------------------------------------------------------------------------------------
mkdir -p "$build"
files=$(mktemp)
trap 'rm -f "$files"' EXIT
(
    cd "$REPO"
    # Tracked and untracked, but not what is ignored; without git (a tarball) everything.
    { git -c safe.directory="$REPO" ls-files -z --cached --others --exclude-standard 2>/dev/null || find . -type f -printf '%P\0'; } |
        while IFS= read -r -d '' f; do
            if [ -f "$f" ]; then printf '%s\n' "$f"; fi
        done | LC_ALL=C sort -u >"$files"
)
# Only what differs in content is written, with the time of now: make must not be misled by another checkout's older times.
if [ -f "$build/.outbox-files" ]; then
    LC_ALL=C comm -13 "$files" "$build/.outbox-files" | while IFS= read -r f; do
        # Its object is no longer asked for, which is no reason for make to link anew.
        rm -f "$build/$f" "$build"/*.so
    done
fi
while IFS= read -r f; do
    if ! cmp -s "$REPO/$f" "$build/$f"; then
        mkdir -p "$build/$(dirname "$f")"
        cp --preserve=mode --remove-destination "$REPO/$f" "$build/$f"
    fi
done <"$files"
cp "$files" "$build/.outbox-files"

if [ ! -f "$build/Makefile" ]; then
    say "$name: no Makefile yet, nothing built"
    exit 0
fi

# ---- build and install -----------------------------------------------------------------------------------------------------
hash_of() { (cd "$build" && grep -E "$1" .outbox-files | tr '\n' '\0' | xargs -0 -r sha256sum; echo "$key $flavour ${MAKEFLAGS_EXTRA:-}") | sha256sum | cut -c1-16; }
sources=$(hash_of '^(Makefile|META\.json|VERSION|[^/]*\.control|src/.*|sql/[^/]*--[^/]*)$')
headers=$(hash_of '^(Makefile|META\.json|VERSION|src/.*\.(h|hh|hpp|inc))$')
if [ "$(cat "$build/.outbox-built" 2>/dev/null)" = "$sources" ] && [ -z "${REBUILD:-}" ]; then exit 0; fi

rm -f "$build/.outbox-built"
where=${suite:+/outbox/build/$name}
pgconfig=${suite:+/outbox/pg/$name/lib/postgresql/$version/bin/pg_config}
args=(-C "${where:-$build}" "PG_CONFIG=${pgconfig:-$tree/lib/postgresql/$version/bin/pg_config}")
# The fault points need no bitcode; without it the build takes half the time.
if [ "$flavour" = faults ]; then args+=(OUTBOX_FAULTS=1 with_llvm=no); fi
# shellcheck disable=SC2206
args+=(${MAKEFLAGS_EXTRA:-})
log=$build/.outbox-build.log
# A make that called us must not hand its own flags down.
# ccache: a touched header costs only those who see something new in it.
clang=$(sed -n 's/^CLANG *= *//p' "$tree/lib/postgresql/$version/lib/pgxs/src/Makefile.global")
cache=$base/ccache
run_make() {
    (
        unset MAKEFLAGS MAKELEVEL MFLAGS
        inside "$version" env PATH=/usr/lib/ccache:/usr/sbin:/usr/bin:/sbin:/bin CCACHE_DIR="${cache#"${suite:+$OUTBOX_ENV/chroot/$suite}"}" \
            CCACHE_MAXSIZE=1G \
            make "${args[@]}" ${clang:+CLANG="ccache $clang"} "$@"
    ) >>"$log" 2>&1
}
: >"$log"
# What went wrong, without the compiler's command lines.
failed() { grep -vE '^[^ ]*(g\+\+|gcc|clang)[^ ]* -' "$log" | grep -iE 'error|warning|undefined|\*\*\*|no such file' | tail -n 40 >&2; die "building for PostgreSQL $name failed, the whole log is $log"; }
if [ "$(cat "$build/.outbox-headers" 2>/dev/null)" != "$headers" ] || [ -n "${REBUILD:-}" ]; then
    run_make clean || failed
    rm -f "$build/.outbox-headers"
fi
start=$SECONDS
run_make -j2 all || failed
run_make install || failed
echo "$headers" >"$build/.outbox-headers"
echo "$sources" >"$build/.outbox-built"
say "$name: built and installed in $((SECONDS - start)) s"
