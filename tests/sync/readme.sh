#!/bin/sh
# The C program of README.md compiles without a warning and, run twice, finds in a daemon what it left there.
set -eu
source=$1 build=$2 daemon=$3
dir=$(mktemp -d)
pid=
trap 'test -z "$pid" || kill "$pid" 2>/dev/null || true; rm -rf "$dir"' EXIT

awk '/^```c$/ {inside = 1; next} /^```$/ {inside = 0} inside' "$source/README.md" >"$dir/example.c"
[ -s "$dir/example.c" ] || { echo "README.md has no C example"; exit 1; }
lines=$(wc -l <"$dir/example.c")
[ "$lines" -le 35 ] || { echo "the example has $lines lines"; exit 1; }
cc -std=c11 -Wall -Wextra -Werror -I"$source/include" -I"$build/include" "$dir/example.c" -o "$dir/example" \
	-L"$build/libclient" -lkvpool -Wl,-rpath,"$build/libclient"

mkfifo "$dir/ready"
"$daemon" --socket "$dir/sock" --set pool.main.blocks=64 --ready-fd 3 3>"$dir/ready" 2>"$dir/log" &
pid=$!
# The daemon says "ready", or ends and closes the pipe.
read -r word <"$dir/ready" || { cat "$dir/log"; exit 1; }
[ "$word" = ready ] || { cat "$dir/log"; exit 1; }
export KVPOOL_SOCKET=$dir/sock
timeout 20 "$dir/example" | tee "$dir/first"
timeout 20 "$dir/example" | tee "$dir/second"
grep -q '^0 of 200 ' "$dir/first" && grep -q '^192 of 200 ' "$dir/second"
