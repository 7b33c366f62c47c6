"""The wrong tensor that shows the bug of each case in corpus/regress/megatron-core: the first one, unless another bug's stands before it."""
FOLDER = "corpus/regress/megatron-core"
FIRST = {
    "aux-loss-per-token": "s0/mb0/bwd/act_grad/decoder.layers.0.mlp.router/0",
    "expert-data-group": "s0/mb0/step/main_grad/decoder.layers.0.mlp.experts.local_experts.0.linear_fc1.weight/0",
    "gathered-logits": "s0/mb0/fwd/act/model/0",
    "global-aux-loss": "s0/mb0/bwd/act_grad/decoder.layers.0.mlp.router/0",
    "linear-attention-norm": "s0/mb0/step/main_grad/decoder.layers.0.self_attention.out_norm.weight/0",
    "loss-of-local-tokens": "s0/mb1/bwd/act_grad/output_layer/0",
    "mla-query-norm": "s0/mb0/step/main_grad/decoder.layers.0.self_attention.q_layernorm.weight/0",
    "mla-shared-key": "s0/mb0/bwd/act_grad/decoder.layers.0.self_attention.linear_kv_down_proj/0",
    "mtp-loss-of-local-tokens": "s0/mb0/bwd/act_grad/output_layer/0",
    "mtp-position-embedding": "s0/mb0/step/main_grad/embedding.position_embeddings.weight/0",
    "recompute-block-padding": "s0/mb0/bwd/act_grad/decoder.layers.1.mlp.router/0",
    "sinks-clipping-norm": "s0/mb0/step/scalar/grad_norm/0",
    "z-loss-padding": "s0/mb0/bwd/act_grad/decoder.layers.0.mlp.router/0",
}
BEFORE = {"mla-query-norm": "mla-shared-key"}  # every case of MLA under tp has that bug too
