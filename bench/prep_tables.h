/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block ids and slot mapping on their own: the functions of kvpool/prep.h against NumPy, and against lists as an engine
 * in Python has them.
 */
#ifndef KVPOOL_BENCH_PREP_TABLES_H
#define KVPOOL_BENCH_PREP_TABLES_H

#include "bench.h"
#include "peer.h"

struct bench_tables;

struct bench_tables *bench_tables_open(void);
void bench_tables_close(struct bench_tables *tables);
/* Writes what both compute from to a file: the peer's argument. Ends the program on failure. */
void bench_tables_write(const struct bench_tables *tables, const char *path);
/* One round of each, ours and the peer's in turn. Ends the program when the peer computes something else. */
void bench_tables_round(struct bench_tables *tables, struct bench_peer *peer);

#define BENCH_TABLES_RESULTS 3
/* Medians of the rounds: "block_ids", "block_ids_lists", "slot_mapping", each with the peer's time as its limit. */
void bench_tables_results(struct bench_tables *tables, struct bench_result out[BENCH_TABLES_RESULTS]);

#endif
