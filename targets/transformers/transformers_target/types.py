"""Model types that have a plan for ranks, the plainest first, and what some need beside the rules of shapes.py."""

TYPES = """
llama afmoe apertus apertus1p5_text arcee aria_text axk1 axk2 bailing_hybrid bamba beam codegen cohere cohere2 cohere2_moe
cosmos3_edge_text cwm deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 diffllama doge embedding_gemma2_text ernie4_5 ernie4_5_moe eurobert
exaone exaone4 exaone_moe falcon_h1 flex_olmo flint gemma gemma2 gemma3_text gemma3n_text gemma4_text gemma4_unified_text glm glm4
glm4_moe glm4_moe_lite glm_moe_dsa gpt_neox gpt_oss gptj granite granite_docling_text granite_swa granitemoe granitemoe_swa
granitemoehybrid granitemoeshared helium higgs_audio_v2 hrm_text hunyuan_v1_dense hunyuan_v1_moe hy_v3 hy_v4 hy_v4_vl_text hyperclovax
inkling2_loop_text inkling2_text inkling_text internlm3 iquestcoder jais2 jamba kimi_linear kolibri1 laguna lara_mini lfm2 lfm3
llama4_text mellum minicpm3 minimax minimax_m2 minimax_m3_vl_text ministral ministral3 mistral mistral4 mistral_large4_text mixtral
muse_glimmer_text nanochat nemotron nemotron_h olmo olmo2 olmo3 olmo_hybrid olmoe openai_privacy_filter phi phi3 qwen2 qwen2_moe qwen3
qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next qwen3_vl_moe_text qwen3_vl_text sarvam_mla sarvam_moe seed_oss smollm3 solar_open
starcoder2 ultrabert vaultgemma youtu zaya
""".split()

# Those whose experts have a plan of their own.
EXPERTS = """
afmoe aria_text axk1 axk2 bailing_hybrid beam cohere2_moe deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 ernie4_5_moe exaone_moe
flex_olmo flint gemma4_text glm4_moe glm4_moe_lite glm_moe_dsa gpt_oss granitemoe granitemoe_swa granitemoehybrid granitemoeshared
hunyuan_v1_moe hy_v3 hy_v4 hy_v4_vl_text inkling2_loop_text inkling2_text inkling_text jamba kimi_linear kolibri1 laguna lara_mini mellum
minimax minimax_m2 minimax_m3_vl_text mistral4 mistral_large4_text mixtral nemotron_h olmoe openai_privacy_filter qwen2_moe
qwen3_5_moe_text qwen3_moe qwen3_next qwen3_vl_moe_text sarvam_mla sarvam_moe solar_open zaya
""".split()

OVERRIDES = {
    "embedding_gemma2_text": {"num_global_key_value_heads": 4, "global_head_dim": 16},
    "gemma4_text": {"global_head_dim": 16},
    "gemma4_unified_text": {"global_head_dim": 16},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "zaya": {"num_experts_per_tok": 1},
}

# Modules whose tensors are not [rows, ...] or [rows * tokens, ...], which data parallelism cannot put together.
OTHER_ROWS = {
    "gemma3n_text": ["model.layers.*", "model.layers.*.altup", "model.altup_projections.*", "model.altup_unembed_projections.*"],
    "inkling_text": ["model.layers.*.mlp.shared_experts", "model.layers.*.mlp.shared_experts.act_fn"],
    "llama4_text": ["model.layers.*.feed_forward.experts", "model.layers.*.feed_forward.router"],
    "mistral_large4_text": ["layers.*.self_attn:*", "layers.*:*"],
}
