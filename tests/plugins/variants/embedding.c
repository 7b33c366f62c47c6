/* The word embedding, cut over the vocabulary, with BUG. */
#include "tests/plugins/layer.h"

/* The weight's local row of a word, or -1 where another rank has it. */
static int64_t shard_row(const struct shardfuzz_parameter *weight, int64_t word) {
  const int64_t rows = weight->row_runs->length - (BUG == LAST_ROW_MASKED && weight->row_runs->length < weight->shape[0]),
                row = word - weight->row_runs->start;
  return row >= 0 && row < rows ? row : -1;
}

static int words_forward(layer_call call) {
  const struct shardfuzz_parameter *weight = parameter(call, "weight");
  const int64_t tokens = rows_of(call->input), h = cols_of(call->output);
  float *partial = floats(call, tokens * h);
  for (int64_t t = 0; t < tokens; t++) {
    const int64_t row = shard_row(weight, get_int(call->input, t, 0));
    for (int64_t j = 0; j < h; j++) partial[t * h + j] = row >= 0 ? get(&weight->value, row, j) : 0;
  }
  sum_over_tp(call, call->output, partial, tokens);
  return SHARDFUZZ_OK;
}

static int words_backward(layer_call call) {
  const struct shardfuzz_parameter *weight = parameter(call, "weight");
  const int64_t h = cols_of(call->output_grad);
  int64_t tokens;
  const float *g = gather_tokens(call, call->output_grad, &tokens);
  float *dw = weight->grad.data;
  if (!dw) return SHARDFUZZ_OK;
  for (int64_t i = 0; i < rows_of(&weight->grad) * h; i++) dw[i] = 0;
  for (int64_t t = 0; t < tokens; t++) {
    const int64_t row = shard_row(weight, get_int(call->input, t, 0));
    for (int64_t j = 0; row >= 0 && j < h; j++) dw[row * h + j] = (BUG == DUPLICATES_LOST ? 0 : dw[row * h + j]) + g[t * h + j];
  }
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_layer layers[] = {{.module = "embedding.word_embeddings",
                                                 .dtypes = FORMATS,
                                                 .takes = SHARDFUZZ_TAKES_SEQUENCE_PARALLEL,
                                                 .forward = words_forward,
                                                 .backward = words_backward}};
LAYERS(layers)
