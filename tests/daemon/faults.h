/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fails the n-th call of a set of functions. A test that uses it is linked with --wrap for each of FAULT_FUNCTIONS (CMakeLists.txt);
 * calls from elsewhere than our own objects are not seen.
 */
#ifndef KVPOOL_TEST_FAULTS_H
#define KVPOOL_TEST_FAULTS_H

#include <stdbool.h>

/* The n-th call from now on (1 is the next) fails with `error`; 0: none. */
void faults_arm(unsigned n, int error);
/* Disarms; whether the fault came. */
bool faults_hit(void);

#endif
