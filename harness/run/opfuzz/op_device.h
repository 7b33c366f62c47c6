/* The device's operations behind one signature, and plugins' behind the same. */
#ifndef SF_RUN_OP_DEVICE_H
#define SF_RUN_OP_DEVICE_H

#include "harness/device/device.h"
#include "harness/run/opfuzz/op_trial.h"

struct shardfuzz_plugin;

/* Whether the device has the operation; some are plugins' alone. */
bool sf_op_device_has(const struct sf_op *op);
int32_t sf_op_device_count(void); /* operations that the device has */
/* context: a struct sf_device. */
int sf_op_device_call(void *context, const struct sf_op_entry *entry, struct sf_op_memory *memory, const struct sf_op_case *c);
/* SF_EINPUT when another entry of the target takes cases of the same operation too: a case's file would not say which of the two it is
 * for. */
enum sf_status sf_op_plugin_check_entry(const struct sf_op_target *target, const struct sf_op_entry *entry,
                                        struct sf_error *error) SF_MUST_USE;
/* context: a struct shardfuzz_plugin. */
int sf_op_plugin_call(void *context, const struct sf_op_entry *entry, struct sf_op_memory *memory, const struct sf_op_case *c);

#endif
