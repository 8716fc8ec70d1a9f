#!/bin/bash
# source-test.sh [SUITE]: tests an installation from source in a clean root of bookworm, trixie (the
# default) or noble. It clones this checkout's last commit, runs `make demo` and `make test` in the
# root, and prints how long each took. It takes half an hour on two quiet CPUs, and 20 GB of disk
# for that time. Needs root. Usage: make source-test
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" -eq 0 ] || { echo "skipped: chroot and mount take root" >&2; exit 77; }
# The script has its own mount namespace, so its mounts disappear when it ends.
[ -n "${UNSPIN_OWN_MOUNTS-}" ] || UNSPIN_OWN_MOUNTS=1 exec unshare --mount -- scripts/source-test.sh "$@"
suite=${1:-trixie}

tarball=$(scripts/clean-root.sh "$suite")
mkdir -p out
root=$(mktemp -d -p "$PWD/out")
leave() {
    for place in dev sys proc; do
        ! mountpoint -q "$root/$place" || umount -lR "$root/$place"
    done
    rm -rf --one-file-system "$root"
}
trap leave EXIT
trap 'exit 130' INT TERM

tar -C "$root" -xf "$tarball"
mount --rbind /sys "$root/sys"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
# The root uses this machine's DNS servers, and its certificates if they exist.
cp /etc/resolv.conf "$root/etc/"
trust=/etc/ssl/certs/ca-certificates.crt
trusted=()
if [ -f "$trust" ]; then
    cp "$trust" "$root/trusted.crt"
    trusted=(SSL_CERT_FILE=/trusted.crt CARGO_HTTP_CAINFO=/trusted.crt)
fi

in_root() {
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 TERM=dumb CI=1 \
        "${trusted[@]}" chroot "$root" "$@"
}

# step WORDS...: runs a shell command in the clone, and prints how long it took.
step() {
    local begin=$SECONDS
    in_root sh -c "cd /root/unspin && $*" </dev/null >&2 || {
        echo "$suite: FAILED: $* (after $(((SECONDS - begin) / 60)) min)" >&2
        exit 1
    }
    echo "$suite: $*: $(((SECONDS - begin) / 60)) min $(((SECONDS - begin) % 60)) s"
}

git clone --quiet . "$root/root/unspin"
begin=$SECONDS
in_root apt-get -qq -o APT::Sandbox::User=root update >&2
in_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o APT::Sandbox::User=root install git make >&2
echo "$suite: apt install git make: $((SECONDS - begin)) s"
step make demo
step make test
