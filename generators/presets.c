#include "generators/presets.h"

#include <stddef.h>
#include <string.h>

/* The features that none of these models has. */
#define PLAIN                                                                                                                              \
  "model.adapter=off", "model.qk_norm=off", "model.sinks=off", "model.window=0", "model.kv_lora_rank=0", "model.parallel_residual=off",    \
      "model.post_norm=off", "model.memory_seq=0", "model.mtp_depth=0", "moe.experts=0"
#define GPT2                                                                                                                               \
  "model.norm=layer", "model.activation=gelu", "model.positions=learned", "model.bias=on", "model.tied=on", PLAIN, "precision.compute=fp32"
#define LLAMA                                                                                                                              \
  "model.norm=rms", "model.activation=swiglu", "model.positions=rotary", "model.bias=off", "model.tied=off", PLAIN, "precision.compute=bf16"
#define LLAMA_2_7B                                                                                                                         \
  LLAMA, "model.layers=32", "model.hidden=4096", "model.heads=32", "model.kv_heads=32", "model.head_dim=128", "model.ffn=11008",           \
      "model.vocab=32000", "model.vocab_padded=32000", "model.seq=4096"
#define TINY "model.layers=2", "model.hidden=64", "model.seq=32", "train.microbatches=2"
#define LLAMA_2_TINY                                                                                                                       \
  LLAMA, TINY, "model.heads=8", "model.kv_heads=8", "model.head_dim=8", "model.ffn=176", "model.vocab=128", "model.vocab_padded=128"

const struct sf_preset sf_presets[] = {
    {"gpt2-small",
     "GPT-2 124M: 12 layers, hidden 768, tied embeddings, vocabulary 50257 padded to 50304; fp32",
     {GPT2, "model.layers=12", "model.hidden=768", "model.heads=12", "model.kv_heads=12", "model.head_dim=64", "model.ffn=3072",
      "model.vocab=50257", "model.vocab_padded=50304", "model.seq=1024", NULL}},
    {"gpt2-small-tiny",
     "GPT-2's structure: 2 layers, hidden 64, 4 heads, vocabulary 125 padded to 128; fp32",
     {GPT2, TINY, "model.heads=4", "model.kv_heads=4", "model.head_dim=16", "model.ffn=256", "model.vocab=125", "model.vocab_padded=128",
      NULL}},
    {"llama-2-7b", "LLaMA-2 7B: 32 layers, hidden 4096, SwiGLU, rotary, RMSNorm; bf16", {LLAMA_2_7B, NULL}},
    {"llama-2-7b-tiny", "LLaMA-2's structure: 2 layers, hidden 64, 8 heads; bf16", {LLAMA_2_TINY, NULL}},
    {"llama-3-8b",
     "LLaMA-3 8B: 32 layers, hidden 4096, 8 key/value heads for 32 heads, vocabulary 128256; bf16",
     {LLAMA, "model.layers=32", "model.hidden=4096", "model.heads=32", "model.kv_heads=8", "model.head_dim=128", "model.ffn=14336",
      "model.vocab=128256", "model.vocab_padded=128256", "model.seq=8192", NULL}},
    {"llama-3-8b-tiny",
     "LLaMA-3's structure: 2 layers, hidden 64, 2 key/value heads for 8 heads; bf16",
     {LLAMA, TINY, "model.heads=8", "model.kv_heads=2", "model.head_dim=8", "model.ffn=224", "model.vocab=128", "model.vocab_padded=128",
      NULL}},
    {"hlat-7b",
     "HLAT 7B (arXiv 2404.10630): LLaMA-2 7B in bf16 with stochastic rounding, tp 8, sequence parallelism and ZeRO-1; needs --max-ranks 16",
     {LLAMA_2_7B, "precision.stochastic=on", "layout.tp=8", "layout.sp=on", "layout.zero=1", NULL}},
    {"hlat-7b-tiny",
     "HLAT's structure: 2 layers, hidden 64, 8 heads, tp 4, sequence parallelism, ZeRO-1; bf16 with stochastic rounding",
     {LLAMA_2_TINY, "precision.stochastic=on", "layout.tp=4", "layout.sp=on", "layout.zero=1", NULL}},
};
const int sf_preset_count = (int)(sizeof sf_presets / sizeof sf_presets[0]);

const struct sf_preset *sf_preset_find(const char *name) {
  for (int i = 0; i < sf_preset_count; i++)
    if (strcmp(sf_presets[i].name, name) == 0) return &sf_presets[i];
  return NULL;
}
