#include "harness/worker/confine.h"

#include "harness/base/system/temporary.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined __x86_64__
#define THIS_ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define THIS_ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

/* Refuses kill(-1, ..) with EPERM. A filter that is set without privileges would also forbid programs that gain some, as CUDA's
 * nvidia-modprobe does. So on a machine with such a driver, processes without privileges go without the filter. */
static void forbid_signals_to_all(void) {
#ifdef THIS_ARCHITECTURE
  static struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, THIS_ARCHITECTURE, 0, 5),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_kill, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)), /* its low half: both machines are little-endian */
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, UINT32_MAX, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
  /* SPEC_ALLOW: without it older kernels would slow the process's memory down. */
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program) == 0 ||
      access("/proc/driver/nvidia", F_OK) == 0)
    return;
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
    (void)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program);
#endif
}

/* The lock stays open until the process has ended. */
static void make_folder(void) {
  const char *base = getenv("TMPDIR");
  struct sf_temporary folder;
  if (sf_temporary_create(&folder, base && *base ? base : "/tmp", NULL) != SF_OK) return;
  sf_temporary_keep(&folder);
  setenv("TMPDIR", folder.path, 1);
}

void sf_confine(bool with_folder) {
  if (with_folder) make_folder();
  forbid_signals_to_all();
}
