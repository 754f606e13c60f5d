#!/bin/sh
# Installs the build into a private tree and builds a C program against it by pkg-config and by find_package, and a C++ one.
set -eu
source=$1 build=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

cmake --install "$build" --prefix "$dir/usr" >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
for file in include/kvpool/kvpool.h include/kvpool/kernels.h include/kvpool/prep.h include/kvpool/error.h include/kvpool/version.h \
	sbin/kvpoold bin/kvpoolctl share/man/man1/kvpoolctl.1 share/man/man8/kvpoold.8 share/man/man5/kvpoold.conf.5 \
	share/man/man3/libkvpool.3 share/man/man7/kvpool.7; do
	[ -e "$dir/usr/$file" ] || { echo "not installed: $file"; exit 1; }
done
pc=$(dirname "$(find "$dir/usr" -name kvpool.pc)")

cat >"$dir/use.c" <<'C'
#include <kvpool/kvpool.h>
#include <kvpool/kernels.h>
#include <kvpool/prep.h>
#include <stdio.h>
int main(void)
{
	struct kvp_client *client = 0;
	struct kvp_connect_params params = {sizeof(params), 1, "/nonexistent/kvpoold.sock", 0, 0};
	printf("%s %s\n", kvp_version(), kvp_error_name(kvp_connect(&params, &client)));
	return client != 0;
}
C
cp "$dir/use.c" "$dir/use.cc"
export PKG_CONFIG_PATH="$pc"
# shellcheck disable=SC2046
cc -std=c11 -Wall -Werror "$dir/use.c" -o "$dir/by-pkg-config" $(pkg-config --cflags --libs kvpool)
c++ -Wall -Werror "$dir/use.cc" -o "$dir/by-cxx" $(pkg-config --cflags --libs kvpool)

mkdir "$dir/find"
cat >"$dir/find/CMakeLists.txt" <<'C'
cmake_minimum_required(VERSION 3.25)
project(use C)
find_package(kvpool 0.1 REQUIRED)
add_executable(use ../use.c)
target_link_libraries(use kvpool::kvpool)
C
cmake -S "$dir/find" -B "$dir/find/build" -DCMAKE_PREFIX_PATH="$dir/usr" >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
cmake --build "$dir/find/build" >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }

export LD_LIBRARY_PATH="$(dirname "$(find "$dir/usr" -name 'libkvpool.so')")"
for program in "$dir/by-pkg-config" "$dir/by-cxx" "$dir/find/build/use"; do
	"$program" | grep -q ' ENOENT$' || { echo "$program: $("$program")"; exit 1; }
done
"$dir/usr/bin/kvpoolctl" --version
"$dir/usr/sbin/kvpoold" --version
