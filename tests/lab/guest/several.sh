#!/bin/sh
# Runs scripts of this folder one after the other, each in a cgroup. It kills a script's processes
# and removes its cgroups before the next script. With `one-run`, they share one `unspin run`.
. "$(dirname "$0")/tools.sh"
if [ "$1" = one-run ]; then
    shift
    start
    export shared_run="$run"
fi
failed=
no_groups() { find $groups -mindepth 1 -depth -type d -name '?' -exec rmdir {} + 2> /dev/null; }
for script in "$@"; do
    mkdir $groups/s
    sh -c "echo 0 > $groups/s/cgroup.procs; exec sh \"\$1\"" sh "$(dirname "$0")/$script.sh" ||
        failed=$script
    for group in "$groups"/?; do echo 1 > "$group/cgroup.kill"; done
    [ -z "$failed" ] || fail "$failed"
    wait_until no_groups
    rm -f /tmp/gaps
done
[ -z "$shared_run" ] && exit
shared_run=
stop
clean_log
