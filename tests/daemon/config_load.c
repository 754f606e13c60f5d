/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the file, builds argv, loads, compares. */
#include "config_load.h"

#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_ARGS 24

char config_path[256];
static char *dir;

int config_load_setup(void **state)
{
	(void)state;
	dir = kvt_mkdtemp();
	snprintf(config_path, sizeof(config_path), "%s/c", dir);
	return 0;
}

int config_load_teardown(void **state)
{
	(void)state;
	kvt_rmdir(dir);
	return 0;
}

void config_write_file(const char *text, size_t length)
{
	int fd = open(config_path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, length), (ssize_t)length);
	close(fd);
}

struct config_loaded config_load(const char *text, const char *const *arguments)
{
	const char *argv[MAX_ARGS] = {"kvpoold"};
	struct config_loaded loaded = {.error = "untouched"};
	int argc = 1;

	if (text) {
		config_write_file(text, strlen(text));
		argv[argc++] = "-c";
		argv[argc++] = config_path;
	}
	for (; *arguments && argc < MAX_ARGS; arguments++)
		argv[argc++] = *arguments;
	loaded.ret = kvd_config_load(argc, (char **)(uintptr_t)argv, &loaded.config, loaded.error,
				     sizeof(loaded.error));
	return loaded;
}

struct config_loaded config_load_texts(const char *const *texts)
{
	return config_load(texts[0], texts + 1);
}

void config_assert_loads(const struct config_loaded *loaded)
{
	if (loaded->ret)
		fail_msg("refused: %s", loaded->error);
	assert_string_equal(loaded->error, "");
}

void config_assert_refused(const struct config_loaded *loaded, const char *const *needs, const char *what)
{
	if (!loaded->ret)
		fail_msg("accepted: %s", what);
	assert_int_equal(loaded->ret, -EINVAL);
	for (unsigned i = 0; i < 4 && needs[i]; i++)
		if (!strstr(loaded->error, needs[i]))
			fail_msg("'%s' lacks '%s'; from: %s", loaded->error, needs[i], what);
	assert_null(strchr(loaded->error, '\n'));
}
