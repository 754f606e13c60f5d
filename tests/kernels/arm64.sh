#!/bin/sh
# Builds the kernels for 64-bit ARM and runs their tests there, emulated. Skipped where the tools are missing.
#   arm64.sh <source> <build>
set -u
source=$1 build=$2
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
	command -v "$tool" >/dev/null || { echo "no $tool: scripts/install-deps --test installs it"; exit 77; }
done
# The compiler comes without the target's C library.
echo 'int main(void) { return 0; }' | aarch64-linux-gnu-gcc -x c - -o /dev/null 2>/dev/null ||
	{ echo "no C library for aarch64: libc6-dev-arm64-cross"; exit 77; }
cd "$source" || exit 1
cmake --preset arm64 -B "$build" || exit 1
cmake --build "$build" || exit 1
ctest --test-dir "$build" --output-on-failure --no-tests=error
