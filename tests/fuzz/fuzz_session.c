/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any messages to a running daemon.
 *
 *   byte 0     bit 0: a good HELLO first; bit 1: attach too
 *   then       u16 length, bytes: one message each; the last one may be cut
 */
#include "fuzz.h"
#include "fuzz_server.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct fuzz_client client;
	size_t at = 1;

	if (!length)
		return 0;
	fuzz_connect(&client);
	if (bytes[0] & 1)
		fuzz_hello(&client);
	if ((bytes[0] & 3) == 3)
		fuzz_attach(&client);
	while (at + 2 <= length && !client.ended) {
		size_t message = (size_t)bytes[at] | (size_t)bytes[at + 1] << 8;

		at += 2;
		if (message > length - at)
			message = length - at;
		fuzz_send(&client, bytes + at, message);
		fuzz_turns(&client);
		at += message;
	}
	fuzz_close(&client);
	return 0;
}
