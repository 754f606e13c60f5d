#!/bin/sh
# Calls that have no place: unbounded string functions anywhere; in the library and the kernels what would log, start threads (but on request),
# install handlers or end the process; received descriptors without close-on-exec; notes left behind.
set -u
cd "$1" || exit 1
bad=0
# forbid <pattern> <why> <files...>
forbid()
{
	pattern=$1 why=$2
	shift 2
	hits=$(grep -nE "$pattern" "$@" 2>/dev/null)
	[ -z "$hits" ] || { echo "$why:"; echo "$hits"; bad=1; }
}
# Without a directory's files the glob stays as it is; grep then finds nothing.
forbid '\b(strcpy|strcat|sprintf|vsprintf|gets|atoi|atol|strtok|alloca)\(' "unbounded or unchecked" \
	ipc/*.[ch] daemon/*.[ch] libclient/*.[ch] kernels/*.[ch] kernels/*/*.[ch] tools/*.[ch] tools/*/*.[ch]
forbid '\b(abort|exit|_exit|printf|fprintf|perror|syslog|thrd_create|signal|sigaction)\(' \
	"a library does not do this" libclient/*.c kernels/*.c kernels/*/*.c ipc/*.c
# kvp_threads_create() is the one place.
forbid '\bpthread_create\(' "a library starts no thread" $(ls libclient/*.c | grep -v '/threads\.c$') kernels/*.c kernels/*/*.c ipc/*.c
forbid '\b(TODO|FIXME|XXX|HACK)\b' "left behind" \
	ipc/*.[ch] daemon/*.[ch] libclient/*.[ch] kernels/*.[ch] kernels/*/*.[ch] tools/*.[ch] tools/*/*.[ch] man/*.scd
for file in $(grep -lE '\brecvmsg\(' ipc/*.c daemon/*.c libclient/*.c tools/*.c 2>/dev/null); do
	grep -q MSG_CMSG_CLOEXEC "$file" || { echo "$file: recvmsg without MSG_CMSG_CLOEXEC"; bad=1; }
done
exit $bad
