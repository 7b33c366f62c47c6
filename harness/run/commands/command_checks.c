/* Checks of names and options before anything runs. */
#include "harness/base/sinks.h"
#include "harness/comm/nccl.h"
#include "harness/run/commands/command_common.h"
#include "harness/run/commands/commands.h"
#include "harness/run/support/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum sf_status sf_input_status(enum sf_status status) { return status == SF_EIO ? SF_EINPUT : status; }

bool sf_common_is_rank(const struct sf_common_flags *flags) { return flags->backend != SF_BACKEND_SIM && !flags->launcher; }

enum sf_status sf_common_inside_mpi(const struct sf_common_flags *flags, struct sf_error *error) {
  if (!sf_common_is_rank(flags) || sf_mpi_launched()) return SF_OK;
  return sf_error_set(error, SF_EUSAGE, "--backend %s needs mpirun around it, or --launcher 'mpirun --oversubscribe -n {n}'",
                      sf_backend_names[flags->backend]);
}

struct sf_mpi *sf_common_mpi_create(const struct sf_pool_options *pool, int *code) {
  struct sf_error error = {SF_OK, ""};
  struct sf_mpi *mpi = NULL;
  enum sf_status status = sf_mpi_create(&mpi, &error);
  if (status == SF_OK && pool->nccl) status = sf_mpi_use_nccl(mpi, &error);
  if (status == SF_OK) return mpi;
  *code = mpi && sf_mpi_rank(mpi) != 0 ? 0 : sf_exit_failure(status, &error); /* rank 0 speaks for the job */
  sf_mpi_destroy(mpi);
  return NULL;
}

enum sf_status sf_common_outside_mpi(const struct sf_common_flags *flags, struct sf_error *error) {
  if (!sf_common_is_rank(flags)) return SF_OK;
  return sf_error_set(error, SF_EUSAGE, "--backend %s needs --launcher 'mpirun --oversubscribe -n {n}' with this command",
                      sf_backend_names[flags->backend]);
}

int sf_exit_json(json_t *object, size_t flags, int code) {
  struct sf_text line = {0};
  struct sf_error error;
  enum sf_status status = sf_json_append(&line, object, JSON_COMPACT | flags);
  json_decref(object);
  if (status == SF_OK) sf_print(stdout, "%s\n", line.data);
  if (status == SF_OK && (ferror(stdout) || fflush(stdout) != 0)) status = SF_EIO;
  sf_text_destroy(&line);
  if (status == SF_OK) return code;
  sf_error_set(&error, status, "the JSON line could not be printed: %s", status == SF_EIO ? strerror(errno) : sf_status_text(status));
  return sf_exit_failure(status, &error);
}
