#include "targets/builtin/moe/token_dispatcher.h"

void sf_token_dispatcher_create(struct sf_token_dispatcher *dispatcher, struct sf_rank_run *run) {
  const struct sf_parallel_state *p = &run->parallel;
  const struct sf_moe *moe = &run->c->moe;
  *dispatcher = (struct sf_token_dispatcher){.ep = p->ep, .etp = p->etp, .topk = moe->topk, .slots = run->tokens_local * moe->topk};
  dispatcher->experts_local = moe->experts / p->ep.size;
  const int64_t most = moe->topk < dispatcher->experts_local ? moe->topk : dispatcher->experts_local;
  dispatcher->rows_max = p->ep.size * run->tokens_local * most;
}

/* --- the plan ----------------------------------------------------------------------------------------------------- */

/* slots in the order in which they are sent; counts: rows for each expert of the model. */
static void sort_slots(const struct sf_token_dispatcher *dispatcher, struct sf_dispatch *dispatch, double *counts,
                       const struct sf_routing *routing) {
  dispatch->sizes->sent = 0;
  for (int32_t e = 0; e < (int32_t)(dispatcher->ep.size * dispatcher->experts_local); e++) {
    const int64_t before = dispatch->sizes->sent;
    for (int32_t slot = 0; slot < (int32_t)dispatcher->slots; slot++)
      if (routing->kept[slot] && routing->chosen[slot] == e) dispatch->slots[dispatch->sizes->sent++] = slot;
    counts[e] = (double)(dispatch->sizes->sent - before);
  }
}

/* The arrived rows of each local expert. counts: [etp member][ep member][local expert]. */
static void sort_rows(const struct sf_token_dispatcher *dispatcher, struct sf_dispatch *dispatch, const double *counts) {
  const int64_t local = dispatcher->experts_local, ep = dispatcher->ep.size;
  int32_t count = 0;
  for (int64_t e = 0; e < local; e++) {
    dispatch->first[e] = count;
    for (int64_t t = 0; t < dispatcher->etp.size; t++) {
      int64_t row = t * dispatch->sizes->padded;
      for (int64_t at = 0; at < ep * local; at++) {
        const int64_t own = (int64_t)counts[t * ep * local + at];
        for (int64_t i = 0; i < own && at % local == e; i++) dispatch->rows[count++] = (int32_t)(row + i);
        row += own;
      }
    }
  }
  dispatch->first[local] = count;
}

/* What came in is used as sizes: it is looked at first. The counts are whole numbers, at most `most` together. */
static void check_counts(struct sf_rank_run *run, const double *counts, int64_t count, int64_t most) {
  double sum = 0.0;
  bool good = true;
  for (int64_t i = 0; i < count; i++) {
    good = good && counts[i] >= 0.0 && counts[i] <= (double)most && counts[i] == (double)(int64_t)counts[i];
    sum += counts[i];
  }
  if (!(good && sum <= (double)most)) sf_comm_fail(run->env->comm, SF_ERANK, "token_dispatcher: counts of rows that cannot be came in");
}

/* Rows that each ep member sends here, by expert; then the same of all etp members. Sets recv_counts and padded. */
static void exchange_counts(struct sf_rank_run *run, const struct sf_token_dispatcher *dispatcher, struct sf_dispatch *dispatch,
                            double *gathered, const double *counts) {
  struct sf_comm *comm = run->env->comm;
  const int64_t local = dispatcher->experts_local, ep = dispatcher->ep.size, etp = dispatcher->etp.size;
  double *own = etp > 1 ? sf_buffers_take_bytes(&run->acts, (size_t)(ep * local) * sizeof *own) : gathered;
  for (int64_t member = 0; member < ep; member++) dispatch->send_counts[member] = dispatch->recv_counts[member] = local;
  if (ep > 1)
    sf_all_to_all(comm, &dispatcher->ep, own, dispatch->recv_counts, counts, dispatch->send_counts, SF_F64, "token_dispatcher.counts");
  else
    memcpy(own, counts, (size_t)local * sizeof *own);
  check_counts(run, own, ep * local, dispatcher->rows_max);
  int64_t total = 0;
  for (int64_t member = 0; member < ep; member++) {
    dispatch->send_counts[member] = dispatch->recv_counts[member] = 0;
    for (int64_t e = 0; e < local; e++) {
      dispatch->send_counts[member] += (int64_t)counts[member * local + e];
      dispatch->recv_counts[member] += (int64_t)own[member * local + e];
    }
    total += dispatch->recv_counts[member];
  }
  dispatch->sizes->padded = total;
  if (etp == 1) return;
  double longest = (double)total;
  sf_all_reduce(comm, &dispatcher->etp, &longest, 1, SF_F64, SF_REDUCE_MAX, "token_dispatcher.longest");
  sf_all_gather(comm, &dispatcher->etp, gathered, own, ep * local, SF_F64, "token_dispatcher.gathered_counts");
  check_counts(run, &longest, 1, dispatcher->rows_max);
  dispatch->sizes->padded = (int64_t)longest;
  for (int64_t member = 0; member < etp; member++) check_counts(run, gathered + member * ep * local, ep * local, dispatch->sizes->padded);
  sf_buffers_give_bytes(&run->acts, own);
}

void sf_dispatch_create(struct sf_rank_run *run, const struct sf_token_dispatcher *dispatcher, struct sf_dispatch *dispatch,
                        const struct sf_routing *routing) {
  const int64_t local = dispatcher->experts_local, ep = dispatcher->ep.size, etp = dispatcher->etp.size;
  dispatch->sizes = sf_buffers_take_bytes(&run->acts, sizeof *dispatch->sizes);
  dispatch->slots = sf_buffers_take_indices(&run->acts, dispatcher->slots);
  dispatch->send_counts = sf_buffers_take_bytes(&run->acts, (size_t)ep * sizeof *dispatch->send_counts);
  dispatch->recv_counts = sf_buffers_take_bytes(&run->acts, (size_t)ep * sizeof *dispatch->recv_counts);
  dispatch->rows = sf_buffers_take_indices(&run->acts, etp * dispatcher->rows_max);
  dispatch->first = sf_buffers_take_indices(&run->acts, local + 1);
  double *counts = sf_buffers_take_bytes(&run->acts, (size_t)(ep * local) * sizeof *counts);
  double *gathered = sf_buffers_take_bytes(&run->acts, (size_t)(etp * ep * local) * sizeof *gathered);
  sort_slots(dispatcher, dispatch, counts, routing);
  exchange_counts(run, dispatcher, dispatch, gathered, counts);
  sort_rows(dispatcher, dispatch, gathered);
  sf_buffers_give_bytes(&run->acts, counts);
  sf_buffers_give_bytes(&run->acts, gathered);
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

/* All-to-all of rows of h elements; counts in rows. */
static void exchange_rows(struct sf_rank_run *run, const struct sf_group *ep, float *recv, const int64_t *recv_rows, const float *send,
                          const int64_t *send_rows, const char *label) {
  int64_t *counts = sf_buffers_take_bytes(&run->acts, (size_t)(2 * ep->size) * sizeof *counts);
  for (int32_t member = 0; member < ep->size; member++) {
    counts[member] = recv_rows[member] * run->hidden;
    counts[ep->size + member] = send_rows[member] * run->hidden;
  }
  sf_all_to_all(run->env->comm, ep, recv, counts, send, counts + ep->size, run->dtype, label);
  sf_buffers_give_bytes(&run->acts, counts);
}

float *sf_dispatch_rows(struct sf_rank_run *run, const struct sf_token_dispatcher *dispatcher, const struct sf_dispatch *dispatch,
                        const float *x, bool per_slot, const char *label) {
  const int64_t h = run->hidden, etp = dispatcher->etp.size;
  float *sent = sf_buffers_take(&run->acts, dispatcher->slots * h);
  for (int64_t i = 0; i < dispatch->sizes->sent; i++) {
    const int64_t from = per_slot ? dispatch->slots[i] : dispatch->slots[i] / dispatcher->topk;
    memcpy(sent + i * h, x + from * h, (size_t)h * sizeof *sent);
  }
  if (dispatcher->ep.size == 1 && etp == 1) return sent;
  float *arrived = sent;
  if (dispatcher->ep.size > 1) {
    arrived = sf_buffers_take(&run->acts, dispatcher->rows_max * h);
    exchange_rows(run, &dispatcher->ep, arrived, dispatch->recv_counts, sent, dispatch->send_counts, label);
    sf_buffers_give(&run->acts, sent);
  }
  if (etp == 1) return arrived;
  float *all = sf_buffers_take(&run->acts, etp * dispatcher->rows_max * h), *padded = sf_buffers_take(&run->acts, dispatcher->rows_max * h);
  int64_t own = 0;
  for (int32_t member = 0; member < dispatcher->ep.size; member++) own += dispatch->recv_counts[member];
  memcpy(padded, arrived, (size_t)(own * h) * sizeof *padded);
  memset(padded + own * h, 0, (size_t)((dispatch->sizes->padded - own) * h) * sizeof *padded);
  sf_all_gather(run->env->comm, &dispatcher->etp, all, padded, dispatch->sizes->padded * h, run->dtype, "token_dispatcher.etp_gather");
  sf_buffers_give(&run->acts, padded);
  sf_buffers_give(&run->acts, arrived);
  return all;
}

float *sf_dispatch_return(struct sf_rank_run *run, const struct sf_token_dispatcher *dispatcher, const struct sf_dispatch *dispatch,
                          float *rows, const char *label) {
  const int64_t h = run->hidden;
  if (dispatcher->etp.size > 1) {
    float *summed = sf_buffers_take(&run->acts, dispatcher->rows_max * h);
    sf_reduce_scatter(run->env->comm, &dispatcher->etp, summed, rows, dispatch->sizes->padded * h, run->dtype, SF_REDUCE_SUM,
                      "token_dispatcher.etp_scatter");
    sf_buffers_give(&run->acts, rows);
    rows = summed;
  }
  if (dispatcher->ep.size > 1) {
    float *returned = sf_buffers_take(&run->acts, dispatcher->slots * h);
    exchange_rows(run, &dispatcher->ep, returned, dispatch->send_counts, rows, dispatch->recv_counts, label);
    sf_buffers_give(&run->acts, rows);
    rows = returned;
  }
  float *slots = sf_buffers_take_zeros(&run->acts, dispatcher->slots * h);
  for (int64_t i = 0; i < dispatch->sizes->sent; i++) memcpy(slots + dispatch->slots[i] * h, rows + i * h, (size_t)h * sizeof *slots);
  sf_buffers_give(&run->acts, rows);
  return slots;
}
