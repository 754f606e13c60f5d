/* SPDX-License-Identifier: Apache-2.0 */
/* The file of who maps device memory. */
#include "importers.h"

#include "log.h"
#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES (KVW_MAX_SESSIONS * sizeof(struct kvd_importer))
/* Of /proc/N/stat, counted from the state behind the name in parentheses. */
#define START_TIME_FIELD 19
/* Processes that an attach looks at: each costs about 10 us of the loop. */
#define MAX_LOOKS 8u

/* Ticks since boot; 0: there is no such process, or it has ended and was not reaped. */
static uint64_t start_time(pid_t pid)
{
	char text[1024];
	const char *at;
	char path[32];
	ssize_t got;
	int fields;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	got = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (got <= 0)
		return 0;
	text[got] = '\0';
	/* The name may have any character. */
	at = strrchr(text, ')');
	if (!at || at[1] != ' ' || at[2] == 'Z' || at[2] == 'X')
		return 0;
	at += 2;
	for (fields = 0; *at && fields < START_TIME_FIELD; at++)
		fields += *at == ' ';
	return strtoull(at, NULL, 10);
}

static bool lives(const struct kvd_importer *importer)
{
	return importer->start_time && importer->pid > 0 && start_time(importer->pid) == importer->start_time;
}

/* Nobody else's file, and nothing but a file. */
static int open_file(const char *path, int *out_fd)
{
	struct stat status;
	int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	int ret = fd < 0 ? -errno : 0;

	if (!ret && (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid()))
		ret = -EPERM;
	if (!ret && ftruncate(fd, FILE_BYTES) < 0)
		ret = -errno;
	if (!ret)
		*out_fd = fd;
	else if (fd >= 0)
		close(fd);
	return ret;
}

static int map_file(struct kvd_importers *importers)
{
	void *memory;
	int fd = -1;
	int ret = open_file(importers->path, &fd);

	if (ret < 0)
		return ret;
	/* A full file system is met here and not as SIGBUS in the loop. */
	ret = -posix_fallocate(fd, 0, FILE_BYTES);
	memory = ret ? MAP_FAILED
		     : mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (!ret && memory == MAP_FAILED)
		ret = -errno;
	close(fd);
	if (!ret)
		importers->records = memory;
	return ret;
}

/* The dead ones' records are free. */
static int take_old(struct kvd_importers *importers)
{
	importers->old = calloc(KVW_MAX_SESSIONS, sizeof(*importers->old));
	if (!importers->old)
		return -ENOMEM;
	for (uint32_t i = 0; i < KVW_MAX_SESSIONS; i++) {
		struct kvd_importer *record = &importers->records[i];

		record->pool[sizeof(record->pool) - 1] = '\0';
		if (lives(record))
			importers->old[importers->old_count++] = *record;
		else
			record->start_time = 0;
	}
	return 0;
}

int kvd_importers_open(const char *socket_path, struct kvd_importers *out)
{
	struct kvd_importers importers = {0};
	int ret;

	snprintf(importers.path, sizeof(importers.path), "%s.mapped", socket_path);
	ret = map_file(&importers);
	if (!ret)
		ret = take_old(&importers);
	if (ret) {
		kvd_log_error("'%s' can't be had: %s; a later daemon will not know who maps device memory: "
			      "remove the file, or "
			      "give its directory room",
			      importers.path, strerror(-ret));
		if (importers.records)
			munmap(importers.records, FILE_BYTES);
		importers.records = NULL;
		*out = importers;
		return ret;
	}
	*out = importers;
	return 0;
}

void kvd_importers_close(struct kvd_importers *importers)
{
	bool left = false;

	if (!importers->records)
		return;
	for (uint32_t i = 0; i < KVW_MAX_SESSIONS && !left; i++)
		left = lives(&importers->records[i]);
	munmap(importers->records, FILE_BYTES);
	free(importers->old);
	if (!left)
		unlink(importers->path);
	memset(importers, 0, sizeof(*importers));
}

/*
 * A place that nobody needs, or -1. While places are free that costs no system call; after that a few looks at processes of earlier daemons, so
 * that the loop isn't held up, which go on behind them the next time.
 */
static int32_t find_place(struct kvd_importers *importers)
{
	uint32_t looks = 0;
	uint32_t i;

	for (i = 0; i < KVW_MAX_SESSIONS; i++) {
		if (!importers->records[i].start_time)
			return (int32_t)i;
	}
	for (i = 0; i < KVW_MAX_SESSIONS && looks < MAX_LOOKS; i++) {
		uint32_t at = importers->next_old++ % KVW_MAX_SESSIONS;

		if (importers->ours[at])
			continue;
		looks++;
		if (!lives(&importers->records[at]))
			return (int32_t)at;
	}
	return -1;
}

static int32_t go_unrecorded(struct kvd_importers *importers, pid_t pid, const char *pool)
{
	if (!importers->unrecorded++)
		kvd_log_warning("pool '%s': process %d maps it and gets no record in '%s': %s; a daemon that "
				"starts after this one will not name it while it waits for room: end engines "
				"that are not needed",
				pool, (int)pid, importers->path,
				!importers->records ? "there is no such file"
				: pid <= 0          ? "its number is not known here"
						    : "all records are in use");
	return KVD_IMPORTER_UNRECORDED;
}

int32_t kvd_importers_add(struct kvd_importers *importers, pid_t pid, uint64_t bytes, const char *pool)
{
	uint64_t started = pid > 0 ? start_time(pid) : 0;
	struct kvd_importer *record;
	int32_t place;

	if (pid > 0 && !started)
		return KVD_IMPORTER_NONE;
	place = started && importers->records ? find_place(importers) : -1;
	if (place < 0)
		return go_unrecorded(importers, pid, pool);
	record = &importers->records[place];
	/* Unused while it is written, should this process end in between. */
	(void)__atomic_exchange_n(&record->start_time, 0, __ATOMIC_ACQ_REL);
	record->pid = pid;
	record->bytes = bytes;
	snprintf(record->pool, sizeof(record->pool), "%s", pool);
	__atomic_store_n(&record->start_time, started, __ATOMIC_RELEASE);
	importers->ours[place] = true;
	return place;
}

void kvd_importers_remove(struct kvd_importers *importers, int32_t record)
{
	if (record == KVD_IMPORTER_UNRECORDED)
		importers->unrecorded--;
	if (record < 0 || importers->ending)
		return;
	importers->records[record].start_time = 0;
	importers->ours[record] = false;
}

uint32_t kvd_importers_left(const struct kvd_importers *importers, uint64_t *out_bytes, char *text,
			    size_t capacity)
{
	uint64_t total = 0;
	uint32_t count = 0;
	size_t used = 0;

	text[0] = '\0';
	for (uint32_t i = 0; i < importers->old_count; i++) {
		const struct kvd_importer *importer = &importers->old[i];
		char bytes[32];

		if (!lives(importer))
			continue;
		kvd_format_bytes(importer->bytes, bytes, sizeof(bytes));
		if (used < capacity)
			used += (size_t)snprintf(text + used, capacity - used,
						 "%sprocess %d (%s of pool '%s')", count ? ", " : "",
						 importer->pid, bytes, importer->pool);
		total += importer->bytes;
		count++;
	}
	*out_bytes = total;
	return count;
}
