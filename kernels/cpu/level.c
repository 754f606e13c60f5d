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
#include <stdlib.h>
#include <string.h>

#define VARIABLE "KVPOOL_KERNELS"

/* Best first. */
static const enum kvk_level preference[] = {KVK_LEVEL_AVX512_BF16, KVK_LEVEL_AVX512, KVK_LEVEL_AVX2,
					    KVK_LEVEL_NEON, KVK_LEVEL_SCALAR};

static pthread_once_t chosen_once = PTHREAD_ONCE_INIT;
static enum kvk_level chosen;
static int chosen_result;

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

static void choose(void)
{
#if defined(__x86_64__)
	__builtin_cpu_init();
#endif
	chosen_result = kvk_level_decide(getenv(VARIABLE), kvk_self_test, &chosen);
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
