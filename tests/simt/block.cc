/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the threads of one block, and knows what they wait for when none can go on. */
#include "machine.h"
#include "simt.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

__thread struct simt_machine *simt_machine_now;

void simt_fail(const char *format, ...)
{
	struct simt_machine *m = simt_machine_now;
	va_list arguments;
	int at;

	if (m->failed)
		return;
	m->failed = true;
	at = snprintf(m->error, sizeof(m->error), "%s: block %u,%u,%u", m->kernel->name, m->block.x,
		      m->block.y, m->block.z);
	if (m->current)
		at += snprintf(m->error + at, sizeof(m->error) - at, " thread %u", m->current->index);
	at += snprintf(m->error + at, sizeof(m->error) - at, ": ");
	va_start(arguments, format);
	vsnprintf(m->error + at, sizeof(m->error) - at, format, arguments);
	va_end(arguments);
}

void simt_leave(void)
{
	struct simt_machine *m = simt_machine_now;

	simt_switch(&m->current->context, &m->scheduler);
}

static void not_ready(struct simt_machine *m, const struct simt_thread *thread)
{
	const uint32_t warp = thread->index / SIMT_LANES;

	m->warps[warp].ready &= ~(1u << thread->index % SIMT_LANES);
	if (!m->warps[warp].ready)
		m->ready_warps &= ~(1u << warp);
}

void simt_wait(const char *what, struct simt_where where)
{
	struct simt_machine *m = simt_machine_now;
	struct simt_thread *self = m->current;

	self->waits_for = what;
	self->waits_at = where;
	not_ready(m, self);
	simt_leave();
}

void simt_make_ready(struct simt_thread *thread)
{
	struct simt_machine *m = simt_machine_now;
	const uint32_t warp = thread->index / SIMT_LANES;

	thread->waits_for = nullptr;
	m->warps[warp].ready |= 1u << thread->index % SIMT_LANES;
	m->ready_warps |= 1u << warp;
}

void simt_block_sync(const char *file, int line)
{
	struct simt_machine *m = simt_machine_now;
	const struct simt_where where = {file, line};

	if (m->barrier_arrived && !simt_same_where(m->barrier_where, where)) {
		simt_fail("divergent barrier: at %s:%d while others wait at %s:%d", file, line,
			  m->barrier_where.file, m->barrier_where.line);
		simt_leave();
	}
	m->barrier_where = where;
	if (++m->barrier_arrived < m->thread_count) {
		simt_wait("the block's barrier", where);
		return;
	}
	m->barrier_arrived = 0;
	for (uint32_t i = 0; i < m->thread_count; i++)
		if (m->threads[i].waits_for)
			simt_make_ready(&m->threads[i]); /* all are here: none waits for anything else */
}

void *simt_shared(size_t bytes)
{
	struct simt_machine *m = simt_machine_now;

	if (bytes > m->launch->shared_bytes) {
		simt_fail("needs %zu bytes of shared memory, launched with %llu", bytes,
			  (unsigned long long)m->launch->shared_bytes);
		simt_leave();
	}
	return m->shared;
}

bool simt_is_shared(const void *at, uint64_t bytes)
{
	const struct simt_machine *m = simt_machine_now;
	const unsigned char *first = static_cast<const unsigned char *>(at);

	return first >= m->shared && first + bytes <= m->shared + m->launch->shared_bytes;
}

void simt_misaligned(const void *address, size_t alignment, const char *what)
{
	simt_fail("%s at %p, which is not a multiple of %zu", what, address, alignment);
	simt_leave();
}

static void thread_main(void)
{
	struct simt_machine *m = simt_machine_now;
	struct simt_thread *self = m->current;

	simt_switch_arrived(&self->context);
	m->kernel->call(m->parameters);
	self->ended = true;
	m->living--;
	not_ready(m, self);
	simt_switch_last(&self->context, &m->scheduler);
}

static void start_threads(struct simt_machine *m)
{
	for (; m->opened < m->thread_count; m->opened++)
		simt_context_open(&m->threads[m->opened].context);
	for (uint32_t i = 0; i < m->thread_count; i++) {
		struct simt_thread *thread = &m->threads[i];

		simt_context_start(&thread->context, thread_main);
		thread->index = i;
		thread->ended = false;
		thread->waits_for = nullptr;
		thread->copy_count = 0;
		thread->copy_group = 0;
		thread->unfenced = false;
		thread->waits_on = nullptr;
	}
	m->unfenced = 0;
	m->box_count = 0;
	for (uint32_t g = 0; g < SIMT_GROUPS; g++) {
		m->groups[g].arrived = 0;
		m->groups[g].product_count = 0;
		m->groups[g].begun = false;
	}
	for (uint32_t w = 0; w < m->warp_count; w++) {
		m->warps[w].ready = ~0u;
		m->warps[w].arrived = 0;
	}
	m->ready_warps = m->warp_count == 32 ? ~0u : (1u << m->warp_count) - 1;
	m->living = m->thread_count;
	m->barrier_arrived = 0;
}

/* Names the first thread that waits, how many do, and how many have ended. */
static void report_stuck(struct simt_machine *m)
{
	const struct simt_thread *first = nullptr;
	uint32_t waiting = 0;

	for (uint32_t i = m->thread_count; i-- > 0;)
		if (m->threads[i].waits_for) {
			first = &m->threads[i];
			waiting++;
		}
	simt_fail("stuck: %u threads wait, the first is %u for %s at %s:%d; %u have ended", waiting,
		  first->index, first->waits_for, first->waits_at.file, first->waits_at.line,
		  m->thread_count - m->living);
}

void simt_run_block(struct simt_machine *m)
{
	start_threads(m);
	while (!m->failed && m->living && (m->ready_warps || m->box_count)) {
		if (m->box_count && (!m->ready_warps || simt_box_is_due(m))) {
			simt_box_land(m);
			continue;
		}
		m->current = &m->threads[simt_pick(m)];
		simt_switch(&m->scheduler, &m->current->context);
	}
	m->current = nullptr;
	if (m->living && !m->failed)
		report_stuck(m);
	if (m->box_count && !m->failed)
		simt_fail("ended while %u boxes are on their way", m->box_count);
}
