#!/bin/sh
# gaps.sh NAME SECONDS: runs a task that records its gaps.
. "$(dirname "$0")/tools.sh"
watch_gaps "$1" "$2"
