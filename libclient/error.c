/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error names, texts, and the thread's last error.
 */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <kvpool/kvpool.h>

#define TEXT_BYTES 640u

static _Thread_local char last_error[TEXT_BYTES] = "no call has failed in this thread";

static int magnitude(int error)
{
	/* -INT_MIN does not exist; any number that is no error will do for it. */
	return error >= 0 ? error : error < -0xffff ? 0xffff : -error;
}

const char *kvp_error_name(int error)
{
	const char *name;

	switch (magnitude(error)) {
	case 0:
		return "OK";
#define X(code, number, text)                                                                                \
	case number:                                                                                         \
		return #code;
		KVP_ERROR_MAP(X)
#undef X
	default:
		name = strerrorname_np(magnitude(error));
		return name ? name : "UNKNOWN";
	}
}

const char *kvp_error_text(int error)
{
	const char *description;

	switch (magnitude(error)) {
#define X(code, number, text)                                                                                \
	case number:                                                                                         \
		return text;
		KVP_ERROR_MAP(X)
#undef X
	default:
		/* Untranslated, hence static. */
		description = strerrordesc_np(magnitude(error));
		return description ? description : "unknown error";
	}
}

const char *kvp_last_error(void)
{
	return last_error;
}

int kvc_fail(int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(last_error, sizeof(last_error), format, args);
	va_end(args);
	return -magnitude(error);
}

int kvc_fail_plain(int error, const char *what)
{
	return kvc_fail(error, "%s: %s (%s)", what, kvp_error_text(error), kvp_error_name(error));
}
