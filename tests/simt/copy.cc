/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cp.async. The source is read at the issue, by the line that issues; the destination turns to 0xff then
 * (NaN, -1) and gets its bytes in the wait that covers their group. So a wait that is missing or too weak
 * reads NaN, and a buffer that is refilled while still in use is spoiled at once.
 */
#include "machine.h"
#include "simt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 16

static struct simt_copy *next_copy(struct simt_thread *self)
{
	if (self->copy_count == self->copy_room) {
		self->copy_room = self->copy_room ? 2 * self->copy_room : 32;
		self->copies = static_cast<struct simt_copy *>(
			realloc(self->copies, self->copy_room * sizeof(*self->copies)));
		if (!self->copies) {
			perror("simt: asynchronous copies");
			abort();
		}
	}
	return &self->copies[self->copy_count++];
}

void simt_copy16(void *to, const void *from, bool live)
{
	struct simt_thread *self = simt_machine_now->current;
	struct simt_copy *copy;

	if (reinterpret_cast<uintptr_t>(to) % CHUNK)
		simt_misaligned(to, CHUNK, "cp.async to");
	if (reinterpret_cast<uintptr_t>(from) % CHUNK)
		simt_misaligned(from, CHUNK, "cp.async from");
	copy = next_copy(self);
	copy->to = static_cast<unsigned char *>(to);
	copy->group = self->copy_group;
	memset(copy->bytes, 0, CHUNK);
	if (live)
		memcpy(copy->bytes, from, CHUNK);
	memset(to, 0xff, CHUNK);
}

void simt_copy_commit(void)
{
	simt_machine_now->current->copy_group++;
}

void simt_copy_wait(uint32_t pending_groups)
{
	struct simt_thread *self = simt_machine_now->current;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < self->copy_count; i++) {
		const struct simt_copy *copy = &self->copies[i];

		if (copy->group + pending_groups < self->copy_group) {
			memcpy(copy->to, copy->bytes, CHUNK);
			simt_shared_written(copy->to);
		} else {
			self->copies[kept++] = *copy;
		}
	}
	self->copy_count = kept;
}
