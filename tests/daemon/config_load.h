/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads a configuration from texts. A refusal is held to name the place, the key and the value or limit, not to exact
 * wording.
 */
#ifndef KVPOOL_TEST_CONFIG_LOAD_H
#define KVPOOL_TEST_CONFIG_LOAD_H

#include "daemon/config.h"

#include <stddef.h>

struct config_loaded {
	struct kvd_config config;
	int ret;
	char error[512];
};

/* Of the file that the texts are written to; valid between setup and teardown of the group. */
extern char config_path[256];
int config_load_setup(void **state);
int config_load_teardown(void **state);

void config_write_file(const char *text, size_t length);
/* `text` NULL: no file is named. `arguments` end with NULL. */
struct config_loaded config_load(const char *text, const char *const *arguments);
struct config_loaded config_load_texts(const char *const *texts);
/* The file's text or NULL, then the arguments. */
#define CONFIG_LOAD(...) config_load_texts((const char *const[]){__VA_ARGS__, NULL})

void config_assert_loads(const struct config_loaded *loaded);
/* -EINVAL with a sentence that has each of needs[4], up to a NULL. `what`: for a failure's message. */
void config_assert_refused(const struct config_loaded *loaded, const char *const *needs, const char *what);

#endif
