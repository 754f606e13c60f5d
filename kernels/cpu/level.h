/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instruction set levels. A file <x>_loops.c is compiled once for each level that the compiler knows (see
 * kvk_add_loops() in ../CMakeLists.txt), each time into one table of functions named by KVK_OPS():
 *
 *	const struct kvk_x_ops KVK_OPS(kvk_x) = {...};		in x_loops.c
 *	KVK_LEVEL_TABLES(kvk_x_ops, kvk_x);			in x.c: what KVK_LEVEL_TABLE() looks at
 *	const struct kvk_x_ops *ops = KVK_LEVEL_TABLE(kvk_x, level);
 *
 * The level is chosen once a process and handed down, so that tests can run every one that the machine has.
 * In a loops file KVK_LEVEL is the level as a number (those of enum kvk_level), KVK_LEVEL_NAME as a token.
 */
#ifndef KVPOOL_KERNELS_LEVEL_H
#define KVPOOL_KERNELS_LEVEL_H

#include <stdbool.h>
#include <stddef.h>

enum kvk_level {
	KVK_LEVEL_SCALAR = 0,      /* what the compiler makes of plain C for the plain architecture */
	KVK_LEVEL_AVX2 = 1,        /* with FMA and F16C */
	KVK_LEVEL_AVX512 = 2,      /* F, BW, DQ, VL */
	KVK_LEVEL_AVX512_BF16 = 3, /* and BF16 */
	KVK_LEVEL_NEON = 4,
	KVK_LEVELS
};

/* "avx2" and so on; NULL past the last. */
const char *kvk_level_text(enum kvk_level level);

/* Whether this build has the level and this machine, its operating system included, can run it. */
bool kvk_level_usable(enum kvk_level level);

/*
 * The level that the entry points use: kvk_level_name() in kernels.h says how it comes about. 0, or -ENOTSUP when
 * $KVPOOL_KERNELS asks for one that can't be had.
 */
int kvk_level_choose(enum kvk_level *level);

/*
 * The decision behind it, for a value of the variable (NULL: not set); `self_test` is asked about the levels that have
 * to prove themselves.
 */
int kvk_level_decide(const char *forced, bool (*self_test)(enum kvk_level level), enum kvk_level *level);

/* Why that is no level that can be had, and which can: the sentence of kvk_level_error(). */
void kvk_level_explain(const char *forced, bool (*self_test)(enum kvk_level level), char *out,
		       size_t capacity);

#define KVK_OPS_JOIN(name, level) name##_##level
#define KVK_OPS_NAME(name, level) KVK_OPS_JOIN(name, level)
#define KVK_OPS(name) KVK_OPS_NAME(name, KVK_LEVEL_NAME)

/* KVK_BUILT_* come from the build: the levels whose flags the compiler knows. */
#ifdef KVK_BUILT_AVX2
#define KVK_IF_AVX2(...) __VA_ARGS__
#else
#define KVK_IF_AVX2(...)
#endif
#ifdef KVK_BUILT_AVX512
#define KVK_IF_AVX512(...) __VA_ARGS__
#else
#define KVK_IF_AVX512(...)
#endif
#ifdef KVK_BUILT_AVX512_BF16
#define KVK_IF_AVX512_BF16(...) __VA_ARGS__
#else
#define KVK_IF_AVX512_BF16(...)
#endif
#ifdef KVK_BUILT_NEON
#define KVK_IF_NEON(...) __VA_ARGS__
#else
#define KVK_IF_NEON(...)
#endif

/* Declares the tables `name`_<level> of struct `type`, and the list that KVK_LEVEL_TABLE() takes one from. */
#define KVK_LEVEL_TABLES(type, name)                                                                         \
	extern const struct type name##_scalar;                                                              \
	KVK_IF_AVX2(extern const struct type name##_avx2;)                                                   \
	KVK_IF_AVX512(extern const struct type name##_avx512;)                                               \
	KVK_IF_AVX512_BF16(extern const struct type name##_avx512_bf16;)                                     \
	KVK_IF_NEON(extern const struct type name##_neon;)                                                   \
	static const struct type *const name##_levels[KVK_LEVELS] = {                                        \
		[KVK_LEVEL_SCALAR] = &name##_scalar,                                                         \
		KVK_IF_AVX2([KVK_LEVEL_AVX2] = &name##_avx2, )                                               \
			KVK_IF_AVX512([KVK_LEVEL_AVX512] = &name##_avx512, )                                 \
				KVK_IF_AVX512_BF16([KVK_LEVEL_AVX512_BF16] = &name##_avx512_bf16, )          \
					KVK_IF_NEON([KVK_LEVEL_NEON] = &name##_neon, )}

#define KVK_LEVEL_TABLE(name, level) (name##_levels[level])

#endif
