/* SPDX-License-Identifier: Apache-2.0 */
#include "loop_buffers.h"

#include <errno.h>
#include <sys/mman.h>

static uint8_t *buffer_at(const struct kvd_buffers *buffers, uint32_t id)
{
	return buffers->bytes + (size_t)id * buffers->each_bytes;
}

static void provide(struct kvd_buffers *buffers, uint32_t id)
{
	io_uring_buf_ring_add(buffers->ring, buffer_at(buffers, id), buffers->each_bytes, (unsigned short)id,
			      io_uring_buf_ring_mask(KVD_BUFFERS), 0);
	io_uring_buf_ring_advance(buffers->ring, 1);
}

int kvd_buffers_open(struct kvd_buffers *buffers, struct io_uring *ring, uint32_t max_message_bytes)
{
	const size_t ring_bytes = KVD_BUFFERS * sizeof(struct io_uring_buf);
	struct io_uring_buf_reg reg = {.ring_entries = KVD_BUFFERS, .bgid = KVD_BUFFER_GROUP};
	void *map;
	int ret;

	/* One byte more than the largest message tells one that is too large; the rest is alignment. */
	buffers->each_bytes = (max_message_bytes + 1 + 63) & ~63u;
	buffers->mapped_bytes = ring_bytes + (size_t)KVD_BUFFERS * buffers->each_bytes;
	/* Memory only as far as messages fill it. */
	map = mmap(NULL, buffers->mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED)
		return -errno;
	buffers->ring = map;
	buffers->bytes = (uint8_t *)map + ring_bytes;
	reg.ring_addr = (uintptr_t)map;
	ret = io_uring_register_buf_ring(ring, &reg, 0);
	if (ret < 0) {
		munmap(map, buffers->mapped_bytes);
		return ret;
	}
	for (uint32_t id = 0; id < KVD_BUFFERS; id++)
		provide(buffers, id);
	return 0;
}

void kvd_buffers_close(struct kvd_buffers *buffers, struct io_uring *ring)
{
	io_uring_unregister_buf_ring(ring, KVD_BUFFER_GROUP);
	munmap(buffers->ring, buffers->mapped_bytes);
}

const uint8_t *kvd_buffers_filled(const struct kvd_buffers *buffers, uint32_t cqe_flags)
{
	return buffer_at(buffers, cqe_flags >> IORING_CQE_BUFFER_SHIFT);
}

void kvd_buffers_return(struct kvd_buffers *buffers, uint32_t cqe_flags)
{
	if (cqe_flags & IORING_CQE_F_BUFFER)
		provide(buffers, cqe_flags >> IORING_CQE_BUFFER_SHIFT);
}
