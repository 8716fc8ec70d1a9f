#!/bin/sh
# NAME SECONDS: a task that watches its gaps.
. "$(dirname "$0")/tools.sh"
watch_gaps "$1" "$2"
