/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA driver, loaded at run time: a build without the toolkit still drives cuda pools, and a machine
 * without a GPU still runs the rest.
 *
 * Only libcuda.so.1 is opened (a file of the toolkit would be its stub), and every function comes from
 * cuGetProcAddress with the version whose signature stands in cuda_driver.def: a plain dlsym would give the
 * oldest of several functions of one name. Declarations are our own, held against cuda.h by a test where
 * that file is. Names of the driver's functions stay the driver's, so that its documentation is found.
 *
 * A handle dies with fork(): its page is wiped in the child, which then gets -KVP_EFORKED instead of a
 * context that is not its own; the table's functions are NULL there, so calls go through KVW_CUDA(). The
 * driver is never unloaded (it keeps threads and exit handlers).
 */
#ifndef KVPOOL_IPC_CUDA_DRIVER_H
#define KVPOOL_IPC_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

/* cuGetProcAddress_v2 and library loading came with it. */
#define KVW_CUDA_MIN_VERSION 12000
#define KVW_CUDA_ERROR_BYTES 512

/* The driver's own objects; never looked into. */
struct kvw_cuda_context;
struct kvw_cuda_stream;
struct kvw_cuda_event;
struct kvw_cuda_graph;
struct kvw_cuda_graph_exec;
struct kvw_cuda_module;
struct kvw_cuda_library;
struct kvw_cuda_kernel;
struct kvw_cuda_function;

struct kvw_cuda_uuid {
	uint8_t bytes[16];
};

/* Of an allocation or an event; bytes, fit for a message. */
struct kvw_cuda_ipc_handle {
	uint8_t bytes[64];
};

struct kvw_cuda_location {
	uint32_t type;
	int32_t id;
};

struct kvw_cuda_allocation {
	uint32_t type;
	uint32_t handle_types;
	struct kvw_cuda_location location;
	void *reserved_for_windows;
	uint8_t compression;
	uint8_t rdma_capable;
	uint16_t usage;
	uint8_t reserved[4];
};

struct kvw_cuda_access {
	struct kvw_cuda_location location;
	uint32_t flags;
};

struct kvw_cuda_launch_attribute {
	uint32_t id;
	uint32_t pad;
	union {
		uint8_t bytes[64];
		struct {
			uint32_t x, y, z;
		} cluster;
		int32_t flag;
		uint64_t align;
	} value;
};

struct kvw_cuda_launch {
	uint32_t grid_x, grid_y, grid_z;
	uint32_t block_x, block_y, block_z;
	uint32_t shared_bytes;
	struct kvw_cuda_stream *stream;
	struct kvw_cuda_launch_attribute *attributes;
	uint32_t attribute_count;
};

#ifdef __cplusplus
#define KVW_CUDA_ALIGNED(bytes) alignas(bytes)
#else
#define KVW_CUDA_ALIGNED(bytes) _Alignas(bytes)
#endif

struct kvw_cuda_tensor_map {
	KVW_CUDA_ALIGNED(128) uint64_t opaque[16];
};

/* X(name, cuda.h's name, value) */
#define KVW_CUDA_CONSTANT_MAP(X)                                                                             \
	X(KVW_CUDA_ATTR_MAX_SHARED_BYTES, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 8)                \
	X(KVW_CUDA_ATTR_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                       \
	X(KVW_CUDA_ATTR_COMPUTE_MODE, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 20)                                  \
	X(KVW_CUDA_ATTR_PCI_BUS, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 33)                                         \
	X(KVW_CUDA_ATTR_PCI_DEVICE, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 34)                                   \
	X(KVW_CUDA_ATTR_L2_BYTES, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 38)                                     \
	X(KVW_CUDA_ATTR_UNIFIED_ADDRESSING, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 41)                      \
	X(KVW_CUDA_ATTR_PCI_DOMAIN, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 50)                                   \
	X(KVW_CUDA_ATTR_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                             \
	X(KVW_CUDA_ATTR_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                             \
	X(KVW_CUDA_ATTR_MAX_SHARED_OPTIN_BYTES, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97)   \
	X(KVW_CUDA_ATTR_HOST_REGISTER, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 99)                      \
	X(KVW_CUDA_ATTR_VMM, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102)                   \
	X(KVW_CUDA_ATTR_VMM_FD, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 103)        \
	X(KVW_CUDA_ATTR_VMM_RDMA, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 110)          \
	X(KVW_CUDA_ATTR_READ_ONLY_REGISTER, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 113)      \
	X(KVW_CUDA_ATTR_CLUSTER_LAUNCH, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 120)                             \
	X(KVW_CUDA_ATTR_STREAM_MEM_OPS_64, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 122)           \
	X(KVW_CUDA_ATTR_IPC_EVENT, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 125)                             \
	X(KVW_CUDA_ATTR_MPS, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 133)                                           \
	X(KVW_CUDA_ATTR_HOST_NUMA, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 134)                                    \
	X(KVW_CUDA_COMPUTE_PROHIBITED, CU_COMPUTEMODE_PROHIBITED, 2)                                         \
	X(KVW_CUDA_COMPUTE_EXCLUSIVE, CU_COMPUTEMODE_EXCLUSIVE_PROCESS, 3)                                   \
	X(KVW_CUDA_POINTER_CONTEXT, CU_POINTER_ATTRIBUTE_CONTEXT, 1)                                         \
	X(KVW_CUDA_POINTER_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9)                                  \
	X(KVW_CUDA_HOST_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE, 1)                                            \
	X(KVW_CUDA_HOST_DEVICEMAP, CU_MEMHOSTREGISTER_DEVICEMAP, 2)                                          \
	X(KVW_CUDA_HOST_READ_ONLY, CU_MEMHOSTREGISTER_READ_ONLY, 8)                                          \
	X(KVW_CUDA_IPC_LAZY_PEER, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, 1)                                     \
	X(KVW_CUDA_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED, 1)                                      \
	X(KVW_CUDA_HANDLE_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1)                                   \
	X(KVW_CUDA_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE, 1)                                          \
	X(KVW_CUDA_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM, 0)                                 \
	X(KVW_CUDA_GRANULARITY_RECOMMENDED, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED, 1)                         \
	X(KVW_CUDA_ACCESS_READ, CU_MEM_ACCESS_FLAGS_PROT_READ, 1)                                            \
	X(KVW_CUDA_ACCESS_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3)                                 \
	X(KVW_CUDA_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING, 1)                                           \
	X(KVW_CUDA_EVENT_BLOCKING_SYNC, CU_EVENT_BLOCKING_SYNC, 1)                                           \
	X(KVW_CUDA_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING, 2)                                         \
	X(KVW_CUDA_EVENT_INTERPROCESS, CU_EVENT_INTERPROCESS, 4)                                             \
	X(KVW_CUDA_WAIT_GEQ, CU_STREAM_WAIT_VALUE_GEQ, 0)                                                    \
	X(KVW_CUDA_WAIT_EQ, CU_STREAM_WAIT_VALUE_EQ, 1)                                                      \
	X(KVW_CUDA_WAIT_AND, CU_STREAM_WAIT_VALUE_AND, 2)                                                    \
	X(KVW_CUDA_WAIT_NOR, CU_STREAM_WAIT_VALUE_NOR, 3)                                                    \
	X(KVW_CUDA_WAIT_FLUSH, CU_STREAM_WAIT_VALUE_FLUSH, 1 << 30)                                          \
	X(KVW_CUDA_WRITE_DEFAULT, CU_STREAM_WRITE_VALUE_DEFAULT, 0)                                          \
	X(KVW_CUDA_WRITE_NO_BARRIER, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER, 1)                             \
	X(KVW_CUDA_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE, 0)                                           \
	X(KVW_CUDA_CAPTURE_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE, 1)                                       \
	X(KVW_CUDA_CAPTURE_INVALIDATED, CU_STREAM_CAPTURE_STATUS_INVALIDATED, 2)                             \
	X(KVW_CUDA_CAPTURE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL, 0)                                         \
	X(KVW_CUDA_CAPTURE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1)                             \
	X(KVW_CUDA_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED, 2)                                       \
	X(KVW_CUDA_FUNCTION_MAX_THREADS, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0)                         \
	X(KVW_CUDA_FUNCTION_SHARED_BYTES, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 1)                            \
	X(KVW_CUDA_FUNCTION_REGISTERS, CU_FUNC_ATTRIBUTE_NUM_REGS, 4)                                        \
	X(KVW_CUDA_FUNCTION_MAX_DYNAMIC_SHARED, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8)          \
	X(KVW_CUDA_LAUNCH_CLUSTER, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, 4)                                 \
	X(KVW_CUDA_LAUNCH_PROGRAMMATIC, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, 6)            \
	X(KVW_CUDA_TENSOR_U8, CU_TENSOR_MAP_DATA_TYPE_UINT8, 0)                                              \
	X(KVW_CUDA_TENSOR_BF16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 9)                                         \
	X(KVW_CUDA_TENSOR_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, 0)                                       \
	X(KVW_CUDA_TENSOR_SWIZZLE_128B, CU_TENSOR_MAP_SWIZZLE_128B, 3)                                       \
	X(KVW_CUDA_TENSOR_L2_256B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, 3)

enum kvw_cuda_constant {
#define KVW_CUDA_CONSTANT(name, cuda_name, value) name = value,
	KVW_CUDA_CONSTANT_MAP(KVW_CUDA_CONSTANT)
#undef KVW_CUDA_CONSTANT
};

/*
 * What the driver answers: X(name without CUDA_ERROR_, number, error of ours, what it means where its name
 * doesn't say)
 */
#define KVW_CUDA_RESULT_MAP(X)                                                                               \
	X(INVALID_VALUE, 1, EINVAL, "an argument is out of range, or a pointer is not the driver's")         \
	X(OUT_OF_MEMORY, 2, ENOMEM, "not enough device memory, or too little memory to lock")                \
	X(NOT_INITIALIZED, 3, ENODEV, "no cuInit() in this process; fork() does not inherit it")             \
	X(DEINITIALIZED, 4, ENODEV, "the driver is shutting down")                                           \
	X(STUB_LIBRARY, 34, ENODEV, "the toolkit's stub stands in for the driver")                           \
	X(DEVICE_UNAVAILABLE, 46, EBUSY, "another process has the device exclusively")                       \
	X(NO_DEVICE, 100, ENODEV, "no device is visible")                                                    \
	X(INVALID_DEVICE, 101, ENODEV, "no such device")                                                     \
	X(INVALID_IMAGE, 200, ENOEXEC, "the kernel image is not one")                                        \
	X(INVALID_CONTEXT, 201, EINVAL, "no context is current, or a handle was opened by its owner")        \
	X(MAP_FAILED, 205, EIO, "the memory could not be mapped")                                            \
	X(ALREADY_MAPPED, 208, EEXIST, "the memory is mapped already")                                       \
	X(NO_BINARY_FOR_GPU, 209, ENOEXEC, "the kernels were not built for this device")                     \
	X(ECC_UNCORRECTABLE, 214, ENOTRECOVERABLE, "device memory is damaged")                               \
	X(UNSUPPORTED_PTX_VERSION, 222, ENOEXEC, "the driver is older than the kernels' PTX")                \
	X(OPERATING_SYSTEM, 304, EIO, "a system call of the driver failed")                                  \
	X(INVALID_HANDLE, 400, EINVAL, "a handle is freed, foreign or of a dead process")                    \
	X(NOT_FOUND, 500, ENOENT, "a name was not found")                                                    \
	X(NOT_READY, 600, EAGAIN, "work is still running")                                                   \
	X(ILLEGAL_ADDRESS, 700, ENOTRECOVERABLE, "a kernel touched memory that is not there")                \
	X(LAUNCH_OUT_OF_RESOURCES, 701, EINVAL, "the launch wants more registers or threads than there are") \
	X(LAUNCH_TIMEOUT, 702, ENOTRECOVERABLE, "a kernel ran too long")                                     \
	X(CONTEXT_IS_DESTROYED, 709, ENOTRECOVERABLE, "the context is gone")                                 \
	X(ASSERT, 710, ENOTRECOVERABLE, "a kernel's assertion failed")                                       \
	X(HOST_MEMORY_ALREADY_REGISTERED, 712, EEXIST, "the memory is registered already")                   \
	X(HOST_MEMORY_NOT_REGISTERED, 713, EINVAL, "the memory is not registered")                           \
	X(HARDWARE_STACK_ERROR, 714, ENOTRECOVERABLE, "a kernel's stack is damaged")                         \
	X(ILLEGAL_INSTRUCTION, 715, ENOTRECOVERABLE, "a kernel ran an illegal instruction")                  \
	X(MISALIGNED_ADDRESS, 716, ENOTRECOVERABLE, "a kernel used a misaligned address")                    \
	X(INVALID_ADDRESS_SPACE, 717, ENOTRECOVERABLE, "a kernel mixed address spaces")                      \
	X(INVALID_PC, 718, ENOTRECOVERABLE, "a kernel jumped astray")                                        \
	X(LAUNCH_FAILED, 719, ENOTRECOVERABLE, "a kernel failed")                                            \
	X(NOT_PERMITTED, 800, EPERM, "not allowed here, as in a host function")                              \
	X(NOT_SUPPORTED, 801, EOPNOTSUPP, "this device or driver can't")                                     \
	X(SYSTEM_NOT_READY, 802, ENODEV, "the fabric manager or another service of the driver is not up")    \
	X(SYSTEM_DRIVER_MISMATCH, 803, ENODEV, "kernel module and libcuda.so.1 are of different versions")   \
	X(COMPAT_NOT_SUPPORTED_ON_DEVICE, 804, ENODEV,                                                       \
	  "the compatibility driver does not run on this device")                                            \
	X(MPS_CONNECTION_FAILED, 805, ENODEV, "no connection to the MPS daemon")                             \
	X(MPS_SERVER_NOT_READY, 807, EAGAIN, "the MPS server is not ready")                                  \
	X(MPS_CLIENT_TERMINATED, 810, ENOTRECOVERABLE, "MPS ended this client")                              \
	X(STREAM_CAPTURE_UNSUPPORTED, 900, EBUSY, "not allowed while a stream is captured")                  \
	X(STREAM_CAPTURE_INVALIDATED, 901, EBUSY, "an earlier error ended the capture")                      \
	X(STREAM_CAPTURE_MERGE, 902, EBUSY, "two captures would have met")                                   \
	X(STREAM_CAPTURE_UNMATCHED, 903, EBUSY, "this stream did not begin the capture")                     \
	X(STREAM_CAPTURE_UNJOINED, 904, EBUSY, "a stream that joined the capture did not rejoin")            \
	X(STREAM_CAPTURE_ISOLATION, 905, EBUSY, "the capture would depend on work outside of it")            \
	X(STREAM_CAPTURE_IMPLICIT, 906, EBUSY, "no use of the default stream during a capture")              \
	X(CAPTURED_EVENT, 907, EBUSY, "the event was recorded in a capture")                                 \
	X(STREAM_CAPTURE_WRONG_THREAD, 908, EBUSY, "another thread began the capture")                       \
	X(UNKNOWN, 999, EIO, "the driver gives no reason")

enum kvw_cuda_result {
	KVW_CUDA_SUCCESS = 0,
#define KVW_CUDA_RESULT(name, number, error, meaning) KVW_CUDA_##name = number,
	KVW_CUDA_RESULT_MAP(KVW_CUDA_RESULT)
#undef KVW_CUDA_RESULT
};

struct kvw_cuda {
	uint32_t alive; /* 0 in a forked child */
	int version;    /* of the driver: 12080 for 12.8 */
	int devices;
#define KVW_CUDA_FUNCTION(name, version, arguments) unsigned(*name) arguments;
#include "ipc/cuda_driver.def"
#undef KVW_CUDA_FUNCTION
};

/*
 * The last failed call: its CUresult (0 where no call was made) and one sentence with the call's name and
 * the result's.
 */
struct kvw_cuda_error {
	unsigned result;
	char text[KVW_CUDA_ERROR_BYTES];
};

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Loads and initialises the driver; *out until kvw_cuda_close(). -ENODEV without a driver, with the
 * toolkit's stub, without a device; -ENOSYS when the driver is too old; -KVP_EFORKED when a parent process
 * initialised it before fork(); otherwise as kvw_cuda_check(). May take seconds: the driver starts up.
 * `error` (nullable) then says what to do.
 */
int kvw_cuda_open(struct kvw_cuda **out, struct kvw_cuda_error *error);
/* NULL is fine; in a forked child too. */
void kvw_cuda_close(struct kvw_cuda *cuda);

/* "CUDA_ERROR_OUT_OF_MEMORY", or NULL for a number that is not in the list. A static text. */
const char *kvw_cuda_result_name(unsigned result);
/*
 * 0 for success, else a negative errno and the sentence in `error` (nullable). Errors after which the
 * context answers nothing but errors (a kernel that touched a wrong address, damaged memory) give
 * -ENOTRECOVERABLE: the device is lost for this process.
 */
int kvw_cuda_check(const struct kvw_cuda *cuda, struct kvw_cuda_error *error, unsigned result,
		   const char *call);
/* What every call in a forked child gets: -KVP_EFORKED. */
int kvw_cuda_forked(struct kvw_cuda_error *error, const char *call);

static inline int kvw_cuda_alive(const struct kvw_cuda *cuda)
{
	return __atomic_load_n(&cuda->alive, __ATOMIC_RELAXED) != 0;
}

/*
 * KVW_CUDA(cuda, &error, cuMemAlloc, &pointer, bytes): calls, and turns the answer into ours. Evaluates
 * `cuda` more than once.
 */
#define KVW_CUDA(cuda, error, name, ...)                                                                     \
	(kvw_cuda_alive(cuda) ? kvw_cuda_check((cuda), (error), (cuda)->name(__VA_ARGS__), #name)            \
			      : kvw_cuda_forked((error), #name))

#ifdef __cplusplus
}
#endif

#endif
