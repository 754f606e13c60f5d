/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The INI file, by inih. Its lines come through our own reader, which counts them (inih's handler is not told), sees sections that have no
 * key, and refuses what inih would cut in silence: long lines and section names.
 */
#include "config_internal.h"

#include <errno.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>

/* inih keeps 49 bytes of a section's name. */
#define MAX_SECTION_BYTES (KVD_MAX_POOL_NAME_BYTES + 5u)

struct reader {
	struct kvd_load *load;
	FILE *file;
	unsigned line;
	char *buffer; /* getline()'s */
	size_t capacity;
	int error; /* -ENOMEM, -EINVAL with the sentence written */
};

static const char *where(const struct reader *reader, char *out, size_t capacity)
{
	snprintf(out, capacity, "%.250s:%u", reader->load->path, reader->line);
	return out;
}

/* "pool NAME": the name; "daemon": NULL. */
static int split_section(struct reader *reader, const char *section, const char **out_pool)
{
	char at[KVD_WHERE_BYTES];

	*out_pool = NULL;
	if (!strcmp(section, "daemon"))
		return 0;
	if (!strncmp(section, "pool ", 5)) {
		*out_pool = section + 5 + strspn(section + 5, " ");
		return 0;
	}
	where(reader, at, sizeof(at));
	if (!section[0])
		return kvd_load_fail(reader->load, at,
				     "a key stands before any section; begin with [daemon] or [pool NAME]");
	return kvd_load_fail(reader->load, at, "unknown section [%.80s]; there are [daemon] and [pool NAME]",
			     section);
}

/* A section is known from its own line on: an empty [pool x] is a pool that lacks its keys. */
static int enter_section(struct reader *reader, char *text)
{
	struct kvd_pool_draft *draft;
	char at[KVD_WHERE_BYTES];
	const char *pool;
	char *end = strchr(text, ']');
	int ret;

	if (!end)
		return kvd_load_fail(reader->load, where(reader, at, sizeof(at)),
				     "a section's line has no ']'; add it");
	*end = '\0';
	if (strlen(text) > MAX_SECTION_BYTES)
		return kvd_load_fail(reader->load, where(reader, at, sizeof(at)),
				     "section name '%.80s' is above the limit of %u bytes; shorten it", text,
				     MAX_SECTION_BYTES);
	ret = split_section(reader, text, &pool);
	if (!ret && pool)
		ret = kvd_load_pool(reader->load, where(reader, at, sizeof(at)), pool, &draft);
	*end = ']';
	return ret;
}

static int check_line(struct reader *reader, char *line, size_t length, size_t limit)
{
	char at[KVD_WHERE_BYTES];

	if (strlen(line) != length)
		return kvd_load_fail(reader->load, where(reader, at, sizeof(at)),
				     "the line has a NUL byte; remove it");
	if (length >= limit)
		return kvd_load_fail(reader->load, where(reader, at, sizeof(at)),
				     "the line has %zu bytes, above the limit of %zu; shorten it", length,
				     limit - 1);
	return line[0] == '[' ? enter_section(reader, line + 1) : 0;
}

/* inih's fgets(). Indentation goes: inih would take an indented line for more of the value above. */
static char *read_line(char *out, int limit, void *stream)
{
	struct reader *reader = stream;
	ssize_t length;
	char *line;

	if (reader->error)
		return NULL;
	length = getline(&reader->buffer, &reader->capacity, reader->file);
	if (length < 0) {
		reader->error = feof(reader->file) ? 0 : -errno;
		return NULL;
	}
	reader->line++;
	line = reader->buffer + strspn(reader->buffer, " \t");
	length -= line - reader->buffer;
	reader->error = check_line(reader, line, (size_t)length, (size_t)limit);
	if (reader->error)
		return NULL;
	memcpy(out, line, (size_t)length + 1);
	return out;
}

static int handle(void *user, const char *section, const char *key, const char *value)
{
	struct reader *reader = user;
	char at[KVD_WHERE_BYTES];
	const char *pool;

	if (reader->error)
		return 0;
	reader->error = split_section(reader, section, &pool);
	if (!reader->error)
		reader->error = kvd_load_set(reader->load, where(reader, at, sizeof(at)), false, pool, key,
					     value ? value : "");
	return !reader->error;
}

/* inih has one opaque pointer for reader and handler each; both get ours. */
static int parse(struct reader *reader)
{
	char at[KVD_WHERE_BYTES];
	int ret = ini_parse_stream(read_line, reader, handle, reader);

	if (reader->error)
		return reader->error;
	if (ret > 0) {
		reader->line = (unsigned)ret;
		return kvd_load_fail(reader->load, where(reader, at, sizeof(at)),
				     "the line is neither '[section]' nor 'key = value'; correct it");
	}
	return ret < 0 ? -ENOMEM : 0;
}

int kvd_load_file(struct kvd_load *load)
{
	struct reader reader = {.load = load, .file = fopen(load->path, "re")};
	int ret;

	if (!reader.file) {
		ret = -errno;
		if (ret == -ENOENT && !load->path_given)
			return 0;
		kvd_load_fail(load, load->path, "can't be read: %s; name another file with --config",
			      strerror(-ret));
		return ret;
	}
	load->config.file = strdup(load->path);
	ret = load->config.file ? parse(&reader) : -ENOMEM;
	if (ret == -EIO || ret == -EISDIR)
		kvd_load_fail(load, load->path, "can't be read: %s; name another file with --config",
			      strerror(-ret));
	free(reader.buffer);
	fclose(reader.file);
	return ret;
}
