/* SPDX-License-Identifier: Apache-2.0 */
/* Readers of /proc and /sys. What can't be read is "not known", never an error: a container hides much of it. */
#include "machine.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CGROUP_ROOT "/sys/fs/cgroup"
#define HUGE_DIR "/sys/kernel/mm/hugepages/hugepages-2048kB/"
#define THP_DIR "/sys/kernel/mm/transparent_hugepage/"

/* The whole of a small file as text. */
static bool read_text(const char *root, const char *path, char *out, size_t capacity)
{
	char full[1024];
	FILE *file;
	size_t got;

	if (snprintf(full, sizeof(full), "%s%s", root, path) >= (int)sizeof(full))
		return false;
	file = fopen(full, "re");
	if (!file)
		return false;
	got = fread(out, 1, capacity - 1, file);
	out[got] = '\0';
	fclose(file);
	return got > 0;
}

/* The number after `label` at the beginning of a line. */
static uint64_t labelled(const char *text, const char *label, uint64_t otherwise)
{
	size_t length = strlen(label);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, label, length) && line[length] == ' ')
			return strtoull(line + length, NULL, 10);
	}
	return otherwise;
}

int64_t kvd_machine_number(const char *root, const char *path, int64_t otherwise)
{
	char text[64];

	if (!read_text(root, path, text, sizeof(text)) || !isdigit((unsigned char)text[0]))
		return otherwise;
	return strtoll(text, NULL, 10);
}

static uint64_t mem_available(const char *root)
{
	char text[8192];
	uint64_t kib;

	if (!read_text(root, "/proc/meminfo", text, sizeof(text)))
		return UINT64_MAX;
	kib = labelled(text, "MemAvailable:", UINT64_MAX);
	return kib == UINT64_MAX ? kib : kib * 1024;
}

/* What one cgroup leaves. Its page cache (not shared memory: that lies on the anonymous lists) can be reclaimed. */
static uint64_t cgroup_room(const char *root, const char *dir)
{
	char path[512];
	char text[8192];
	int64_t max;
	int64_t used;

	snprintf(path, sizeof(path), CGROUP_ROOT "%s/memory.max", dir);
	max = kvd_machine_number(root, path, -1);
	if (max < 0)
		return UINT64_MAX;
	snprintf(path, sizeof(path), CGROUP_ROOT "%s/memory.current", dir);
	used = kvd_machine_number(root, path, 0);
	snprintf(path, sizeof(path), CGROUP_ROOT "%s/memory.stat", dir);
	if (read_text(root, path, text, sizeof(text)))
		used -= (int64_t)(labelled(text, "inactive_file", 0) + labelled(text, "active_file", 0));
	if (used < 0)
		used = 0;
	return used < max ? (uint64_t)(max - used) : 0;
}

/* Our own cgroup in the unified hierarchy: the line "0::/path". */
static bool own_cgroup(const char *root, char *out, size_t capacity)
{
	char text[4096];
	char *line;

	if (!read_text(root, "/proc/self/cgroup", text, sizeof(text)))
		return false;
	line = strstr(text, "0::/");
	if (!line || (line != text && line[-1] != '\n'))
		return false;
	line += strlen("0::");
	line[strcspn(line, "\n")] = '\0';
	return snprintf(out, capacity, "%s", line) < (int)capacity;
}

/* Up to the root of what we see: a limit of any ancestor binds. */
static void look_at_cgroups(const char *root, struct kvd_machine_memory *memory)
{
	char dir[256];
	char *slash;

	if (!own_cgroup(root, dir, sizeof(dir)))
		return;
	for (;;) {
		uint64_t room;

		slash = strrchr(dir, '/');
		if (slash && !slash[1])
			*slash = '\0';
		room = cgroup_room(root, dir);
		if (room < memory->cgroup) {
			memory->cgroup = room;
			snprintf(memory->cgroup_path, sizeof(memory->cgroup_path), "%s", dir[0] ? dir : "/");
		}
		slash = strrchr(dir, '/');
		if (!slash)
			return;
		*slash = '\0';
	}
}

void kvd_machine_memory(const char *root, struct kvd_machine_memory *out)
{
	struct kvd_machine_memory memory = {.available = mem_available(root), .cgroup = UINT64_MAX};

	look_at_cgroups(root, &memory);
	*out = memory;
}

void kvd_machine_huge(const char *root, struct kvd_machine_huge *out)
{
	int64_t total = kvd_machine_number(root, HUGE_DIR "nr_hugepages", -1);
	int64_t unused = kvd_machine_number(root, HUGE_DIR "free_hugepages", 0);
	int64_t promised = kvd_machine_number(root, HUGE_DIR "resv_hugepages", 0);

	*out = (struct kvd_machine_huge){.supported = total >= 0, .total = total < 0 ? 0 : (uint64_t)total};
	if (unused > promised)
		out->unpromised = (uint64_t)(unused - promised);
}

/* "always within_size [advise] never": the word in brackets. */
static bool chosen_word(const char *root, const char *path, char *out, uint32_t capacity)
{
	char text[256];
	char *start;
	char *end;

	if (!read_text(root, path, text, sizeof(text)))
		return false;
	start = strchr(text, '[');
	end = start ? strchr(start, ']') : NULL;
	if (!end)
		return false;
	*end = '\0';
	snprintf(out, capacity, "%s", start + 1);
	return true;
}

/* Since Linux 6.14 each size has a word of its own, "inherit" by default. */
void kvd_machine_shmem_thp(const char *root, char *out, uint32_t capacity)
{
	char own[32];

	out[0] = '\0';
	if (!chosen_word(root, THP_DIR "shmem_enabled", out, capacity) || !strcmp(out, "deny"))
		return;
	if (chosen_word(root, THP_DIR "hugepages-2048kB/shmem_enabled", own, sizeof(own)) &&
	    strcmp(own, "inherit") != 0)
		snprintf(out, capacity, "%s", own);
}

bool kvd_machine_thp_granted(const char *word)
{
	return !strcmp(word, "always") || !strcmp(word, "within_size") || !strcmp(word, "advise") ||
	       !strcmp(word, "force");
}

void kvd_format_bytes(uint64_t bytes, char *out, uint32_t capacity)
{
	static const char units[][4] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
	double value = (double)bytes / 1024;
	unsigned unit = 0;

	if (bytes < 1024) {
		snprintf(out, capacity, "%u bytes", (unsigned)bytes);
		return;
	}
	while (value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
		value /= 1024;
		unit++;
	}
	snprintf(out, capacity, "%.1f %s", value, units[unit]);
}
