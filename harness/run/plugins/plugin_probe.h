/* What a shared library says of itself, asked in a process of its own: code of the library runs when it is loaded. */
#ifndef SF_RUN_PLUGIN_PROBE_H
#define SF_RUN_PLUGIN_PROBE_H

#include "generators/codec.h"
#include "targets/plugin/plugin_layers.h"

/* The whole path of an existing file. SF_EINPUT. */
enum sf_status sf_plugin_full_path(char *out, size_t size, const char *path, struct sf_error *error) SF_MUST_USE;
/* The name "plugin:/whole/path" of the target "plugin:LIB.so". SF_EINPUT: no such file, too long. */
enum sf_status sf_plugin_full_name(char *out, size_t size, const char *target, struct sf_error *error) SF_MUST_USE;

/* Runs `ask` in a process that may be lost, and brings back the answer that it fills, which is plain data; the caller fills in what `ask`
 * needs to know. SF_EINPUT naming the path: the process ended early or did not come back in ten seconds. SF_EIO. */
enum sf_status sf_plugin_probe(void *answer, size_t size, void (*ask)(void *answer), const char *path, struct sf_error *error) SF_MUST_USE;

/* Whether a target's name is "plugin:LIB.so" and the library declares layers or a model, not operations. False where the library cannot be
 * asked: the code that loads it says why. */
bool sf_plugin_is_target(const char *target);

/* Fits the space to "plugin:LIB.so" with layers or a model: the target's name, with the whole path, and the ranges that it takes.
 * SF_EINPUT: it is not such a library, the path is too long, or nothing of the space is left. */
enum sf_status sf_plugin_probe_space(struct sf_space *space, const char *target, struct sf_error *error) SF_MUST_USE;
/* The ranges alone, at most SF_PLUGIN_RANGES_MAX. SF_EINPUT. */
enum sf_status sf_plugin_probe_ranges(struct sf_plugin_range *out, int32_t *count, const char *target, struct sf_error *error) SF_MUST_USE;
/* SF_OK when the library can be loaded here, else SF_EINPUT. */
enum sf_status sf_plugin_probe_target(const char *target, struct sf_error *error) SF_MUST_USE;

#endif
