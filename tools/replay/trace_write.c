/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a trace as JSON lines, plain or compressed by zlib. */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "generate.h"

static int write_line(gzFile file, const struct rep_trace *trace, uint32_t index)
{
	const struct rep_request *request = &trace->requests[index];
	const uint64_t *ids = rep_request_ids(trace, index);
	bool good = gzprintf(file,
			     "{\"timestamp\": %" PRIu64
			     ", \"input_length\": %u, \"output_length\": %u, \"hash_ids\": [",
			     request->timestamp_ms, request->input_length, request->output_length) > 0;

	for (uint32_t i = 0; good && i < request->id_count; i++)
		good = gzprintf(file, "%s%" PRIu64, i ? ", " : "", ids[i]) > 0;
	return good && gzputs(file, "]}\n") > 0 ? 0 : -EIO;
}

static gzFile open_output(const char *path)
{
	size_t length = path ? strlen(path) : 0;
	bool packed = length > 3 && !strcmp(path + length - 3, ".gz");
	gzFile file;
	int fd;

	if (path)
		return gzopen(path, packed ? "wbe" : "wbeT");
	fd = dup(STDOUT_FILENO);
	if (fd < 0)
		return NULL;
	file = gzdopen(fd, "wbT");
	if (!file)
		close(fd);
	return file;
}

int rep_trace_write(const struct rep_trace *trace, const char *path)
{
	gzFile file = open_output(path);
	int ret = 0;

	if (!file)
		return errno ? -errno : -ENOMEM;
	for (uint32_t i = 0; i < trace->count && !ret; i++)
		ret = write_line(file, trace, i);
	if (gzclose_w(file) != Z_OK && !ret)
		ret = errno ? -errno : -EIO;
	return ret;
}
