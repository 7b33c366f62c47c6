#include "harness/comm/manner.h"

#include "harness/comm/comm.h"

const char *sf_manner_name(enum sf_manner manner) {
#define NAME(ID, name, meaning) name,
  static const char *const names[SF_MANNERS] = {SF_MANNER_LIST(NAME)};
#undef NAME
  return (int)manner >= 0 && manner < SF_MANNERS ? names[manner] : "";
}

static bool is_message(enum sf_comm_op op) { return op == SF_COMM_SEND || op == SF_COMM_RECV; }

enum sf_manner sf_manner_of_calls(const struct sf_comm_call *a, const struct sf_comm_call *b) {
  if (a->op != b->op && !(is_message(a->op) && is_message(b->op)))
    return a->op == SF_COMM_BARRIER || b->op == SF_COMM_BARRIER ? SF_MANNER_ABSENT : SF_MANNER_OPERATION;
  if (a->wire != b->wire) return SF_MANNER_FORMAT;
  if (a->reduce != b->reduce) return SF_MANNER_REDUCTION;
  return a->root != b->root ? SF_MANNER_ROOT : SF_MANNER_COUNT;
}
