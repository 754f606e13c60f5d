#!/bin/sh
# Dependencies go one way, and a name tells its layer:
#   kernels, ipc <- libclient <- tools;  ipc <- daemon;  nothing on daemon.  See CONTRIBUTING.md.
set -u
cd "$1" || exit 1
bad=0
complain()
{
	echo "$*" >&2
	bad=1
}

# may_include <folder> <folders whose headers it may include, besides its own and include/>
may_include()
{
	for file in "$1"/*.[ch] "$1"/*/*.[ch]; do
		[ -f "$file" ] || continue
		sed -n 's/^#include "\([^"]*\)".*/\1/p' "$file" | while read -r header; do
			target=
			for base in "$(dirname "$file")" . "$1"; do
				[ -f "$base/$header" ] && target=$(realpath --relative-to=. "$base/$header") && break
			done
			[ -n "$target" ] || { echo "$file: no header $header"; continue; }
			folder=${target%%/*}
			case " $1 include $2 " in
			*" $folder "*) ;;
			*) echo "$file: includes $target, but $1 may only use: ${2:-nothing}" ;;
			esac
		done
	done
}

found=$(may_include ipc ""; may_include kernels ""; may_include libclient "ipc kernels"; may_include daemon "ipc"
	may_include tools "ipc kernels libclient")
[ -z "$found" ] || complain "$found"

# The prefix of a function with external linkage is its layer's.
prefix_of()
{
	case $1 in
	ipc/*) echo kvw_ ;;
	kernels/*) echo kvk_ ;;
	libclient/*) echo 'kvp_\|kvc_' ;;
	daemon/*) echo kvd_ ;;
	esac
}
if command -v ctags >/dev/null; then
	for file in ipc/*.c kernels/*.c kernels/*/*.c libclient/*.c daemon/*.c; do
		[ -f "$file" ] || continue
		names=$(ctags -x --language-force=C --kinds-C=f --extras=-F -D 'KVK_INLINE=static inline' -D 'FAST(op)=' --_xformat='%N %{file}' "$file" 2>/dev/null |
			cut -d' ' -f1 | grep -v "^\($(prefix_of "$file")\)" | grep -vx main)
		[ -z "$names" ] || complain "$file: external names without the layer's prefix:" $names
	done
fi

# CUDA's own types appear in no file yet; later only where CONTRIBUTING.md says.
cuda=$(grep -lE '\b(CU(device|context|stream|result|deviceptr)|cuda[A-Z][A-Za-z]+)\b' \
	ipc/*.[ch] daemon/*.[ch] libclient/*.[ch] tools/*.[ch] include/kvpool/*.h 2>/dev/null |
	grep -vE '^(ipc/cuda_driver\.[ch]|daemon/device_cuda\.c|libclient/map_cuda\.c)$')
[ -z "$cuda" ] || complain "CUDA types outside their files: $cuda"
exit $bad
