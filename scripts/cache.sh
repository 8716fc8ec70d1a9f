# shellcheck shell=sh
# Sourced. Finds the folder of unspin's cache, by the rules of crates/sources/src/cache.rs.

# Prints an absolute path, so the caller may change folders afterwards.
unspin_cache() {
    set -- "${UNSPIN_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/unspin}"
    case $1 in
    /*) echo "$1" ;;
    *) echo "$PWD/$1" ;;
    esac
}
