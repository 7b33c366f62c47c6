#include "targets/builtin/parallel/labels.h"

#include <string.h>

#define ALL_REDUCE(label, reduction) {.name = label, .op = SF_COMM_ALL_REDUCE, .reduce = SF_REDUCE_##reduction}
#define REDUCE_SCATTER(label) {.name = label, .op = SF_COMM_REDUCE_SCATTER, .reduce = SF_REDUCE_SUM}
#define ALL_GATHER(label) {.name = label, .op = SF_COMM_ALL_GATHER}
#define ALL_TO_ALL(label) {.name = label, .op = SF_COMM_ALL_TO_ALL}
#define MESSAGE(send, receive) {.name = send, .op = SF_COMM_SEND, .receive_name = receive}, {.name = receive, .op = SF_COMM_RECV}

const struct sf_comm_label sf_comm_labels[] = {
    ALL_REDUCE("adam.grad_norm", SUM),
    ALL_REDUCE("adam.grad_norm_experts", SUM),
    ALL_GATHER("adapter.fwd.all_gather"),
    ALL_GATHER("adapter.bwd.all_gather"),
    {.name = "checkpoint.sizes", .op = SF_COMM_ALL_GATHER, .of_world = true},
    {.name = "checkpoint.shard_maps", .op = SF_COMM_BROADCAST, .of_world = true},
    {.name = "checkpoint.shards", .op = SF_COMM_BROADCAST, .of_world = true},
    ALL_GATHER("column_parallel_linear.fwd.all_gather"),
    ALL_REDUCE("column_parallel_linear.bwd.input_grad", SUM),
    REDUCE_SCATTER("column_parallel_linear.bwd.input_grad_scatter"),
    MESSAGE("column_parallel_linear.bwd.send_chunk", "column_parallel_linear.bwd.recv_chunk"),
    MESSAGE("context_parallel.ring.send_keys", "context_parallel.ring.recv_keys"),
    MESSAGE("context_parallel.ring.send_values", "context_parallel.ring.recv_values"),
    MESSAGE("context_parallel.ring.send_dk", "context_parallel.ring.recv_dk"),
    MESSAGE("context_parallel.ring.send_dv", "context_parallel.ring.recv_dv"),
    ALL_GATHER("context_parallel.all_gather"),
    REDUCE_SCATTER("context_parallel.bwd.scatter"),
    ALL_TO_ALL("context_parallel.fwd.trade_qkv"),
    ALL_TO_ALL("context_parallel.fwd.trade_back"),
    ALL_TO_ALL("context_parallel.bwd.trade_grad"),
    ALL_TO_ALL("context_parallel.bwd.trade_back"),
    ALL_REDUCE("finalize_grads.loss_and_tokens", SUM),
    ALL_REDUCE("finalize_grads.tp_partials", SUM),
    ALL_REDUCE("finalize_grads.replicated_kv", SUM),
    ALL_REDUCE("finalize_grads.tied_embedding", SUM),
    ALL_GATHER("distributed_optimizer.all_gather"),
    ALL_REDUCE("grad_buckets.all_reduce", SUM),
    REDUCE_SCATTER("grad_buckets.reduce_scatter"),
    ALL_GATHER("latent_attention.fwd.gather_shared_key"),
    ALL_REDUCE("latent_attention.bwd.shared_key_grad", SUM),
    REDUCE_SCATTER("latent_attention.bwd.shared_key_grad_scatter"),
    ALL_REDUCE("loss_scaler.overflow", MAX),
    ALL_REDUCE("loss_scaler.overflow_in_experts", MAX),
    ALL_REDUCE("model.fwd.kept_tokens", SUM),
    ALL_REDUCE("fp8.amax", MAX),
    ALL_REDUCE("fp8.amax_history", MAX),
    ALL_REDUCE("mtp.fwd.main_tokens", SUM),
    ALL_REDUCE("mtp.fwd.kept_tokens", SUM),
    ALL_GATHER("mtp.fwd.all_gather"),
    ALL_GATHER("mtp.fwd.gather_output"),
    ALL_GATHER("mtp.bwd.all_gather"),
    ALL_REDUCE("mtp.bwd.input_grad", SUM),
    REDUCE_SCATTER("mtp.bwd.input_grad_scatter"),
    MESSAGE("pipeline_schedule.send_forward", "pipeline_schedule.recv_forward"),
    MESSAGE("pipeline_schedule.send_backward", "pipeline_schedule.recv_backward"),
    ALL_REDUCE("row_parallel_linear.fwd.all_reduce", SUM),
    REDUCE_SCATTER("row_parallel_linear.fwd.reduce_scatter"),
    ALL_GATHER("row_parallel_linear.bwd.all_gather"),
    ALL_GATHER("saved_input.all_gather"),
    ALL_GATHER("router.fwd.choices"),
    ALL_GATHER("router.fwd.choices_of_cp"),
    ALL_REDUCE("router_loss.fwd.counts", SUM),
    ALL_REDUCE("router_loss.fwd.losses", SUM),
    ALL_TO_ALL("token_dispatcher.counts"),
    ALL_REDUCE("token_dispatcher.longest", MAX),
    ALL_GATHER("token_dispatcher.gathered_counts"),
    ALL_TO_ALL("token_dispatcher.fwd.dispatch"),
    ALL_TO_ALL("token_dispatcher.fwd.return"),
    ALL_TO_ALL("token_dispatcher.bwd.dispatch"),
    ALL_TO_ALL("token_dispatcher.bwd.return"),
    ALL_GATHER("token_dispatcher.etp_gather"),
    REDUCE_SCATTER("token_dispatcher.etp_scatter"),
    ALL_REDUCE("vocab_parallel_cross_entropy.fwd.max", MAX),
    ALL_REDUCE("vocab_parallel_cross_entropy.fwd.target", SUM),
    ALL_REDUCE("vocab_parallel_cross_entropy.fwd.sum_exp", SUM),
    ALL_REDUCE("vocab_parallel_cross_entropy.fwd.sum_shifted", SUM),
    ALL_REDUCE("vocab_parallel_embedding.fwd.all_reduce", SUM),
    REDUCE_SCATTER("vocab_parallel_embedding.fwd.reduce_scatter"),
    ALL_GATHER("vocab_parallel_embedding.bwd.all_gather"),
};
const int sf_comm_label_count = (int)(sizeof sf_comm_labels / sizeof sf_comm_labels[0]);

const struct sf_comm_label *sf_comm_label_find(const char *name) {
  for (int i = 0; i < sf_comm_label_count; i++)
    if (strcmp(sf_comm_labels[i].name, name) == 0) return &sf_comm_labels[i];
  return NULL;
}
