/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our declarations of the driver against the toolkit's: compiled, never run, only where cuda.h is. Every function's version and arguments,
 * every constant, every structure.
 *
 * Opaque pointers differ by name, so arguments are compared by shape: the same count, and each of the same kind (pointer, number, structure)
 * and size, pointers by what they point to.
 */
#include <cuda.h>
#include <cudaTypedefs.h>

#include "ipc/cuda_driver.h"

#include <cstddef>
#include <type_traits>

template <class T> struct is_complete {
	template <class U> static auto test(U *) -> std::integral_constant<bool, sizeof(U) != 0>;
	static auto test(...) -> std::false_type;
	static constexpr bool value = decltype(test(static_cast<T *>(nullptr)))::value;
};

template <class T> constexpr bool is_number = std::is_integral<T>::value || std::is_enum<T>::value;

template <class A, class B> constexpr bool same_pointee();

template <class A, class B> constexpr bool same_shape()
{
	if constexpr (std::is_pointer<A>::value && std::is_pointer<B>::value)
		return same_pointee<std::remove_pointer_t<A>, std::remove_pointer_t<B>>();
	else if constexpr (is_number<A> && is_number<B>)
		return sizeof(A) == sizeof(B);
	else if constexpr (std::is_class<A>::value && std::is_class<B>::value)
		return sizeof(A) == sizeof(B) && alignof(A) == alignof(B);
	else
		return std::is_same<A, B>::value;
}

template <class A, class B> constexpr bool same_pointee()
{
	if constexpr (std::is_const<A>::value != std::is_const<B>::value)
		return false;
	else if constexpr (std::is_class<A>::value && std::is_class<B>::value &&
			   !is_complete<A>::value && !is_complete<B>::value)
		return true; /* both opaque */
	else if constexpr (std::is_function<A>::value && std::is_function<B>::value)
		return std::is_same<A, B>::value;
	else
		return same_shape<std::remove_const_t<A>, std::remove_const_t<B>>();
}

template <class A, class B> struct same_call : std::false_type {
};

template <class... A, class... B> struct same_call<unsigned (*)(A...), CUresult (*)(B...)> {
	static constexpr bool compare()
	{
		if constexpr (sizeof...(A) != sizeof...(B))
			return false;
		else
			return (same_shape<A, B>() && ...);
	}
	static constexpr bool value = compare();
};

#define KVW_CUDA_FUNCTION(name, version, arguments)                                                          \
	static_assert(version <= KVW_CUDA_MIN_VERSION, #name " is newer than the oldest driver we take");    \
	static_assert(same_call<decltype(kvw_cuda::name), PFN_##name##_v##version>::value, #name);
#include "ipc/cuda_driver.def"

#define CONSTANT(name, cuda_name, number) static_assert((int)name == (int)cuda_name, #name);
KVW_CUDA_CONSTANT_MAP(CONSTANT)
#define RESULT(name, number, error, meaning)                                                                 \
	static_assert((int)KVW_CUDA_##name == (int)CUDA_ERROR_##name, #name);
KVW_CUDA_RESULT_MAP(RESULT)

#define SAME_FIELD(ours, field, theirs, their_field)                                                         \
	static_assert(offsetof(ours, field) == offsetof(theirs, their_field) &&                              \
			      sizeof(((ours *)0)->field) == sizeof(((theirs *)0)->their_field),              \
		      #ours "." #field);

SAME_FIELD(kvw_cuda_location, type, CUmemLocation, type)
SAME_FIELD(kvw_cuda_location, id, CUmemLocation, id)
SAME_FIELD(kvw_cuda_allocation, type, CUmemAllocationProp, type)
SAME_FIELD(kvw_cuda_allocation, handle_types, CUmemAllocationProp, requestedHandleTypes)
SAME_FIELD(kvw_cuda_allocation, location, CUmemAllocationProp, location)
SAME_FIELD(kvw_cuda_allocation, reserved_for_windows, CUmemAllocationProp, win32HandleMetaData)
SAME_FIELD(kvw_cuda_allocation, compression, CUmemAllocationProp, allocFlags.compressionType)
SAME_FIELD(kvw_cuda_allocation, rdma_capable, CUmemAllocationProp, allocFlags.gpuDirectRDMACapable)
SAME_FIELD(kvw_cuda_allocation, usage, CUmemAllocationProp, allocFlags.usage)
SAME_FIELD(kvw_cuda_allocation, reserved, CUmemAllocationProp, allocFlags.reserved)
SAME_FIELD(kvw_cuda_access, location, CUmemAccessDesc, location)
SAME_FIELD(kvw_cuda_access, flags, CUmemAccessDesc, flags)
SAME_FIELD(kvw_cuda_launch_attribute, id, CUlaunchAttribute, id)
SAME_FIELD(kvw_cuda_launch_attribute, value, CUlaunchAttribute, value)
SAME_FIELD(kvw_cuda_launch_attribute, value.cluster, CUlaunchAttribute, value.clusterDim)
SAME_FIELD(kvw_cuda_launch_attribute, value.flag, CUlaunchAttribute,
	   value.programmaticStreamSerializationAllowed)
SAME_FIELD(kvw_cuda_launch, grid_x, CUlaunchConfig, gridDimX)
SAME_FIELD(kvw_cuda_launch, grid_y, CUlaunchConfig, gridDimY)
SAME_FIELD(kvw_cuda_launch, grid_z, CUlaunchConfig, gridDimZ)
SAME_FIELD(kvw_cuda_launch, block_x, CUlaunchConfig, blockDimX)
SAME_FIELD(kvw_cuda_launch, block_y, CUlaunchConfig, blockDimY)
SAME_FIELD(kvw_cuda_launch, block_z, CUlaunchConfig, blockDimZ)
SAME_FIELD(kvw_cuda_launch, shared_bytes, CUlaunchConfig, sharedMemBytes)
SAME_FIELD(kvw_cuda_launch, stream, CUlaunchConfig, hStream)
SAME_FIELD(kvw_cuda_launch, attributes, CUlaunchConfig, attrs)
SAME_FIELD(kvw_cuda_launch, attribute_count, CUlaunchConfig, numAttrs)

#define SAME_SIZE(ours, theirs)                                                                              \
	static_assert(sizeof(ours) == sizeof(theirs) && alignof(ours) == alignof(theirs), #ours);
SAME_SIZE(kvw_cuda_uuid, CUuuid)
SAME_SIZE(kvw_cuda_ipc_handle, CUipcMemHandle)
SAME_SIZE(kvw_cuda_ipc_handle, CUipcEventHandle)
SAME_SIZE(kvw_cuda_allocation, CUmemAllocationProp)
SAME_SIZE(kvw_cuda_access, CUmemAccessDesc)
SAME_SIZE(kvw_cuda_launch_attribute, CUlaunchAttribute)
SAME_SIZE(kvw_cuda_launch, CUlaunchConfig)
SAME_SIZE(kvw_cuda_tensor_map, CUtensorMap)
