"""Stand-alone scripts: a finding as one Python file that needs torch and megatron-core alone (shardfuzz fuzz puts it beside the case).

The script runs a case's step on one device and on its layout, and prints where each rank's part of one tensor is off most. Weights and data are
drawn anew, so its numbers are others than the campaign's. Text is put together from script_parts.py; only what differs from the package's
defaults is written out. Needs the package only to know its defaults.
"""
import re

from shardfuzz.megatron import layout as cuts
from shardfuzz.megatron.places import kinds_of

from . import script_parts as parts
from .script_places import part_of
from .script_tables import Tables

NAME = re.compile(r"s(?P<step>\d+)/mb(?P<microbatch>\d+)/(?P<pass>\w+)/(?P<kind>\w+)/(?P<subject>[^/]+)/(?P<call>\d+)$")
BORDER = re.compile(r"\.(input|output)(:\d+)?(?=/\d+$)")
SHOWN = ("act", "act_grad", "main_grad", "scalar")
FALLBACK = {"step": 0, "microbatch": 0, "pass": "step", "kind": "scalar", "subject": "grad_norm", "call": 0}
WORDS = {"act": "the output of", "act_grad": "the gradient of the input of", "main_grad": "the gradient of", "scalar": "the"}


def wanted(first):
    """What to show of the tensor with this name: the parts of the name. What a script cannot show gives way to the gradient norm.

    A script runs end to end: what came to a module's border shows behind the module."""
    found = NAME.match(BORDER.sub("", first))
    if not found or found["kind"] not in SHOWN or found["pass"] == "recompute":
        return dict(FALLBACK)
    result = {**found.groupdict(), **{key: int(found[key]) for key in ("step", "microbatch", "call")}}
    if result["kind"] == "scalar" and result["subject"] not in ("loss", "grad_norm"):
        return dict(FALLBACK)
    if result["kind"] in ("act", "act_grad"):
        name = result["subject"].split(":")[0]
        kinds = kinds_of("" if name == "model" else name)
        if kinds is None or result["kind"] == "act_grad" and not kinds[0]:
            return dict(FALLBACK)
    return result


SHARDED = {"CUT_SHAPE": "    cut = next((cut for pattern, *cut in CUTS if re.search(pattern, name)), None)\n"
           "    shape = [size * SIZES[cut[2]][0] if cut and i == cut[0] else size for i, size in enumerate(parameter.shape)]\n",
           "FULL_SHAPE": "shape", "CUT_FULL": "shard(full, *cut) if cut else full"}
WHOLE = {"CUT_SHAPE": "", "FULL_SHAPE": "parameter.shape", "CUT_FULL": "full"}
OPTIMIZER = {"adam_beta1": 0.9, "adam_beta2": 0.999, "sgd_momentum": 0.9, "decoupled_weight_decay": True, "apply_wd_to_qk_layernorm": False}  # defaults
SIZES = {"tp": "tensor_model_parallel", "etp": "expert_tensor_parallel", "ep": "expert_model_parallel"}     # names of the package's groups


def expanded(runs):
    return [start + i for start, length in runs for i in range(length)]


class Script(Tables):
    """One script; the method that fills in a mark has its name in lower case. case: complete. first: name of the first wrong tensor, or empty."""

    def __init__(self, case, first):
        super().__init__(case)
        self.what = wanted(first)
        self.ranks = cuts.layout_of(self.layout, 0).ranks

    def text(self):
        body = (parts.HEAD + "".join(self._needed()) + self._tables() + (parts.SHARD if self._cuts() or "shard" in self._part() else "") + self._watch() + parts.STEP + parts.MAIN)
        while "@" in body:                 # what is filled in may have marks of its own
            filled = re.sub(r"@([A-Z_]+)@", lambda found: str(self._value(found[1])), body)
            if filled == body:
                break
            body = filled
        return body

    def _value(self, mark):
        case, model, what = self.case, self.model, self.what
        sizes = {"LENGTH": case["sequence_length"], "COUNT": case["microbatches"], "SIZE": case["microbatch_size"], "RANKS": self.ranks,
                 "VOCABULARY": model["vocab_size"], "MICROBATCH": what["microbatch"], "CALL": what["call"], "SEED": case["seed"] % 1000, "DATA_SEED": case["seed"] * 1000003,
                 "NORMALIZATION": model["normalization"], "GAMMA": int(model["layernorm_zero_centered_gamma"]),
                 "GAMMA_MEAN": int(not model["layernorm_zero_centered_gamma"]), "INPUT": int((what["subject"].split(":") + ["0"])[1])}
        if mark in sizes:
            return sizes[mark]
        if mark in SHARDED:
            return SHARDED[mark] if self._cuts() else WHOLE[mark]
        return getattr(self, "_" + mark.lower())()

    # --- what the case needs ---

    def _needed(self):
        model, layout = self.model, self.layout
        experts = model["num_moe_experts"]
        yield parts.OVERLAP * layout["overlap_grad_reduce"]
        if self._own_norm():
            yield parts.NORM
        if layout["cp"] > 1:
            pieces = [expanded(cuts.zig_zag(self.case["sequence_length"], cuts.layout_of(dict(layout, tp=1), rank))) for rank in range(layout["cp"])]
            yield f"POSITIONS = [list(range({self.case['sequence_length']}))] if ONE else {pieces}\n"
        if self._own_attention():
            yield parts.ATTENTION + parts.ATTENTION_CONTEXT * (layout["cp"] > 1)
        if model["experimental_attention_variant"]:
            yield parts.LINEAR_ATTENTION
        if model["multi_latent_attention"]:
            yield parts.LATENT
        if experts:
            yield parts.EXPERTS
        if model["recompute_granularity"]:
            yield parts.RECOMPUTE

    def _own_norm(self):
        model = self.model
        return self.layout["sp"] or model["layernorm_zero_centered_gamma"] or model["fp32_residual_connection"] or model["experimental_attention_variant"]

    def _own_attention(self):
        return self.layout["cp"] > 1 or self.model["multi_latent_attention"]

    def _attention_why(self):
        return "keys and values of all cp ranks are gathered, their gradients reduce-scattered" if self.layout["cp"] > 1 else "values may be wider than keys"

    def _norm_forward(self):
        return parts.NORM_FORWARD if self.model["layernorm_zero_centered_gamma"] or self.model["fp32_residual_connection"] else ""

    # --- pieces of the step ---

    def _scale(self):
        return "1" if self.case["loss"] == "per_token" else f"{1.0 / (self.layout['dp'] * self.layout['cp'])}"

    def _loss(self):
        if self.case["loss"] == "mean":
            return f"(losses.float() * mask).sum() / masks[i].sum(), {self._report()}"
        return f"(losses.float() * mask).sum(), mask.sum().int(), {self._report()}"

    def _report(self):
        if self.what["kind"] == "scalar" and self.what["subject"] == "loss":
            return f'{{"loss": means.append((losses * mask).sum().item() / masks[i].sum().item()) if i == {self.what["microbatch"]} else None}}'
        return "{}"

    def _zero(self):
        return parts.ZERO if self.what["step"] else ""

    def _attention_size(self):
        return "        size, config.context_parallel_size = config.context_parallel_size, 1\n" if self.layout["cp"] > 1 else ""

    def _attention_rest(self):
        text = "        config.context_parallel_size = size\n" if self.layout["cp"] > 1 else ""
        if self.model["multi_latent_attention"]:
            text += "        self.hidden_size_per_partition = v_channels * self.num_attention_heads_per_partition if v_channels else self.hidden_size_per_partition\n"
        return text

    def _layers(self):
        text = ""
        if self._own_attention():
            text += "    for layer in block.layer_specs:\n        layer.submodules.self_attention.submodules.core_attention = Attention\n"
        if self.model["experimental_attention_variant"]:
            text += ("    block.layer_specs = [copy.deepcopy(layer) for layer in block.layer_specs]\n"
                     "    first = transformer_block.get_transformer_layer_offset(config, stage)\n"
                     "    for layer, linear in zip(block.layer_specs, get_linear_attention_pattern(config)[first:]):\n"
                     "        layer.submodules.self_attention = LINEAR if linear else layer.submodules.self_attention\n")
        return text

    def _l_two(self):
        return ", qk_l2_norm=True" if self.model["qk_l2_norm"] else ""

    def _gpt(self):
        base = {"parallel_output": True, "share_embeddings_and_output_weights": False, "position_embedding_type": "learned_absolute", "rotary_percent": 1.0, "rotary_base": 10000,
                "rope_scaling": False, "rope_scaling_factor": 8.0, "seq_len_interpolation_factor": None}
        text = f", vocab_size={self.model['vocab_size']}"
        for key, default in base.items():
            if self.model[key] != default:
                text += f", {key}={self.model[key]!r}" if key != "parallel_output" else ", parallel_output=ONE"
        if self.model["mtp_num_layers"]:
            text += ",\n                    mtp_block_spec=specs.get_gpt_mtp_block_spec(config, block, use_transformer_engine=False, vp_stage=stage)"
        return text

    def _name_of(self):
        """The function that makes local names global; none where they are alike."""
        if not self._renames():
            return ""
        text = 'def name_of(model, name):                  # in the whole model, whatever rank holds it\n'
        if self.layout["pp"] > 1:
            text += ('    name = re.sub(r"^decoder.layers.(\\d+)", lambda at: f"decoder.layers.{model.decoder.layers[int(at[1])].layer_number - 1}", name)\n')
        if self.layout["ep"] > 1:
            text += ('    first = model.config.num_moe_experts // SIZES["ep"][0] * SIZES["ep"][1]\n'
                     '    name = re.sub(r"local_experts.(\\d+)", lambda at: f"local_experts.{int(at[1]) + first}", name)\n')
        if self.model["share_embeddings_and_output_weights"]:
            text += '    name = "embedding.word_embeddings.weight" if name == "output_layer.weight" else name\n'
        return text + "    return name\n"

    def _renames(self):
        return self.layout["pp"] > 1 or self.layout["ep"] > 1 or self.model["share_embeddings_and_output_weights"]

    def _name(self):
        return "name_of(model, name)" if self._renames() else "name"

    def _stage(self):
        return "    if stage is not None:\n        groups.set_virtual_pipeline_model_parallel_rank(stage)\n" if self.layout["vpp"] > 1 else ""

    def _mask(self):
        padding = ", padding_mask=padding[i][:, here]" if self.case["data"]["padding"] != "none" else ""
        return (", loss_mask=masks[i][:, here]" if self.model["mtp_num_layers"] else "") + padding

    def _iterators(self):
        return "[iter(numbers) for _ in wrapped]" if self.layout["vpp"] > 1 else "iter(numbers)"

    def _models(self):
        return "wrapped" if self.layout["vpp"] > 1 else "wrapped[0]"

    def _here(self):
        return "POSITIONS[groups.get_context_parallel_rank()]" if self.layout["cp"] > 1 else f"range({self.case['sequence_length']})"

    def _layout(self):
        words = [f"{axis} {self.layout[axis]}" for axis in ("tp", "cp", "dp", "pp", "vpp", "ep") if self.layout[axis] > 1]
        if self.model["num_moe_experts"] and self.layout["etp"] != self.layout["tp"]:
            words.append(f"etp {self.layout['etp']}")
        return ", ".join(words + ["sequence parallel"] * bool(self.layout["sp"]) + ["distributed optimizer"] * bool(self.layout["distributed_optimizer"]))

    def _what(self):
        words = WORDS[self.what["kind"]] + " " + self.what["subject"]
        return words.replace("_", " ") if self.what["kind"] == "scalar" else words

    def _data(self):
        data, text = self.case["data"], ""
        if data["loss_mask"] == "uneven":
            text += ("    share = torch.rand((len(masks), 1, 1), generator=generator)\n"
                     "    masks = (torch.rand(masks.shape, generator=generator) < 0.2 + 0.6 * share).float()\n    masks[..., 0] = 1\n")
        if data["documents"] > 1:
            share = (data["documents"] - 1) / max(self.case["sequence_length"] - 1, 1)
            text += (f"    document = (torch.rand(masks.shape, generator=generator) < {share:.3f}).cumsum(-1)\n"
                     f"    hidden = hidden | (document[..., :, None] != document[..., None, :]).unsqueeze(2)\n")
        names = "tokens, masks, hidden"
        if data["padding"] != "none":
            text += "    masks = masks * ~(padding := torch.arange(masks.shape[2]) >= torch.randint(1, masks.shape[2] + 1, (*masks.shape[:2], 1), generator=generator))\n"
            names += ", padding"
        if data["microbatches"] == "equal":
            text += f"    {names} = (x[:1].expand_as(x) for x in ({names}))\n"
        return text

    def _transpose(self):
        """Embeddings give [b, s, h] where they do not scatter it: the residual stream has [s, b, h]."""
        if not self.what["subject"].endswith(("word_embeddings", "position_embeddings")):
            return ""
        scatters = self.layout["sp"] and self.model["position_embedding_type"] != "learned_absolute"
        return ".transpose(0, 1) if ONE else output.detach()" if scatters else ".transpose(0, 1)"

    # --- what is shown ---

    def _watch(self):
        return "seen, means, calls, now, texts = [], [], [], [-1], [None] * RANKS\n" + {"act": parts.WATCH_OUTPUT, "act_grad": parts.WATCH_GRADIENT}.get(self.what["kind"], "")

    # --- the end: groups, model, steps, comparison ---

    def _config(self):
        return "MLATransformerConfig" if self.model["multi_latent_attention"] else "TransformerConfig"

    def _stages(self):
        return f"((None,) if ONE else range({self.layout['vpp']}))" if self.layout["vpp"] > 1 else "(None,)"

    def _sizes_of_axes(self):
        return {axis for axis in ("tp", "etp", "ep") if f'"{axis}"' in (self._cuts() or "") + self._part() or axis == "ep" and self.layout["ep"] > 1}

    def _sizes(self):
        """Text: size and this rank's place of each axis that something is cut over."""
        axes = [f'"{axis}": (groups.get_{SIZES[axis]}_world_size(), groups.get_{SIZES[axis]}_rank())' for axis in SIZES if axis in self._sizes_of_axes()]
        return "SIZES = {" + ",\n         ".join(axes) + "}\n" if axes else ""

    def _ddp(self):
        layout = self.layout
        text = ", use_distributed_optimizer=not ONE" if layout["distributed_optimizer"] else ""
        text += ", overlap_grad_reduce=not ONE" if layout["overlap_grad_reduce"] else ""
        text += ", pad_buckets_for_high_nccl_busbw=not ONE" if layout["pad_buckets_for_high_nccl_busbw"] else ""
        return text + (f", bucket_size={layout['bucket_size']}" if layout["bucket_size"] else "")

    def _module(self):
        return "module.Float16Module(config, model)" if self.case["precision"] == "bf16" else "model"

    def _no_sync(self):
        if not self.layout["overlap_grad_reduce"]:
            return ""
        return f"config.no_sync_func = None if ONE else {'[model.no_sync for model in wrapped]' if self.layout['vpp'] > 1 else 'wrapped[0].no_sync'}\n"

    def _hook(self):
        what = self.what
        if what["kind"] not in ("act", "act_grad"):
            return ""
        subject = what["subject"].split(":")[0]
        call = "register_forward_pre_hook(watch, with_kwargs=True)" if what["kind"] == "act_grad" else "register_forward_hook(watch)"
        only = "name == \"\" and model.post_process" if subject == "model" else f"{self._name()} == \"{subject}\""
        return f"for name, part, model in [(*found, model) for model in chunks for found in model.named_modules()]:\n    if {only}:\n        part.{call}\n"

    def _optimizer(self):
        """Imports and makes the optimizer, where the step needs one."""
        if not self._has_optimizer():
            return ""
        fields = self.case["optimizer"]
        text = f"optimizer={fields['name']!r}, lr={fields['lr']}, adam_eps={fields['eps']}, weight_decay={fields['weight_decay']}, clip_grad={fields['clip_grad']}"
        text += "".join(f", {key}={fields[key]}" for key, value in OPTIMIZER.items() if fields[key] != value)
        text += ", bf16=True, params_dtype=torch.bfloat16" if self.case["precision"] == "bf16" else ", params_dtype=torch.float32"
        text += ", use_distributed_optimizer=not ONE" if self.layout["distributed_optimizer"] else ""
        return ("from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer\n"
                f"optimizer = get_megatron_optimizer(OptimizerConfig({text}), wrapped, use_gloo_process_groups=False)\n")

    def _has_optimizer(self):
        return self.what["subject"] == "grad_norm" or self.what["step"] > 0 or self.layout["distributed_optimizer"]

    def _steps(self):
        last, norm = self.what["step"], "_, norm, _ = optimizer.step()\n" if self.what["subject"] == "grad_norm" else ""
        before = f"for number in range({last}):\n    step(number)\n    optimizer.step()\n    optimizer.zero_grad()\n" if last else ""
        clear = "for store in (seen, means, calls):\n    store.clear()\n" if last else ""
        return f"{before}{clear}step({last})\n{norm}"

    def _result(self):
        what = self.what
        if what["kind"] in ("act", "act_grad"):
            return "result = seen[0] if seen else None\n"
        if what["kind"] == "main_grad":
            return (parts.OWNED if self.layout["distributed_optimizer"] else "") + f"result = getattr(parameters.get(\"{what['subject']}\"), \"main_grad\", None)\n"
        if what["subject"] == "grad_norm":
            return "result = torch.tensor([float(norm)])\n"
        return "result = torch.tensor(means) if means else None\n"

    def _part(self):
        """Lines that take a rank's part of one device's tensor."""
        return part_of(self)


def script(case, first):
    """The text of a stand-alone script for a complete case and the name of its first wrong tensor (or "")."""
    return Script(case, first).text()
