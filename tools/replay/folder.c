/* SPDX-License-Identifier: Apache-2.0 */
/* Makes, locks and removes private folders. */
#include "folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "kvpoolctl-"
#define RANDOM "XXXXXX"
/* Another one may take a new folder for a left one before it is locked. */
#define MOST_TRIES 16

static const char *find_base(void)
{
	const char *base = getenv("XDG_RUNTIME_DIR");

	if (!base || !*base)
		base = getenv("TMPDIR");
	if (!base || !*base || strlen(base) > 40)
		base = "/tmp";
	return base;
}

static void empty_folder(int fd)
{
	int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = again < 0 ? NULL : fdopendir(again);
	const struct dirent *entry;

	if (!dir) {
		if (again >= 0)
			close(again);
		return;
	}
	while ((entry = readdir(dir)))
		unlinkat(fd, entry->d_name, 0); /* "." and ".." stay */
	closedir(dir);
}

static bool has_our_form(const char *name)
{
	return !strncmp(name, PREFIX, strlen(PREFIX)) && strlen(name) == strlen(PREFIX RANDOM);
}

/* Its owner has ended: nobody else locks it. */
static void remove_if_left(int base, const char *name)
{
	int fd = openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat status;

	if (fd < 0)
		return;
	if (!fstat(fd, &status) && status.st_uid == geteuid() && !flock(fd, LOCK_EX | LOCK_NB)) {
		empty_folder(fd);
		unlinkat(base, name, AT_REMOVEDIR);
	}
	close(fd);
}

static void remove_left(const char *base)
{
	DIR *dir = opendir(base);
	const struct dirent *entry;

	if (!dir)
		return;
	while ((entry = readdir(dir))) {
		if (has_our_form(entry->d_name))
			remove_if_left(dirfd(dir), entry->d_name);
	}
	closedir(dir);
}

/* -EAGAIN: somebody took it for a left one. */
static int lock_folder(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat status;

	if (fd < 0)
		return errno == ENOENT ? -EAGAIN : -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) || fstat(fd, &status) || !status.st_nlink || access(path, F_OK)) {
		close(fd);
		return -EAGAIN;
	}
	return fd;
}

int rep_folder_make(struct rep_folder *out)
{
	const char *base = find_base();
	int fd = -EAGAIN;
	int tries;

	remove_left(base);
	for (tries = 0; fd == -EAGAIN && tries < MOST_TRIES; tries++) {
		snprintf(out->path, sizeof(out->path), "%.40s/" PREFIX RANDOM, base);
		if (!mkdtemp(out->path))
			return -errno;
		fd = lock_folder(out->path);
	}
	out->fd = fd;
	return fd < 0 ? fd : 0;
}

void rep_folder_remove(struct rep_folder *folder)
{
	empty_folder(folder->fd);
	rmdir(folder->path);
	close(folder->fd);
	folder->fd = -1;
}
