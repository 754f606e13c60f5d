/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the devices' conformance suite on `host`, with the pages that the argument names. */
#include "device_conform.h"

#include "holder.h"
#include "support.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static void *map(int session_fd, uint64_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, session_fd, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

static void unmap(void *memory, uint64_t bytes)
{
	munmap(memory, bytes);
}

static const struct {
	const char *name;
	enum kvd_pages pages;
	const char *backing;
} kinds[] = {
	{"auto", KVD_PAGES_AUTO, NULL},
	{"4k", KVD_PAGES_4K, "4k"},
	{"thp", KVD_PAGES_THP, "thp"},
	{"hugetlb", KVD_PAGES_HUGETLB, "hugetlb"},
};

int main(int argc, char **argv)
{
	struct device_case device = {.ops = &kvd_device_host, .map = map, .unmap = unmap};

	kvt_watchdog(120);
	holder_init();
	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (argc != 2 || strcmp(argv[1], kinds[i].name) != 0)
			continue;
		device.pages = kinds[i].pages;
		device.backing = kinds[i].backing;
		return device_conform(&device);
	}
	fprintf(stderr, "usage: %s auto|4k|thp|hugetlb\n", argv[0]);
	return 2;
}
