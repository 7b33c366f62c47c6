/* shardfuzz plugins, ABI version 2: a shared library hands its kernels, layers or model to `shardfuzz fuzz --target
 * plugin:./libkernels.so`.
 *
 * The library exports one function, shardfuzz_plugin_get(), which returns a declaration: a table of operations by the names of the
 * reference
 * (`shardfuzz list operations` prints them with their operands, in order, dimensions and attributes; with --formulas also shapes, formats,
 * what is computed and by which conventions), or of parallel layers by the names of the reference's modules, or a whole model (both further
 * down), the formats each takes, and the functions that compute it. C and C++; no dependency.
 *
 * Rules for an operation's functions: inputs are only read; of an output every element is written, and nothing beside it; nothing is kept
 * of a pointer once the call has returned; the same call gives the same bits. No exception may leave. Calls come from one thread.
 *
 * What is checked: each operand lies between two walls of a megabyte that cannot be touched, and ends at the one behind it, or less than 64
 * bytes before it where its alignment asks for that. Reading or writing in a wall ends the process, and the finding says how far beside
 * which operand. The bytes that remain, what lies before an operand in its pages and between its rows are compared after the call: of
 * these, writing is found, and reading gives NaN.
 *
 * What a plugin prints, on stdout too, comes out on stderr; the last line of one that crashes, as the text of an exception that left,
 * stands in the finding. (Ranks that a launcher starts print where it puts that.)
 *
 * Every function is called with the default floating-point mode (to nearest, subnormal numbers kept, no traps), whatever loading the
 * library has set, as what is linked with -Ofast does. One that returns with another mode on this thread is a finding, of operations,
 * layers and models alike: what it computes itself it may round as it likes, and while it is in a function of the harness the default
 * holds. */
#ifndef SHARDFUZZ_PLUGIN_H
#define SHARDFUZZ_PLUGIN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHARDFUZZ_PLUGIN_ABI 2u

/* Formats. Of fp8 E4M3 is the kind without infinity. */
enum shardfuzz_dtype {
  SHARDFUZZ_F32 = 0,
  SHARDFUZZ_BF16 = 1,
  SHARDFUZZ_F16 = 2,
  SHARDFUZZ_F64 = 3,
  SHARDFUZZ_F8E4M3 = 4,
  SHARDFUZZ_F8E5M2 = 5,
  SHARDFUZZ_I32 = 6,
  SHARDFUZZ_U16 = 7
};
#define SHARDFUZZ_BIT(dtype) (1u << (dtype))

/* What DLPack calls DLDataTypeCode, as far as it is used here. */
enum shardfuzz_type_code {
  SHARDFUZZ_CODE_INT = 0,
  SHARDFUZZ_CODE_UINT = 1,
  SHARDFUZZ_CODE_FLOAT = 2,
  SHARDFUZZ_CODE_BFLOAT = 4,
  SHARDFUZZ_CODE_F8E4M3FN = 10,
  SHARDFUZZ_CODE_F8E5M2 = 12
};

struct shardfuzz_device {
  int32_t type; /* 1: CPU */
  int32_t id;
};
struct shardfuzz_type {
  uint8_t code, bits;
  uint16_t lanes; /* 1 */
};

/* Laid out like DLPack's DLTensor. Element (i, j) is at (char *)data + byte_offset + (i * strides[0] + j * strides[1]) * bits / 8. data is
 * NULL where an operand is left out. */
struct shardfuzz_tensor {
  void *data;
  struct shardfuzz_device device;
  int32_t ndim; /* 2 */
  struct shardfuzz_type dtype;
  int64_t *shape;
  int64_t *strides; /* in elements; never NULL */
  uint64_t byte_offset;
};

/* An attribute as a number that a case file has (`integer`) and as what it stands for (`real`). */
struct shardfuzz_attribute {
  const char *name;
  int64_t integer;
  double real;
};

struct shardfuzz_call {
  uint32_t size_bytes; /* of this struct; grows with later versions */
  uint32_t dtype;      /* enum shardfuzz_dtype of the case */
  int32_t tensor_count, attribute_count;
  const struct shardfuzz_tensor *tensors; /* in the reference's order; an output that shares an input's memory has the same data */
  const struct shardfuzz_attribute *attributes;
};

enum shardfuzz_result {
  SHARDFUZZ_OK = 0,
  SHARDFUZZ_UNSUPPORTED = 1 /* this case is not for the kernel: it is counted as skipped */
};
typedef int shardfuzz_function(const struct shardfuzz_call *call); /* any other number than the two: a finding */

/* A dimension's largest size, and what it must be a multiple of; 0: no limit. */
struct shardfuzz_limit {
  const char *dimension;
  int64_t max, multiple;
};

/* What the functions take beyond dense rows on memory aligned to 64 bytes. */
enum shardfuzz_takes {
  SHARDFUZZ_TAKES_STRIDED = 1,   /* rows further apart than they are long */
  SHARDFUZZ_TAKES_UNALIGNED = 2, /* data aligned to one element */
  SHARDFUZZ_TAKES_IN_PLACE = 4   /* an output in the memory of an input, where the reference allows it */
};

/* One operation may be declared several times, if no case is taken by two of them: with other formats, other values of a fixed attribute.
 */
struct shardfuzz_operation {
  const char *name;           /* "gelu": forward is gelu_fwd, backward gelu_bwd; or one operation of the reference: "gemm" */
  uint32_t dtypes;            /* SHARDFUZZ_BIT of each */
  uint32_t takes;             /* of enum shardfuzz_takes */
  shardfuzz_function *forward;
  shardfuzz_function *backward; /* NULL: none */
  const struct shardfuzz_attribute *fixed; /* attributes with one value: {"norm", 0, 0}; only `integer` counts */
  const struct shardfuzz_limit *limits;
  int32_t fixed_count, limit_count;
};

/* --- layers ---------------------------------------------------------------------------------------------------------------------
 *
 * A layer takes the place of one module of the built-in model, in every transformer layer and on every rank; all else stays built in.
 * Modules:
 *
 *   embedding.word_embeddings: cut over the vocabulary, output: the weight's row of each token, summed over tp (with sequence parallelism:
 * and cut), in the residual stream's format. Input: int32, all tokens x 1. The backward has the weight's gradient alone: input_grad's data
 * is NULL. A prediction of later tokens looks its words up by itself. self_attention.linear_qkv, .linear_q_proj, .linear_q_up_proj,
 * .linear_kv_up_proj, mlp.linear_fc1, mlp.shared_experts.linear_fc1, cross_attention.linear_q, .linear_kv, output_layer, mtp.output_layer:
 *     column-parallel, y = x W^T + b. Input: tokens x features, with sequence parallelism this rank's tokens of its tp group; output: all
 * tokens of the group x this rank's features. The output is not reduced, the input's gradient is summed over tp (with sequence parallelism:
 * and cut). self_attention.linear_proj, mlp.linear_fc2, mlp.shared_experts.linear_fc2, cross_attention.linear_proj: row-parallel: input all
 * tokens x this rank's features, output summed over tp (and cut), then the bias. self_attention.linear_q_down_proj, .linear_kv_down_proj,
 * mlp.router: y = x W^T of this rank's tokens, with a weight that each tp rank has whole. The router puts out fp32 and gets fp32.
 *   mtp.eh_proj: column-parallel, with an output that is gathered over tp: input and output are this rank's tokens x all features.
 *   adapter: y = x W^T with a weight that each tp rank has whole, of all tokens of the tp group. Input: this rank's tokens, as are both
 * gradients; output: all tokens. The weight's gradient is of all tokens and not summed later. input_layernorm, pre_mlp_layernorm,
 * pre_cross_attn_layernorm, post_self_attn_layernorm, post_mlp_layernorm, decoder.final_layernorm, self_attention.q_layernorm,
 * .kv_layernorm, mtp.enorm, .hnorm, .final_layernorm: RMSNorm, or LayerNorm with attribute norm 1, of this rank's tokens; epsilon 1e-5.
 *   self_attention.qk_layernorm: the same of each query head and each key head over its head_dim columns, values as they are. Input and
 * output: as the input of core_attention. Parameters q.weight, k.weight, q.bias, k.bias: one for all heads; gradients: from the heads held.
 *   self_attention.core_attention: softmax(q k^T / sqrt(head_dim)) v over the keys at the query's position and before it, in the same
 * sequence and document, with window > 0 less than window positions before it. Input: tokens x (query_heads + 2 kv_heads) head_dim, rotated
 * already: for each key/value head the query heads that share it, the key, the value. Output: tokens x query_heads head_dim. Parameter
 * softmax_offset, if there is one: a logit for each query head that joins each of its rows' softmax, and has no value. With context
 * parallelism a rank has the queries, keys and values of its own tokens, and member i of n of the group CP those of chunks i and 2n - 1 - i
 * of 2n equal ones of a sequence: who sees keys of others exchanges them here, and what other ranks' queries give to its own keys and
 * values is part of the input's gradient. What query heads of other tp ranks give to a key/value head that they share is not, but summed
 * later. mlp: column-parallel linear_fc1, the activation, row-parallel linear_fc2, with the tensors between them handed to call->trace.
 *   mlp.experts: linear_fc1, activation, linear_fc2 of each expert that this rank holds, for the rows that came to it. Input and output:
 * rows x hidden, the first expert's expert_rows[0] rows, then the next one's; an expert may have none, and so may all. What etp ranks put
 * out, and their gradients of the input, are summands and summed later. Weights: the experts' parts one after the other,
 * linear_fc1.weight's below each other (with SwiGLU an expert's part of the gate, then its part of up), linear_fc2.weight's side by side.
 *
 * fp8: where the attributes fp8_input_scale, fp8_weight_scale and (in the backward) fp8_grad_scale have integer 1, a linear multiplies the
 * casts of its input and weight to E4M3, and of its output's gradient to E5M2: the nearest number of x times scale (`real`, an fp32 number;
 * ties to even, saturating). Products are summed in fp32 and multiplied with the product of the two units, 1 / scale each in fp32; the
 * bias's gradient sums the gradient itself. The scales, their reductions over ranks and histories are the harness's. Integer 0: this layer
 * is not cast.
 *
 * Gradients of parameters are this microbatch's, in fp32, from the tokens that this rank has seen: sums over data and context parallel
 * ranks, and with sequence parallelism over tp for what every tp rank holds (a norm's weight, a row-parallel bias), are made later, not
 * here.
 *
 * What is stored in between, and in which format, is the plugin's own. Noise levels are measured on a reference that stores what passes
 * between its operations in the case's format (of attention the softmax P, and the gradient of the scores), and sums in fp32. What is
 * stored less exactly may be a finding, as of attention rowsum(P dP) from a context that was rounded, in one case of 1,200. What is more
 * exact passes.
 *
 * Rules: inputs and parameters are only read; of an output and a gradient every element is written, and nothing beside it. Tensors and what
 * `save` and `scratch` give lie between walls as operands of operations do, and what else was written beside them is found when the call
 * returns. All memory is the harness's; nothing is kept of a pointer once a call has returned, except what `save` gave. Simulated ranks are
 * fibers of one process, each with 256 KiB of stack: nothing of a rank may be in static memory, and others run while it waits in a call of
 * the communicator, which does not return when it cannot complete. No exception may leave. */

/* Groups of ranks; the members' order is the same on all of them. TP_CP: ranks with pieces of one microbatch. The last three are of models
 * with experts, and have no member otherwise: EP ranks that hold other experts, ETP other parts of the same, EXPERT_DP the same parts. */
enum shardfuzz_group {
  SHARDFUZZ_GROUP_TP = 0,
  SHARDFUZZ_GROUP_CP = 1,
  SHARDFUZZ_GROUP_DP = 2,
  SHARDFUZZ_GROUP_DP_CP = 3,
  SHARDFUZZ_GROUP_PP = 4,
  SHARDFUZZ_GROUP_TP_CP = 5,
  SHARDFUZZ_GROUP_WORLD = 6,
  SHARDFUZZ_GROUP_EP = 7,
  SHARDFUZZ_GROUP_ETP = 8,
  SHARDFUZZ_GROUP_EXPERT_DP = 9,
  SHARDFUZZ_GROUPS = 10
};
enum shardfuzz_reduce { SHARDFUZZ_SUM = 0, SHARDFUZZ_MAX = 1 };
struct shardfuzz_member {
  int32_t size, index;
};

/* The communicator's calls, of a layer or a model. Each is made by all members in the same order with the same numbers; it blocks. dtype:
 * SHARDFUZZ_F32, _BF16, _F16 or _F64, of the memory and of what travels; counts are elements. Members of an all-reduce get the same bits.
 */
struct shardfuzz_comm {
  uint32_t size_bytes; /* of this struct; grows with later versions */
  int32_t group_count;
  const struct shardfuzz_member *groups; /* by enum shardfuzz_group: how many ranks, and which this one is */
  void *host;
  void (*all_reduce)(const struct shardfuzz_comm *comm, int32_t group, void *data, int64_t count, uint32_t dtype, uint32_t reduce);
  /* out [count]: this member's part of the reduction of in [size x count] */
  void (*reduce_scatter)(const struct shardfuzz_comm *comm, int32_t group, void *out, const void *in, int64_t count, uint32_t dtype,
                         uint32_t reduce);
  void (*all_gather)(const struct shardfuzz_comm *comm, int32_t group, void *out, const void *in, int64_t count,
                     uint32_t dtype); /* out [size x count] */
  void (*broadcast)(const struct shardfuzz_comm *comm, int32_t group, void *data, int64_t count, int32_t root, uint32_t dtype);
  /* in is cut by in_counts, a number for each member; out holds what they sent here, out_counts[i] elements from member i */
  void (*all_to_all)(const struct shardfuzz_comm *comm, int32_t group, void *out, const int64_t *out_counts, const void *in,
                     const int64_t *in_counts, uint32_t dtype);
  void (*send)(const struct shardfuzz_comm *comm, int32_t group, int32_t member, int32_t tag, const void *data, int64_t count,
               uint32_t dtype); /* may wait for the receiver */
  void (*recv)(const struct shardfuzz_comm *comm, int32_t group, int32_t member, int32_t tag, void *data, int64_t count, uint32_t dtype);
  void (*barrier)(const struct shardfuzz_comm *comm, int32_t group);
  /* The same, started: until `wait` has returned what is sent must not be written, nor what is received be read. Each is waited for once,
   * in the call of the plugin that started it; 0 is complete already. */
  uint64_t (*start_all_reduce)(const struct shardfuzz_comm *comm, int32_t group, void *data, int64_t count, uint32_t dtype,
                               uint32_t reduce);
  uint64_t (*start_reduce_scatter)(const struct shardfuzz_comm *comm, int32_t group, void *out, const void *in, int64_t count,
                                   uint32_t dtype, uint32_t reduce);
  uint64_t (*start_send)(const struct shardfuzz_comm *comm, int32_t group, int32_t member, int32_t tag, const void *data, int64_t count,
                         uint32_t dtype);
  uint64_t (*start_recv)(const struct shardfuzz_comm *comm, int32_t group, int32_t member, int32_t tag, void *data, int64_t count,
                         uint32_t dtype);
  void (*wait)(const struct shardfuzz_comm *comm, uint64_t request);
};

/* `length` elements of the logical tensor from `start` on. partial: of what a model traces, whether what is held is a summand, over enum
 * shardfuzz_partial's ranks; else 0. */
struct shardfuzz_run {
  int64_t start, length;
  uint32_t partial, reserved;
};
enum shardfuzz_partial { SHARDFUZZ_PARTIAL_TP = 1, SHARDFUZZ_PARTIAL_CP = 2 };
/* A parameter's shard. Local row i is the i-th of the logical rows of row_runs, columns likewise; a vector is one row. */
struct shardfuzz_parameter {
  const char *name; /* "weight", "bias"; of mlp "linear_fc1.weight" */
  struct shardfuzz_tensor value;
  struct shardfuzz_tensor grad; /* fp32; data is NULL in the forward, and where the parameter is frozen */
  int64_t shape[2];             /* of the logical tensor */
  const struct shardfuzz_run *row_runs, *col_runs;
  int32_t row_run_count, col_run_count;
};

enum shardfuzz_trace { SHARDFUZZ_OUTPUT = 0, SHARDFUZZ_INPUT_GRAD = 1 };

/* Tensors are dense, in the format that each says: the case's, or fp32 where the residual stream is; ids are int32. */
struct shardfuzz_layer_call {
  uint32_t size_bytes; /* of this struct; grows with later versions */
  uint32_t dtype;      /* enum shardfuzz_dtype of the case */
  const char *module;  /* its name: "decoder.layers.3.mlp.linear_fc2" */
  int64_t step, microbatch;
  const struct shardfuzz_tensor *input, *output; /* output: the forward's, which it writes */
  const struct shardfuzz_tensor *output_grad, *input_grad; /* of the backward, which writes input_grad; else NULL */
  const struct shardfuzz_parameter *parameters;
  const struct shardfuzz_attribute *attributes; /* sequence_parallel 0 or 1, activation (0 GELU, 1 SwiGLU, 2 squared ReLU), norm (0 RMS, 1
                                                 layer), epsilon, seq, microbatch_size; of core_attention window, of it and qk_layernorm
                                                 head_dim and how many query_heads and kv_heads this rank holds */
  int32_t parameter_count, attribute_count;
  const struct shardfuzz_comm *comm;
  void *saved;                                                          /* backward: what save gave in the forward, or NULL */
  void *(*save)(const struct shardfuzz_layer_call *call,
                uint64_t size_bytes); /* forward, at most once: memory that lives until this microbatch's backward */
  void *(*scratch)(const struct shardfuzz_layer_call *call, uint64_t size_bytes); /* memory that lives until the call returns */
  /* mlp: hands over the output of linear_fc1 and of activation, in the backward the gradients of the inputs of linear_fc2 and of
   * activation, each dense in the case's format, as soon as it is computed; go on with what then stands there. module: "linear_fc1". which:
   * enum shardfuzz_trace. */
  void (*trace)(const struct shardfuzz_layer_call *call, uint32_t which, const char *module, void *data);
  void *host;
  /* Which rows of the logical input its rows are. A microbatch's tokens are rows position * microbatch_size + sequence. */
  const struct shardfuzz_run *row_runs;
  int32_t row_run_count;
  const int32_t
      *documents; /* core_attention: [microbatch_size x seq] position where each token's document begins; NULL: each sequence is one */
  const int64_t *expert_rows; /* mlp.experts: [expert_count], which has no row_runs; else NULL */
  int32_t expert_count;
};
typedef int shardfuzz_layer_function(const struct shardfuzz_layer_call *call); /* any other number than SHARDFUZZ_OK: a finding */

enum shardfuzz_layer_takes {
  SHARDFUZZ_TAKES_SEQUENCE_PARALLEL = 1,
  SHARDFUZZ_TAKES_FP8 = 2 /* of a linear: products of casts to fp8, with the scales that it is given */
};

struct shardfuzz_layer {
  const char *module;
  uint32_t dtypes; /* SHARDFUZZ_BIT of fp32, bf16, fp16. Cases with products of fp8 are stored in bf16; a linear whose products those are
                      gets them with _TAKES_FP8, mlp never */
  uint32_t takes;  /* of enum shardfuzz_layer_takes */
  shardfuzz_layer_function *forward, *backward;
  const struct shardfuzz_attribute *fixed; /* fields of a case file with one value: {"model.activation", 0, 0}; only `integer` counts */
  const struct shardfuzz_limit *limits;    /* of a case file's fields: {"layout.tp", 4, 0} */
  int32_t fixed_count, limit_count;
};

/* --- models -----------------------------------------------------------------------------------------------------------------------
 *
 * A model is the whole training program of one rank: it makes its layers, trains for the case's steps on its place of the layout, and hands
 * over every tensor that the reference has as soon as it is complete. Nothing of it is built in. What it computes, the names of modules and
 * parameters, and where values are rounded is written in shardfuzz's harness/docs/model.md; example/gpt.c is one.
 *
 * A case has many fields; a model lists those that it takes beyond the plainest decoder on one rank, with their ranges (numbers of a case
 * file; a name counts from 0, off is 0): {"layout.tp", 1, 8}, {"model.bias", 0, 1}. Always drawn, and listed only to narrow them: seed,
 * mode, schedule, the order of ranks, model.layers, hidden, heads, kv_heads, head_dim, ffn, vocab, vocab_padded and seq, train.steps,
 * microbatches, microbatch_size, clip_milli, lr_micro, weight_decay_milli, beta1_milli and beta2_milli, and data.tokens, mask, weights,
 * acts, grads and exact. All others stay at their smallest value unless they are listed: rms norm, gelu, no positions, no bias, untied, no
 * experts, one rank on each axis. Never: fp8, stochastic rounding, cross-attention, multi-token prediction, ZeRO, a second layout.
 *
 * In each step, in this order: PARAM of every parameter that the rank holds; with `parameter` in isolated mode their new values; for every
 * microbatch, in the schedule's order, ACT, and ACT_GRAD and WGRAD; SCALAR loss and tokens; MAIN_GRAD; with loss scaling SCALAR overflow;
 * SCALAR grad_norm and clip; PARAM_DELTA. After the last step PARAM again, with its number. What is handed over may be overwritten: go on
 * with what then stands there.
 *
 * Noise levels are those of fp32 sums in any order, but of a softmax's and a norm's sums over a row those of partial sums or of fp64: one
 * chain of fp32 additions over a long row is found.
 *
 * Rules: those of layers. Memory that is taken lies between walls too, and is checked when it is given back or the run ends. */

enum shardfuzz_parameter_flags { SHARDFUZZ_TRAINABLE = 1, SHARDFUZZ_DECAYED = 2 };
struct shardfuzz_model_parameter {
  const char *name; /* "decoder.layers.0.mlp.linear_fc1.weight" */
  int64_t shape[2]; /* a vector is one row */
  uint32_t flags, reserved; /* of enum shardfuzz_parameter_flags */
};

enum shardfuzz_traced {
  SHARDFUZZ_TRACED_PARAM = 0,      /* a parameter in the compute format, where the step begins */
  SHARDFUZZ_TRACED_ACT = 1,        /* what a module put out */
  SHARDFUZZ_TRACED_ACT_GRAD = 2,   /* gradient with respect to a module's input */
  SHARDFUZZ_TRACED_WGRAD = 3,      /* of one microbatch, fp32 */
  SHARDFUZZ_TRACED_MAIN_GRAD = 4,  /* of the step, normalised, before clipping, fp32 */
  SHARDFUZZ_TRACED_PARAM_DELTA = 5, /* change of the fp32 weight made by the step */
  SHARDFUZZ_TRACED_SCALAR = 6      /* "loss", "tokens", "grad_norm", "clip", "loss_scale", "overflow": one fp32 number */
};
enum shardfuzz_pass { SHARDFUZZ_PASS_FORWARD = 0, SHARDFUZZ_PASS_RECOMPUTE = 1, SHARDFUZZ_PASS_BACKWARD = 2 };

/* A tensor that is handed over: dense, row by row, the elements (row of `rows`, column of `cols`) of the logical one. */
struct shardfuzz_point {
  uint32_t traced, pass; /* pass: of ACT, ACT_GRAD and WGRAD */
  int64_t step, microbatch; /* microbatch: global number; of ACT, ACT_GRAD and WGRAD */
  const char *subject;      /* the module, the parameter or the scalar */
  uint32_t dtype;           /* of the memory: SHARDFUZZ_F32, or the case's */
  int32_t call;             /* 0; 1: received from the neighbouring stage, or the tied weight's gradient from its use as output layer */
  const struct shardfuzz_run *rows, *cols; /* NULL for a scalar */
  int32_t row_count, col_count;
};

struct shardfuzz_model_call {
  uint32_t size_bytes; /* of this struct; grows with later versions */
  uint32_t dtype;      /* enum shardfuzz_dtype of the case */
  const struct shardfuzz_attribute *fields; /* every number of the case: {"model.hidden", 64, 64.0}; names count from 0 */
  const struct shardfuzz_model_parameter *parameters;
  int32_t field_count, parameter_count;
  const struct shardfuzz_comm *comm;
  void *(*take)(const struct shardfuzz_model_call *call, uint64_t size_bytes); /* memory until the run ends, or until it is given back */
  void (*give)(const struct shardfuzz_model_call *call, void *memory);
  /* Values of this rank's elements of a parameter, fp32: returns 1 and fills out where the step begins with given values, 0 where it goes
   * on with its own. Step 0: given. */
  int (*parameter)(const struct shardfuzz_model_call *call, int32_t index, int64_t step, const struct shardfuzz_run *rows,
                   int32_t row_count, const struct shardfuzz_run *cols, int32_t col_count, float *out);
  /* seq * microbatch_size of each, token (position p, sequence i) at p * microbatch_size + i. mask: 0 or 1. Each may be NULL. */
  void (*data)(const struct shardfuzz_model_call *call, int64_t step, int64_t microbatch, int32_t *tokens, int32_t *labels, float *mask);
  /* first [microbatch_size x seq]: where the token's document begins. Returns 0, and writes nothing, where every sequence is one document.
   */
  int (*documents)(const struct shardfuzz_model_call *call, int64_t step, int64_t microbatch, int32_t *first);
  /* kept [count]: 1 or 0 for the elements from `first` on, row by row, of the branch that the module self_attn_bda or mlp_bda adds. */
  void (*dropout)(const struct shardfuzz_model_call *call, const char *module, int64_t step, int64_t microbatch, int64_t first,
                  int64_t count, float *kept);
  void (*trace)(const struct shardfuzz_model_call *call, const struct shardfuzz_point *point, void *data);
  void (*place)(const struct shardfuzz_model_call *call,
                const char *name); /* where the program stands: names the calls that follow, for reports; at most 24 names */
  void *host;
};
typedef int shardfuzz_model_function(const struct shardfuzz_model_call *call); /* any other number than SHARDFUZZ_OK: a finding */

/* A case file's field, and the values that are taken. */
struct shardfuzz_range {
  const char *field;
  int64_t min, max;
};

struct shardfuzz_model {
  const char *name;
  uint32_t dtypes; /* SHARDFUZZ_BIT of fp32, bf16, fp16 */
  int32_t range_count;
  const struct shardfuzz_range *ranges;
  shardfuzz_model_function *run;
  int (*supports)(const struct shardfuzz_attribute *fields,
                  int32_t field_count); /* what ranges cannot say: SHARDFUZZ_OK or _UNSUPPORTED; may be NULL */
};

/* --- the declaration ------------------------------------------------------------------------------------------------------------ */

enum shardfuzz_kind { SHARDFUZZ_KIND_OPERATIONS = 1, SHARDFUZZ_KIND_LAYERS = 2, SHARDFUZZ_KIND_MODEL = 3 };

struct shardfuzz_plugin {
  uint32_t abi;        /* SHARDFUZZ_PLUGIN_ABI */
  uint32_t size_bytes; /* of this struct */
  uint32_t kind;       /* enum shardfuzz_kind: says what `entries` are */
  int32_t entry_count;
  const char *name;
  const void *entries;  /* struct shardfuzz_operation[entry_count], struct shardfuzz_layer[entry_count], or one struct shardfuzz_model */
  uint32_t entry_bytes; /* size of one */
  uint32_t reserved;    /* 0 */
};

#if defined(__GNUC__)
__attribute__((visibility("default"))) /* what the library gives is never NULL, and stays valid */
#endif
const struct shardfuzz_plugin *shardfuzz_plugin_get(void);

#ifdef __cplusplus
}
#endif
#endif
