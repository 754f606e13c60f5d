/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver of the time before cuGetProcAddress_v2: it can say its version, and that is all anybody may ask
 * of it.
 */
__attribute__((visibility("default"))) unsigned cuDriverGetVersion(int *version);
__attribute__((visibility("default"))) unsigned cuInit(unsigned flags);

unsigned cuDriverGetVersion(int *version)
{
	*version = 11040;
	return 0;
}

unsigned cuInit(unsigned flags)
{
	return flags ? 1 : 0;
}
