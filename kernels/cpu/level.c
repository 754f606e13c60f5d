/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See level.h. What the machine has is asked through the compiler's run-time library, which knows about the
 * operating system's part too (XCR0 on x86). Levels above AVX2 must prove themselves: machines that run them are
 * rarer than machines that build them, and a wrong emulation would be silent.
 */
#include "level.h"

#include "self_test.h"

#include <kvpool/kernels.h>

#ifdef KVK_BUILT_AVX2
#include <cpuid.h>
#endif
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VARIABLE "KVPOOL_KERNELS"

/* Best first. */
static const enum kvk_level preference[] = {KVK_LEVEL_AVX512_BF16, KVK_LEVEL_AVX512, KVK_LEVEL_AVX2,
					    KVK_LEVEL_NEON, KVK_LEVEL_SCALAR};

static pthread_once_t chosen_once = PTHREAD_ONCE_INIT;
static enum kvk_level chosen;
static int chosen_result;
static char chosen_error[320];

const char *kvk_level_text(enum kvk_level level)
{
	static const char *const names[KVK_LEVELS] = {[KVK_LEVEL_SCALAR] = "scalar",
						      [KVK_LEVEL_AVX2] = "avx2",
						      [KVK_LEVEL_AVX512] = "avx512",
						      [KVK_LEVEL_AVX512_BF16] = "avx512_bf16",
						      [KVK_LEVEL_NEON] = "neon"};

	return (unsigned)level < KVK_LEVELS ? names[level] : NULL;
}

#ifdef KVK_BUILT_AVX2
/* Not a name that every compiler's run-time library knows. It needs nothing of the system that AVX2 doesn't. */
static bool has_f16c(void)
{
	unsigned int eax, ebx, ecx, edx;

	return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}
#endif

bool kvk_level_usable(enum kvk_level level)
{
	switch (level) {
	case KVK_LEVEL_SCALAR:
		return true;
#ifdef KVK_BUILT_AVX2
	case KVK_LEVEL_AVX2:
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
#endif
#ifdef KVK_BUILT_AVX512
	case KVK_LEVEL_AVX512:
		return kvk_level_usable(KVK_LEVEL_AVX2) && __builtin_cpu_supports("avx512f") &&
		       __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
		       __builtin_cpu_supports("avx512vl");
#endif
#ifdef KVK_BUILT_AVX512_BF16
	case KVK_LEVEL_AVX512_BF16:
		return kvk_level_usable(KVK_LEVEL_AVX512) && __builtin_cpu_supports("avx512bf16");
#endif
#ifdef KVK_BUILT_NEON
	case KVK_LEVEL_NEON: /* part of the architecture */
		return true;
#endif
	default:
		return false;
	}
}

static bool must_prove_itself(enum kvk_level level)
{
	return level == KVK_LEVEL_AVX512 || level == KVK_LEVEL_AVX512_BF16;
}

int kvk_level_decide(const char *forced, bool (*self_test)(enum kvk_level level), enum kvk_level *level)
{
	for (size_t i = 0; i < sizeof(preference) / sizeof(*preference); i++) {
		const enum kvk_level one = preference[i];

		if (forced && strcmp(forced, kvk_level_text(one)) != 0)
			continue;
		if (kvk_level_usable(one) && (!must_prove_itself(one) || self_test(one))) {
			*level = one;
			return 0;
		}
	}
	return -ENOTSUP;
}

static const char *fault_of(const char *name)
{
	for (int level = 0; level < KVK_LEVELS; level++)
		if (!strcmp(name, kvk_level_text(level)))
			return kvk_level_usable(level) ? "which fails its self-test on this machine"
						       : "which this machine, or this build of kvpool, lacks";
	return "which is no level of kernels";
}

void kvk_level_explain(const char *forced, bool (*self_test)(enum kvk_level level), char *out,
		       size_t capacity)
{
	char had[80] = "";
	enum kvk_level level;

	for (size_t i = 0; i < sizeof(preference) / sizeof(*preference); i++) {
		const char *name = kvk_level_text(preference[i]);
		const size_t used = strlen(had);

		if (!kvk_level_decide(name, self_test, &level))
			snprintf(had + used, sizeof(had) - used, "%s%s", used ? ", " : "", name);
	}
	snprintf(out, capacity,
		 "$" VARIABLE " is '%.40s', %s; set it to one of %s, or unset it for the best of them",
		 forced, fault_of(forced), had);
}

static void choose(void)
{
#if defined(__x86_64__)
	__builtin_cpu_init();
#endif
	chosen_result = kvk_level_decide(getenv(VARIABLE), kvk_self_test, &chosen);
	if (chosen_result)
		kvk_level_explain(getenv(VARIABLE), kvk_self_test, chosen_error, sizeof(chosen_error));
}

int kvk_level_choose(enum kvk_level *level)
{
	pthread_once(&chosen_once, choose);
	if (!chosen_result)
		*level = chosen;
	return chosen_result;
}

const char *kvk_level_name(void)
{
	enum kvk_level level;

	return kvk_level_choose(&level) ? "none" : kvk_level_text(level);
}

const char *kvk_level_error(void)
{
	enum kvk_level level;

	return kvk_level_choose(&level) ? chosen_error : NULL;
}
