#!/bin/bash
# install-test.sh [SUITE...]: tests the Debian package of target/dist with lintian and in clean
# roots of bookworm, trixie and noble. In each root, it installs the package (ten times, timed),
# runs the program, upgrades to a package of a higher version, removes it and purges it. Afterwards,
# no file may be left. If the kernel has no hooks for `record`, the script reports that and passes.
# Prints claims for `unspin claims record`. Needs root. Usage: make install-test
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" -eq 0 ] || { echo "skipped: chroot and mount take root" >&2; exit 77; }
# The script has its own mount namespace, so its mounts disappear when it ends.
[ -n "${UNSPIN_OWN_MOUNTS-}" ] || UNSPIN_OWN_MOUNTS=1 exec unshare --mount -- scripts/install-test.sh "$@"
[ $# -gt 0 ] || set -- bookworm trixie noble

dist=target/dist
version=$(awk -F'"' '/^version/ { print $2; exit }' Cargo.toml)
deb=$dist/unspin_$version-1_amd64.deb
[ -f "$deb" ] || { echo "run 'make dist' first" >&2; exit 1; }
work=$(mktemp -d)
leave() {
    for place in dev sys proc; do
        ! mountpoint -q "$work/${suite-}/$place" || umount -lR "$work/$suite/$place"
    done
    rm -rf --one-file-system "$work"
}
trap leave EXIT
trap 'exit 130' INT TERM
newer_version=$version+1-1
newer=$(scripts/deb.sh "$newer_version" "$work")

say() { echo "$suite: $*" >&2; }

die() {
    say "FAILED: $*"
    exit 1
}

# in_root COMMAND...: runs a command in the suite's root.
in_root() {
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 TERM=dumb \
        DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"
}

apt_in_root() {
    in_root apt-get -qq -y -o APT::Sandbox::User=root "$@" >"$work/apt.log" 2>&1 || {
        cat "$work/apt.log" >&2
        die "apt-get $*"
    }
}

# Lists all files except the records of dpkg and apt, and files that do not survive a restart.
files() {
    (cd "$root" && find . -xdev \( -path ./var/lib/dpkg -o -path ./var/log -o -path ./var/lib/apt \
        -o -path ./var/cache -o -path ./proc -o -path ./sys -o -path ./dev -o -path ./run \
        -o -path ./tmp -o -path ./debs \) -prune -o -print | LC_ALL=C sort)
}

prepare() {
    root=$work/$suite
    mkdir "$root"
    tar -C "$root" -xf "$1"
    mkdir -p "$root/debs"
    cp "$deb" "$root/debs/first.deb"
    cp "$newer" "$root/debs/newer.deb"
    mount --rbind /sys "$root/sys"
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
}

# Prints the seconds of ten installations by apt.
install_times() {
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        local begin end
        begin=$(date +%s%N)
        apt_in_root install /debs/first.deb
        end=$(date +%s%N)
        echo "$suite $((end - begin))"
        apt_in_root purge unspin
    done
}

# Checks that files are where shells, man and systemd search, and that no unit is enabled.
check_files() {
    local file
    for file in share/man/man1/unspin-run.1.gz share/bash-completion/completions/unspin \
        share/zsh/vendor-completions/_unspin share/fish/vendor_completions.d/unspin.fish \
        lib/systemd/system/unspin.service lib/systemd/system/unspin-watch.service \
        lib/unspin/spinbench share/unspin/grafana/unspin.json share/doc/unspin/copyright; do
        [ -s "$root/usr/$file" ] || die "/usr/$file is missing"
    done
    in_root bash -c '. /usr/share/bash-completion/completions/unspin && complete -p unspin' >/dev/null ||
        die "bash has no completion"
    [ -z "$(find "$root/etc/systemd" -name '*unspin*')" ] || die "a unit is enabled"
    in_root systemd-analyze verify --man=no unspin.service unspin-watch.service || die "units"
}

# Checks that the program runs as on a machine with this system and the build machine's kernel.
check_program() {
    local code=0
    [ "$(in_root unspin --version)" = "unspin $version" ] || die "--version"
    in_root unspin doctor >"$work/doctor" || die "doctor"
    in_root unspin record --for 3 --out /tmp/session.arrow.gz >"$work/record" 2>&1 || code=$?
    case $code in
    0)
        in_root unspin report /tmp/session.arrow.gz >"$work/report" || die "report"
        say "record and report: $(head -n 1 "$work/report")"
        ;;
    77) say "record is not possible with this kernel: $(cat "$work/record")" ;;
    *) die "record: exit code $code: $(cat "$work/record")" ;;
    esac
}

# Checks that a changed configuration file survives the upgrade.
check_upgrade() {
    echo 'UNSPIN_RUN_OPTIONS=--no-pack' >>"$root/etc/default/unspin"
    apt_in_root install /debs/newer.deb
    # shellcheck disable=SC2016 # dpkg's variable
    [ "$(in_root dpkg-query -W -f '${Version}' unspin)" = "$newer_version" ] || die "upgrade"
    grep -q '^UNSPIN_RUN_OPTIONS=--no-pack' "$root/etc/default/unspin" || die "the upgrade overwrote /etc/default/unspin"
    in_root unspin --version >/dev/null || die "--version after the upgrade"
}

check_removal() {
    apt_in_root remove unspin
    [ ! -e "$root/usr/bin/unspin" ] || die "remove leaves the program"
    [ -f "$root/etc/default/unspin" ] || die "remove deletes the configuration"
    apt_in_root purge unspin
    files | diff "$work/before" - >&2 || die "files are left or gone after the purge"
}

# Errors and warnings fail. packaging/deb/lintian-overrides has the intended exceptions.
if command -v lintian >/dev/null; then
    lintian --allow-root --fail-on error,warning "$deb" >&2
    echo "lintian: no error, no warning" >&2
else
    echo "lintian is missing, so the package is not checked by it: apt install lintian" >&2
fi

for suite; do
    tarball=$(scripts/clean-root.sh "$suite") || {
        [ $? -eq 77 ] && say "skipped" && continue
        exit 1
    }
    prepare "$tarball"
    files >"$work/before"
    install_times >>"$work/times"
    apt_in_root install /debs/first.deb
    check_files
    check_program
    check_upgrade
    check_removal
    umount -lR "$root/dev" "$root/sys" "$root/proc"
    rm -rf --one-file-system "$root"
    say "installed, upgraded, removed and purged"
done
[ -s "$work/times" ] || { echo "skipped: no suite could be had" >&2; exit 77; }

# Of ten samples, the second and the ninth are an interval of 97.9 % for the median.
sort -k 1,1 -k 2,2n "$work/times" | awk -v date="$(date -u +%F)" \
    -v commit="$(git -c safe.directory='*' rev-parse --short=12 HEAD)" \
    -v bytes="$(stat -c %s "$dist/root/usr/bin/unspin")" \
    -v machine="$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $(nproc) CPUs" '
    function claim(id, what, value, lo, hi, n, unit, target, label) {
        printf "%s{\"id\": \"%s\", \"what\": \"%s\", ", (claims++ ? ",\n " : "["), id, what
        printf "\"value\": %g, \"lo\": %g, \"hi\": %g, \"n\": %d, ", value, lo, hi, n
        printf "\"unit\": \"%s\", \"target\": \"%s\", \"holds\": null, ", unit, target
        printf "\"label\": \"%s\", \"experiment\": \"scripts/install-test.sh\", ", label
        printf "\"command\": \"make install-test\", \"date\": \"%s\", \"commit\": \"%s\"}", date, commit
    }
    { if (!runs[$1]++) suites[++count] = $1; seconds[$1, runs[$1]] = $2 / 1e9 }
    END {
        for (i = 1; i <= count; i++) {
            suite = suites[i]
            claim("product.install_s." suite, "seconds that apt takes to install the package in a minimal " suite,
                (seconds[suite, 5] + seconds[suite, 6]) / 2, seconds[suite, 2], seconds[suite, 9],
                runs[suite], "s", "<= 10", "host: " machine)
        }
        claim("product.binary_mb", "megabytes of the static program unspin", bytes / 1e6, bytes / 1e6,
            bytes / 1e6, 1, "MB", "<= 15", "x86_64, glibc, stripped")
        print "]"
    }'
