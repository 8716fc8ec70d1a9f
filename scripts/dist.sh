#!/bin/sh
# dist.sh: makes a release in target/dist: static programs for x86_64, in a tarball and in a Debian
# package, with man pages, completions, systemd units, alert rules, a dashboard, licences and
# SHA256SUMS. The same commit yields the same bytes with the same toolchain and libraries. Fails if
# a program is dynamic, too large or slow to start.
set -eu
cd "$(dirname "$0")/.."
TARGET=x86_64-unknown-linux-gnu
PROGRAMS="unspin unspin-init spinbench holdbench microbench phasebench"
PACKAGES="unspin unspin-init unspin-spinbench"
SIZE_MAX=15000000
START_MAX_MS=20
dist=target/dist
built=${CARGO_TARGET_DIR:-target}/$TARGET/release
libraries=/usr/lib/x86_64-linux-gnu

die() {
    echo "dist: $*" >&2
    exit 1
}

SOURCE_DATE_EPOCH=$(git -c safe.directory='*' log -1 --format=%ct)
export SOURCE_DATE_EPOCH
version=$(awk -F'"' '/^version/ { print $2; exit }' Cargo.toml)
name=unspin-$version-x86_64-linux

# The static programs contain glibc, not musl, because libelf does not build for musl without
# changes (libbpf-sys issue 153). rustc prefers static libraries for a static program, so libelf and
# zlib come from Debian's -dev packages. With --target, the flags do not apply to build scripts and
# macros, which cannot be static.
flags="-Ctarget-feature=+crt-static
--remap-path-prefix=$(pwd)=unspin
--remap-path-prefix=${CARGO_HOME:-${HOME:-/root}/.cargo}=cargo"
# Since elfutils 0.189, Debian's libelf can read sections that zstd compressed.
zstd=
if nm "$libraries/libelf.a" 2>/dev/null | grep -q ' U ZSTD_'; then
    [ -f "$libraries/libzstd.a" ] || die "libelf needs zstd here: apt install libzstd-dev"
    flags="$flags
-Clink-arg=-lzstd"
    zstd=libzstd.a=libzstd-dev
fi
CARGO_ENCODED_RUSTFLAGS=$(printf '%s' "$flags" | tr '\n' '\037')
export CARGO_ENCODED_RUSTFLAGS
# Link-time optimization makes the program a quarter smaller, but the build slow.
export CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1
# Size comes first for the agent. The code that runs often in a guest is BPF, which clang optimizes.
export CARGO_PROFILE_RELEASE_OPT_LEVEL=s
# shellcheck disable=SC2046,SC2086 # lists
scripts/with-rust cargo build --release --locked --target "$TARGET" $(printf -- '-p %s ' $PACKAGES)
# Programs for this machine, such as cargo-deb, need the default flags.
unset CARGO_ENCODED_RUSTFLAGS CARGO_PROFILE_RELEASE_LTO CARGO_PROFILE_RELEASE_CODEGEN_UNITS \
    CARGO_PROFILE_RELEASE_OPT_LEVEL

for program in $PROGRAMS; do
    ! readelf -Wld "$built/$program" | grep -Eq 'INTERP|NEEDED' || die "$program is dynamic"
    case $(LC_ALL=C ldd "$built/$program" 2>&1) in
    *"statically linked"* | *"not a dynamic executable"*) ;;
    *) die "ldd finds libraries in $program" ;;
    esac
done
size=$(stat -c %s "$built/unspin")
[ "$size" -le "$SIZE_MAX" ] || die "unspin has $size bytes, more than $SIZE_MAX"
start_ms=$(for _ in 1 2 3 4 5 6 7 8 9 10; do
    begin=$(date +%s%N)
    "$built/unspin" --version >/dev/null
    end=$(date +%s%N)
    echo $(((end - begin) / 1000))
done | sort -n | awk 'NR == 5 { printf "%.1f", $1 / 1000 }')
awk -v ms="$start_ms" -v max="$START_MAX_MS" 'BEGIN { exit ms > max }' ||
    die "unspin --version takes $start_ms ms, more than $START_MAX_MS"

rm -rf "$dist"
mkdir -p "$dist"
# shellcheck disable=SC2086 # a list, and a word that may be empty
scripts/with-rust scripts/third-party.py "$TARGET" $PACKAGES $zstd >"$dist/third-party.txt"

# Debian's zsh searches vendor-completions.
ZSH_FOLDER=zsh/vendor-completions scripts/install.sh "$built" /usr "$dist/root"
deb=$(scripts/deb.sh)

scripts/install.sh "$built" /usr/local "$dist/tar"
mv "$dist/tar/usr/local" "$dist/$name"
rm -r "$dist/tar"
install -D -m 644 -t "$dist/$name/share/doc/unspin" LICENSE-GPL-2.0 LICENSE-MIT LICENSE-APACHE \
    CHANGELOG.md docs/install.md packaging/deb/copyright packaging/systemd/default "$dist/third-party.txt"
(cd "$dist/$name" && find . -type f -printf '%P\n' | LC_ALL=C sort | xargs sha256sum) \
    >"$dist/SHA256SUMS"
mv "$dist/SHA256SUMS" "$dist/$name"
tar -C "$dist" --sort=name --format=ustar --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 \
    --numeric-owner --mode=u=rwX,go=rX -c "$name" | gzip -9n >"$dist/$name.tar.gz"
(cd "$dist" && sha256sum "$name.tar.gz" "$(basename "$deb")" >SHA256SUMS)

echo "unspin: static, $size bytes, --version in $start_ms ms"
ls -l "$dist/$name.tar.gz" "$deb"
cat "$dist/SHA256SUMS"
