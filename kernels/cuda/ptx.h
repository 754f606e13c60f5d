/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every instruction that a kernel needs and C has not. Each wrapper has two bodies and no logic: one for
 * nvcc, one that asks the CPU's model of a GPU, which compiles the same kernels as C++. Kernels name no
 * asm, no __CUDACC__ and no __CUDA_ARCH__. Pointers are generic; the conversion to a shared address costs
 * no register.
 *
 * All warp operations are of the whole warp: 32 lanes, in uniform control flow. Those that threads do
 * together are macros, because the model compares the places in the source that they are called from.
 */
#ifndef KVPOOL_KERNELS_CUDA_PTX_H
#define KVPOOL_KERNELS_CUDA_PTX_H

#include <stddef.h>
#include <stdint.h>

#ifndef __CUDACC__
#include <simt.h>

#include <math.h>
#endif

/* A function on the device; always inlined, so that arrays passed to it stay in registers. */
#ifdef __CUDACC__
#define KVK_DEVICE static __device__ __forceinline__
#define KVK_METHOD __device__ __forceinline__
#define KVK_UNROLL _Pragma("unroll")
#define KVK_NO_UNROLL _Pragma("unroll 1")
#else
#define KVK_DEVICE static inline __attribute__((always_inline))
#define KVK_METHOD inline __attribute__((always_inline))
#define KVK_UNROLL
#define KVK_NO_UNROLL
#endif

/*
 * KVK_KERNEL(name, struct, threads, blocks) { body that reads p }: a kernel for blocks of at most
 * `threads`, of which `blocks` should fit a multiprocessor; its one parameter is a struct by value.
 */
#ifdef __CUDACC__
#define KVK_KERNEL(name, type, threads, blocks)                                                              \
	extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ type p)
#else
#define KVK_KERNEL(name, type, threads, blocks)                                                              \
	extern "C" void name(const type p);                                                                  \
	static void call_##name(void **parameters)                                                           \
	{                                                                                                    \
		name(*static_cast<const type *>(parameters[0]));                                             \
	}                                                                                                    \
	extern "C" {                                                                                         \
	extern const struct simt_kernel simt_kernel_##name;                                                  \
	const struct simt_kernel simt_kernel_##name = {#name, 1, {sizeof(type)}, threads, call_##name};      \
	}                                                                                                    \
	extern "C" void name(const type p)
#endif

/* KVK_SHARED(struct, name): the block's dynamic shared memory, launched with at least the struct's size. */
#ifdef __CUDACC__
#define KVK_SHARED(type, name)                                                                               \
	extern __shared__ __align__(128) unsigned char kvk_shared_memory[];                                  \
	type &name = *reinterpret_cast<type *>(kvk_shared_memory)
#else
#define KVK_SHARED(type, name) type &name = *static_cast<type *>(simt_shared(sizeof(type)))
#endif

/* ------------------------------------------------------------------ who am I */

/* Blocks and grids have one dimension. */
KVK_DEVICE int32_t kvk_thread(void)
{
#ifdef __CUDACC__
	return static_cast<int32_t>(threadIdx.x);
#else
	return static_cast<int32_t>(simt_thread_index());
#endif
}

KVK_DEVICE int32_t kvk_threads_of_block(void)
{
#ifdef __CUDACC__
	return static_cast<int32_t>(blockDim.x);
#else
	return static_cast<int32_t>(simt_machine_now->launch->block.x);
#endif
}

KVK_DEVICE int64_t kvk_block(void)
{
#ifdef __CUDACC__
	return blockIdx.x;
#else
	return simt_machine_now->block.x;
#endif
}

KVK_DEVICE int64_t kvk_blocks(void)
{
#ifdef __CUDACC__
	return gridDim.x;
#else
	return simt_machine_now->launch->grid.x;
#endif
}

KVK_DEVICE int32_t kvk_lane(void)
{
	return kvk_thread() % 32;
}

KVK_DEVICE int32_t kvk_warp(void)
{
	return kvk_thread() / 32;
}

/* ------------------------------------------------------------------ together */

#ifdef __CUDACC__
#define kvk_block_sync() __syncthreads()
#define kvk_warp_sync() __syncwarp()
#define kvk_ballot(predicate) __ballot_sync(0xffffffffu, predicate)
#define kvk_shuffle_u32(value, lane) __shfl_sync(0xffffffffu, static_cast<uint32_t>(value), lane)
#define kvk_shuffle_xor_u32(value, mask) __shfl_xor_sync(0xffffffffu, static_cast<uint32_t>(value), mask)
#define kvk_shuffle_xor_f32(value, mask) __shfl_xor_sync(0xffffffffu, static_cast<float>(value), mask)
#else
#define kvk_block_sync() simt_block_sync(__FILE__, __LINE__)
#define kvk_warp_sync() simt_warp_sync(__FILE__, __LINE__)
#define kvk_ballot(predicate) simt_ballot(predicate, __FILE__, __LINE__)
#define kvk_shuffle_u32(value, lane) simt_shuffle(value, lane, __FILE__, __LINE__)
#define kvk_shuffle_xor_u32(value, mask) simt_shuffle_xor(value, mask, __FILE__, __LINE__)
#define kvk_shuffle_xor_f32(value, mask)                                                                     \
	simt_f32_from_bits(simt_shuffle_xor(simt_f32_bits(value), mask, __FILE__, __LINE__))
#endif

/* ------------------------------------------------------------------ asynchronous copies */

/* 16 bytes from global to shared memory, both aligned; zeros, and no read, where it is not `live`. */
KVK_DEVICE void kvk_copy16_async(void *to, const void *from, bool live)
{
#ifdef __CUDACC__
	const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(to));

	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
		     "r"(live ? 16 : 0)
		     : "memory");
#else
	simt_copy16(to, from, live);
#endif
}

/* Closes this thread's group of copies. */
KVK_DEVICE void kvk_copy_commit(void)
{
#ifdef __CUDACC__
	asm volatile("cp.async.commit_group;" ::: "memory");
#else
	simt_copy_commit();
#endif
}

/* Waits for this thread's groups but for the last `PENDING`; other threads see the bytes after a barrier. */
template <int PENDING> KVK_DEVICE void kvk_copy_wait(void)
{
#ifdef __CUDACC__
	asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#else
	simt_copy_wait(PENDING);
#endif
}

/* ------------------------------------------------------------------ matrices */

/*
 * Four 8 x 8 matrices of halves, one register each: lanes 8 i to 8 i + 7 give the addresses of the rows of
 * matrix i, 16 aligned bytes each. `_transposed` hands out columns instead of rows.
 */
#ifdef __CUDACC__
KVK_DEVICE void kvk_load_4_matrices(uint32_t (&to)[4], const void *row)
{
	const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(row));

	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
		     : "r"(address)
		     : "memory");
}

KVK_DEVICE void kvk_load_4_matrices_transposed(uint32_t (&to)[4], const void *row)
{
	const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(row));

	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
		     : "r"(address)
		     : "memory");
}
#else
#define kvk_load_4_matrices(to, row) simt_load_matrices(to, 4, row, false, __FILE__, __LINE__)
#define kvk_load_4_matrices_transposed(to, row) simt_load_matrices(to, 4, row, true, __FILE__, __LINE__)
#endif

/* c += a b, 16 x 8 in f32, of 16 x 16 and 16 x 8 halves. */
#ifdef __CUDACC__
KVK_DEVICE void kvk_mma_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t *b)
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
		     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

KVK_DEVICE void kvk_mma_f16(float (&c)[4], const uint32_t (&a)[4], const uint32_t *b)
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
		     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#else
#define kvk_mma_bf16(c, a, b) simt_mma_bf16(c, a, b, __FILE__, __LINE__)
#define kvk_mma_f16(c, a, b) simt_mma_f16(c, a, b, __FILE__, __LINE__)
#endif

/* ------------------------------------------------------------------ memory */

struct kvk_16_bytes {
	uint32_t word[4];
};

struct kvk_8_bytes {
	uint32_t word[2];
};

/* Aligned loads of what no thread writes during the kernel. */
KVK_DEVICE kvk_16_bytes kvk_load16(const void *from)
{
#ifdef __CUDACC__
	const uint4 value = __ldg(static_cast<const uint4 *>(from));

	return {{value.x, value.y, value.z, value.w}};
#else
	kvk_16_bytes value;

	if (reinterpret_cast<uintptr_t>(from) % 16)
		simt_misaligned(from, 16, "a load of 16 bytes");
	memcpy(&value, from, sizeof(value));
	return value;
#endif
}

KVK_DEVICE kvk_8_bytes kvk_load8(const void *from)
{
#ifdef __CUDACC__
	const uint2 value = __ldg(static_cast<const uint2 *>(from));

	return {{value.x, value.y}};
#else
	kvk_8_bytes value;

	if (reinterpret_cast<uintptr_t>(from) % 8)
		simt_misaligned(from, 8, "a load of 8 bytes");
	memcpy(&value, from, sizeof(value));
	return value;
#endif
}

KVK_DEVICE void kvk_store16(void *to, kvk_16_bytes value)
{
#ifdef __CUDACC__
	*static_cast<uint4 *>(to) = make_uint4(value.word[0], value.word[1], value.word[2], value.word[3]);
#else
	if (reinterpret_cast<uintptr_t>(to) % 16)
		simt_misaligned(to, 16, "a store of 16 bytes");
	memcpy(to, &value, sizeof(value));
#endif
}

KVK_DEVICE void kvk_store8(void *to, kvk_8_bytes value)
{
#ifdef __CUDACC__
	*static_cast<uint2 *>(to) = make_uint2(value.word[0], value.word[1]);
#else
	if (reinterpret_cast<uintptr_t>(to) % 8)
		simt_misaligned(to, 8, "a store of 8 bytes");
	memcpy(to, &value, sizeof(value));
#endif
}

KVK_DEVICE void kvk_store4(void *to, uint32_t value)
{
#ifdef __CUDACC__
	*static_cast<uint32_t *>(to) = value;
#else
	if (reinterpret_cast<uintptr_t>(to) % 4)
		simt_misaligned(to, 4, "a store of 4 bytes");
	memcpy(to, &value, sizeof(value));
#endif
}

/* ------------------------------------------------------------------ numbers */

KVK_DEVICE float kvk_f32_from_bits(uint32_t bits)
{
#ifdef __CUDACC__
	return __uint_as_float(bits);
#else
	return simt_f32_from_bits(bits);
#endif
}

KVK_DEVICE uint32_t kvk_f32_bits(float value)
{
#ifdef __CUDACC__
	return __float_as_uint(value);
#else
	return simt_f32_bits(value);
#endif
}

KVK_DEVICE float kvk_exp2(float value)
{
#ifdef __CUDACC__
	float result;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
	return result;
#else
	return exp2f(value);
#endif
}

KVK_DEVICE float kvk_log2(float value)
{
	return log2f(value);
}

/* Two values as the halves of a register, `low` first; to nearest even. */
KVK_DEVICE uint32_t kvk_pack_bf16(float low, float high)
{
#ifdef __CUDACC__
	uint32_t result;

	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
	return result;
#else
	return simt_f32_to_bf16(low) | static_cast<uint32_t>(simt_f32_to_bf16(high)) << 16;
#endif
}

KVK_DEVICE uint32_t kvk_pack_f16(float low, float high)
{
#ifdef __CUDACC__
	uint32_t result;

	asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
	return result;
#else
	return simt_f32_to_f16(low) | static_cast<uint32_t>(simt_f32_to_f16(high)) << 16;
#endif
}

KVK_DEVICE float kvk_f16_to_f32(uint16_t code)
{
#ifdef __CUDACC__
	float result;

	asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(code));
	return result;
#else
	return simt_f16_to_f32(code);
#endif
}

#endif
