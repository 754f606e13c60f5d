/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a control message: refused, or read, written and read again as the same. Lists are walked, so
 * that their items are read a second time, from what the first reading left.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "kvpool/error.h"
#include "wire_samples.h"

static void require(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "fuzz message: %s\n", what);
	abort();
}

static void check_accepted(const struct kvw_envelope *envelope, union kvw_any *message)
{
	static uint8_t first[KVW_MAX_MESSAGE_BYTES], second[KVW_MAX_MESSAGE_BYTES];
	const struct wire_type *type = wire_type_of(envelope->type);
	struct wire_arena arena = {0};
	struct kvw_envelope again;
	union kvw_any read;
	int length;

	require(type != NULL, "a message of an unknown type was read");
	type->own(message, &arena);
	length = kvw_encode(envelope->type, envelope->sequence, message, first, sizeof(first));
	require(length > 0, "what was read cannot be written");
	require(kvw_decode(first, (size_t)length, &again, &read) == 0, "what was written cannot be read");
	type->own(&read, &arena);
	require(again.type == envelope->type && again.sequence == envelope->sequence, "the envelope changed");
	require(type->equal(message, &read), "the message changed");
	require(kvw_encode(again.type, again.sequence, &read, second, sizeof(second)) == length &&
			!memcmp(first, second, (size_t)length),
		"the same message was written in two ways");
	wire_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct kvw_envelope envelope;
	union kvw_any message;
	int ret = kvw_decode(bytes, length, &envelope, &message);

	if (ret == 0)
		check_accepted(&envelope, &message);
	else
		require(ret == -KVP_EPROTO || ret == -KVP_ERESERVED,
			"an error that the reader does not have");
	return 0;
}
