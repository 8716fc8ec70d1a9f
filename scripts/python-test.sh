#!/bin/sh
# Checks python/ with ruff and pytest in its own virtual environment:   scripts/python-test.sh
# [OPTION OF pytest]... Exits with 77 if Python is older than 3.11 or cannot make virtual
# environments.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}

skip() {
    echo "python-test: $1" >&2
    exit 77
}

command -v "$python" > /dev/null || skip "$python is not installed: run 'apt install python3-venv'"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    skip "$("$python" -V) is older than 3.11: set PYTHON to a newer one"
"$python" -c 'import ensurepip, venv' 2> /dev/null ||
    skip "$python has no venv: run 'apt install python3-venv'"

# shellcheck source=scripts/cache.sh
. "$root/scripts/cache.sh"
cache=$(unspin_cache)
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
wanted=$(sha256sum "$root/python/pyproject.toml" | cut -c 1-16)
venv=$cache/python-$version
mkdir -p "$cache"
# pytest keeps the lock, so that no other checkout removes the environment while its tests run.
exec 9> "$venv.lock"
flock 9
# The environment belongs to one checkout and one pyproject.toml. A change of either makes a new
# one.
if [ "$(cat "$venv/made-for" 2> /dev/null)" != "$root $wanted" ]; then
    echo "python-test: making $venv" >&2
    rm -rf "$venv"
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        --editable "$root/python[dev]"
    echo "$root $wanted" > "$venv/made-for"
fi

# A relative path of the program counts from the caller's folder, but the tests run in python/.
if [ -n "${UNSPIN_PROGRAM:-}" ]; then
    UNSPIN_PROGRAM=$(realpath "$UNSPIN_PROGRAM")
    export UNSPIN_PROGRAM
fi
cd "$root/python"
"$venv/bin/ruff" check .
"$venv/bin/ruff" format --check .
exec "$venv/bin/python" -m pytest "$@"
