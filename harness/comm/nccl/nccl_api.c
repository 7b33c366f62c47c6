#include "harness/comm/nccl/nccl_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Both libraries have threads of their own, which may outlive the last use of the library: so an opened library stays open. */
static const int opening = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;

/* SF_NCCL_FOLDER: where the build found the library, tried after the loader's own places; may be empty. */
static void *open_nccl(char *why, size_t room) {
  static const char *const names[] = {"libnccl.so.2", SF_NCCL_FOLDER "/libnccl.so.2"};
  void *library = dlopen(names[0], opening);
  const char *text = library == NULL ? dlerror() : NULL;
  if (text != NULL) snprintf(why, room, "%s", text);
  if (library == NULL && strlen(SF_NCCL_FOLDER) > 0) library = dlopen(names[1], opening);
  return library;
}

void nccl_version_text(char text[24], int version) {
  snprintf(text, 24, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

/* Finds a function's address in the way that POSIX prescribes. */
static enum sf_status find(void *out, void *library, const char *symbol, struct sf_error *error) {
  *(void **)out = dlsym(library, symbol);
  return *(void **)out != NULL ? SF_OK : sf_error_set(error, SF_ENODEVICE, "the library has no %s: it is too old, or not NVIDIA's", symbol);
}

static enum sf_status find_all(struct nccl_api *api, struct sf_error *error) {
  enum sf_status status = SF_OK;
#define X(result, name, arguments) \
  if (status == SF_OK) status = find(&api->nccl.name, api->nccl_library, "nccl" #name, error);
  NCCL_FUNCTIONS(X)
#undef X
#define X(name, symbol, arguments) \
  if (status == SF_OK) status = find(&api->cuda.name, api->cuda_library, symbol, error);
  CU_FUNCTIONS(X)
#undef X
  return status;
}

enum sf_status nccl_api_open(struct nccl_api *api, struct sf_error *error) {
  char why[300];
  memset(api, 0, sizeof *api);
  api->cuda_library = dlopen("libcuda.so.1", opening);
  if (api->cuda_library == NULL) return sf_error_set(error, SF_ENODEVICE, "there is no CUDA driver on this machine");
  api->nccl_library = open_nccl(why, sizeof why);
  if (api->nccl_library == NULL) return sf_error_set(error, SF_ENODEVICE, "%s", why);
  const enum sf_status status = find_all(api, error);
  if (status != SF_OK) return status;
  if (api->nccl.GetVersion(&api->version) != NCCL_OK)
    return sf_error_set(error, SF_ENODEVICE, "libnccl.so.2 does not say which version it is");
  return SF_OK;
}

void nccl_api_close(struct nccl_api *api) {
  if (api->nccl_library != NULL) dlclose(api->nccl_library);
  if (api->cuda_library != NULL) dlclose(api->cuda_library);
  memset(api, 0, sizeof *api);
}
