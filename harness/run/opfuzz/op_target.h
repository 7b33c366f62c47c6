/* What `--target op:NAME` and `--target plugin:LIB.so` stand for. */
#ifndef SF_RUN_OP_TARGET_H
#define SF_RUN_OP_TARGET_H

#include "harness/device/device.h"
#include "harness/run/opfuzz/op_trial.h"

/* Elements of the largest case of a campaign when nothing else is asked for, and of the largest that a file may hold. */
enum { SF_OP_ELEMENTS = 300000, SF_OP_ELEMENTS_MOST = 1 << 24 };

/* Whether a target's name is "op:NAME" or a plugin that declares no layers and no model. */
bool sf_op_target_is_one(const char *name);

/* Makes the target of a name: op:all, an operation's name, or a part of names ("softmax" stands for each of them), or a plugin, which is
 * loaded in a process of its own that reports what it declares. SF_EUSAGE, SF_EINPUT: there is no such operation, or the file is not a
 * plugin for this program. */
enum sf_status sf_op_target_make(struct sf_op_target *out, const char *name, int64_t max_elements, struct sf_error *error) SF_MUST_USE;

/* All operations with everything that a target of this name may take of them: for reading a file's case without its library. Nothing runs
 * on this target. */
void sf_op_target_reference(struct sf_op_target *out, const char *name, int64_t max_elements);

/* What runs a target's cases in this process. */
struct sf_op_lab {
  const struct sf_op_target *target;
  struct sf_device *device; /* NULL for a plugin */
  struct sf_op_runner runner;
  struct sf_op_memory memory;
};
/* Borrows target. Loads its library, whose code runs, or makes a device. As sf_plugin_load and sf_device_create fail, and SF_ENOMEM. */
enum sf_status sf_op_lab_create(struct sf_op_lab *out, const struct sf_op_target *target, enum sf_device_kind device, enum sf_cpu_gemm gemm,
                                struct sf_error *error) SF_MUST_USE;
void sf_op_lab_destroy(struct sf_op_lab *lab); /* takes what is zeroed */

#endif
