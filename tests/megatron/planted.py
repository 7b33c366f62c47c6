"""The worker of Megatron Core with two wrong modules in what candidates compute of a case with seed PLANTED: the norm before the attention of
layer 0 is 1 % too large, in bf16 5 %, and linear_fc2 of layer 1 leaves out its all-reduce."""
from unittest import mock

import torch
from megatron_core_target import serving

PLANTED = 77
WRONG = ("decoder.layers.0.input_layernorm", "decoder.layers.1.mlp.linear_fc2")


def plant(decoder):
    from megatron.core.tensor_parallel import layers     # after the shims
    norm, linear = decoder.layers[0].input_layernorm, decoder.layers[1].mlp.linear_fc2
    norm_forward, linear_forward = norm.forward, linear.forward

    def without_sum(*args, **options):
        with mock.patch.object(layers, "reduce_from_tensor_model_parallel_region", lambda tensor, group=None: tensor.clone()):
            return linear_forward(*args, **options)

    def too_large(*args, **options):
        output = norm_forward(*args, **options)
        return output * (1.05 if output.dtype == torch.bfloat16 else 1.01)
    norm.forward, linear.forward = too_large, without_sum


class PlantedWorker(serving.Worker):
    def __init__(self, *args):
        super().__init__(*args)
        build = self.session._build

        def build_and_plant(case):
            build(case)
            if self.world.ranks > 1 and case["seed"] == PLANTED:
                plant(self.session.model.chunks[0].decoder)
        self.session._build = build_and_plant


if __name__ == "__main__":
    serving.Worker = PlantedWorker
    serving.serve(strict=False)
