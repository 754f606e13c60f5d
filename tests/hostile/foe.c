/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions of the hostile process: begun in order, ended somehow.
 */
#include "foe.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <kvpool/error.h>

#include "ipc/frame.h"

/* What a session that has misbehaved gets to answer the last question. */
#define LAST_WORD_MS 300u

void kvt_foe_breach(struct kvt_foe *foe, const char *format, ...)
{
	va_list args;

	if (foe->row->breaches++)
		return;
	va_start(args, format);
	vsnprintf(foe->row->breach, sizeof(foe->row->breach), format, args);
	va_end(args);
}

/* -------------------------------------------------------------- the socket */

int kvt_foe_send(struct kvt_foe *foe, const void *bytes, size_t length)
{
	if (send(foe->raw.fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
		if (errno != EAGAIN && errno != EMSGSIZE && errno != ENOBUFS)
			foe->ended = true;
		return -errno;
	}
	foe->row->bytes += length;
	return 0;
}

int kvt_foe_send_message(struct kvt_foe *foe, uint32_t type, const void *message)
{
	uint8_t bytes[KVW_MAX_MESSAGE_BYTES];
	int length = kvw_encode(type, ++foe->raw.sequence, message, bytes, sizeof(bytes));

	return length < 0 ? length : kvt_foe_send(foe, bytes, (size_t)length);
}

/* Keeps the descriptors that came with FDS_OK; closes others. */
static void keep_fds(struct kvt_foe *foe, uint32_t type, const int *fds, uint32_t count)
{
	uint32_t first = type == KVW_MSG_FDS_OK ? (uint32_t)foe->raw.answer.FDS_OK.first : KVT_SEGMENTS;
	uint32_t i;

	for (i = 0; i < count; i++) {
		if (first + i < KVT_SEGMENTS && foe->raw.fds[first + i] < 0)
			foe->raw.fds[first + i] = fds[i];
		else
			close(fds[i]);
	}
}

static void note_error(struct kvt_foe *foe)
{
	struct kvw_msg_ERROR *error = &foe->raw.answer.ERROR;

	foe->error = -(int)error->error;
	kvw_text_copy(error->text, foe->raw.error, sizeof(foe->raw.error));
}

static uint32_t read_one(struct kvt_foe *foe, uint64_t deadline_ns)
{
	struct kvt_raw *raw = &foe->raw;
	struct kvw_envelope envelope;
	uint32_t count = KVT_SEGMENTS;
	int fds[KVT_SEGMENTS];
	int got = kvw_receive(raw->fd, deadline_ns, raw->received, sizeof(raw->received), fds, &count);

	if (got <= 0) {
		foe->ended |= got != -EAGAIN && got != -ETIMEDOUT;
		return 0;
	}
	if (kvw_decode(raw->received, (size_t)got, &envelope, &raw->answer)) {
		kvt_foe_breach(foe, "an answer of %d bytes can't be read", got);
		envelope.type = 0;
	}
	keep_fds(foe, envelope.type, fds, count);
	foe->answers++;
	foe->answered = envelope.sequence;
	foe->error = 0;
	if (envelope.type == KVW_MSG_ERROR)
		note_error(foe);
	return envelope.type;
}

uint32_t kvt_foe_read(struct kvt_foe *foe, uint32_t wait_ms)
{
	uint32_t last = 0;
	uint32_t type = foe->ended ? 0 : read_one(foe, wait_ms ? kvw_deadline_ns(wait_ms) : 0);

	while (type) {
		last = type;
		type = read_one(foe, 0);
	}
	return last;
}

int kvt_foe_ask(struct kvt_foe *foe, uint32_t type, const void *message)
{
	uint32_t answer;

	if (kvt_foe_send_message(foe, type, message))
		return -KVP_EDAEMON;
	answer = read_one(foe, kvw_deadline_ns(foe->answer_ms));
	if (answer == KVW_MSG_ERROR)
		return foe->error;
	return answer == type + 1 ? 0 : -KVP_EDAEMON;
}

/* -------------------------------------------------------------- beginning */

int kvt_foe_connect(struct kvt_foe *foe)
{
	struct kvt_raw *raw = &foe->raw;
	int i;

	memset(raw, 0, sizeof(*raw));
	for (i = 0; i < KVT_SEGMENTS; i++)
		raw->fds[i] = -1;
	foe->ended = false;
	foe->error = 0;
	raw->fd = kvw_connect(foe->daemon.socket);
	return raw->fd < 0 ? raw->fd : 0;
}

int kvt_foe_hello(struct kvt_foe *foe)
{
	struct kvw_msg_HELLO hello = kvt_hello_message();
	int ret;

	hello.name = kvw_text_of("hostile");
	ret = kvt_foe_ask(foe, KVW_MSG_HELLO, &hello);
	if (!ret)
		foe->raw.session = foe->raw.answer.HELLO_OK.session;
	return ret;
}

struct kvw_msg_ATTACH kvt_foe_attach_message(void)
{
	struct kvw_msg_ATTACH attach = kvt_attach_message();

	attach.pool = kvw_text_of(KVT_FOE_POOL);
	return attach;
}

int kvt_foe_attach(struct kvt_foe *foe, const struct kvw_msg_ATTACH *attach)
{
	int ret = kvt_foe_ask(foe, KVW_MSG_ATTACH, attach);

	if (!ret)
		kvt_raw_take_attach(&foe->raw, attach);
	return ret;
}

static bool is_read_only(int segment)
{
	return segment == KVT_DIRECTORY || segment == KVT_ANSWERS;
}

int kvt_foe_map(struct kvt_foe *foe)
{
	const struct kvw_msg_FDS request = {.first = 0};
	const struct kvw_msg_MAPPED mapped = {.unused = 0};
	struct kvt_raw *raw = &foe->raw;
	struct kvw_channel_header *channel;
	int i;
	int ret = kvt_foe_ask(foe, KVW_MSG_FDS, &request);

	if (ret)
		return ret;
	for (i = 0; i < KVT_SEGMENTS; i++) {
		if (i == KVT_DOORBELL)
			continue;
		raw->memory[i] =
			mmap(NULL, raw->bytes[i], is_read_only(i) ? PROT_READ : PROT_READ | PROT_WRITE,
			     MAP_SHARED, raw->fds[i], 0);
		if (raw->memory[i] == MAP_FAILED) {
			raw->memory[i] = NULL;
			return -errno;
		}
	}
	channel = kvt_channel(raw);
	kvw_ring_init(&raw->requests, &channel->requests, (uint8_t *)channel + KVW_CHANNEL_REQUESTS);
	kvw_ring_init(&raw->completions, &channel->completions, (uint8_t *)channel + KVW_CHANNEL_COMPLETIONS);
	return foe->silent ? 0 : kvt_foe_ask(foe, KVW_MSG_MAPPED, &mapped);
}

bool kvt_foe_open(struct kvt_foe *foe, const struct kvw_msg_ATTACH *attach)
{
	const struct kvw_msg_ATTACH usual = kvt_foe_attach_message();
	const char *step = "connect";
	int ret = kvt_foe_connect(foe);

	if (!ret) {
		step = "HELLO";
		ret = kvt_foe_hello(foe);
	}
	if (!ret) {
		step = "ATTACH";
		ret = kvt_foe_attach(foe, attach ? attach : &usual);
	}
	if (!ret) {
		step = "map";
		ret = kvt_foe_map(foe);
	}
	if (!ret) {
		foe->row->sessions++;
		return true;
	}
	foe->row->refused++;
	snprintf(foe->row->refusal, sizeof(foe->row->refusal), "%s: %d %.120s", step, ret,
		 foe->error ? foe->raw.error : "");
	kvt_foe_drop(foe);
	return false;
}

/* -------------------------------------------------------------- ending */

void kvt_foe_drop(struct kvt_foe *foe)
{
	struct kvt_raw *raw = &foe->raw;
	int i;

	for (i = 0; i < KVT_SEGMENTS; i++) {
		if (raw->memory[i])
			munmap(raw->memory[i], raw->bytes[i]);
		if (raw->fds[i] >= 0)
			close(raw->fds[i]);
		raw->memory[i] = NULL;
		raw->fds[i] = -1;
	}
	if (raw->fd >= 0)
		close(raw->fd);
	raw->fd = -1;
}

/*
 * Whatever was asked and not read comes before the end. An ERROR that ends a session is the last message of
 * it.
 */
static void hear_last_word(struct kvt_foe *foe)
{
	const struct kvw_msg_POOL request = {.name = kvw_text_of(KVT_FOE_POOL)};
	uint64_t deadline_ns = kvw_deadline_ns(LAST_WORD_MS);

	kvt_foe_send_message(foe, KVW_MSG_POOL, &request);
	foe->ended = false;
	while (!foe->ended && kvt_now_ns() < deadline_ns) {
		if (read_one(foe, deadline_ns) && foe->answered == foe->raw.sequence)
			return;
	}
}

void kvt_foe_close(struct kvt_foe *foe)
{
	enum kvt_ending ending = KVT_ENDING_OWN;

	hear_last_word(foe);
	if (foe->ended)
		ending = foe->error ? KVT_ENDING_REVOKED : KVT_ENDING_EOF;
	if (ending == KVT_ENDING_REVOKED)
		snprintf(foe->row->error, sizeof(foe->row->error), "%.159s", foe->raw.error);
	foe->row->endings[ending]++;
	kvt_foe_drop(foe);
}

/* -------------------------------------------------------------- time and chance */

void kvt_foe_begin(struct kvt_foe *foe, uint32_t stretch_ms)
{
	foe->stretch_ns = kvt_now_ns() + (uint64_t)stretch_ms * 1000000u;
	if (foe->stretch_ns > foe->until_ns)
		foe->stretch_ns = foe->until_ns;
}

bool kvt_foe_goes_on(const struct kvt_foe *foe)
{
	return !foe->ended && kvt_now_ns() < foe->stretch_ns;
}

uint32_t kvt_foe_pick(struct kvt_foe *foe, uint32_t bound)
{
	return (uint32_t)kvt_rng_below(&foe->rng, bound);
}

void kvt_foe_random(struct kvt_foe *foe, void *out, size_t length)
{
	uint8_t *at = out;

	while (length) {
		uint64_t word = kvt_rng_next(&foe->rng);
		size_t part = length < sizeof(word) ? length : sizeof(word);

		memcpy(at, &word, part);
		at += part;
		length -= part;
	}
}
