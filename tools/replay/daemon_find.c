/* SPDX-License-Identifier: Apache-2.0 */
/* Where the kvpoold lies that --standalone starts. */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "standalone.h"

/* Where kvpoold lies, from the folder of this program: installed or in the build tree. */
static const char *const beside[] = {"kvpoold", "../sbin/kvpoold", "../libexec/kvpoold", "../daemon/kvpoold"};

static int own_folder(char *out, size_t capacity)
{
	ssize_t length = readlink("/proc/self/exe", out, capacity - 1);
	char *slash;

	if (length < 0)
		return -errno;
	out[length] = '\0';
	slash = strrchr(out, '/');
	if (!slash)
		return -ENOENT;
	*slash = '\0';
	return 0;
}

static bool is_program(const char *path)
{
	return access(path, X_OK) == 0;
}

static int find_beside(char *out, size_t capacity)
{
	char folder[PATH_MAX];

	if (own_folder(folder, sizeof(folder)))
		return -ENOENT;
	for (size_t i = 0; i < sizeof(beside) / sizeof(beside[0]); i++) {
		int length = snprintf(out, capacity, "%s/%s", folder, beside[i]);

		if (length > 0 && (size_t)length < capacity && is_program(out))
			return 0;
	}
	return -ENOENT;
}

static int find_in_path(char *out, size_t capacity)
{
	const char *at = getenv("PATH");

	while (at && *at) {
		size_t span = strcspn(at, ":");
		int length = snprintf(out, capacity, "%.*s/kvpoold", (int)span, at);

		if (span && length > 0 && (size_t)length < capacity && is_program(out))
			return 0;
		at += span + (at[span] == ':');
	}
	return -ENOENT;
}

int rep_daemon_find(char *out, size_t capacity)
{
	const char *given = getenv("KVPOOLD");

	if (given && *given) {
		int length = snprintf(out, capacity, "%s", given);

		return length > 0 && (size_t)length < capacity && is_program(out) ? 0 : -ENOENT;
	}
	return find_beside(out, capacity) && find_in_path(out, capacity) ? -ENOENT : 0;
}
