/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file of host preparation cases: what a case's fields are, and how results are compared with them. A field that
 * is missing or has another form makes the case unreadable; the error stays until the case ends, so that runners
 * need to look only once, before they call anything.
 */
#ifndef KVPOOL_TEST_PREP_GOLDEN_H
#define KVPOOL_TEST_PREP_GOLDEN_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { GOLDEN_PASS = 0, GOLDEN_FAIL = 1, GOLDEN_UNREADABLE = 2 };

struct golden {
	const char *file;
	const char *kind;
	const char *name; /* of the case */
	json_t *fields;   /* of the case */
	int result;       /* the worst so far */
	void *memory;     /* what golden_alloc() has given, freed after each case */
};

/* Lists of numbers. at is never NULL. */
struct ints {
	int32_t *at;
	int32_t count;
};
struct floats {
	float *at;
	int32_t count;
};
/* Lists of lists, one behind the other. */
struct ragged {
	struct ints all;
	int32_t rows;
	int32_t *start; /* [rows + 1] */
	int32_t width;  /* longest */
};

/* Zeroed memory until the case ends. */
void *golden_alloc(struct golden *golden, int64_t count, size_t element_bytes);
void golden_free(struct golden *golden);
/* count entries of `value`. */
int32_t *golden_filled(struct golden *golden, int64_t count, int32_t value);

/* Whether the case can be read so far. */
bool golden_readable(const struct golden *golden);
void golden_unreadable(struct golden *golden, const char *field, const char *what);
/* The case has no other fields than these, ended by NULL: an expectation that nobody looks at is an error. */
void golden_known(struct golden *golden, const char *const *fields);
/* Fields of `object` instead of the case's own, until called with the former. Returns the former. */
json_t *golden_enter(struct golden *golden, json_t *object);

int32_t golden_int(struct golden *golden, const char *field);
bool golden_bool(struct golden *golden, const char *field);
struct ints golden_ints(struct golden *golden, const char *field);
struct ragged golden_ragged(struct golden *golden, const char *field);
/* The numbers of nested lists in order, null being -infinity; `depth` lists deep with the sizes in shape[]. */
struct floats golden_floats(struct golden *golden, const char *field, int depth, int32_t *shape);
/* A rectangle of the given width: rows one behind the other, `pad` right of each. */
int32_t *golden_rectangle(struct golden *golden, const struct ragged *ragged, int32_t width, int32_t pad);

/* A comparison failed, or did not: prints a line. */
void golden_line(struct golden *golden, const char *what, bool pass);
void golden_same(struct golden *golden, const char *what, struct ints want, const int32_t *got,
		 int64_t count);
void golden_same_rows(struct golden *golden, const char *what, const struct ragged *want, const int32_t *got,
		      const int32_t *start, int32_t rows);
/* A rectangle of rows x width; a list without any row is equal to rows without width. */
void golden_same_table(struct golden *golden, const char *what, const struct ragged *want, const int32_t *got,
		       int32_t rows, int32_t width);
/* A call returned `ret`: anything but `want` is a failure, and false. */
bool golden_returns(struct golden *golden, const char *call, int ret, int want);

/* One case each; golden->fields is its object. */
void golden_block_ids(struct golden *golden);
void golden_out_cache_loc(struct golden *golden);
void golden_page_indices(struct golden *golden);
void golden_valid_blocks(struct golden *golden);
void golden_select(struct golden *golden);
void golden_ties(struct golden *golden);
void golden_score(struct golden *golden);
void golden_on_update(struct golden *golden);
void golden_on_update_newest(struct golden *golden);
void golden_split(struct golden *golden);
void golden_expand(struct golden *golden);
void golden_lengths(struct golden *golden);

#endif
