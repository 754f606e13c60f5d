/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any use of the memory that a client shares with a running daemon: records, tables, ring words, timelines.
 * Steps of 8 bytes:
 *
 *   op 0   a record: verb, row, hold (of those given so far), first, count, timeline, step
 *   op 1   a record as the next 64 bytes have it
 *   op 2   bytes into the tables: u16 place in 8 bytes, u8 count, value from the last bytes
 *   op 3   one 32-bit word of the channel: u16 place in 4 bytes, value
 *   op 4   a timeline: which, value
 *   op 5   takes a completion; remembers its hold, and accepts the answers of a row
 *   op 6   a message of the next bytes
 *   op 7   nothing but turns
 */
#include <string.h>

#include "fuzz.h"
#include "fuzz_server.h"

#define STEP_BYTES 8u
#define HOLDS 8u

struct driver {
	struct fuzz_client client;
	uint64_t holds[HOLDS];
	uint32_t hold_count;
	const uint8_t *bytes;
	size_t left;
};

static uint16_t u16(const uint8_t *at)
{
	return (uint16_t)(at[0] | at[1] << 8);
}

/* The next `length` bytes of the input, zeros behind its end. */
static void take(struct driver *driver, void *out, size_t length)
{
	size_t got = length < driver->left ? length : driver->left;

	memset(out, 0, length);
	memcpy(out, driver->bytes, got);
	driver->bytes += got;
	driver->left -= got;
}

static void post(struct driver *driver, const void *record)
{
	kvw_ring_post(&driver->client.requests, record);
}

static void post_small(struct driver *driver, const uint8_t *step)
{
	struct kvw_request request = {
		.type = step[1] % 9,
		.row = step[2] % (FUZZ_ROWS + 1),
		.hold = driver->holds[step[3] % HOLDS],
		.first = step[4] % 12,
		.count = step[5] % 12,
		.timeline = step[6] % 9,
		.step = step[7],
		.want = step[6] % 12,
		.most = step[7] % 12,
		.flags = step[3] & 0x80 ? KVW_REQUEST_COMING : 0,
	};

	request.answers = request.row * FUZZ_ROW_BLOCKS;
	if (request.type != KVW_REQUEST_OPEN) {
		request.flags = 0;
		request.answers += request.first;
	}
	post(driver, &request);
}

static void write_tables(struct driver *driver, const uint8_t *step)
{
	uint64_t offset = (uint64_t)u16(step + 1) * 8 % (driver->client.bytes[FUZZ_TABLES] - 256);

	memset((uint8_t *)driver->client.memory[FUZZ_TABLES] + offset, step[4], step[3]);
}

static void write_channel(struct driver *driver, const uint8_t *step)
{
	uint32_t *words = driver->client.memory[FUZZ_CHANNEL];
	uint32_t value;

	memcpy(&value, step + 3, sizeof(value));
	words[u16(step + 1) % (driver->client.bytes[FUZZ_CHANNEL] / sizeof(*words))] = value;
}

static void accept_row(struct driver *driver, uint32_t row)
{
	uint8_t *tables = driver->client.memory[FUZZ_TABLES];
	const struct kvw_tables_layout *layout = &driver->client.layout;
	const struct kvw_answer *answers = driver->client.memory[FUZZ_ANSWERS];
	uint32_t i;

	for (i = row * FUZZ_ROW_BLOCKS; i < (row + 1) * FUZZ_ROW_BLOCKS; i++) {
		const struct kvw_answer *answer = &answers[i];

		((int32_t *)(tables + layout->ids))[i] = answer->id;
		((uint64_t *)(tables + layout->generations))[i] = answer->generation;
		((struct kvw_block_ref *)(tables + layout->returns))[i] =
			(struct kvw_block_ref){.id = answer->id, .generation = answer->generation};
	}
}

static void take_completion(struct driver *driver, const uint8_t *step)
{
	struct kvw_completion completion;

	if (kvw_ring_take(&driver->client.completions, &completion) == 1 && completion.hold)
		driver->holds[driver->hold_count++ % HOLDS] = completion.hold;
	accept_row(driver, step[1] % FUZZ_ROWS);
}

static void send_next(struct driver *driver, const uint8_t *step)
{
	uint8_t message[256];

	take(driver, message, step[1]);
	fuzz_send(&driver->client, message, step[1]);
}

static void run_step(struct driver *driver)
{
	struct kvw_timelines *timelines = driver->client.memory[FUZZ_TIMELINES];
	struct kvw_request record;
	uint8_t step[STEP_BYTES];

	take(driver, step, sizeof(step));
	switch (step[0] % 8) {
	case 0:
		post_small(driver, step);
		break;
	case 1:
		take(driver, &record, sizeof(record));
		post(driver, &record);
		break;
	case 2:
		write_tables(driver, step);
		break;
	case 3:
		write_channel(driver, step);
		break;
	case 4:
		memcpy(&timelines->line[step[1] % KVW_TIMELINES].step, step + 2, 6);
		break;
	case 5:
		take_completion(driver, step);
		break;
	case 6:
		send_next(driver, step);
		break;
	default:
		break;
	}
	/* Most steps one at a time, some in one go. */
	if (!(step[0] & 0x80))
		fuzz_turns(&driver->client);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct driver driver = {.bytes = bytes, .left = length};

	fuzz_connect(&driver.client);
	fuzz_hello(&driver.client);
	fuzz_attach(&driver.client);
	while (driver.left && !driver.client.ended)
		run_step(&driver);
	fuzz_close(&driver.client);
	return 0;
}
