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
		type p; /* aligned as the type wants it, whatever the caller's bytes are */                  \
                                                                                                             \
		memcpy(&p, parameters[0], sizeof(p));                                                        \
		name(p);                                                                                     \
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
	extern __shared__ __align__(1024) unsigned char kvk_shared_memory[];                                 \
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

/* ------------------------------------------------------------------ warpgroups */

/*
 * Four warps multiply together (wgmma): c (+)= a b, 64 x N in f32, of 64 x 16 and 16 x N halves in shared memory;
 * c without `add`. Thread t of the group holds of c what warp t / 32 would of mma's, for rows 16 (t / 32) on, N / 8 of
 * them side by side. What `a` and `b` say is in groups.h. It goes on behind the program: c and the operands are
 * the matrix unit's until kvk_group_wait(). For N = 32 b lies by columns (keys) as a does by rows; for 256 it lies by
 * rows.
 *
 * Only sm_90a has it. Elsewhere these wrappers end the kernel, and the launchers never ask for one that has them.
 */
#ifdef __CUDACC__
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define KVK_WARPGROUPS
#endif
#define KVK_4_REGISTERS(c) "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3])

template <int N> KVK_DEVICE void kvk_no_warpgroups(float (&)[N][4], uint64_t, uint64_t, bool)
{
	asm volatile("trap;");
}

/* `type`: of the halves, as the instruction names it. */
#ifdef KVK_WARPGROUPS
#define KVK_GROUP_MMA_32(type, c, a, b, add)                                                                 \
	asm volatile("{ .reg .pred add; setp.ne.b32 add, %18, 0; "                                           \
		     "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type " {"                        \
		     "%0, %1, %2, %3, %4, %5, %6, %7, "                                                      \
		     "%8, %9, %10, %11, %12, %13, %14, %15"                                                  \
		     "}, %16, %17, add, 1, 1, 0, 0; }"                                                       \
		     : KVK_4_REGISTERS((c)[0]), KVK_4_REGISTERS((c)[1]), KVK_4_REGISTERS((c)[2]),            \
		       KVK_4_REGISTERS((c)[3])                                                               \
		     : "l"(a), "l"(b), "r"((add) ? 1 : 0))
#define KVK_GROUP_MMA_256(type, c, a, b, add)                                                                \
	asm volatile("{ .reg .pred add; setp.ne.b32 add, %130, 0; "                                          \
		     "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type " {"                       \
		     "%0, %1, %2, %3, %4, %5, %6, %7, "                                                      \
		     "%8, %9, %10, %11, %12, %13, %14, %15, "                                                \
		     "%16, %17, %18, %19, %20, %21, %22, %23, "                                              \
		     "%24, %25, %26, %27, %28, %29, %30, %31, "                                              \
		     "%32, %33, %34, %35, %36, %37, %38, %39, "                                              \
		     "%40, %41, %42, %43, %44, %45, %46, %47, "                                              \
		     "%48, %49, %50, %51, %52, %53, %54, %55, "                                              \
		     "%56, %57, %58, %59, %60, %61, %62, %63, "                                              \
		     "%64, %65, %66, %67, %68, %69, %70, %71, "                                              \
		     "%72, %73, %74, %75, %76, %77, %78, %79, "                                              \
		     "%80, %81, %82, %83, %84, %85, %86, %87, "                                              \
		     "%88, %89, %90, %91, %92, %93, %94, %95, "                                              \
		     "%96, %97, %98, %99, %100, %101, %102, %103, "                                          \
		     "%104, %105, %106, %107, %108, %109, %110, %111, "                                      \
		     "%112, %113, %114, %115, %116, %117, %118, %119, "                                      \
		     "%120, %121, %122, %123, %124, %125, %126, %127"                                        \
		     "}, %128, %129, add, 1, 1, 0, 1; }"                                                     \
		     : KVK_4_REGISTERS((c)[0]), KVK_4_REGISTERS((c)[1]), KVK_4_REGISTERS((c)[2]),            \
		       KVK_4_REGISTERS((c)[3]), KVK_4_REGISTERS((c)[4]), KVK_4_REGISTERS((c)[5]),            \
		       KVK_4_REGISTERS((c)[6]), KVK_4_REGISTERS((c)[7]), KVK_4_REGISTERS((c)[8]),            \
		       KVK_4_REGISTERS((c)[9]), KVK_4_REGISTERS((c)[10]), KVK_4_REGISTERS((c)[11]),          \
		       KVK_4_REGISTERS((c)[12]), KVK_4_REGISTERS((c)[13]), KVK_4_REGISTERS((c)[14]),         \
		       KVK_4_REGISTERS((c)[15]), KVK_4_REGISTERS((c)[16]), KVK_4_REGISTERS((c)[17]),         \
		       KVK_4_REGISTERS((c)[18]), KVK_4_REGISTERS((c)[19]), KVK_4_REGISTERS((c)[20]),         \
		       KVK_4_REGISTERS((c)[21]), KVK_4_REGISTERS((c)[22]), KVK_4_REGISTERS((c)[23]),         \
		       KVK_4_REGISTERS((c)[24]), KVK_4_REGISTERS((c)[25]), KVK_4_REGISTERS((c)[26]),         \
		       KVK_4_REGISTERS((c)[27]), KVK_4_REGISTERS((c)[28]), KVK_4_REGISTERS((c)[29]),         \
		       KVK_4_REGISTERS((c)[30]), KVK_4_REGISTERS((c)[31])                                    \
		     : "l"(a), "l"(b), "r"((add) ? 1 : 0))
#else
#define KVK_GROUP_MMA_32(type, c, a, b, add) kvk_no_warpgroups(c, a, b, add)
#define KVK_GROUP_MMA_256(type, c, a, b, add) kvk_no_warpgroups(c, a, b, add)
#endif

KVK_DEVICE void kvk_group_mma_32_bf16(float (&c)[4][4], uint64_t a, uint64_t b, bool add)
{
	KVK_GROUP_MMA_32("bf16", c, a, b, add);
}

KVK_DEVICE void kvk_group_mma_32_f16(float (&c)[4][4], uint64_t a, uint64_t b, bool add)
{
	KVK_GROUP_MMA_32("f16", c, a, b, add);
}

KVK_DEVICE void kvk_group_mma_256_bf16(float (&c)[32][4], uint64_t a, uint64_t b, bool add)
{
	KVK_GROUP_MMA_256("bf16", c, a, b, add);
}

KVK_DEVICE void kvk_group_mma_256_f16(float (&c)[32][4], uint64_t a, uint64_t b, bool add)
{
	KVK_GROUP_MMA_256("f16", c, a, b, add);
}

#else
#define kvk_group_mma_32_bf16(c, a, b, add) simt_group_mma_bf16(c, 32, a, b, false, add, __FILE__, __LINE__)
#define kvk_group_mma_32_f16(c, a, b, add) simt_group_mma_f16(c, 32, a, b, false, add, __FILE__, __LINE__)
#define kvk_group_mma_256_bf16(c, a, b, add) simt_group_mma_bf16(c, 256, a, b, true, add, __FILE__, __LINE__)
#define kvk_group_mma_256_f16(c, a, b, add) simt_group_mma_f16(c, 256, a, b, true, add, __FILE__, __LINE__)
#endif

/* Before the first product that takes registers which the program wrote. */
#ifdef __CUDACC__
KVK_DEVICE void kvk_group_begin(void)
{
#ifdef KVK_WARPGROUPS
	asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

/* Closes the group of products since the last one, and waits for all. */
KVK_DEVICE void kvk_group_wait(void)
{
#ifdef KVK_WARPGROUPS
	asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
	asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
}
#else
#define kvk_group_begin() simt_group_begin(__FILE__, __LINE__)
#define kvk_group_wait() simt_group_wait(__FILE__, __LINE__)
#endif

/* What this thread has written to shared memory is there for the matrix unit, once a barrier is behind it too. */
KVK_DEVICE void kvk_shared_fence(void)
{
#ifdef __CUDACC__
#ifdef KVK_WARPGROUPS
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
#else
	simt_shared_fence();
#endif
}

/* A shared address as the matrix unit and the copy engine take it: bytes from where shared memory begins. */
KVK_DEVICE uint32_t kvk_shared_offset(const void *at)
{
#ifdef __CUDACC__
	return static_cast<uint32_t>(__cvta_generic_to_shared(at));
#else
	return simt_shared_offset(at);
#endif
}

/* ------------------------------------------------------------------ boxes */

/*
 * The copy engine (TMA) fetches boxes of a tensor, asked for by one thread. Who waits does so on a word of shared memory
 * (mbarrier) that goes through phases: one is over when as many arrivals as it was made for and all expected bytes
 * have come. Phases have the parities 0, 1, 0 and so on. As with warpgroups only sm_90a has it here.
 */
/* One thread; the copy engine sees it behind kvk_shared_fence(), others behind a barrier. */
KVK_DEVICE void kvk_phase_init(uint64_t *phase, uint32_t arrivals)
{
#ifdef __CUDACC__
#ifdef KVK_WARPGROUPS
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(kvk_shared_offset(phase)), "r"(arrivals)
		     : "memory");
#endif
#else
	simt_phase_init(phase, arrivals);
#endif
}

/* Arrives, and says how many bytes more have to come. */
KVK_DEVICE void kvk_phase_expect(uint64_t *phase, uint32_t bytes)
{
#ifdef __CUDACC__
#ifdef KVK_WARPGROUPS
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(kvk_shared_offset(phase)),
		     "r"(bytes)
		     : "memory");
#endif
#else
	simt_phase_expect(phase, bytes);
#endif
}

/* Until the phase of `parity` is over; what came with it is visible then. */
#ifdef __CUDACC__
KVK_DEVICE void kvk_phase_wait(uint64_t *phase, uint32_t parity)
{
#ifdef KVK_WARPGROUPS
	uint32_t over = 0;

	while (!over)
		asm volatile("{ .reg .pred over; "
			     "mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2; "
			     "selp.u32 %0, 1, 0, over; }"
			     : "=r"(over)
			     : "r"(kvk_shared_offset(phase)), "r"(parity)
			     : "memory");
#endif
}
#else
#define kvk_phase_wait(phase, parity) simt_phase_wait(phase, parity, __FILE__, __LINE__)
#endif

/*
 * The box of `map` (KVK_CUDA_BOX tokens by as many columns, see args.h) that begins at (page, token, column), to `to`,
 * aligned to 1024, as groups.h lays a column out; its bytes count for `phase`. What the tensor has not is zero.
 */
KVK_DEVICE void kvk_box_load(void *to, const void *map, int32_t column, int32_t token, int32_t page,
			     uint64_t *phase)
{
#ifdef __CUDACC__
#ifdef KVK_WARPGROUPS
	asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
		     "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(kvk_shared_offset(to)),
		     "l"(map), "r"(column), "r"(token), "r"(page), "r"(kvk_shared_offset(phase))
		     : "memory");
#endif
#else
	simt_box_load(to, map, column, token, page, phase);
#endif
}

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
	simt_shared_written(to);
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
