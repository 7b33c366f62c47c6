"""Contrastive training of two small encoders with the losses and gathers of open_clip, in DistributedDataParallel."""
import contextlib
import importlib.util
import os

import torch
import torch.distributed.nn  # noqa: F401: open_clip's losses use it
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ACTIVATIONS = {"gelu": F.gelu, "silu": F.silu, "tanh": torch.tanh}
VOCABULARY, PATCHES, PIXELS, PAD = 13, 3, 5, 0


def open_clip_losses():
    """open_clip/loss.py alone: the whole package needs torchvision."""
    folder = importlib.util.find_spec("open_clip").submodule_search_locations[0]
    spec = importlib.util.spec_from_file_location("open_clip_loss", os.path.join(folder, "loss.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LOSSES = open_clip_losses()


class Block(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.norm1 = nn.LayerNorm(m["width"]) if m["attention"] else None
        self.attention = nn.MultiheadAttention(m["width"], 2, batch_first=True) if m["attention"] else None
        self.norm2, self.up = nn.LayerNorm(m["width"]), nn.Linear(m["width"], 2 * m["width"])
        self.down = nn.Linear(2 * m["width"], m["width"])
        self.activation = ACTIVATIONS[m["activation"]]

    def forward(self, x):
        if self.attention is not None:
            y = self.norm1(x)
            x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(self.activation(self.up(self.norm2(x))))


class Tower(nn.Module):
    """An encoder: patches [rows, patches, pixels] or tokens [rows, length] to features [rows, features], and the states before their mean
    [rows, patches or length, width]."""

    def __init__(self, m, first):
        super().__init__()
        self.first, self.blocks = first, nn.ModuleList(Block(m) for _ in range(m["blocks"]))
        self.projection = nn.Linear(m["width"], m["features"], bias=False)

    def forward(self, x):
        states = self.first(x)
        for block in self.blocks:
            states = block(states)
        return self.projection(states.mean(1)), states


class Pool(nn.Module):
    """Features [rows, views, features] of one object's views to one [rows, features]. classes [classes, features]: what a view may be
    confident of."""

    def __init__(self, how):
        super().__init__()
        self.how = how

    def forward(self, views, classes):
        if self.how == "mean":
            return views.mean(1)
        if self.how == "max":
            return views.amax(1)
        confidence = (views.detach() @ classes.T).softmax(-1).amax(-1)
        if self.how == "confidence":
            return views[torch.arange(len(views)), confidence.argmax(1)]
        return (views * confidence.softmax(1)[..., None]).sum(1)


class Decoder(nn.Module):
    """Logits [rows, length, vocabulary] of the tokens that follow, from the text's states and the image's features."""

    def __init__(self, m):
        super().__init__()
        self.image, self.head = nn.Linear(m["features"], m["width"]), nn.Linear(m["width"], VOCABULARY)

    def forward(self, states, features):
        return self.head(torch.tanh(states + self.image(features)[:, None]))


class DualEncoder(nn.Module):
    def __init__(self, case):
        super().__init__()
        m = case["model"]
        self.image, self.text = Tower(m, nn.Linear(PIXELS, m["width"])), Tower(m, nn.Embedding(VOCABULARY, m["width"]))
        self.pool = Pool(case["views"]["pool"]) if case["views"]["count"] > 1 else None
        self.decoder = Decoder(m) if case["loss"]["name"] == "coca" else None
        self.logit_scale = nn.Parameter(torch.ones(()))
        self.logit_bias = nn.Parameter(torch.zeros(())) if m["logit_bias"] else None
        self.templates, self.normalize = case["prompts"]["templates"], m["normalize"]

    def forward(self, images, texts, prompts):
        """images [rows, views, patches, pixels], texts [rows, length]; prompts [classes x templates, length] or None, alike on all ranks."""
        normalize = (lambda x: F.normalize(x, dim=-1)) if self.normalize else lambda x: x
        views = normalize(self.image(images.flatten(0, 1))[0]).unflatten(0, images.shape[:2])
        features, states = self.text(texts)
        classes = None if prompts is None else normalize(self.text(prompts)[0].unflatten(0, (-1, self.templates)).mean(1))
        image = views[:, 0] if self.pool is None else normalize(self.pool(views, None if classes is None else classes.detach()))
        logits = None if self.decoder is None else self.decoder(states[:, :-1], image)
        return {"image": image, "text": normalize(features), "scale": self.logit_scale.exp(), "bias": self.logit_bias, "classes": classes,
                "logits": logits}


class Data:
    """Microbatches of a step: the rows of one rank, of what all ranks have of each together. Names lead with the microbatch."""

    def __init__(self, case, step, rank, ranks):
        d, p, generator = case["data"], case["prompts"], torch.Generator().manual_seed(case["seed"] * 100 + step)
        shape, m = (d["microbatches"], d["rows"]), case["model"]
        rows = slice(rank * d["rows"] // ranks, (rank + 1) * d["rows"] // ranks)

        def randn(*more):
            return torch.randn(*shape, *more, generator=generator)[:, rows]
        fine = [p["classes"] << level for level in range(p["levels"])][::-1]  # a class of the second level has two of the first
        self.images = randn(case["views"]["count"], PATCHES, PIXELS)
        self.image_teacher, self.text_teacher = (F.normalize(randn(m["features"]), dim=-1) for _ in range(2))
        texts = torch.randint(1, VOCABULARY, (*shape, d["length"]), generator=generator)
        lengths = torch.randint(2, d["length"] + 1, (*shape, 1), generator=generator) if d["padding"] else d["length"]
        self.texts = texts.masked_fill(torch.arange(d["length"]) >= lengths, PAD)[:, rows]
        self.prompts = torch.randint(1, VOCABULARY, (sum(fine) * p["templates"], d["length"]), generator=generator) if fine else None
        self.labels = torch.randint(0, fine[0], shape, generator=generator)[:, rows] if fine else None
        self.sizes = fine


def make_loss(case, rank, ranks):
    options, name = case["loss"], case["loss"]["name"]
    where = {"rank": rank, "world_size": ranks}
    if name == "siglip":
        return LOSSES.SigLipLoss(dist_impl=options["dist_impl"], **where)
    where.update({key: options[key] for key in ("local_loss", "gather_with_grad", "cache_labels")})
    if name == "coca":
        return LOSSES.CoCaLoss(caption_loss_weight=0.5, clip_loss_weight=1.0, pad_id=PAD, **where)
    return (LOSSES.DistillClipLoss if name == "distill" else LOSSES.ClipLoss)(**where)


def contrastive(loss, name, out, data, k):
    """All terms of open_clip's loss of microbatch k."""
    more = {}
    if name == "distill":
        more = {"dist_image_features": data.image_teacher[k], "dist_text_features": data.text_teacher[k], "dist_logit_scale": 2.0}
    elif name == "coca":
        more = {"logits": out["logits"], "labels": data.texts[k][:, 1:]}
    elif name == "siglip":
        more = {"logit_bias": out["bias"]}
    return sum(loss(out["image"], out["text"], logit_scale=out["scale"], output_dict=True, **more).values())


def classification(out, data, k):
    """Of each object among the classes of each level: the mean over the rank's rows."""
    logits = (out["scale"] * out["image"] @ out["classes"].T).split(data.sizes, -1)
    return sum(F.cross_entropy(one, data.labels[k] >> level) for level, one in enumerate(logits)) / len(logits)


def optimizer_of(case, model):
    o = case["optimizer"]
    kind = {"sgd": torch.optim.SGD, "momentum": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[o["name"]]
    options = {"momentum": {"momentum": 0.9}, "adamw": {"weight_decay": 0.1}}.get(o["name"], {})
    return kind([one for one in model.parameters() if one.requires_grad], lr=0.02, **options)


def make(case, mesh, fill):
    """The model, its optimizer, and step(number, trace)."""
    ranks = 1 if mesh is None else case["layout"]["dp"]
    rank = 0 if ranks == 1 else mesh(dp=ranks).get_local_rank()
    model = DualEncoder(case)
    fill(model)
    frozen = {"image": "image.", "text": "text.", "scale": "logit_scale"}.get(case["model"]["frozen"])
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(frozen is None or not name.startswith(frozen))
    if ranks > 1:
        p = case["parallel"]
        model = DistributedDataParallel(model, static_graph=p["static_graph"], bucket_cap_mb=p["bucket_mb"])
    optimizer, loss = optimizer_of(case, model), make_loss(case, rank, ranks)

    def step(number, trace):
        data = Data(case, number, rank, ranks)
        count = len(data.images)
        optimizer.zero_grad()
        for k in range(count):
            trace.microbatch(k)
            lazy = ranks > 1 and case["parallel"]["lazy_sync"] and k < count - 1
            with model.no_sync() if lazy else contextlib.nullcontext():
                out = model(data.images[k], data.texts[k], data.prompts)
                total = contrastive(loss, case["loss"]["name"], out, data, k)
                if data.prompts is not None:
                    total = total + classification(out, data, k)
                trace.scalar("loss", total.detach())
                (total / count).backward()
        trace.gradients()
        if case["optimizer"]["clip"]:
            trace.scalar("grad_norm", nn.utils.clip_grad_norm_(model.parameters(), case["optimizer"]["clip"]))
        optimizer.step()
    return model, optimizer, step
