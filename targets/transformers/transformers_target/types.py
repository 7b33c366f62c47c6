"""Model types that have a plan for ranks, the plainest first, and what some need beside the rules of shapes.py."""

TYPES = """
llama afmoe apertus apertus1p5_text arcee aria_text axk1 axk2 bailing_hybrid bamba beam codegen cohere cohere2 cohere2_moe
cosmos3_edge_text cwm deepseek_v3 deepseek_v32 deepseek_v4 diffllama doge embedding_gemma2_text ernie4_5 ernie4_5_moe eurobert exaone
exaone4 exaone_moe falcon_h1 flex_olmo flint gemma gemma2 gemma3_text gemma3n_text gemma4_text gemma4_unified_text glm glm4 glm4_moe
glm4_moe_lite glm_moe_dsa gpt_neox gpt_oss gptj granite granite_docling_text granite_swa granitemoe granitemoe_swa granitemoehybrid
granitemoeshared helium higgs_audio_v2 hrm_text hy_v3 hy_v4 hy_v4_vl_text hyperclovax inkling2_loop_text inkling2_text inkling_text
internlm3 iquestcoder jais2 jamba kimi_linear kolibri1 laguna lara_mini lfm2 lfm3 llama4_text mellum mimo_v2_flash minicpm3 minimax
minimax_m2 minimax_m3_vl_text ministral3 mistral mistral4 mistral_large4_text mixtral muse_glimmer_text nanochat nemotron_h olmo olmo2
olmo3 olmo_hybrid olmoe openai_privacy_filter phi phi3 phimoe qwen2 qwen2_moe qwen3 qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next
qwen3_vl_moe_text qwen3_vl_text sarvam_mla sarvam_moe seed_oss smollm3 solar_open starcoder2 ultrabert vaultgemma youtu
""".split()

# Those whose experts have a plan of their own.
EXPERTS = """
afmoe aria_text axk1 axk2 bailing_hybrid beam cohere2_moe deepseek_v3 deepseek_v32 deepseek_v4 ernie4_5_moe exaone_moe flex_olmo flint
gemma4_text glm4_moe glm4_moe_lite glm_moe_dsa gpt_oss granitemoe granitemoe_swa granitemoehybrid granitemoeshared hy_v3 hy_v4
hy_v4_vl_text inkling2_loop_text inkling2_text inkling_text jamba kimi_linear kolibri1 laguna lara_mini mellum mimo_v2_flash minimax
minimax_m2 minimax_m3_vl_text mistral4 mistral_large4_text mixtral nemotron_h olmoe openai_privacy_filter phimoe qwen2_moe
qwen3_5_moe_text qwen3_moe qwen3_next qwen3_vl_moe_text sarvam_mla sarvam_moe solar_open
""".split()

OVERRIDES = {}
