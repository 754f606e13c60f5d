#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Usage: canary.sh REPLAY CORPUS. Succeeds when the replay passes the harmless input, and ends by SIGABRT at the other.
set -u
"$1" "$2/harmless" || exit 1
ulimit -c 0
"$1" "$2/found"
status=$?
# 134: SIGABRT. A sanitizer may turn it into its own exit status, but never into 0 or 1.
if [ "$status" -le 1 ]; then
	echo "the canary's fault was not found: exit status $status" >&2
	exit 1
fi
