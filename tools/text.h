/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values as people read them: numbers with separators, sizes, times, hashes; and peers' text made harmless.
 */
#ifndef KVPOOL_TOOLS_TEXT_H
#define KVPOOL_TOOLS_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "ipc/wire.h"

/* Room for any of these but ctl_hex() and ctl_safe(). */
#define CTL_TEXT_BYTES 32u

/* "1,234,567". Returns out, as all of these do. */
char *ctl_number(uint64_t value, char *out, size_t capacity);
/* "4.4 GB": powers of 1,000. */
char *ctl_bytes(uint64_t bytes, char *out, size_t capacity);
/* "250 ms", "12.3 s", "4 min 05 s", "3 h 07 min", "2 d 03 h". */
char *ctl_duration(uint64_t ms, char *out, size_t capacity);
/* "36.6 %"; "-" of nothing. */
char *ctl_percent(uint64_t part, uint64_t whole, char *out, size_t capacity);
/* The first `bytes` as hex; capacity holds 2 * bytes + 1. */
char *ctl_hex(const uint8_t *at, uint32_t bytes, char *out, size_t capacity);
/* Bytes of a hex text of at most `capacity` bytes; -EINVAL when it is none. */
int ctl_unhex(const char *text, uint8_t *out, uint32_t capacity);
/*
 * A peer's text for a terminal: control characters become '?', so that a client's name cannot move the
 * cursor.
 */
char *ctl_safe(struct kvw_text text, char *out, size_t capacity);
/* The same in place: control characters become '?'. */
void ctl_make_safe(char *text);

#endif
