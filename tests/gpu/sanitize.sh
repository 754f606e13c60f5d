#!/bin/sh
# sanitize.sh COMPUTE_SANITIZER TOOL GOLDEN_PROGRAM CASES: the golden cases under one of its tools. Launches have memory of the size that
# they were given, so that memcheck sees the first byte past it.
sanitizer=$1
tool=$2
shift 2
# Without arguments the program only looks for a device.
"$1" >/dev/null 2>&1
[ $? != 77 ] || { echo "skipped: no device"; exit 77; }
exec "$sanitizer" --tool "$tool" --error-exitcode 1 "$@"
