#!/bin/sh
# The newest entry of CHANGELOG.md is the version that is being built.
set -u
top=$(sed -n 's/^## \([0-9.]*\).*/\1/p' "$1/CHANGELOG.md" | head -n 1)
[ "$top" = "$KVP_VERSION" ] || { echo "CHANGELOG.md begins with '$top', the project is $KVP_VERSION"; exit 1; }
