#!/bin/bash
# service-test.sh [SUITE]: tests the Debian package's services under a real systemd, with all
# restrictions of their units. systemd-nspawn boots a clean root (bookworm) on this machine's
# kernel. unspin-watch must serve figures, an upgrade must restart it, and a purge must stop it.
# After wrong options or on a kernel without sched_ext, systemd must not restart the services. Exit
# code 77, with the reason, if a dependency is missing. Usage: make install-test
set -euo pipefail
cd "$(dirname "$0")/.."
suite=${1:-bookworm}
[ "$(id -u)" -eq 0 ] || { echo "skipped: systemd-nspawn takes root" >&2; exit 77; }
command -v systemd-nspawn >/dev/null || {
    echo "skipped: systemd-nspawn is missing: apt install systemd-container" >&2
    exit 77
}
version=$(awk -F'"' '/^version/ { print $2; exit }' Cargo.toml)
deb=target/dist/unspin_$version-1_amd64.deb
[ -f "$deb" ] || { echo "run 'make dist' first" >&2; exit 1; }
tarball=$(scripts/clean-root.sh "$suite")
root=$(mktemp -d)
trap 'rm -rf --one-file-system "$root"' EXIT
trap 'exit 130' INT TERM
tar -C "$root" -xf "$tarball"
cp "$deb" "$root/root/first.deb"
cp "$(scripts/deb.sh "$version+1-1" "$root/root")" "$root/root/newer.deb"

cat >"$root/etc/systemd/system/service-test.service" <<'END'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
Environment=DEBIAN_FRONTEND=noninteractive LC_ALL=C
StandardOutput=file:/root/log
StandardError=file:/root/log
ExecStart=bash /root/test.sh
[Install]
WantedBy=multi-user.target
END
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
ln -s ../service-test.service "$root/etc/systemd/system/multi-user.target.wants/"

cat >"$root/root/test.sh" <<'END'
set -eu
# Ends the system with this script: for systemd as a container's init, this signal means poweroff.
trap 'kill -s RTMIN+4 1' EXIT
settings=/etc/default/unspin
check() { "$@" >/dev/null || { echo "FAILED: $*"; journalctl --no-pager -u unspin -u unspin-watch; exit 1; }; }
is() { [ "$(systemctl show -P "$2" "$1")" = "$3" ] || { echo "$1: $2 is $(systemctl show -P "$2" "$1"), not $3"; return 1; }; }
serves() { exec 3<>/dev/tcp/127.0.0.1/9469 && printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3 && grep -q '^unspin_watched_seconds_total [0-9]' <&3; }
apt() { apt-get -qq -y -o APT::Sandbox::User=root "$@" >/root/apt.log 2>&1 || { cat /root/apt.log; exit 1; }; }

apt install /root/first.deb
for unit in unspin unspin-watch; do
    check is $unit UnitFileState disabled
    check is $unit ActiveState inactive
done
echo 'installed: both services are disabled'

systemctl start unspin-watch
sleep 3
if ! systemctl -q is-active unspin-watch; then
    # Some kernels lack the hook for ticks.
    check is unspin-watch ExecMainStatus 77
    check is unspin-watch NRestarts 0
    echo 'unspin-watch without --causes: not possible with this kernel (77), and not tried again'
    echo 'UNSPIN_WATCH_OPTIONS=--causes' >>$settings
    systemctl start unspin-watch
    sleep 3
fi
check is unspin-watch ActiveState active
check serves
echo 'unspin-watch: serves figures'
before=$(systemctl show -P MainPID unspin-watch)
apt install /root/newer.deb
sleep 3
check is unspin-watch ActiveState active
check [ "$(systemctl show -P MainPID unspin-watch)" != "$before" ]
check serves
echo 'upgraded: unspin-watch was restarted and serves figures'

systemctl start unspin
sleep 3
if systemctl -q is-active unspin; then
    check unspin run --status
    unspin run --status
else
    check is unspin ExecMainStatus 77
    sleep 10
    check is unspin NRestarts 0
    echo 'unspin: not possible with this kernel (77), and not tried again'
fi

cp $settings /root/settings
echo 'UNSPIN_WATCH_OPTIONS=--nonsense' >>$settings
systemctl restart unspin-watch
sleep 12
check is unspin-watch ExecMainStatus 2
check is unspin-watch NRestarts 0
echo 'wrong options: not tried again'

cp /root/settings $settings
systemctl start unspin-watch
systemctl -q enable unspin-watch
apt purge unspin
check is unspin-watch ActiveState inactive
check [ -z "$(find /etc/systemd/system /etc/default -name '*unspin*')" ]
echo 'purged: unspin-watch was stopped, no link or setting is left'
echo done
END

timeout 180 systemd-nspawn --quiet -D "$root" --boot --register=no --keep-unit --capability=all \
    --system-call-filter='bpf perf_event_open' --bind-ro=/sys/kernel/tracing --console=pipe \
    </dev/null >"$root/console" 2>&1 || true
[ -s "$root/root/log" ] || {
    echo "skipped: systemd-nspawn does not boot here: $(tail -n 3 "$root/console")" >&2
    exit 77
}
sed "s/^/$suite: /" "$root/root/log"
[ "$(tail -n 1 "$root/root/log")" = "done" ]
