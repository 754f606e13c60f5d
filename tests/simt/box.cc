/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The copy engine: boxes of a tensor's map (cp.async.bulk.tensor, after the PTX manual), and the phases that tell of
 * them (mbarrier).
 *
 * At the issue the destination turns to 0xff (NaN, -1). The box lands when no thread can run, or earlier, as random numbers
 * say, in any order: source and map are read and shared memory is written then, and its bytes count for the phase. So a
 * wait that is missing, or of the wrong parity, reads NaN; a place that is refilled while still in use is spoiled at
 * once; too many expected bytes leave threads stuck. What the tensor has not lands as zeros.
 *
 * The engine sees what threads wrote to shared memory behind a fence.proxy.async: an issue while a thread of the block has
 * none is an error. That is more than the hardware asks for, which cares about the box's place and phase alone.
 *
 * A phase's word, as only this file knows it: bits 0 to 7 arrivals that it was made for, 8 to 15 those still to come, 16 the
 * parity of the phase that runs, 24 to 31 a mark, 32 to 63 bytes still to come, signed.
 */
#include "machine.h"
#include "simt.h"

#include <string.h>

#define MARK 0xb7u
#define SWIZZLE_128 3 /* the driver's number */
#define ROW_BYTES 128 /* of a box */
#define PIECE 16

struct phase {
	uint8_t count, pending, parity, mark;
	int32_t bytes;
};

static_assert(sizeof(struct phase) == sizeof(uint64_t), "a word");

static struct phase phase_at(const uint64_t *word)
{
	struct phase phase;

	if (reinterpret_cast<uintptr_t>(word) % sizeof(*word))
		simt_misaligned(word, sizeof(*word), "a phase");
	if (!simt_is_shared(word, sizeof(*word))) {
		simt_fail("a phase outside of shared memory");
		simt_leave();
	}
	memcpy(&phase, word, sizeof(phase));
	return phase;
}

static struct phase live_phase(const uint64_t *word)
{
	const struct phase phase = phase_at(word);

	if (phase.mark != MARK || phase.parity > 1) {
		simt_fail("a phase that was not initialised");
		simt_leave();
	}
	return phase;
}

/* Stores it; where nothing is to come any more the next phase begins, and those who waited go on. */
static void keep(uint64_t *word, struct phase phase)
{
	struct simt_machine *m = simt_machine_now;
	const bool over = !phase.pending && !phase.bytes;

	if (over) {
		phase.parity ^= 1;
		phase.pending = phase.count;
	}
	memcpy(word, &phase, sizeof(phase));
	for (uint32_t i = 0; i < m->thread_count && over; i++)
		if (m->threads[i].waits_on == word) {
			m->threads[i].waits_on = nullptr;
			simt_make_ready(&m->threads[i]);
		}
}

void simt_phase_init(uint64_t *word, uint32_t arrivals)
{
	struct phase phase = phase_at(word);

	phase = {static_cast<uint8_t>(arrivals), static_cast<uint8_t>(arrivals), 0, MARK, 0};
	memcpy(word, &phase, sizeof(phase));
	simt_shared_written(word);
}

void simt_phase_expect(uint64_t *word, uint32_t bytes)
{
	struct phase phase = live_phase(word);

	if (!phase.pending) {
		simt_fail("one arrival more than the phase was made for");
		simt_leave();
	}
	phase.pending--;
	phase.bytes += static_cast<int32_t>(bytes);
	keep(word, phase);
}

void simt_phase_wait(uint64_t *word, uint32_t parity, const char *file, int line)
{
	while (live_phase(word).parity == parity) {
		simt_machine_now->current->waits_on = word;
		simt_wait("a phase", {file, line});
	}
}

static uint32_t box_bytes(const struct simt_tensor_map *map)
{
	return map->box[1] * ROW_BYTES;
}

static const char *refusal(const struct simt_tensor_map *map, const void *from, const void *to)
{
	const struct simt_machine *m = simt_machine_now;

	if (reinterpret_cast<uintptr_t>(from) % 64 || map->magic != SIMT_TENSOR_MAP_MAGIC)
		return "a box of what is no tensor map";
	if (map->rank != 3 || map->swizzle != SWIZZLE_128 || map->box[0] * 2 != ROW_BYTES || map->box[2] != 1)
		return "a box of another kind than is modelled";
	if (!simt_is_shared(to, box_bytes(map)) ||
	    (static_cast<const unsigned char *>(to) - m->shared) % 1024)
		return "a box to where the swizzle does not begin, or not in shared memory";
	if (m->unfenced)
		return "a box asked for while a thread that wrote to shared memory has no fence.proxy.async";
	return m->box_count == SIMT_BOXES ? "more boxes on their way than are modelled" : nullptr;
}

void simt_box_load(void *to, const void *from, int32_t column, int32_t token, int32_t page, uint64_t *word)
{
	struct simt_machine *m = simt_machine_now;
	struct simt_box *box = &m->boxes[m->box_count];
	struct simt_tensor_map map;
	const char *refused;

	(void)live_phase(word);
	memcpy(&map, from, sizeof(map));
	refused = refusal(&map, from, to);
	if (refused) {
		simt_fail("%s", refused);
		simt_leave();
	}
	*box = {static_cast<unsigned char *>(to), word, map, column, token, page};
	memset(to, 0xff, box_bytes(&map));
	m->box_count++;
}

/* Seed 0: as late as can be. */
bool simt_box_is_due(struct simt_machine *m)
{
	return m->seed && simt_random(m) % 256 == 0;
}

static bool is_outside(int64_t at, uint64_t size)
{
	return at < 0 || static_cast<uint64_t>(at) >= size;
}

/* Eight halves; those that the tensor has not are zeros. */
static void fetch_piece(const struct simt_box *box, uint32_t row, uint32_t piece, unsigned char *to)
{
	const struct simt_tensor_map *map = &box->map;
	const int64_t token = box->token + row;

	memset(to, 0, PIECE);
	if (is_outside(token, map->dim[1]) || is_outside(box->page, map->dim[2]))
		return;
	for (uint32_t i = 0; i < PIECE / 2; i++) {
		const int64_t column = box->column + piece * (PIECE / 2) + i;

		if (!is_outside(column, map->dim[0]))
			memcpy(to + 2 * i,
			       reinterpret_cast<const unsigned char *>(map->address) + column * 2 +
				       static_cast<uint64_t>(token) * map->stride[0] +
				       static_cast<uint64_t>(box->page) * map->stride[1],
			       2);
	}
}

void simt_box_land(struct simt_machine *m)
{
	const uint32_t pick = m->seed ? static_cast<uint32_t>(simt_random(m) % m->box_count) : 0;
	const struct simt_box box = m->boxes[pick];
	struct phase phase;

	m->current = nullptr;
	m->boxes[pick] = m->boxes[--m->box_count];
	for (uint32_t row = 0; row < box.map.box[1]; row++)
		for (uint32_t piece = 0; piece < ROW_BYTES / PIECE; piece++)
			fetch_piece(&box, row, piece, box.to + row * ROW_BYTES + (piece ^ row % 8) * PIECE);
	memcpy(&phase, box.phase, sizeof(phase));
	phase.bytes -= static_cast<int32_t>(box_bytes(&box.map));
	keep(box.phase, phase);
}
