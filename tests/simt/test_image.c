/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compiled image against the CPU build of the same sources: each architecture has every kernel, with
 * the parameter size and the launch bound of its record; and ptxas's log tells of no spill. Skipped where
 * there is no nvcc.
 *
 * test_image LOG. A fatbin that isn't compressed holds its cubins as they are. A cubin is an ELF file; its
 * section .nv.info.<kernel> is a list of attributes: format (1 byte), number (1 byte), then 2 bytes, which
 * in format 4 are the size of what follows. 0x17: a parameter (index and offset as two halves of the second
 * word, size << 18 in the third); 0x19 (format 3): bytes of all parameters; 0x05: the launch bound, three
 * words.
 */
#include "control.h"
#include "cuda/image.h"
#include "kernel_table.h"
#include "support.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INFO_PREFIX ".nv.info."
#define MOST_GAP 64 /* in front of a parameter that is aligned to as much */
#define ARCHITECTURES 3

static const char *log_path;

struct attributes {
	uint32_t parameters, parameter_bytes, all_bytes, max_threads;
};

static uint32_t word_at(const unsigned char *bytes)
{
	uint32_t word;

	memcpy(&word, bytes, sizeof(word));
	return word;
}

static void take_attribute(struct attributes *a, uint8_t number, const unsigned char *body)
{
	if (number == 0x17) {
		a->parameters++;
		a->parameter_bytes = word_at(body + 8) >> 18;
	} else if (number == 0x05) {
		a->max_threads = word_at(body) * word_at(body + 4) * word_at(body + 8);
	}
}

static struct attributes read_attributes(const unsigned char *info, size_t bytes)
{
	struct attributes a = {0};

	for (size_t at = 0; at + 4 <= bytes;) {
		const uint16_t half = (uint16_t)(info[at + 2] | info[at + 3] << 8);

		if (info[at] == 3 && info[at + 1] == 0x19)
			a.all_bytes = half;
		if (info[at] == 4 && at + 4 + half <= bytes)
			take_attribute(&a, info[at + 1], info + at + 4);
		at += 4 + (info[at] == 4 ? half : 0u);
	}
	return a;
}

/* The kernel's record in the CPU build. */
static const struct simt_kernel *record_of(const char *kernel)
{
	char name[128];

	snprintf(name, sizeof(name), SIMT_KERNEL_PREFIX "%s", kernel);
	return dlsym(RTLD_DEFAULT, name);
}

static void check_kernel(const char *kernel, const unsigned char *info, size_t bytes)
{
	const struct simt_kernel *record = record_of(kernel);
	const struct attributes a = read_attributes(info, bytes);

	if (!record)
		fail_msg("%s is in the image, but not in the CPU build", kernel);
	assert_int_equal(record->parameters, 1);
	if (a.parameters != 1 || a.parameter_bytes != record->parameter_bytes[0] ||
	    a.all_bytes - record->parameter_bytes[0] >= MOST_GAP || a.max_threads != record->max_threads)
		fail_msg("%s: %u parameters of %u bytes, %u in all, %u threads; the CPU build: %u bytes, %u "
			 "threads",
			 kernel, a.parameters, a.parameter_bytes, a.all_bytes, a.max_threads,
			 record->parameter_bytes[0], record->max_threads);
}

/* Kernels of one cubin. */
static int check_cubin(const unsigned char *elf, size_t room)
{
	Elf64_Ehdr header;
	Elf64_Shdr names, section;
	int kernels = 0;

	memcpy(&header, elf, sizeof(header));
	assert_true(header.e_shoff + (size_t)header.e_shnum * sizeof(section) <= room);
	memcpy(&names, elf + header.e_shoff + header.e_shstrndx * sizeof(names), sizeof(names));
	for (size_t i = 0; i < header.e_shnum; i++) {
		const char *name;

		memcpy(&section, elf + header.e_shoff + i * sizeof(section), sizeof(section));
		name = (const char *)elf + names.sh_offset + section.sh_name;
		if (strncmp(name, INFO_PREFIX, sizeof(INFO_PREFIX) - 1))
			continue;
		check_kernel(name + sizeof(INFO_PREFIX) - 1, elf + section.sh_offset, section.sh_size);
		kernels++;
	}
	return kernels;
}

/* The whole file, to be freed. */
static char *read_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	char *bytes;
	long size;

	assert_non_null(file);
	fseek(file, 0, SEEK_END);
	size = ftell(file);
	rewind(file);
	bytes = malloc((size_t)size);
	assert_non_null(bytes);
	assert_int_equal(fread(bytes, 1, (size_t)size, file), size);
	fclose(file);
	return bytes;
}

/* Records defined in one symbol table. */
static int count_in(const char *elf, const Elf64_Shdr *table, const Elf64_Shdr *strings)
{
	Elf64_Sym symbol;
	int count = 0;

	for (size_t i = 0; i < table->sh_size / sizeof(symbol); i++) {
		memcpy(&symbol, elf + table->sh_offset + i * sizeof(symbol), sizeof(symbol));
		count += symbol.st_shndx != SHN_UNDEF &&
			 !strncmp(elf + strings->sh_offset + symbol.st_name, SIMT_KERNEL_PREFIX,
				  sizeof(SIMT_KERNEL_PREFIX) - 1);
	}
	return count;
}

/* Records that the CPU build has: dynamic symbols of the library's file. */
static int count_records(void)
{
	Elf64_Shdr section, strings;
	Elf64_Ehdr header;
	Dl_info library;
	int count = 0;
	char *elf;

	assert_int_not_equal(dladdr(record_of("kvk_cuda_combine"), &library), 0);
	elf = read_file(library.dli_fname);
	memcpy(&header, elf, sizeof(header));
	for (size_t i = 0; i < header.e_shnum; i++) {
		memcpy(&section, elf + header.e_shoff + i * sizeof(section), sizeof(section));
		if (section.sh_type != SHT_DYNSYM)
			continue;
		memcpy(&strings, elf + header.e_shoff + section.sh_link * sizeof(strings), sizeof(strings));
		count += count_in(elf, &section, &strings);
	}
	free(elf);
	return count;
}

static void every_architecture_has_every_kernel_as_the_cpu_build_has_it(void **state)
{
	size_t bytes;
	const unsigned char *image = kvk_cuda_image(&bytes);
	const int records = count_records();
	int cubins = 0;

	(void)state;
	assert_true(records > 0);
	for (size_t at = 0; at + sizeof(Elf64_Ehdr) < bytes; at += 8) {
		if (memcmp(image + at, ELFMAG, SELFMAG))
			continue;
		assert_int_equal(check_cubin(image + at, bytes - at), records);
		cubins++;
	}
	assert_int_equal(cubins, ARCHITECTURES);
}

/* Prints a line for each kernel and architecture, for the documents. */
static void no_kernel_spills(void **state)
{
	FILE *log = fopen(log_path, "r");
	char line[1024], kernel[128] = "", arch[32] = "";
	int told = 0;

	(void)state;
	assert_non_null(log);
	while (fgets(line, sizeof(line), log)) {
		const char *at;
		unsigned frame, stores, loads, registers;

		if ((at = strstr(line, "Compiling entry function '")))
			sscanf(at, "Compiling entry function '%127[^']' for '%31[^']'", kernel, arch);
		if ((at = strstr(line, " bytes stack frame")) &&
		    sscanf(line, " %u bytes stack frame, %u bytes spill stores, %u bytes spill loads", &frame,
			   &stores, &loads) == 3 &&
		    stores + loads)
			fail_msg("%s for %s spills %u and %u bytes", kernel, arch, stores, loads);
		if ((at = strstr(line, "Used ")) && sscanf(at, "Used %u registers", &registers) == 1) {
			print_message("%-34s %-8s %3u registers\n", kernel, arch, registers);
			told++;
		}
	}
	fclose(log);
	assert_int_equal(told, ARCHITECTURES * count_records());
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_architecture_has_every_kernel_as_the_cpu_build_has_it),
		cmocka_unit_test(no_kernel_spills),
	};
	size_t bytes;

	if (argc != 2 || !kvk_cuda_image(&bytes)) {
		fprintf(stderr, "built without nvcc\n");
		return KVT_SKIP;
	}
	simt_set_seed(0); /* a linker drops a library that nothing calls; its records are looked up by name */
	log_path = argv[1];
	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
