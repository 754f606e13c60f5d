/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A replayed engine's stream, where its pool lies on a CUDA device: rows are made on the host and copied in the stream's order, as a kernel
 * would write them; what is to be compared is copied back.
 */
#ifndef KVPOOL_TOOLS_REPLAY_DEVICE_H
#define KVPOOL_TOOLS_REPLAY_DEVICE_H

#include <stddef.h>
#include <stdint.h>

struct kvw_cuda_stream;
struct rep_device;

/* For pages of at most page_bytes, on the device that has the address `data`. 0 or a negative errno, with a sentence on standard error. */
int rep_device_open(const void *data, size_t page_bytes, struct rep_device **out);
/* Waits for the stream. NULL is fine. */
void rep_device_close(struct rep_device *device);
void *rep_device_stream(const struct rep_device *device);

/* Until all that is queued has run. */
void rep_device_wait(struct rep_device *device);

/* Room for `bytes` on the host that a copy may be queued from; waits when all room is on its way. */
uint8_t *rep_device_room(struct rep_device *device, size_t bytes);
/* Queues the copy of room to device memory. What fails is kept for rep_device_status(). */
void rep_device_put(struct rep_device *device, void *to, const uint8_t *room, size_t bytes);
/* The bytes at `from`, behind all that is queued; valid until the next call. */
const uint8_t *rep_device_get(struct rep_device *device, const void *from, size_t bytes);
/* 0, or the first error of a copy since it was opened. */
int rep_device_status(const struct rep_device *device);

#endif
