"""The operations: each an expression in the language of torch, the same for plain tensors and for DTensors.

x is the chain's tensor, d one of its dimensions, counted from either end, k a whole number from -1 to 3, keep a truth value. The other names are operands, with placements of
their own (operands.py makes them). Their shapes, where C is the number of x's columns:

y, z      x's shape; y perhaps one that broadcasts to it          i, j      indices along d: x's shape; three of them
m, mm     (C, 3); (.., C, 3) with x's leading dimensions          mask      truth values of x's shape
v         (C)                                                     target    classes, of x's shape without dimension 1, which is the classes
c, c2     (size of dimension 1)                                   ids       whole numbers below 7 of x's shape; table (7, 3)

changed(x, place, value) is x after x[place] = value. Four functions do something to DTensors alone (WAYS): moved(x) redistributes x to the
placements of the operands, through_local(x) goes to the ranks' local tensors and back, gathered(x) gives x.full_tensor(), and by_class(x) shards
the classes, as loss_parallel() needs them. A chain with a name that ends in ".parallel" runs inside of loss_parallel().

The operation of a name that begins with "~" picks one of several elements. If some are equal, it may pick any of them.
"""

UNARY = """abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 floor frac lgamma log log10 log1p log2 neg
positive rad2deg reciprocal round rsqrt sgn sigmoid sign sin sinc sinh sqrt square tan tanh trunc i0 isfinite isnan isinf isneginf isposinf logical_not
signbit nan_to_num""".split()
SPECIAL = "entr erfcx i0e i1 i1e log_ndtr ndtr bessel_j0 bessel_j1 gammaln psi".split()
ACTIVATIONS = """relu relu6 gelu silu mish elu selu celu softplus softsign hardtanh hardswish hardsigmoid leaky_relu logsigmoid tanhshrink softshrink
hardshrink""".split()
BINARY = """add sub mul div true_divide atan2 fmod remainder maximum minimum fmax fmin hypot pow copysign logaddexp logaddexp2 xlogy eq ne lt le gt ge
floor_divide logical_and logical_or logical_xor rsub isclose float_power""".split()
REDUCED = "sum mean prod amax amin std var logsumexp any all nansum count_nonzero nanmean".split()
KEEPS = "sum mean prod amax amin std var logsumexp any all nansum nanmean".split()
EMPTY_DIMS = "sum mean amax var any".split()  # these take an empty list of dimensions, which means all; for `any` it means none

# Arguments within the domain of the operation.
_WITHIN = {**{name: "x.tanh()" for name in "acos asin atanh erfinv".split()}, "acosh": "x.abs() + 1.5",
           **{name: "x.abs() + 0.1" for name in "digamma lgamma log log10 log2 rsqrt sqrt reciprocal entr psi gammaln".split()}, "log1p": "x.abs()"}

OPERATIONS = {
    "clone": "x.clone()", **{name: f"torch.{name}({_WITHIN.get(name, 'x')})" for name in UNARY},
    **{name: f"torch.special.{name}({_WITHIN.get(name, 'x')})" for name in SPECIAL}, **{name: f"F.{name}(x)" for name in ACTIVATIONS},
    **{name: f"torch.{name}(x, y)" for name in BINARY}, "heaviside": "torch.heaviside(x.detach(), y.detach())",
    **{f"{name}.dim": f"torch.{name}(x, dim=d{', keepdim=keep' if name in KEEPS else ''})" for name in REDUCED},
    **{f"{name}.no_dims": f"torch.{name}(x, dim=[], keepdim=keep)" for name in EMPTY_DIMS},
    "vector_norm.no_dims": "torch.linalg.vector_norm(x, dim=[], keepdim=keep)",
    **{f"{name}.all": f"torch.{name}(x)" for name in REDUCED if name != "logsumexp"}, "sum.dims": "torch.sum(x, dim=(0, -1), keepdim=keep)",
    "mean.dims": "torch.mean(x, dim=(0, -1), keepdim=keep)", "amax.dims": "torch.amax(x, dim=(0, -1), keepdim=keep)",
    "logsumexp.dims": "torch.logsumexp(x, dim=(0, -1), keepdim=keep)", "var.correction": "torch.var(x, dim=d, correction=0, keepdim=keep)",
    "std.correction": "torch.std(x, dim=d, correction=2, keepdim=keep)", "var_mean": "torch.var_mean(x, dim=d, keepdim=keep)",
    "std_mean": "torch.std_mean(x, dim=d, keepdim=keep)", "vector_norm": "torch.linalg.vector_norm(x)",
    "vector_norm.dim": "torch.linalg.vector_norm(x, dim=d, keepdim=keep)", "vector_norm.1": "torch.linalg.vector_norm(x, ord=1, dim=d, keepdim=keep)",
    "vector_norm.3": "torch.linalg.vector_norm(x, ord=3)", "vector_norm.inf": "torch.linalg.vector_norm(x, ord=float('inf'), dim=d, keepdim=keep)",
    "vector_norm.0": "torch.linalg.vector_norm(x, ord=0)", "norm": "torch.norm(x)", "matrix_norm": "torch.linalg.matrix_norm(x)",
    "foreach_norm": "torch._foreach_norm([x, y])[0]", "~aminmax": "torch.aminmax(x, dim=d, keepdim=keep)", "dist": "torch.dist(x, y)",
    "~max.dim": "torch.max(x, dim=d, keepdim=keep)", "~min.dim": "torch.min(x, dim=d, keepdim=keep)", "~max.all": "torch.max(x)",
    "~min.all": "torch.min(x)", "~argmax": "torch.argmax(x, dim=d, keepdim=keep)", "~argmin": "torch.argmin(x, dim=d, keepdim=keep)",
    "~argmax.all": "torch.argmax(x)", "~argmin.all": "torch.argmin(x)", "~median": "torch.median(x, dim=d, keepdim=keep)",
    "~sort": "torch.sort(x, dim=d, descending=keep)", "~argsort": "torch.argsort(x, dim=d, descending=keep)",
    "~topk": "torch.topk(x, max(1, k), dim=d)", "~kthvalue": "torch.kthvalue(x, 1, dim=d)", "~cummax": "torch.cummax(x, dim=d)",
    "~cummin": "torch.cummin(x, dim=d)", "cumsum": "torch.cumsum(x, dim=d)", "cumprod": "torch.cumprod(x, dim=d)",
    "logcumsumexp": "torch.logcumsumexp(x, dim=d)", "trace": "torch.trace(x)", "diff": "torch.diff(x, dim=d)",
    "trapezoid": "torch.trapezoid(x, dim=d)", "add.scalar": "x + 0.5", "sub.alpha": "torch.sub(x, y, alpha=2)",
    "add.alpha": "torch.add(x, y, alpha=0.5)", "rsub.scalar": "1 - x", "mul.scalar": "x * -1.5", "div.scalar": "x / 3", "rdiv.scalar": "2 / x",
    "pow.scalar": "x ** 2", "rpow.scalar": "2 ** x", "div.floor": "torch.div(x, y, rounding_mode='floor')",
    "div.trunc": "torch.div(x, y, rounding_mode='trunc')", "remainder.scalar": "x % 0.3", "clamp": "torch.clamp(x, 0.3, 0.6)",
    "clamp_min": "torch.clamp_min(x, 0.5)", "clamp.tensor": "torch.clamp(x, min=y)", "clamp_max": "torch.clamp_max(x, 0.5)",
    "threshold": "F.threshold(x, 0.5, 0.1)", "lerp": "torch.lerp(x, y, 0.25)", "lerp.tensor": "torch.lerp(x, y, z)",
    "addcmul": "torch.addcmul(x, y, z, value=0.5)", "addcdiv": "torch.addcdiv(x, y, z, value=0.5)", "where": "torch.where(mask, x, y)",
    "where.scalar": "torch.where(mask, x, 0.5)", "where.other": "torch.where(x > y, x, z)", "masked_fill": "x.masked_fill(mask, 0.25)",
    "masked_select": "torch.masked_select(x, mask)", "round.decimals": "torch.round(x, decimals=1)", "logit": "torch.logit(x, eps=1e-6)",
    "gelu.tanh": "F.gelu(x, approximate='tanh')", "glu": "F.glu(x, dim=d)", "prelu": "F.prelu(x, v[:1])", "softmax": "torch.softmax(x, dim=d)",
    "log_softmax": "torch.log_softmax(x, dim=d)", "softmin": "F.softmin(x, dim=d)", "softmax.dtype": "torch.softmax(x, dim=d, dtype=torch.float64)",
    "normalize": "F.normalize(x, dim=d)", "layer_norm": "F.layer_norm(x, x.shape[-1:])", "layer_norm.affine": "F.layer_norm(x, x.shape[-1:], v, v)",
    "layer_norm.two": "F.layer_norm(x, x.shape[-2:])", "rms_norm": "F.rms_norm(x, x.shape[-1:])", "rms_norm.affine": "F.rms_norm(x, x.shape[-1:], v)",
    "group_norm": "F.group_norm(x, 1)", "group_norm.affine": "F.group_norm(x, 2, c, c2)", "cosine_similarity": "F.cosine_similarity(x, y, dim=d)",
    "pairwise_distance": "F.pairwise_distance(x, y)", "batch_norm": "F.batch_norm(x, None, None, c, c2, training=True)", "view.flat": "x.reshape(-1)",
    "view.first": "x.reshape(x.shape[0], -1)", "view.last": "x.reshape(-1, x.shape[-1])", "flatten": "torch.flatten(x, 0, min(1, x.ndim - 1))",
    "flatten.end": "torch.flatten(x, -2)", "unflatten": "torch.unflatten(x, d, (-1, max(1, k)))",
    "unflatten.front": "torch.unflatten(x, d, (max(1, k), -1))", "ravel": "torch.ravel(x)", "permute": "x.permute(*range(1, x.ndim), 0)",
    "transpose": "x.transpose(0, d)", "transpose.contiguous": "x.transpose(0, d).contiguous()", "mT": "x.mT", "movedim": "torch.movedim(x, 0, d)",
    "swapaxes": "torch.swapaxes(x, d, -1)", "squeeze": "x.squeeze()", "squeeze.dim": "x.squeeze(d)", "unsqueeze": "x.unsqueeze(d)",
    "unsqueeze.end": "x.unsqueeze(-1)", "expand": "x.unsqueeze(d).expand(*x.shape[:d], 3, *x.shape[d:])", "expand.front": "x.expand(2, *x.shape)",
    "broadcast_to": "torch.broadcast_to(x, (2, *x.shape))", "repeat": "x.repeat(2, *(x.ndim * [1]))",
    "repeat.last": "x.repeat(*((x.ndim - 1) * [1]), 2)", "tile": "torch.tile(x, (2,))", "repeat_interleave": "torch.repeat_interleave(x, 2, dim=d)",
    "flip": "torch.flip(x, (d,))", "flip.all": "torch.flip(x, tuple(range(x.ndim)))", "fliplr": "torch.fliplr(x)", "roll": "torch.roll(x, k, dims=d)",
    "roll.flat": "torch.roll(x, k)", "rot90": "torch.rot90(x)", "narrow": "x.narrow(d, min(max(k, 0), x.shape[d] - 1), 1)",
    "select": "x.select(d, min(max(k, 0), x.shape[d] - 1))", "select.last": "x.select(d, -1)", "slice": "x[1:]",
    "slice.dim": "x.narrow(d, 0, max(1, x.shape[d] - 1))", "slice.step": "x[..., ::2]", "slice.end": "x[..., -1:]", "index.none": "x[None]",
    "index.list": "x[[0, -1]]", "index.tensor": "x[j % x.shape[0]]", "index.mask": "x[mask]", "split": "torch.split(x, 2, dim=d)",
    "split.sizes": "torch.split(x, [1, x.shape[d] - 1], dim=d)", "chunk": "torch.chunk(x, 2, dim=d)", "chunk.3": "torch.chunk(x, 3, dim=d)",
    "tensor_split": "torch.tensor_split(x, 3, dim=d)", "unbind": "torch.unbind(x, dim=d)", "cat": "torch.cat([x, y], dim=d)",
    "cat.self": "torch.cat([x, x], dim=d)", "cat.three": "torch.cat([x, y, z], dim=d)", "stack": "torch.stack([x, y], dim=d)",
    "hstack": "torch.hstack([x, y])", "vstack": "torch.vstack([x, y])", "dstack": "torch.dstack([x, y])",
    "unfold": "x.unfold(d, min(2, x.shape[d]), 1)", "diagonal": "torch.diagonal(x)", "diag_embed": "torch.diag_embed(x)", "tril": "torch.tril(x, k)",
    "triu": "torch.triu(x, k)", "index_select": "torch.index_select(x, d, j)", "gather": "torch.gather(x, d, i)",
    "take_along_dim": "torch.take_along_dim(x, i, dim=d)", "take": "torch.take(x, j)",
    "scatter": "torch.scatter(x, d, j.expand_as(x.narrow(d, 0, 1)) if x.ndim == 1 else i.narrow(d, 0, 1), y.narrow(d, 0, 1))",
    "scatter.value": "torch.scatter(x, d, i.narrow(d, 0, 1), 0.5)", "scatter_add": "torch.scatter_add(x, d, i, y)",
    "index_add": "torch.index_add(x, d, j[:1], x.narrow(d, 0, 1))", "index_copy": "torch.index_copy(x, d, j[:1], x.narrow(d, 0, 1))",
    "index_fill": "torch.index_fill(x, d, j, 0.5)", "index_put": "torch.index_put(x, (j % x.shape[0],), x[:1])",
    "select_scatter": "torch.select_scatter(x, x.select(d, 0), d, -1)", "slice_scatter": "torch.slice_scatter(x, x[:1], 0, -1)",
    "pad": "F.pad(x, (1, 2))", "pad.front": "F.pad(x, (0, 0, 1, 0))", "pad.negative": "F.pad(x, (-1, 0))",
    "pad.reflect": "F.pad(x, (1, 1), mode='reflect')", "mm": "x @ m", "matmul.left": "m.T @ x.mT", "matmul.batch": "torch.matmul(x, mm)",
    "bmm": "torch.bmm(x, mm)", "mv": "torch.mv(x, v)", "dot": "torch.dot(x, v)", "outer": "torch.outer(x, v)",
    "addmm": "torch.addmm(y[..., :1], x, m, beta=0.5, alpha=2)", "baddbmm": "torch.baddbmm(y[..., :1], x, mm)", "linear": "F.linear(x, m.T)",
    "linear.bias": "F.linear(x, m.T, m[0])", "gram": "x @ x.mT", "gram.t": "x.mT @ x", "einsum.outer": "torch.einsum('...i,...j->...ij', x, y)",
    "einsum.sum": "torch.einsum('...i,...i->...', x, y)", "einsum.mm": "torch.einsum('...i,ij->j...', x, m)", "inner": "torch.inner(x, v)",
    "tensordot": "torch.tensordot(x, m, dims=1)", "kron": "torch.kron(x, m)", "vdot": "torch.linalg.vecdot(x, y, dim=d)",
    "cross": "torch.linalg.cross(x, y, dim=d)", "cdist": "torch.cdist(x, y)", "bilinear": "F.bilinear(x, y, mm[None].flatten(0, -3))",
    "mse_loss": "F.mse_loss(x, y)", "mse_loss.sum": "F.mse_loss(x, y, reduction='sum')", "mse_loss.none": "F.mse_loss(x, y, reduction='none')",
    "l1_loss": "F.l1_loss(x, y)", "smooth_l1_loss": "F.smooth_l1_loss(x, y)", "huber_loss": "F.huber_loss(x, y, delta=0.1)",
    "kl_div": "F.kl_div(x, y, reduction='batchmean')", "kl_div.mean": "F.kl_div(x, y)",
    "bce": "F.binary_cross_entropy(torch.sigmoid(x), torch.sigmoid(y).detach())",
    "bce_with_logits": "F.binary_cross_entropy_with_logits(x, torch.sigmoid(y).detach())",
    "bce.weight": "F.binary_cross_entropy_with_logits(x, torch.sigmoid(y).detach(), weight=z.detach(), reduction='sum')",
    "poisson_nll": "F.poisson_nll_loss(x, y)", "gaussian_nll": "F.gaussian_nll_loss(x, y, z.abs() + 0.1)",
    "soft_margin": "F.soft_margin_loss(x, y.detach())", "hinge": "F.hinge_embedding_loss(x, torch.sign(y))",
    "cross_entropy": "F.cross_entropy(x, target)", "cross_entropy.sum": "F.cross_entropy(x, target, reduction='sum')",
    "cross_entropy.none": "F.cross_entropy(x, target, reduction='none')", "cross_entropy.weight": "F.cross_entropy(x, target, weight=c.detach())",
    "cross_entropy.ignore": "F.cross_entropy(x, target, ignore_index=0)", "cross_entropy.smooth": "F.cross_entropy(x, target, label_smoothing=0.1)",
    "cross_entropy.soft": "F.cross_entropy(x, torch.softmax(y, 1).detach())", "nll_loss": "F.nll_loss(x, target)",
    "nll_loss.weight": "F.nll_loss(x, target, weight=c.detach())", "nll_loss.sum": "F.nll_loss(x, target, reduction='sum', ignore_index=1)",
    "embedding": "F.embedding(ids, table) * x[..., None]", "embedding.padding": "F.embedding(ids, table, padding_idx=1) * x[..., None]",
    "one_hot": "F.one_hot(ids, 7) * x[..., None]", "conv1d": "F.conv1d(x, mm[..., :1].mT.contiguous(), padding=0)",
    "avg_pool1d": "F.avg_pool1d(x, 2)", "avg_pool2d": "F.avg_pool2d(x, 2)", "~max_pool1d": "F.max_pool1d(x, 2)",
    "adaptive_avg_pool1d": "F.adaptive_avg_pool1d(x, 2)", "interpolate": "F.interpolate(x, scale_factor=2, mode='nearest')",
    "interpolate.linear": "F.interpolate(x, scale_factor=2, mode='linear')", "pixel_shuffle": "F.pixel_shuffle(x, 2)",
    "channel_shuffle": "torch.channel_shuffle(x, 2)", "attention": "F.scaled_dot_product_attention(x, y, z)",
    "attention.causal": "F.scaled_dot_product_attention(x, y, z, is_causal=True)", "zeros_like": "torch.zeros_like(x) + x",
    "ones_like": "torch.ones_like(x) * x", "full_like": "torch.full_like(x, 0.5) + x", "new_zeros": "x.new_zeros(x.shape) + x",
    "to.float": "x.to(torch.float32)", "to.double": "x.double()", "type_as": "x.type_as(y)", "contiguous": "x.contiguous()",
    "detach": "x.detach() * x", "bool": "(x > 0.5)", "complex": "torch.view_as_real(torch.complex(x, y))",
    "bucketize": "torch.bucketize(x, v.sort()[0])", "meshgrid": "torch.meshgrid(x, v, indexing='ij')", "clone.strides": "x.mT.clone()",
    "add_": "x.clone().add_(y)", "mul_": "x.clone().mul_(0.5)", "div_": "x.clone().div_(y)", "relu_": "torch.relu_(x.clone())",
    "fill_": "x.clone().fill_(0.5) + x", "zero_": "x.clone().zero_() + x", "clamp_": "x.clone().clamp_(0.3, 0.6)",
    "copy_": "torch.zeros_like(x).copy_(x)", "masked_fill_": "x.clone().masked_fill_(mask, 0.5)", "addcmul_": "x.clone().addcmul_(y, z)",
    "setitem": "torch.index_put(x, (j[:1] % x.shape[0],), y[:1])", "t": "x.t()", "T": "x.permute(*reversed(range(x.ndim)))",
    "atleast_2d": "torch.atleast_2d(x)", "block_diag": "torch.block_diag(x, m)", "isin": "torch.isin(ids, j)",
    "logical_and.mask": "(torch.logical_and(mask, x > 0.5))", "eq.scalar": "(x == 0.5)", "gt.scalar": "(x > 0.5)",
    "bitwise_and": "(ids & ids.flip(0))", "foreach_add": "torch._foreach_add([x, y], 1.0)", "foreach_mul": "torch._foreach_mul([x, y], [y, x])",
    "foreach_sqrt": "torch._foreach_sqrt([x.abs(), y.abs()])",
    "histc": "torch.histc(x.detach(), max(1, k), 0, 1)", "searchsorted": "torch.searchsorted(v.sort()[0], x)", "cov": "torch.cov(x)",
    "corrcoef": "torch.corrcoef(x)", "renorm": "torch.renorm(x, 2, 0, 1.0)", "cumsum.flip": "torch.cumsum(x.flip(d), dim=d).flip(d)",
    "sum.dtype": "torch.sum(x, dim=d, keepdim=keep, dtype=torch.float64)", "mean.dtype": "torch.mean(x, dim=d, dtype=torch.float64)",
    "cumsum.dtype": "torch.cumsum(x, d, dtype=torch.float64)", "cumsum.mask": "torch.cumsum(mask, d)", "var.dims": "torch.var(x, dim=(0, -1), correction=0, keepdim=keep)",
    "std.dims": "torch.std(x, dim=(0, -1), keepdim=keep)", "var_mean.all": "torch.var_mean(x)", "amin.dims": "torch.amin(x, dim=(0, -1), keepdim=keep)",
    "norm.dims": "torch.norm(x, dim=(0, -1), keepdim=keep)", "norm.3": "torch.norm(x, p=3, dim=d)",
    "vector_norm.dims": "torch.linalg.vector_norm(x, dim=(0, -1), keepdim=keep)", "vector_norm.half": "torch.linalg.vector_norm(x, ord=0.5)",
    "vector_norm.dtype": "torch.linalg.vector_norm(x, dim=d, dtype=torch.float64)", "matrix_norm.1": "torch.linalg.matrix_norm(x, ord=1)",
    "foreach_norm.1": "torch._foreach_norm([x, y], 1)[0]", "foreach_norm.inf": "torch._foreach_norm([x, y], float('inf'))[0]",
    "any.dims": "torch.any(x > 0.5, dim=(0, -1))", "any.mask": "torch.any(mask, dim=d)", "all.mask": "torch.all(mask, dim=d, keepdim=keep)",
    "~argmax.flat": "torch.argmax(x, keepdim=keep)", "~mode": "torch.mode(x, d)", "~msort": "torch.msort(x)", "~topk.least": "torch.topk(x, max(1, k), dim=d, largest=False)",
    "quantile": "torch.quantile(x, 0.3, dim=d)", "gradient": "torch.gradient(x, dim=d)", "diff.2": "torch.diff(x, n=2, dim=d)", "aminmax.all": "torch.aminmax(x)",
    "index_reduce": "torch.index_reduce(x, d, j[:1], x.narrow(d, 0, 1), 'mean')", "index_put.accumulate": "torch.index_put(x, (j % x.shape[0],), y[:1], accumulate=True)",
    "index.pair": "x[j % x.shape[0], j % x.shape[-1]]", "gather.few": "torch.gather(x, d, i.narrow(d, 0, 1))", "squeeze.dims": "x.unsqueeze(0).squeeze((0, -1))",
    "squeeze_": "x.unsqueeze(0).clone().squeeze_(0)", "movedim.two": "torch.movedim(x, (0, -1), (-1, 0))", "reshape.swap": "x.reshape(*reversed(x.shape))",
    "reshape.merge": "x.reshape(*x.shape[:-2], -1)", "reshape.split": "x.reshape(*x.shape[:-1], -1, max(1, k))", "reshape.ones": "x.reshape(1, *x.shape, 1)",
    "split.last": "torch.split(x, 1, dim=-1)", "roll.two": "torch.roll(x, (1, -1), (0, -1))", "cat.uneven": "torch.cat([x, y.narrow(d, 0, 1)], dim=d)",
    "diagonal.off": "torch.diagonal(x, 1, 0, -1)", "pad.circular": "F.pad(x, (1, 1), mode='circular')", "pad.first": "F.pad(x, (*(2 * (x.ndim - 1) * [0]), 1, 1))",
    "addmv": "torch.addmv(y[:, 0], x, v, beta=0.5)", "addr": "torch.addr(x, y[:, 0], v)", "matmul.vector": "x @ v", "multi_dot": "torch.linalg.multi_dot([x, m, m.T])",
    "einsum.trace": "torch.einsum('...ii->...', x)", "einsum.three": "torch.einsum('...i,ij,kj->...k', x, m, m)", "tensordot.two": "torch.tensordot(x, y, dims=2)",
    "log_softmax.dtype": "torch.log_softmax(x, dim=d, dtype=torch.float64)", "layer_norm.weight": "F.layer_norm(x, x.shape[-1:], weight=v)",
    "rms_norm.eps": "F.rms_norm(x, x.shape[-1:], v, eps=0.1)", "normalize.1": "F.normalize(x, p=1, dim=d)",
    "nll_loss.both": "F.nll_loss(x, target, weight=c.detach(), ignore_index=0)", "cross_entropy.both": "F.cross_entropy(x, target, ignore_index=1, label_smoothing=0.2)",
    "cross_entropy.soft_weight": "F.cross_entropy(x, torch.softmax(y, 1).detach(), weight=c.detach())",
    "bce.pos_weight": "F.binary_cross_entropy_with_logits(x, torch.sigmoid(y).detach(), pos_weight=v.detach())", "kl_div.log": "F.kl_div(x, y, log_target=True, reduction='sum')",
    "smooth_l1_loss.beta": "F.smooth_l1_loss(x, y, beta=0.3, reduction='sum')", "mse_loss.weight": "F.mse_loss(x, y, weight=z)",
    "cosine_embedding": "F.cosine_embedding_loss(x, y, torch.sign(c.detach())[:1].expand(x.shape[0]))", "margin_ranking": "F.margin_ranking_loss(x, y, torch.sign(z.detach()), margin=0.1)",
    "triplet": "F.triplet_margin_loss(x, y, z)", "embedding.scale": "F.embedding(ids, table, scale_grad_by_freq=True) * x[..., None]", "one_hot.all": "F.one_hot(ids) * x[..., None]",
    "attention.mask": "F.scaled_dot_product_attention(x, y, z, attn_mask=(y @ y.mT).detach())", "attention.scale": "F.scaled_dot_product_attention(x, y, z, scale=0.3)",
    "attention.gqa": "F.scaled_dot_product_attention(x, y[..., :1, :, :], z[..., :1, :, :], enable_gqa=True)",
    "foreach_addcdiv": "torch._foreach_addcdiv([x], [y], [z], 0.5)[0]", "foreach_lerp": "torch._foreach_lerp([x], [y], 0.3)[0]", "foreach_div": "torch._foreach_div([x], [y])[0]",
    "foreach_pow": "torch._foreach_pow([x], 2)[0]", "foreach_maximum": "torch._foreach_maximum([x], [y])[0]", "foreach_clamp": "torch._foreach_clamp_min([x], 0.3)[0]",
    "sub_": "x.clone().sub_(y)", "lerp_": "x.clone().lerp_(y, 0.3)", "index_add_": "x.clone().index_add_(d, j[:1], y.narrow(d, 0, 1))",
    "index_copy_": "x.clone().index_copy_(d, j[:1], y.narrow(d, 0, 1))", "index_fill_": "x.clone().index_fill_(d, j, 0.5)", "scatter_": "x.clone().scatter_(d, i.narrow(d, 0, 1), 0.5)",
    "scatter_add_": "x.clone().scatter_add_(d, i, y)", "index_put_": "x.clone().index_put_((j % x.shape[0],), y[:1])",
    "select.set": "changed(x.clone(), (..., -1), y[..., 0])", "first.set": "changed(x.clone(), 0, y[-1])", "slice.set": "changed(x.clone(), slice(1, None), y[1:])",
    "number.set": "changed(x.clone(), 0, 0.5)", "mask.set": "changed(x.clone(), mask, 0.5)", "total_norm": "torch.nn.utils.get_total_norm([x.detach(), y.detach()])",
    "total_norm.inf": "torch.nn.utils.get_total_norm([x.detach(), y.detach()], float('inf'))", "shift": "(ids << 1)", "gcd": "torch.gcd(ids, ids + 2)", "ldexp": "torch.ldexp(x, ids)",
    "polygamma": "torch.polygamma(1, x + 1)", "xlog1py": "torch.special.xlog1py(x, y.abs())", "nextafter": "torch.nextafter(x, y)", "isin.scalar": "torch.isin(ids, 3)",
    "redistribute": "moved(x)", "redistribute.twice": "moved(x * moved(x))", "to_local": "through_local(x)", "to_local.used_twice": "through_local(x) * x",
    "full_tensor": "gathered(x)", "cross_entropy.parallel": "F.cross_entropy(by_class(x), target)",
    "cross_entropy.sum.parallel": "F.cross_entropy(by_class(x), target, reduction='sum')",
    "cross_entropy.none.parallel": "F.cross_entropy(by_class(x), target, reduction='none')",
    "cross_entropy.ignore.parallel": "F.cross_entropy(by_class(x), target, ignore_index=0)",
    "cross_entropy.weight.parallel": "F.cross_entropy(by_class(x), target, weight=c.detach())",
    "log_softmax.parallel": "torch.log_softmax(by_class(x), dim=1)",
    "dropout.eval": "F.dropout(x, 0.5, training=False)", "alpha": "F.elu(x - 0.5, alpha=0.3)",
}


# What four functions do to a DTensor; plain tensors stay as they are. placements: of the operands, without pending sums.
WAYS = {"moved": "one.redistribute(placements=placements)", "gathered": "one.full_tensor()",
        "by_class": "one.redistribute(placements=[Shard(1)] + [Replicate()] * (one.device_mesh.ndim - 1))",
        "through_local": "DTensor.from_local(one.to_local(), one.device_mesh, one.placements, run_check=False, shape=one.shape, stride=one.stride())"}


# Operations whose results jump when an argument changes by a rounding.
STEPS = frozenset("""ceil floor round trunc frac sgn sign eq ne lt le gt ge floor_divide fmod remainder heaviside logical_and logical_or logical_xor logical_not isclose
count_nonzero.dim count_nonzero.all any.dim any.all any.dims any.no_dims all.dim all.all div.floor div.trunc remainder.scalar where.other round.decimals hinge searchsorted bucketize
histc bool eq.scalar gt.scalar isin bitwise_and logical_and.mask nan_to_num signbit vector_norm.0""".split())


def ways_in(name: str):
    """{function: what it does to a DTensor} of those that the operation uses."""
    return {way: text for way, text in WAYS.items() if way + "(" in OPERATIONS[name]}


def is_parallel_loss(name: str) -> bool:
    """Whether the operation runs inside of loss_parallel()."""
    return name.endswith(".parallel")


def picks(name: str) -> bool:
    """Whether the operation picks elements."""
    return name.startswith("~")


NAMES = list(OPERATIONS)
