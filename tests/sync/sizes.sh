#!/bin/sh
# Half of all functions are under 12 lines, 95 % under 70; no file of replay is above 500 lines. Counted by universal-ctags.
set -u
cd "$1" || exit 1
command -v ctags >/dev/null || { echo "no ctags"; exit 77; }
ctags --version | grep -q Universal || { echo "not universal-ctags"; exit 77; }

bad=0
long=$(wc -l tools/replay/*.[ch] 2>/dev/null | awk '$2 != "total" && $1 > 500 {print $2 ": " $1 " lines"}')
[ -z "$long" ] || { echo "$long"; bad=1; }

ctags -R -o - --languages=C --kinds-C=f --fields=+ne ipc daemon libclient kernels tools |
awk -F'\t' '
{
	line = end = 0
	for (i = 4; i <= NF; i++) {
		if ($i ~ /^line:/) line = substr($i, 6)
		if ($i ~ /^end:/) end = substr($i, 5)
	}
	if (!end) next
	size = end - line + 1
	n++
	if (size < 12) small++
	if (size < 70) middling++
	if (size > 100) printf "%s: %s has %d lines\n", $2, $1, size
}
END {
	printf "%d functions: %.1f %% under 12 lines, %.1f %% under 70\n", n, 100 * small / n, 100 * middling / n
	exit !(n > 0 && small * 2 >= n && middling * 100 >= n * 95)
}' || bad=1
exit $bad
