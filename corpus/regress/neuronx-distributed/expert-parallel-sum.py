"""In training with expert parallelism the output of MoE is summed over all ranks: each data-parallel rank gets the sum of all ranks' tokens.

Experts.forward brings each token's result back to its own rank (all-to-all). MoE.forward (modules/moe/model.py) then sums over the world group wherever expert
parallelism is on, as inference needs it, where all ranks have the same tokens.
Run it with python: it needs neuronx_distributed (0.14.0 to 0.18.0 show it, 0.13.0 does not) on PYTHONPATH. Exit code 1: a rank's output is not that of its tokens.
"""
import torch
from gloo import run, say

EXPERTS, WIDTH, INNER = 4, 8, 16


def layer():
    from neuronx_distributed.modules.moe import expert_mlps, model, routing
    from neuronx_distributed.parallel_layers import parallel_state
    spread = parallel_state.get_expert_model_parallel_size() > 1
    # Just below two, the capacity that loses no token: from two on, the library takes it for none.
    mlps = expert_mlps.ExpertMLPs(EXPERTS, 2, WIDTH, INNER, hidden_act="silu", glu_mlp=True, capacity_factor=1.999, enable_spmd_rank=spread)
    return model.MoE(routing.RouterTopK(EXPERTS, 2, WIDTH), mlps)


def main(rank):
    from neuronx_distributed.parallel_layers import initialize_model_parallel, parallel_state
    initialize_model_parallel(tensor_model_parallel_size=1)
    whole, tokens = layer(), torch.randn(2, 6, 1, WIDTH)
    want = whole(tokens[rank])[0]
    parallel_state.destroy_model_parallel()
    initialize_model_parallel(tensor_model_parallel_size=1, expert_model_parallel_size=2)
    cut, values = layer(), dict(whole.named_parameters())
    for name, parameter in cut.named_parameters():
        if parameter.is_floating_point():
            value = values[name].data
            parameter.data.copy_(value.chunk(2)[rank] if name.endswith("_proj.weight") else value)
    got = cut(tokens[rank])[0]
    say(f"rank {rank}: output of its first token\n  got  {got[0, 0, :4].tolist()}\n  want {want[0, 0, :4].tolist()}")
    return torch.allclose(got, want, atol=1e-5)


run(main, 2)
