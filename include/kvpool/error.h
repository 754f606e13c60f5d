/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool's own error codes. Every function returns 0 or a count on success and a negative
 * number on failure: a negative errno, or one of these negated. They start above 4096, so
 * that they never meet an errno. One list makes the enum, the names, the texts and the
 * manual page's table.
 */
#ifndef KVPOOL_ERROR_H
#define KVPOOL_ERROR_H

/* X(name, number, text) */
#define KVP_ERROR_MAP(X)                                                                                     \
	X(KVP_ENOBLOCKS, 4097, "not enough free or evictable blocks in the pool")                            \
	X(KVP_ELEASE, 4098, "the lease holds too few blocks at the moment")                                  \
	X(KVP_EQUOTA, 4099, "the tenant's block quota is used up")                                           \
	X(KVP_EDAEMON, 4100, "the daemon is gone")                                                           \
	X(KVP_EREVOKED, 4101, "the daemon has revoked this session")                                         \
	X(KVP_EINCARNATION, 4102, "the daemon was restarted and its blocks are new")                         \
	X(KVP_EVERSION, 4103, "client and daemon share no protocol version")                                 \
	X(KVP_EPROTO, 4104, "a message broke the protocol")                                                  \
	X(KVP_ELAYOUT, 4105, "a shared segment does not have the expected layout")                           \
	X(KVP_EHASH, 4106, "client and daemon hash the same block differently")                              \
	X(KVP_EIDENTITY, 4107, "the model identity differs from the namespace's")                            \
	X(KVP_ENOPOOL, 4108, "the daemon has no pool of this name")                                          \
	X(KVP_ESTALE, 4109, "a block's generation is stale")                                                 \
	X(KVP_ELOST, 4110, "a matched block's writer died before it was complete")                           \
	X(KVP_ELIMIT, 4111, "a limit of the protocol or the configuration is exceeded")                      \
	X(KVP_ESLOTS, 4112, "every slot of the batch is in flight")                                          \
	X(KVP_EFORKED, 4113, "the handle belongs to the parent process")                                     \
	X(KVP_ERESERVED, 4114, "a field or verb is reserved for a later version")                            \
	X(KVP_ESTATE, 4115, "the object is not in a state that allows this")                                 \
	X(KVP_EBACKLOG, 4116, "the request ring is full")                                                    \
	X(KVP_EDENIED, 4117, "the daemon's access rules refuse this")                                        \
	X(KVP_EINDEXSCALE, 4118, "the index scale is not a whole number of pages")                           \
	X(KVP_EDEVICE, 4119, "the pool's device is lost, missing, or not the one in use")

enum kvp_error {
#define KVP_ERROR_ENUM(name, number, text) name = number,
	KVP_ERROR_MAP(KVP_ERROR_ENUM)
#undef KVP_ERROR_ENUM
};

#endif
