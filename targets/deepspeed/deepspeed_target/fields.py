"""What a case has: paths and what a field may be, the plainest first (targets/worker.md). Names are DeepSpeed's where it has one."""
from shardfuzz.fields import beyond, choices, refusal

LARGE = 500000000


def zero(stages, *values, **more):
    """A setting of zero_optimization that some stages look at. It says how ranks share the work, never what is computed."""
    return choices(*values, layout=True, one_in=3, needs={"zero.stage": stages}, **more)


AXES = ("dp", "cp", "tp", "pp")
ALL, EARLY, LAST = [1, 2, 3], [1, 2], [3]
FIELDS = {
    "layout.dp": choices(1, 2, 4, 3, layout=True, one_in=1),
    "layout.cp": choices(1, 2, 4, layout=True, one_in=6, needs={"model.attention": [True]}),
    "layout.tp": choices(1, 2, 4, 3, layout=True, one_in=4),
    "layout.pp": choices(1, 2, 3, 4, layout=True, one_in=4),
    "layout.ep": choices(1, 2, 4, layout=True, one_in=2, needs={"model.experts": [4], "layout.dp": [2, 4]}),
    "zero.stage": choices(0, 1, 2, 3, layout=True, one_in=1),
    "zero.contiguous_gradients": zero(ALL, True, False),
    "zero.overlap_comm": zero(ALL, False, True),
    "zero.reduce_scatter": zero(ALL, True, False),
    "zero.reduce_bucket_size": zero(ALL, LARGE, 512, 256, 128, 64, 300, 16),
    "zero.allgather_bucket_size": zero(EARLY, LARGE, 256, 64, 100),
    "zero.use_multi_rank_bucket_allreduce": zero(EARLY, True, False),
    "zero.round_robin_gradients": zero(EARLY, False, True),
    "zero.parameter_alignment": zero(EARLY, False, True),
    "zero.elastic_checkpoint": zero(EARLY, False, True),
    "zero.offload_optimizer": zero(ALL, False, True),
    "zero.offload_param": zero(LAST, False, True),
    "zero.sub_group_size": zero(LAST, 1000000000, 300, 64),
    "zero.stage3_param_persistence_threshold": zero(LAST, 100000, 0, 10, 100),
    "zero.stage3_prefetch_bucket_size": zero(LAST, 50000000, 0, 300),
    "zero.stage3_max_live_parameters": zero(LAST, 1000000000, 0, 300),
    "zero.stage3_max_reuse_distance": zero(LAST, 1000000000, 0, 300),
    "zero.stage3_use_all_reduce_for_fetch_params": zero(LAST, False, True),
    "zero.stage3_allgather_sequential": zero(LAST, False, True),
    "zero.zero_hpz_partition_size": choices(1, 2, layout=True, one_in=4, needs={"zero.stage": LAST, "layout.dp": [4]}),
    "zero.init": zero(LAST, False, True),
    "zero.leaf": zero(LAST, False, True),
    "engine.accumulate": choices("counted", "set", "unmanaged", "no_sync", "coalesce", layout=True, one_in=2),
    "engine.backward": choices("engine", "tensor", layout=True, one_in=4, needs={"zero.stage": ALL}),
    "engine.dynamic_loss_scale": choices(False, True, layout=True, one_in=3, needs={"train.precision": ["fp16"]}),
    "engine.groups": choices("parallel_state_sp", "mpu", "mesh_param", layout=True, one_in=2, needs={"layout.cp": [2, 4]}),
    "engine.read": choices("buffers", "safe_get", layout=True, one_in=8, needs={"zero.stage": [1, 2]}),
    "engine.prescale_gradients": choices(False, True, layout=True, one_in=8),
    "engine.gradient_predivide_factor": choices(1.0, 2.0, 4.0, layout=True, one_in=8),
    "engine.communication_data_type": choices("none", "fp32", layout=True, one_in=4, needs={"layout.dp": [2, 3, 4]}),
    "engine.grad_accum_dtype": choices("none", "fp32", layout=True, one_in=4, needs={"zero.stage": ALL}),
    "tensor_parallel.head": choices("whole", "column", "row", layout=True, one_in=2, needs={"layout.tp": [2, 3, 4]}),
    "tensor_parallel.tp_overlap_comm": choices(False, True, layout=True, one_in=3, needs={"layout.tp": [2, 3, 4]}),
    "pipeline.partition_method": choices("parameters", "uniform", "type:block", layout=True, one_in=2, needs={"layout.pp": [2, 3, 4]}),
    "pipeline.activation_checkpoint_interval": choices(0, 1, 2, 3, layout=True, one_in=2, needs={"layout.pp": [2, 3, 4]}),
    "pipeline.use_reentrant": choices(False, True, layout=True, one_in=2, needs={"pipeline.activation_checkpoint_interval": [1, 2, 3]}),
    "checkpoint.before": choices(0, 1, 2, layout=True, one_in=4, needs={"train.steps": [2, 3]}),   # the step, counted from 0; 0: no checkpoint
    "checkpoint.universal": choices(False, True, layout=True, one_in=2, needs={"checkpoint.before": [1, 2], "zero.stage": ALL}),
    "checkpoint.into_stage": choices("same", 1, 2, 3, layout=True, one_in=2, needs={"checkpoint.universal": [True]}),
    # How many data-parallel ranks there are before the checkpoint, and after it. 0: layout.dp
    "checkpoint.saved_by": choices(0, 1, 2, 3, layout=True, one_in=2, needs={"checkpoint.before": [1, 2], "layout.dp": [2, 3, 4]}),
    "checkpoint.loaded_by": choices(0, 1, 2, 3, layout=True, one_in=2, needs={"checkpoint.before": [1, 2], "layout.dp": [2, 3, 4]}),
    "train.precision": choices("fp32", "bf16", "fp16", one_in=2),
    "train.loss_scale": choices(1, 128, 1024, needs={"train.precision": ["fp16"]}, one_in=2),
    "train.optimizer": choices("sgd", "momentum", "adam", "adamw", one_in=2),
    "train.weight_decay": choices(0.0, 0.1, one_in=3),
    "train.groups": choices(1, 2, one_in=3),
    "train.clipping": choices(0.0, 0.1, 1.0, one_in=3),
    "train.grad_norm": choices(False, True, one_in=2),
    "train.steps": choices(1, 2, 3, one_in=2),
    "train.accumulation": choices(1, 2, 3, one_in=2),
    "train.backwards": choices(1, 2, one_in=4),
    "train.joint": choices(False, True, needs={"train.backwards": [2]}, one_in=2),
    "train.rows": choices(12, 24, one_in=4),
    "train.tokens": choices(4, 8, one_in=4),
    "model.layers": choices(1, 2, 3, one_in=2),
    "model.uses": choices(1, 2, one_in=4),
    "model.hidden": choices(8, 16, 12, one_in=2),
    "model.ffn": choices(16, 8, 20, 32, one_in=2),
    "model.bias": choices(False, True, one_in=2),
    "model.attention": choices(False, True, one_in=2),
    "model.heads": choices(4, 2, needs={"model.attention": [True]}, one_in=3),
    "model.fused": choices(False, True, one_in=3),    # the three projections of attention in one layer, and both of a gated feed-forward layer
    "model.experts": choices(0, 4, one_in=4),
    "model.active": choices(1, 2, one_in=2, needs={"model.experts": [4]}),
    "model.tied": choices(False, True, one_in=3),
    "model.extra": choices("none", "unused", "odd", one_in=4),
    "model.frozen": choices("none", "embedding", "first_layer", "norms", one_in=4),
    "model.recompute": choices("none", "non_reentrant", "reentrant", one_in=3),
    "seed": {"min": 0, "max": 1000000},
}


def pipelines(reason, **when):
    return refusal(reason, layout__pp=[2, 3, 4], **when)


def tensors(reason, **when):
    return refusal(reason, layout__tp=[2, 3, 4], **when)


REFUSES = [
    pipelines("DeepSpeed's pipelines are for stages 0 and 1", zero__stage=[2, 3]),
    pipelines("DeepSpeed's pipelines are for stages 0 and 1", checkpoint__into_stage=[2, 3]),
    pipelines("a pipeline accumulates and runs its backward passes itself", engine__accumulate=["set", "unmanaged", "no_sync", "coalesce"]),
    pipelines("a pipeline runs its backward passes itself", engine__backward=["tensor"]),
    pipelines("a pipeline has one backward pass for each microbatch", train__backwards=[2]),
    pipelines("shardfuzz does not try sequence parallelism in a pipeline", layout__cp=[2, 4]),
    pipelines("shardfuzz does not try experts in a pipeline", model__experts=[4]),
    pipelines("each microbatch uses each layer of a pipeline", model__extra=["unused", "odd"]),
    pipelines("the bias of a tied head is not in a pipeline's checkpoint", model__tied=[True], model__bias=[True]),
    pipelines("the pipeline's optimizer for bf16 rounds clipped gradients to bf16", zero__stage=[0], train__precision=["bf16"], train__clipping=[0.1, 1.0]),
    pipelines("nothing says which of a layer's calls a reentrant checkpoint runs again", model__uses=[2], pipeline__use_reentrant=[True]),
    pipelines("a pipeline has its own settings of activation checkpoints", model__recompute=["non_reentrant", "reentrant"]),
    pipelines("DeepSpeed waits for ever where stages have different numbers of groups", train__groups=[2]),
    pipelines("DeepSpeed's optimizer for bf16 fails with tied layers that are frozen: they have no _hp_grad (runtime/pipe/engine.py, line 283)",
              train__precision=["bf16"], model__uses=[2], model__frozen=["first_layer", "norms"]),
    pipelines("DeepSpeed's optimizer for bf16 fails on a stage with tied parameters alone (runtime/utils.py, line 952)",
              train__precision=["bf16"], engine__grad_accum_dtype=["fp32"], model__tied=[True], zero__offload_optimizer=[False]),
    pipelines("DeepSpeed fails to load what its optimizer for bf16 saved: KeyError (runtime/bf16_optimizer.py, line 670)",
              zero__stage=[0], train__precision=["bf16"], checkpoint__before=[1, 2]),
    pipelines("DeepSpeed refuses a stage that trains nothing", model__tied=[True], model__frozen=["embedding"]),
    pipelines("a reentrant checkpoint needs an input with a gradient", pipeline__use_reentrant=[True], model__frozen=["embedding"]),
    tensors("DeepSpeed fails: the gradient that overlapping communication is given must be contiguous (module_inject/layers.py, line 281)",
            tensor_parallel__tp_overlap_comm=[True], model__attention=[True]),
    tensors("shardfuzz does not try tensor parallelism in a pipeline", layout__pp=[2, 3, 4]),
    tensors("shardfuzz does not try tensor and sequence parallelism together", layout__cp=[2, 4]),
    tensors("shardfuzz does not try experts with tensor parallelism", model__experts=[4]),
    refusal("ranks have whole heads", layout__tp=[3], model__attention=[True]),
    refusal("ranks have whole heads", layout__tp=[4], model__attention=[True], model__heads=[2]),
    *(refusal("not yet supported with reduce scatter (stage_1_and_2.py, line 350)", zero__stage=ALL, zero__reduce_scatter=[True], **more)
      for more in ({"engine__prescale_gradients": [True]}, {"engine__gradient_predivide_factor": [2.0, 4.0]})),
    refusal("no_sync is for stages that keep whole gradients", engine__accumulate=["no_sync"], zero__stage=[2, 3]),
    refusal("coalesce_grad_reduction is for stages 1 to 3", engine__accumulate=["coalesce"], zero__stage=[0]),
    refusal("a reentrant checkpoint needs an input with a gradient", model__recompute=["reentrant"], model__frozen=["embedding"]),
    refusal("a torch optimizer keeps no norm to report", zero__stage=[0], train__precision=["fp32"], train__grad_norm=[True]),
    refusal("Ulysses gives each rank whole heads", layout__cp=[4], model__heads=[2]),
    refusal("the ranks of ep are ranks of dp", layout__ep=[4], layout__dp=[1, 2, 3]),
    refusal("the ranks of ep are ranks of dp", layout__ep=[2], layout__dp=[1, 3]),
    refusal("shardfuzz does not try experts with sequence parallelism", model__experts=[4], layout__cp=[2, 4]),
    *(refusal(f"not tested with MoE, says DeepSpeed: {name} must be on", model__experts=[4], zero__stage=EARLY, **{f"zero__{name}": [False]})
      for name in ("reduce_scatter", "contiguous_gradients")),
    refusal("DeepSpeed's MoE is for stages 0 to 2", model__experts=[4], zero__stage=[3]),
    refusal("rounding changes which experts a token uses", model__experts=[4], train__precision=["bf16", "fp16"]),
    refusal("DeepSpeed asserts when a process makes a second engine with zero.Init and zero_hpz_partition_size",
            checkpoint__before=[1, 2], zero__zero_hpz_partition_size=[2], zero__init=[True]),
    refusal("ds_to_universal converts the states of Adam only (line 154)",
            checkpoint__universal=[True], train__optimizer=["sgd", "momentum"]),
    refusal("ds_to_universal expects more files than sequence parallelism writes (checkpoint/reshape_3d_utils.py, line 106)",
            checkpoint__universal=[True], layout__cp=[2, 4]),
    refusal("DeepSpeed waits for ever when it loads experts from a universal checkpoint", checkpoint__universal=[True], model__experts=[4]),
    *(refusal("the engine finds no files: those of stage 3 have other names (runtime/state_dict_factory.py, line 168)",
              zero__stage=here, checkpoint__into_stage=there) for here, there in ((EARLY, LAST), (LAST, EARLY))),
    *(refusal("saved_by and loaded_by must be less than layout.dp", layout__dp=[dp], **{f"checkpoint__{name}": [some]})
      for name in ("saved_by", "loaded_by") for dp, some in ((2, 2), (2, 3), (3, 3))),
    *(refusal("only a universal checkpoint can be loaded by another number of ranks (runtime/engine.py, line 4748)", checkpoint__universal=[False],
              zero__stage=ALL, **{f"checkpoint__{name}": [1, 2, 3]}) for name in ("saved_by", "loaded_by")),
    *(refusal("the same number of ranks saves and loads: set layout.dp to it", checkpoint__saved_by=[some], checkpoint__loaded_by=[some])
      for some in (1, 2, 3)),
    refusal("ds_to_universal fails: AttributeError (checkpoint/zero_checkpoint.py, line 136)", checkpoint__universal=[True],
            zero__elastic_checkpoint=[True]),
    *(refusal("shardfuzz does not try experts on another number of ranks", model__experts=[4], **{f"checkpoint__{name}": [1, 2, 3]})
      for name in ("saved_by", "loaded_by")),
    *(refusal("shardfuzz does not try hierarchical partitions on another number of ranks", zero__zero_hpz_partition_size=[2], **{f"checkpoint__{name}": [1, 2, 3]})
      for name in ("saved_by", "loaded_by")),
    tensors("ds_to_universal asserts that each sharded weight is trained (Unused patterns)", checkpoint__universal=[True],
            model__frozen=["embedding", "first_layer", "norms"]),
    tensors("ds_to_universal fails with zero.Init: a parameter's part lies behind the end of its rank's file (checkpoint/ds_to_universal.py, line 238)",
            checkpoint__universal=[True], zero__init=[True]),
    tensors("ds_to_universal fails: ranks hold different data for the same block of a replicated parameter", checkpoint__universal=[True],
            zero__round_robin_gradients=[True]),
    *(refusal("ds_to_universal divides by the number of layers of a stage, which is 0 (checkpoint/deepspeed_checkpoint.py, line 310)",
              checkpoint__universal=[True], layout__pp=[stages], model__layers=[layers], model__uses=[uses], model__tied=[tied])
      for stages in (2, 3, 4) for layers in (1, 2, 3) for uses in (1, 2) for tied in (False, True) if 0 < layers * uses - tied < stages),
    refusal("a stage without layers has no parameters, and torch refuses an optimizer without them", layout__pp=[4], model__layers=[1], model__uses=[1]),
    refusal("stage 3 partitions over the mpu's data-parallel group, which lacks the ranks of the sequence", zero__stage=[3], engine__groups=["mpu"]),
    *beyond(8, {f"layout.{axis}": FIELDS[f"layout.{axis}"]["choices"] for axis in AXES}),
]
DESCRIBE = {"name": "deepspeed", "ranks": [f"layout.{axis}" for axis in AXES], "fields": FIELDS, "refuses": REFUSES}
