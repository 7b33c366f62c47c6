"""Tables of a stand-alone script: the options of a case that are not the package's defaults, and how its layout cuts parameters."""
import dataclasses
import re

from shardfuzz.megatron.names import PARAMETERS, packed_sizes

from .fields import LAYOUT, OF_STAGES


class Tables:
    """The tables of one complete case."""

    def __init__(self, case):
        self.case, self.model, self.layout = case, case["model"], case["layout"]
        self.known = self._config_fields()
        self.config = self._known_config()

    def _config_fields(self):
        from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig
        kind = MLATransformerConfig if self.model["multi_latent_attention"] else TransformerConfig
        return {field.name: field.default for field in dataclasses.fields(kind)}

    def _known_config(self):
        """What names.packed_sizes asks of a configuration."""
        return type("Config", (), {key: value for key, value in self.model.items() if key.startswith("linear_")})

    def _options(self, of_layout):
        """Arguments of the package's configuration that are not its defaults, of those that say who computes or of the others."""
        from .model import FIXED, in_full
        case = self.case
        fields = in_full(dict(self.model))
        if not fields["linear_attention_freq"] and fields["experimental_attention_variant"]:
            fields["linear_attention_freq"] = 2
        options = {key: value for key, value in fields.items() if key in self.known and value != self.known[key]
                   and (f"model.{key}" in LAYOUT) == of_layout and not (value is None and self.known[key] is dataclasses.MISSING)}
        options = {key: value for key, value in options.items() if self._matters(key)}
        if of_layout:
            options.update(self._layout_options())
        else:
            options.update({key: value for key, value in FIXED.items() if self.known[key] != value})
            if case["loss"] == "per_token":
                options["calculate_per_token_loss"] = True
        return options

    def _matters(self, key):
        """Sizes of features that the case has not are left out, unless they were set."""
        model = self.model
        if key.startswith("linear_"):
            return bool(model["experimental_attention_variant"])
        if key.startswith("mtp_"):
            return bool(model["mtp_num_layers"])
        if key.startswith("moe_"):
            return bool(model["num_moe_experts"])
        if key in OF_STAGES:
            return self.layout["pp"] > 1
        return True

    def _layout_options(self):
        layout = self.layout
        names = {"tp": "tensor_model_parallel_size", "pp": "pipeline_model_parallel_size", "cp": "context_parallel_size", "ep": "expert_model_parallel_size"}
        sizes = {name: layout[axis] for axis, name in names.items() if layout[axis] > 1}
        if self.model["num_moe_experts"] and layout["etp"] != layout["tp"]:
            sizes["expert_tensor_parallel_size"] = layout["etp"]
        if layout["vpp"] > 1:
            sizes.update(virtual_pipeline_model_parallel_size=layout["vpp"], overlap_p2p_comm=True, batch_p2p_comm=False)
        return {**sizes, **({"sequence_parallel": True} if layout["sp"] else {})}

    def _written(self, options):
        text = []
        for key, value in options.items():
            if key == "activation_func" and value == "quick_gelu":
                value = "lambda x: x * torch.sigmoid(1.702 * x)"
            elif key == "activation_func":
                value = "lambda x: torch.nn.functional.relu(x) ** 2" if value == "squared_relu" else f"torch.nn.functional.{value}"
            else:
                value = repr(value)
            text.append(f"{key}={value}")
        return self._packed(text, "    ")

    @staticmethod
    def _packed(items, indent):
        lines = [""]
        for item in items:
            if len(lines[-1]) + len(item) > 140:
                lines.append("")
            lines[-1] += item + ", "
        return ("\n" + indent).join(line.rstrip() for line in lines).rstrip(",")

    def _tables(self):
        """Options of the case, and how parameters are cut: those of its layout alone."""
        precision = "params_dtype=torch.bfloat16, pipeline_dtype=torch.bfloat16, bf16=True" if self.case["precision"] == "bf16" else "pipeline_dtype=torch.float32"
        groups = {key: value for key, value in self._layout_options().items() if key not in ("sequence_parallel", "overlap_p2p_comm", "batch_p2p_comm")}
        return (f"CASE = dict(finalize_model_grads_func=finalize_model_grads, {self._written(self._options(False))}, {precision})\n"
                f"LAYOUT = {{}} if ONE else dict({self._written(self._options(True))})\n"
                f"GROUPS = {{}} if ONE else dict({self._written(groups)})\n"
                + (f"CUTS = {self._cuts()}     # parameters: pattern, dimension, parts, axis\n" if self._cuts() else ""))

    def _cuts(self):
        """The table of cuts as text; empty where nothing is cut."""
        cut = self._cut_list()
        return cut and "[" + self._packed([f'(r"{pattern}", {dimension}, {sizes}, "{axis}")' for pattern, dimension, sizes, axis in cut], "        ") + "]"

    def cut(self, name):
        """(dimension, parts, axis) of a parameter that is cut; None."""
        return next((cut for pattern, *cut in self._cut_list() if re.search(pattern, name)), None)

    def _cut_list(self):
        """(pattern, dimension, parts, axis) of the parameters that this model has and this layout cuts; experts' come first, which have axes of their own."""
        result, experts = [], self.model["num_moe_experts"]
        for pattern, cut, dimension in PARAMETERS:
            axis = "etp" if cut in ("etp", "eglu") else "tp"
            pattern = pattern.pattern
            if self.layout[axis] == 1 or not self._has(pattern):
                continue
            if cut == "gdn" and "in_proj" in pattern:
                result += [(rf"{name}\.weight$", dimension, packed_sizes(name, self.config), axis) for name in ("in_proj", "conv1d")]
                continue
            if experts and axis == "tp" and "linear_fc" in pattern:
                pattern = f"^(?!.*local_experts).*({pattern})"
            result.append((pattern, dimension, 2 if cut in ("glu", "eglu") and self.model["gated_linear_unit"] else 1, axis))
        return result

    def _has(self, pattern):
        model = self.model
        needs = {"local_experts": model["num_moe_experts"], "down_proj": model["multi_latent_attention"], "q_up_proj": model["multi_latent_attention"],
                 "in_proj|conv1d": model["experimental_attention_variant"], "A_log": model["experimental_attention_variant"],
                 "softmax_offset": model["softmax_type"] == "learnable", "eh_proj": model["mtp_num_layers"],
                 "linear_qkv": not model["multi_latent_attention"]}
        return all(needed for part, needed in needs.items() if part in pattern)
