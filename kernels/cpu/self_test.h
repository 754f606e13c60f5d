/* SPDX-License-Identifier: Apache-2.0 */
/* A level's answers to a few small questions against the reference's. */
#ifndef KVPOOL_KERNELS_SELF_TEST_H
#define KVPOOL_KERNELS_SELF_TEST_H

#include "level.h"

/* Runs once a level, before it is chosen; the caller makes sure that only one thread does. */
bool kvk_self_test(enum kvk_level level);

#endif
