/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hostile by memory: holes, seals, locks, and writes wherever it can.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "foe.h"

#define STRETCH_MS 150u
#define BURST 32u
#define LOCKS 64u
#define AWAITED 32u
#define LOCKS_STRETCH_MS 60000u
#define FIRST_LOCK 2000000
#define HELD_SLOT_BYTES (60u << 20)
#define HELD_STRETCH_MS 250u
#define PUNCHED_STRETCH_MS 250u
#define HOLDERS 4u

static const char *const segment_names[KVT_SEGMENTS] = {"directory", "tables",  "channel", "timelines",
							"doorbell",  "answers", "pool"};

/* What a client may write, and so fill: the directory and the answers it may not. */
static const int writable_segments[] = {KVT_TABLES, KVT_CHANNEL, KVT_TIMELINES, KVT_POOL};

/* A few records, so that the daemon uses what was just spoilt. */
static void keep_it_busy(struct kvt_foe *foe)
{
	struct kvw_request request;
	uint32_t good;
	uint32_t i;

	for (i = 0; i < BURST; i++) {
		request = kvt_foe_plausible(foe);
		kvt_foe_post(foe, &request);
	}
	kvt_foe_ring(foe);
	kvt_foe_completions(foe, &good);
	kvt_foe_read(foe, 0);
}

/* -------------------------------------------------------------- holes and seals */

/* Size and protection are the daemon's: none of this may work, on any segment. */
static void try_to_resize(struct kvt_foe *foe, int segment)
{
	int fd = foe->raw.fds[segment];
	const char *name = segment_names[segment];

	if (!ftruncate(fd, 0) || !ftruncate(fd, (off_t)foe->raw.bytes[segment] * 2))
		kvt_foe_breach(foe, "the size of the %s segment was changed", name);
	if (!fallocate(fd, 0, (off_t)foe->raw.bytes[segment], KVW_PAGE_BYTES))
		kvt_foe_breach(foe, "the %s segment was extended", name);
	if (!fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) || !fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE))
		kvt_foe_breach(foe, "the %s segment was sealed", name);
}

/* And what the daemon alone writes, nobody else may change, nor take a page of it away. */
static void try_to_write(struct kvt_foe *foe, int segment)
{
	struct kvt_raw *raw = &foe->raw;
	int fd = raw->fds[segment];
	void *memory = mmap(NULL, raw->bytes[segment], PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	uint64_t word = 0;

	if (memory != MAP_FAILED || !mprotect(raw->memory[segment], KVW_PAGE_BYTES, PROT_READ | PROT_WRITE) ||
	    pwrite(fd, &word, sizeof(word), 0) >= 0 ||
	    !madvise(raw->memory[segment], KVW_PAGE_BYTES, MADV_REMOVE) ||
	    !fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, KVW_PAGE_BYTES))
		kvt_foe_breach(foe, "the %s can be written", segment_names[segment]);
}

static void punch(struct kvt_foe *foe, int segment)
{
	uint64_t pages = foe->raw.bytes[segment] / KVW_PAGE_BYTES;
	uint64_t first = kvt_rng_below(&foe->rng, pages);
	uint64_t count = 1 + kvt_rng_below(&foe->rng, pages - first);

	if (!fallocate(foe->raw.fds[segment], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		       (off_t)(first * KVW_PAGE_BYTES), (off_t)(count * KVW_PAGE_BYTES)))
		foe->row->bytes += count * KVW_PAGE_BYTES;
}

void kvt_mode_punched_holes(struct kvt_foe *foe)
{
	int segment;

	kvt_foe_begin(foe, STRETCH_MS);
	for (segment = 0; segment < KVT_SEGMENTS; segment++)
		if (segment != KVT_DOORBELL)
			try_to_resize(foe, segment);
	try_to_write(foe, KVT_DIRECTORY);
	try_to_write(foe, KVT_ANSWERS);
	while (kvt_foe_goes_on(foe)) {
		punch(foe, writable_segments[kvt_foe_pick(foe, 4)]);
		keep_it_busy(foe);
	}
}

/* -------------------------------------------------------------- the inode */

/* One segment's file, and threads that work on the whole of it. */
struct holder {
	int fd;
	off_t bytes;
	_Atomic int end;
	void (*work)(const struct holder *holder);
	pthread_t threads[HOLDERS];
	uint32_t count;
};

/* Nearly as large as the pool's tables_limit allows. */
void kvt_shape_held_inode(struct kvw_msg_ATTACH *attach)
{
	attach->slots = KVW_MAX_SLOTS;
	attach->slot_bytes = HELD_SLOT_BYTES;
}

/* While the kernel fills or empties a file it keeps its inode locked, and every write to the file waits. */
static void fill_and_empty(const struct holder *holder)
{
	if (fallocate(holder->fd, FALLOC_FL_KEEP_SIZE, 0, holder->bytes))
		sched_yield();
	fallocate(holder->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, holder->bytes);
}

/* While it punches a hole, every look at a page of it by a mapping waits. */
static void punch_all(const struct holder *holder)
{
	fallocate(holder->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, holder->bytes);
}

/* What the daemon looks at by a mapping. */
static void must_be_guarded(struct kvt_foe *foe)
{
	static const int guarded[] = {KVT_CHANNEL, KVT_TIMELINES};
	uint32_t i;

	for (i = 0; i < 2; i++)
		if (!fallocate(foe->raw.fds[guarded[i]], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
			       KVW_PAGE_BYTES) ||
		    !madvise(foe->raw.memory[guarded[i]], KVW_PAGE_BYTES, MADV_REMOVE))
			kvt_foe_breach(foe, "a hole was punched into the %s", segment_names[guarded[i]]);
}

static void *hold_on(void *arg)
{
	struct holder *holder = arg;

	while (!atomic_load(&holder->end))
		holder->work(holder);
	return NULL;
}

static void hold(struct holder *holder, const struct kvt_foe *foe, int segment, uint32_t threads)
{
	holder->fd = foe->raw.fds[segment];
	holder->bytes = (off_t)foe->raw.bytes[segment];
	while (holder->count < threads &&
	       !pthread_create(&holder->threads[holder->count], NULL, hold_on, holder))
		holder->count++;
}

static void let_go(struct holder *holder)
{
	atomic_store(&holder->end, 1);
	while (holder->count)
		pthread_join(holder->threads[--holder->count], NULL);
}

/*
 * The daemon must write to none of them, nor wait for its inode otherwise: that would keep it from everybody
 * else.
 */
void kvt_mode_held_inode(struct kvt_foe *foe)
{
	struct holder holder = {.work = fill_and_empty};

	kvt_foe_begin(foe, HELD_STRETCH_MS);
	hold(&holder, foe, writable_segments[foe->row->sessions % 4], 1);
	while (kvt_foe_goes_on(foe))
		keep_it_busy(foe);
	let_go(&holder);
}

/*
 * By several threads, so that a hole is being punched at any time. Half of the sessions never say that they
 * have mapped their channel, and can go on punching it.
 */
void kvt_mode_punched_always(struct kvt_foe *foe)
{
	struct holder holder = {.work = punch_all};

	kvt_foe_begin(foe, PUNCHED_STRETCH_MS);
	if (!foe->silent)
		must_be_guarded(foe);
	hold(&holder, foe, writable_segments[foe->row->sessions % 4], HOLDERS);
	while (kvt_foe_goes_on(foe))
		keep_it_busy(foe);
	let_go(&holder);
	foe->silent = kvt_foe_pick(foe, 2);
}

/* -------------------------------------------------------------- locks */

static int set_lock(struct kvt_foe *foe, short type, off_t start, off_t length)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};

	return fcntl(foe->raw.fds[KVT_POOL], F_OFD_SETLK, &lock);
}

/* Its own description's lock is the proof of its own end; of others' it must not be able to make one. */
void kvt_mode_ofd_lock_games(struct kvt_foe *foe)
{
	uint32_t i;

	kvt_foe_begin(foe, STRETCH_MS);
	if (!set_lock(foe, F_WRLCK, 0, 0) || !set_lock(foe, F_WRLCK, 0, 1))
		kvt_foe_breach(foe, "a write lock on the pool: no other session could get its proof byte");
	while (kvt_foe_goes_on(foe)) {
		off_t start = (off_t)kvt_foe_pick(foe, 512);

		/* Many small ones, which every question for a proof walks through. */
		for (i = 0; i < LOCKS; i++)
			set_lock(foe, F_RDLCK, (off_t)(2 * kvt_foe_pick(foe, 1u << 20)), 1);
		if (!kvt_foe_pick(foe, 16))
			set_lock(foe, F_RDLCK, 0, 0);
		set_lock(foe, F_UNLCK, start, (off_t)kvt_foe_pick(foe, 64));
		flock(foe->raw.fds[KVT_POOL], LOCK_EX | LOCK_NB);
		fcntl(foe->raw.fds[KVT_POOL], F_SETLEASE, F_WRLCK);
		if (!kvt_foe_pick(foe, 16))
			set_lock(foe, F_UNLCK, 0, 0);
		keep_it_busy(foe);
	}
}

/*
 * One that is revoked and keeps its mappings, so that the daemon asks for the proof of its end again and
 * again.
 */
static void be_awaited(struct kvt_foe *foe, struct kvt_foe *other)
{
	const struct kvw_request bad = {.type = 99};

	other->daemon = foe->daemon;
	other->row = foe->row;
	other->answer_ms = foe->answer_ms;
	if (!kvt_foe_open(other, NULL))
		return;
	kvt_foe_post(other, &bad);
	kvt_foe_ring(other);
	kvt_foe_read(other, 50);
}

/* Each of those questions walks through all locks of the pool's file. */
void kvt_mode_many_locks(struct kvt_foe *foe)
{
	static struct kvt_foe others[AWAITED];
	off_t locks = 0;
	uint32_t count;

	kvt_foe_begin(foe, LOCKS_STRETCH_MS);
	for (count = 0; count < AWAITED && kvt_foe_goes_on(foe); count++)
		be_awaited(foe, &others[count]);
	while (kvt_foe_goes_on(foe) && !set_lock(foe, F_RDLCK, FIRST_LOCK - 2 * locks, 1))
		locks++;
	while (count--) {
		if (others[count].raw.fd >= 0)
			kvt_foe_close(&others[count]);
	}
}

/* -------------------------------------------------------------- writes */

struct writer {
	struct kvt_foe *foe;
	_Atomic int end;
	uint64_t bytes;
};

static void *write_everywhere(void *arg)
{
	struct writer *writer = arg;
	const struct kvt_raw *raw = &writer->foe->raw;
	struct kvt_rng rng = {.state = writer->foe->rng.state + 7};

	while (!atomic_load(&writer->end)) {
		int segment = writable_segments[kvt_rng_below(&rng, 4)];
		_Atomic uint64_t *words = raw->memory[segment];
		uint64_t at = kvt_rng_below(&rng, raw->bytes[segment] / sizeof(*words));

		/*
		 * The ring's tail and head are left alone half of the time: else nothing else would be
		 * looked at.
		 */
		if (segment == KVT_CHANNEL && at < KVW_PAGE_BYTES / sizeof(*words) &&
		    kvt_rng_below(&rng, 512))
			continue;
		atomic_store_explicit(&words[at], kvt_rng_next(&rng) >> kvt_rng_below(&rng, 64),
				      memory_order_relaxed);
		writer->bytes += sizeof(*words);
	}
	return NULL;
}

void kvt_mode_writes_everywhere(struct kvt_foe *foe)
{
	struct writer writer = {.foe = foe};
	pthread_t thread;

	kvt_foe_begin(foe, STRETCH_MS);
	if (pthread_create(&thread, NULL, write_everywhere, &writer))
		return;
	while (kvt_foe_goes_on(foe))
		keep_it_busy(foe);
	atomic_store(&writer.end, 1);
	pthread_join(thread, NULL);
	foe->row->bytes += writer.bytes;
}

/* -------------------------------------------------------------- after the end */

static uint64_t word_of(const struct kvt_foe *foe, int32_t id)
{
	const struct kvw_directory_header *directory = foe->raw.memory[KVT_DIRECTORY];
	const _Atomic uint64_t *words =
		(const _Atomic uint64_t *)(const void *)((const uint8_t *)directory + directory->block_words);

	return atomic_load(&words[id]);
}

/* Whose process lives and maps keeps its blocks, frozen: nobody else may get them. */
static void watch_frozen(struct kvt_foe *foe, const struct kvw_answer *blocks, uint32_t count)
{
	/* The end of the mode's share may come at once. */
	bool whole = foe->stretch_ns < foe->until_ns;
	bool frozen = false;
	uint32_t i;

	while (kvt_now_ns() < foe->stretch_ns) {
		for (i = 0; i < count; i++) {
			uint64_t word = word_of(foe, blocks[i].id);

			if (word == kvw_block_word(blocks[i].generation, KVW_BLOCK_FROZEN))
				frozen = true;
			else if (word != kvw_block_word(blocks[i].generation, KVW_BLOCK_LEASED))
				kvt_foe_breach(foe, "block %d of a revoked session that maps it became %llx",
					       blocks[i].id, (unsigned long long)word);
		}
		keep_it_busy(foe);
	}
	if (!frozen && whole)
		kvt_foe_breach(foe, "no block of a revoked session was frozen");
}

void kvt_mode_revoked_goes_on(struct kvt_foe *foe)
{
	const struct kvw_request lease = {.type = KVW_REQUEST_LEASE, .count = BURST};
	const struct kvw_request bad = {.type = 99};
	struct kvw_answer blocks[BURST];
	struct kvw_completion done;

	kvt_foe_begin(foe, STRETCH_MS);
	if (!kvt_foe_do(foe, &lease, &done) || done.status)
		return;
	memcpy(blocks, kvt_leased(&foe->raw), sizeof(blocks));
	kvt_foe_post(foe, &bad);
	kvt_foe_ring(foe);
	while (kvt_foe_goes_on(foe) && !atomic_load(&kvt_channel(&foe->raw)->revoked))
		;
	if (atomic_load(&kvt_channel(&foe->raw)->revoked))
		watch_frozen(foe, blocks, BURST);
}
