/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <kvpool/error.h>

#include "ipc/frame.h"

#include "support.h"

#define POLL_MS 1

/* ------------------------------------------------------------------ segments */

static void *make_segment(struct fake_daemon *fake, uint32_t kind, uint64_t bytes)
{
	int fd = memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	uint64_t size = fake->options.short_kind == kind ? 0 : bytes;
	void *memory;

	if (fd < 0 || ftruncate(fd, (off_t)bytes))
		abort();
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		abort();
	if (size < bytes && ftruncate(fd, (off_t)size))
		abort();
	if (fake->options.unsealed_kind != kind)
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	fake->fds[kind] = fd;
	fake->bytes[kind] = bytes;
	return memory;
}

static void make_directory(struct fake_daemon *fake)
{
	struct kvw_directory_layout layout;
	_Atomic uint64_t *words;
	uint32_t i;

	kvw_directory_layout(fake->geometry.blocks, &layout);
	fake->directory = make_segment(fake, KVW_SEGMENT_DIRECTORY, layout.bytes);
	if (fake->options.short_kind == KVW_SEGMENT_DIRECTORY)
		return;
	fake->directory->magic =
		KVW_MAGIC_DIRECTORY + (fake->options.wrong_magic_kind == KVW_SEGMENT_DIRECTORY);
	fake->directory->layout_version = KVW_LAYOUT_VERSION;
	fake->directory->incarnation = FAKE_INCARNATION;
	fake->directory->bytes = layout.bytes;
	fake->directory->blocks = fake->geometry.blocks;
	fake->directory->block_words = layout.block_words;
	fake->directory->buckets = layout.buckets;
	fake->directory->bucket_count = layout.bucket_count;
	atomic_store(&fake->directory->epoch, 1);
	words = (_Atomic uint64_t *)(void *)((uint8_t *)fake->directory + layout.block_words);
	for (i = 0; i < fake->books.blocks; i++)
		atomic_store(&words[i],
			     kvw_block_word(fake->books.block[i].generation, fake->books.block[i].state));
}

static void make_segments(struct fake_daemon *fake)
{
	make_directory(fake);
	fake->channel = make_segment(fake, KVW_SEGMENT_CHANNEL, KVW_CHANNEL_BYTES);
	if (fake->options.short_kind != KVW_SEGMENT_CHANNEL) {
		fake->channel->magic =
			KVW_MAGIC_CHANNEL + (fake->options.wrong_magic_kind == KVW_SEGMENT_CHANNEL);
		fake->channel->layout_version = KVW_LAYOUT_VERSION;
		fake->channel->session = FAKE_SESSION;
		kvw_ring_init(&fake->requests, &fake->channel->requests,
			      (uint8_t *)fake->channel + KVW_CHANNEL_REQUESTS);
		kvw_ring_init(&fake->completions, &fake->channel->completions,
			      (uint8_t *)fake->channel + KVW_CHANNEL_COMPLETIONS);
	}
	fake->timelines = make_segment(fake, KVW_SEGMENT_TIMELINES, KVW_PAGE_BYTES);
	munmap(make_segment(fake, KVW_SEGMENT_TABLES, fake->tables.bytes), fake->tables.bytes);
	munmap(make_segment(fake, KVW_SEGMENT_POOL, (fake->geometry.bytes + 4095) & ~4095ull),
	       (fake->geometry.bytes + 4095) & ~4095ull);
	munmap(make_segment(fake, KVW_SEGMENT_ANSWERS, kvw_answers_bytes(fake->answer_count)),
	       kvw_answers_bytes(fake->answer_count));
	fake->fds[KVW_SEGMENT_DOORBELL] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

static void end_session(struct fake_daemon *fake)
{
	uint32_t i;

	fake_books_end_session(fake);
	if (fake->socket_fd >= 0)
		close(fake->socket_fd);
	fake->socket_fd = -1;
	for (i = 0; i < 8; i++) {
		if (fake->fds[i] >= 0)
			close(fake->fds[i]);
		fake->fds[i] = -1;
	}
	if (fake->directory)
		munmap(fake->directory, fake->bytes[KVW_SEGMENT_DIRECTORY]);
	if (fake->channel)
		munmap(fake->channel, KVW_CHANNEL_BYTES);
	if (fake->timelines)
		munmap(fake->timelines, KVW_PAGE_BYTES);
	fake->directory = NULL;
	fake->channel = NULL;
	fake->timelines = NULL;
}

/* ------------------------------------------------------------------ messages */

static const uint32_t segment_order[] = {KVW_SEGMENT_DIRECTORY, KVW_SEGMENT_TABLES,   KVW_SEGMENT_CHANNEL,
					 KVW_SEGMENT_TIMELINES, KVW_SEGMENT_DOORBELL, KVW_SEGMENT_ANSWERS,
					 KVW_SEGMENT_POOL};
#define SEGMENTS 7u

static void reply(struct fake_daemon *fake, uint32_t type, uint64_t sequence, union kvw_any *message,
		  const int *fds, uint32_t fd_count)
{
	static uint8_t bytes[KVW_MAX_MESSAGE_BYTES];
	int length;

	if (fake->options.on_message && fake->options.on_message(fake->options.arg, type, message))
		return;
	length = kvw_encode(type, sequence, message, bytes, sizeof(bytes));
	if (length < 0 || kvw_send(fake->socket_fd, bytes, (size_t)length, fds, fd_count) < 0)
		fprintf(stderr, "fake daemon: cannot answer by type %u (%d)\n", type, length);
}

static void answer_hello(struct fake_daemon *fake, uint64_t sequence)
{
	union kvw_any out = {.HELLO_OK = {
				     .version = 1,
				     .incarnation = FAKE_INCARNATION,
				     .session = FAKE_SESSION,
				     .hash_algorithm = KVW_HASH_SHA256,
				     .daemon_version = kvw_text_of("fake"),
				     .poll_ms = POLL_MS,
			     }};

	reply(fake, KVW_MSG_HELLO_OK, sequence, &out, NULL, 0);
}

static void answer_pool(struct fake_daemon *fake, uint64_t sequence)
{
	static struct kvw_item_PLANE items[KVW_MAX_PLANES];
	const struct kvw_geometry *geometry = &fake->geometry;
	union kvw_any out = {.POOL_OK = {
				     .pool = 0,
				     .name = kvw_text_of("main"),
				     .blocks = geometry->blocks,
				     .block_tokens = geometry->block_tokens,
				     .pool_layout = geometry->pool_layout,
				     .record_bytes = geometry->record_bytes,
				     .bytes = geometry->bytes,
				     .shards = 1,
				     .groups = 1,
				     .data_blocks = geometry->blocks - FAKE_FIRST_DATA,
				     .ready = 1,
			     }};
	uint32_t i;

	for (i = 0; i < geometry->plane_count; i++) {
		const struct kvw_plane *plane = &geometry->planes[i];

		items[i] = (struct kvw_item_PLANE){
			.layer = plane->layer,
			.role = plane->role,
			.dtype = plane->dtype,
			.layout = plane->layout,
			.heads = plane->heads,
			.dim = plane->dim,
			.group = plane->group,
			.plane_set = plane->plane_set,
			.placement = plane->placement,
			.kernel_page_tokens = plane->kernel_page_tokens,
			.base = plane->base,
			.stride = plane->stride,
			.page_bytes = plane->page_bytes,
			.token_stride = plane->token_stride,
			.head_stride = plane->head_stride,
		};
	}
	out.POOL_OK.planes = kvw_list_of(items, geometry->plane_count);
	reply(fake, KVW_MSG_POOL_OK, sequence, &out, NULL, 0);
}

static void answer_attach(struct fake_daemon *fake, uint64_t sequence, const struct kvw_msg_ATTACH *attach)
{
	struct kvw_item_SEGMENT segments[SEGMENTS];
	union kvw_any out = {
		.ATTACH_OK = {
			.engine = 5,
			.namespace_id = 1,
			.epoch = 1,
			.lease_low = attach->lease_set ? attach->lease_low : fake->options.low,
			.lease_critical = attach->lease_set ? attach->lease_critical : fake->options.critical,
			.lease_high = attach->lease_set ? attach->lease_high : fake->options.high,
			.sink = FAKE_SINK,
			.sink_generation = 1,
		}};
	uint32_t i;

	fake->tables_params = (struct kvw_tables_params){
		.rows = (uint32_t)attach->rows,
		.row_blocks = (uint32_t)attach->row_blocks,
		.block_tokens = fake->geometry.block_tokens,
		.hash_bytes = (uint32_t)attach->hash_bytes,
		.slots = (uint32_t)attach->slots,
		.slot_bytes = attach->slot_bytes,
	};
	if (kvw_tables_layout(&fake->tables_params, &fake->tables))
		abort();
	fake->answer_count = (uint32_t)attach->answers;
	memset(fake->answer_ends, 0, sizeof(fake->answer_ends));
	fake->books.hash_bytes = (uint32_t)attach->hash_bytes;
	make_segments(fake);
	for (i = 0; i < SEGMENTS; i++)
		segments[i] = (struct kvw_item_SEGMENT){.kind = segment_order[i],
							.bytes = fake->bytes[segment_order[i]]};
	out.ATTACH_OK.segments = kvw_list_of(segments, SEGMENTS);
	reply(fake, KVW_MSG_ATTACH_OK, sequence, &out, NULL, 0);
}

/* Two at a time, so that the client must pull more than once. */
static void answer_fds(struct fake_daemon *fake, uint64_t sequence, uint64_t first)
{
	uint32_t count = first + 2 < SEGMENTS ? 2 : SEGMENTS - (uint32_t)first;
	union kvw_any out = {.FDS_OK = {.first = first, .count = count}};
	int fds[2];
	uint32_t i;

	for (i = 0; i < count; i++)
		fds[i] = fake->fds[segment_order[first + i]];
	reply(fake, KVW_MSG_FDS_OK, sequence, &out, fds, count);
}

static void answer(struct fake_daemon *fake, const struct kvw_envelope *envelope,
		   const union kvw_any *message)
{
	union kvw_any out = {.DRAIN_OK = {.head = 0}};

	switch (envelope->type) {
	case KVW_MSG_HELLO:
		answer_hello(fake, envelope->sequence);
		return;
	case KVW_MSG_POOL:
		answer_pool(fake, envelope->sequence);
		return;
	case KVW_MSG_ATTACH:
		answer_attach(fake, envelope->sequence, &message->ATTACH);
		return;
	case KVW_MSG_MAPPED:
		out.MAPPED_OK = (struct kvw_msg_MAPPED_OK){.unused = 0};
		reply(fake, KVW_MSG_MAPPED_OK, envelope->sequence, &out, NULL, 0);
		return;
	case KVW_MSG_FDS:
		answer_fds(fake, envelope->sequence, message->FDS.first);
		return;
	default:
		if (fake->channel && !fake->paused)
			fake_books_serve(fake);
		reply(fake, KVW_MSG_DRAIN_OK, envelope->sequence, &out, NULL, 0);
	}
}

static void read_message(struct fake_daemon *fake)
{
	static uint8_t bytes[KVW_MAX_MESSAGE_BYTES + 1];
	struct kvw_envelope envelope;
	union kvw_any message;
	int length = kvw_receive(fake->socket_fd, 0, bytes, sizeof(bytes), NULL, NULL);

	if (length <= 0) {
		end_session(fake);
		return;
	}
	if (kvw_decode(bytes, (size_t)length, &envelope, &message))
		abort();
	answer(fake, &envelope, &message);
}

/* ------------------------------------------------------------------ the thread */

static void turn(struct fake_daemon *fake, struct pollfd *entries)
{
	uint64_t count;

	pthread_mutex_lock(&fake->lock);
	if (entries[1].revents && fake->socket_fd < 0)
		fake->socket_fd = accept4(fake->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (entries[2].revents && fake->socket_fd >= 0)
		read_message(fake);
	if (fake->fds[KVW_SEGMENT_DOORBELL] >= 0 &&
	    read(fake->fds[KVW_SEGMENT_DOORBELL], &count, sizeof(count)) == sizeof(count))
		atomic_fetch_add(&fake->doorbells, (uint32_t)count);
	if (fake->channel && !fake->paused && !fake->options.short_kind)
		fake_books_serve(fake);
	if (fake->directory && !fake->options.short_kind)
		atomic_store(&fake->directory->daemon_sleeping, 1);
	pthread_mutex_unlock(&fake->lock);
}

static void *run(void *arg)
{
	struct fake_daemon *fake = arg;

	for (;;) {
		struct pollfd entries[4] = {
			{.fd = fake->stop_fd, .events = POLLIN},
			{.fd = fake->socket_fd < 0 ? fake->listen_fd : -1, .events = POLLIN},
			{.fd = fake->socket_fd, .events = POLLIN},
			{.fd = fake->fds[KVW_SEGMENT_DOORBELL], .events = POLLIN},
		};

		poll(entries, 4, POLL_MS);
		if (entries[0].revents)
			return NULL;
		turn(fake, entries);
	}
}

static void place(struct fake_daemon *fake)
{
	struct kvw_geometry *geometry = &fake->geometry;
	const struct kvw_plane latent = {.role = KVW_ROLE_LATENT,
					 .dtype = KVW_DTYPE_F32,
					 .layout = KVW_LAYOUT_NHD,
					 .heads = 1,
					 .dim = 4,
					 .placement = KVW_PLACEMENT_REPLICATED,
					 .plane_set = 1};
	struct kvw_plane heads = latent;

	heads.role = KVW_ROLE_K;
	heads.dtype = KVW_DTYPE_BF16;
	heads.heads = 2;
	heads.dim = 8;
	geometry->block_tokens = fake->options.block_tokens;
	geometry->blocks = fake->options.data_blocks + FAKE_FIRST_DATA;
	geometry->pool_layout = KVW_POOL_LAYER_MAJOR;
	geometry->plane_count = 2;
	geometry->planes[0] = latent;
	geometry->planes[1] = heads;
	geometry->planes[0].kernel_page_tokens = geometry->planes[1].kernel_page_tokens =
		geometry->block_tokens;
	if (kvw_geometry_place(geometry))
		abort();
}

struct fake_daemon *fake_start(const struct fake_options *options)
{
	struct fake_daemon *fake = calloc(1, sizeof(*fake));
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	uint32_t i;

	if (!fake)
		abort();
	if (options)
		fake->options = *options;
	if (!fake->options.data_blocks)
		fake->options.data_blocks = 256;
	if (!fake->options.block_tokens)
		fake->options.block_tokens = 4;
	place(fake);
	fake_books_init(fake, fake->geometry.blocks);
	pthread_mutex_init(&fake->lock, NULL);
	fake->socket_fd = -1;
	for (i = 0; i < 8; i++)
		fake->fds[i] = -1;
	fake->dir = kvt_mkdtemp();
	snprintf(fake->path, sizeof(fake->path), "%s/s", fake->dir);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", fake->path);
	fake->stop_fd = eventfd(0, EFD_CLOEXEC);
	fake->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (bind(fake->listen_fd, (struct sockaddr *)&address, sizeof(address)) || listen(fake->listen_fd, 8))
		abort();
	if (pthread_create(&fake->thread, NULL, run, fake))
		abort();
	return fake;
}

void fake_hang_up(struct fake_daemon *fake)
{
	pthread_mutex_lock(&fake->lock);
	if (fake->socket_fd >= 0)
		shutdown(fake->socket_fd, SHUT_RDWR);
	atomic_store(&fake->paused, true);
	pthread_mutex_unlock(&fake->lock);
}

void fake_pause(struct fake_daemon *fake, bool paused)
{
	pthread_mutex_lock(&fake->lock);
	atomic_store(&fake->paused, paused);
	pthread_mutex_unlock(&fake->lock);
}

void fake_revoke(struct fake_daemon *fake)
{
	pthread_mutex_lock(&fake->lock);
	atomic_store(&fake->channel->revoked, -KVP_EREVOKED);
	shutdown(fake->socket_fd, SHUT_RDWR);
	pthread_mutex_unlock(&fake->lock);
}

void fake_stop(struct fake_daemon *fake)
{
	static const uint64_t one = 1;

	if (write(fake->stop_fd, &one, sizeof(one)) != sizeof(one))
		abort();
	pthread_join(fake->thread, NULL);
	end_session(fake);
	fake_books_free(fake);
	close(fake->stop_fd);
	close(fake->listen_fd);
	pthread_mutex_destroy(&fake->lock);
	kvt_rmdir(fake->dir);
	free(fake);
}
