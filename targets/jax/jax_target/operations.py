"""The operations: each an expression in the language of JAX, the same for one device and for a mesh of devices.

x is the chain's tensor, d one of its dimensions, n its size, k a whole number from -1 to 3, keep a truth value. c3(x) and c4(x) are x with three and with four
dimensions: (batch, channels, space..). The other names are operands, with places of their own (operands.py makes them). C is the number of x's columns, H that
of c3(x)'s channels, H4 that of c4(x)'s:

y, z      x's shape; y perhaps one that broadcasts to it          i, j, j2   indices along d: x's shape; three of them, twice
m, mm     (C, 3); (.., C, 3) with x's leading dimensions          mask       truth values of x's shape
v, u      (C); (n)                                                ids        whole numbers below 7 of x's shape; table (7, 3)
w, w4     kernels (4, H, 3) and (4, H4, 3, 3)                     seg        n whole numbers below 4
wg, wg4   kernels (H, 1, 3) and (H4, 1, 3, 3): a group a channel  spot       a place along d: a scalar

The operation of a name that begins with "~" picks one of several elements. If some are equal, it may pick any of them.
"""

UNARY = """abs arccosh arcsinh arctan arctanh cbrt ceil cos cosh deg2rad exp exp2 expm1 floor log log10 log1p log2 negative reciprocal rint sign sin sinc sinh
sqrt square tan tanh trunc i0 isfinite signbit""".split()
ACTIVATIONS = "relu relu6 gelu silu mish elu selu celu softplus soft_sign hard_tanh hard_swish leaky_relu log_sigmoid squareplus".split()
SPECIAL = "digamma erf erfc erf_inv lgamma logistic bessel_i0e bessel_i1e rsqrt is_finite population_count clz".split()
BINARY = """add subtract multiply divide arctan2 fmod remainder maximum minimum hypot power copysign logaddexp logaddexp2 equal not_equal less greater
floor_divide heaviside""".split()
REDUCED = "sum mean prod max min std var any all count_nonzero median ptp nansum nanmax".split()

# Arguments within the domain of the operation.
_WITHIN = {**{name: "jnp.abs(x) + 0.1" for name in "log log10 log2 sqrt cbrt reciprocal digamma lgamma rsqrt".split()}, "log1p": "jnp.abs(x)",
           "arccosh": "jnp.abs(x) + 1.5", "arctanh": "jnp.tanh(x)", "erf_inv": "jnp.tanh(x)", "population_count": "(x * 64).astype(jnp.int32)",
           "clz": "(x * 64).astype(jnp.int32)"}
_CONV, _CONV4 = "dimension_numbers=('NCH', 'OIH', 'NCH')", "dimension_numbers=('NCHW', 'OIHW', 'NCHW')"
_WINDOW = "(1,) * (x.ndim - 1) + (min(2, x.shape[-1]),), (1,) * x.ndim"
_SPD = "(g := x @ x.mT) + g.shape[-1] * jnp.eye(g.shape[-1], dtype=x.dtype)"

OPERATIONS = {
    "copy": "jnp.copy(x)", **{name: f"jnp.{name}({_WITHIN.get(name, 'x')})" for name in UNARY}, **{name: f"jax.nn.{name}(x)" for name in ACTIVATIONS},
    **{name: f"lax.{name}({_WITHIN.get(name, 'x')})" for name in SPECIAL}, **{name: f"jnp.{name}(x, y)" for name in BINARY},
    **{f"{name}.dim": f"jnp.{name}(x, axis=d, keepdims=keep)" for name in REDUCED}, **{f"{name}.all": f"jnp.{name}(x)" for name in REDUCED},
    "sum.dims": "jnp.sum(x, axis=(0, -1) if x.ndim > 1 else 0, keepdims=keep)", "mean.dims": "jnp.mean(x, axis=(0, -1) if x.ndim > 1 else 0, keepdims=keep)",
    "var.ddof": "jnp.var(x, axis=d, ddof=1, keepdims=keep)", "sum.where": "jnp.sum(x, axis=d, where=mask)",
    "max.where": "jnp.max(x, axis=d, where=mask, initial=-1)", "mean.where": "jnp.mean(x, axis=d, where=mask | (ids > 1))",
    "norm": "jnp.sqrt(jnp.sum(x * x) + 1)", "norm.dim": "jnp.linalg.norm(x, axis=d, keepdims=keep)", "quantile": "jnp.quantile(x, 0.3, axis=d)",
    "average": "jnp.average(x, axis=d, weights=u)", "logsumexp": "jax.nn.logsumexp(x, axis=d, keepdims=keep)", "softmax": "jax.nn.softmax(x, axis=d)",
    "log_softmax": "jax.nn.log_softmax(x, axis=d)", "standardize": "jax.nn.standardize(x, axis=d)",
    "layer_norm": "(x - jnp.mean(x, -1, keepdims=True)) * lax.rsqrt(jnp.var(x, -1, keepdims=True) + 1e-3) * v",
    "rms_norm": "x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-3) * v", "reduce": "lax.reduce(x, jnp.zeros((), x.dtype), lax.add, (d,))",
    "reduce.two": "lax.reduce((x, z), (jnp.zeros((), x.dtype),) * 2, lambda a, b: (a[0] + b[0], jnp.maximum(a[1], b[1])), (d,))",
    "nextafter": "jnp.nextafter(lax.stop_gradient(x), lax.stop_gradient(z)) * x", "reduce_precision": "lax.reduce_precision(x, 5, 7)",
    # Elements are picked, or put in order.
    "~argmax": "jnp.argmax(x, axis=d, keepdims=keep)", "~argmin": "jnp.argmin(x, axis=d, keepdims=keep)", "~argmax.all": "jnp.argmax(x)",
    "~sort": "jnp.sort(x, axis=d)", "~sort.down": "jnp.sort(x, axis=d, descending=True)", "~argsort": "jnp.argsort(x, axis=d)",
    "~sort.two": "lax.sort((x, z), dimension=d, num_keys=1)", "~sort.keys": "lax.sort((ids, x, z), dimension=d, num_keys=2)[1:]",
    "~sort.flat": "jnp.sort(x, axis=None)", "~top_k": "lax.top_k(x, min(max(1, k), x.shape[-1]))",
    "~top_k.max": "lax.approx_max_k(x, min(max(1, k), x.shape[-1]), recall_target=1.0)", "~lexsort": "jnp.lexsort((x, ids), axis=d)",
    "~argpartition": "x[..., jnp.argsort(x[(0,) * (x.ndim - 1)])]", "~max.pick": "jnp.take_along_axis(x, jnp.argmax(x, axis=d, keepdims=True), axis=d)",
    "~unique": "jnp.unique(x, size=x.size)", "~searchsorted": "jnp.searchsorted(jnp.sort(v), x)",
    "~searchsorted.sort": "jnp.searchsorted(jnp.sort(v), x, method='sort')", "digitize": "jnp.digitize(x, jnp.sort(v))",
    "nonzero": "jnp.nonzero(mask, size=5, fill_value=0)[-1] * jnp.sum(x)", "bincount": "jnp.bincount(ids.ravel(), length=7) * x.ravel()[0]",
    "bincount.weights": "jnp.bincount(ids.ravel(), weights=x.ravel(), length=7)", "histogram": "jnp.histogram(x, bins=5, range=(0.0, 1.0))[0]",
    # Sums and maxima along a dimension, and over windows.
    "cumsum": "jnp.cumsum(x, axis=d)", "cumsum.reverse": "lax.cumsum(x, axis=d, reverse=True)", "cumsum.flat": "jnp.cumsum(x)",
    "cumprod": "jnp.cumprod(x, axis=d)", "cummax": "lax.cummax(x, axis=d)", "cummin.reverse": "lax.cummin(x, axis=d, reverse=True)",
    "cumlogsumexp": "lax.cumlogsumexp(x, axis=d)", "cumlogsumexp.reverse": "lax.cumlogsumexp(x, axis=d, reverse=True)",
    "associative_scan": "lax.associative_scan(jnp.add, x, axis=d)",
    "associative_scan.linear": "lax.associative_scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (x, z), axis=d, reverse=keep)[1]",
    "diff": "jnp.diff(x, axis=d)", "diff.2": "jnp.diff(x, n=2, axis=d)", "ediff1d": "jnp.ediff1d(x)", "trapezoid": "jnp.trapezoid(x, axis=d)",
    "gradient": "jnp.gradient(x, axis=d)", "window.sum": f"lax.reduce_window(x, np.zeros((), x.dtype), lax.add, {_WINDOW}, 'VALID')",
    "window.sum.same": "lax.reduce_window(x, np.zeros((), x.dtype), lax.add, tuple(3 if a == d else 1 for a in range(x.ndim)), (1,) * x.ndim, 'SAME')",
    "window.sum.stride":
        "lax.reduce_window(x, np.zeros((), x.dtype), lax.add, tuple(3 if a == d else 1 for a in range(x.ndim)), tuple(2 if a == d else 1 for a in "
        "range(x.ndim)), 'SAME')",
    "window.sum.dilated":
        "lax.reduce_window(x, np.zeros((), x.dtype), lax.add, tuple(2 if a == d else 1 for a in range(x.ndim)), (1,) * x.ndim, 'SAME', "
        "window_dilation=tuple(2 if a == d else 1 for a in range(x.ndim)))",
    "window.sum.base":
        "lax.reduce_window(x, np.zeros((), x.dtype), lax.add, tuple(2 if a == d else 1 for a in range(x.ndim)), (1,) * x.ndim, 'SAME', base_dilation=tuple(2 "
        "if a == d else 1 for a in range(x.ndim)))",
    "window.sum.pad":
        "lax.reduce_window(x, np.zeros((), x.dtype), lax.add, tuple(3 if a == d else 1 for a in range(x.ndim)), (1,) * x.ndim, [(2, max(0, k)) if a == d else "
        "(0, 0) for a in range(x.ndim)])",
    "~window.max": "lax.reduce_window(x, np.array(-np.inf, x.dtype), lax.max, tuple(min(2, s) for s in x.shape), tuple(min(2, s) for s in x.shape), 'VALID')",
    "~window.max.same": "lax.reduce_window(x, np.array(-np.inf, x.dtype), lax.max, tuple(3 if a == d else 1 for a in range(x.ndim)), (1,) * x.ndim, 'SAME')",
    "~window.max.stride":
        "lax.reduce_window(x, np.array(-np.inf, x.dtype), lax.max, tuple(3 if a == d else 1 for a in range(x.ndim)), tuple(2 if a == d else 1 for a in "
        "range(x.ndim)), 'SAME')",
    "~window.min": "lax.reduce_window(x, np.array(np.inf, x.dtype), lax.min, tuple(2 if a == d else 1 for a in range(x.ndim)), (1,) * x.ndim, 'SAME')",
    # Moves.
    "reshape.flat": "x.reshape(-1)", "reshape.first": "x.reshape(x.shape[0], -1)", "reshape.last": "x.reshape(-1, x.shape[-1])",
    "reshape.swap": "x.reshape(x.shape[1:] + x.shape[:1])", "reshape.two": "x.reshape(x.shape[:d] + (2, n // 2) + x.shape[d + 1:])",
    "reshape.two.inner": "x.reshape(x.shape[:d] + (n // 2, 2) + x.shape[d + 1:])", "reshape.three": "x.reshape(x.shape[:d] + (3, n // 3) + x.shape[d + 1:])",
    "reshape.six": "x.reshape(-1, 6)", "reshape.order": "x.ravel(order='F')", "transpose": "jnp.transpose(x)",
    "permute": "jnp.transpose(x, (*range(1, x.ndim), 0))", "swapaxes": "jnp.swapaxes(x, 0, d)", "moveaxis": "jnp.moveaxis(x, d, -1)",
    "squeeze": "jnp.squeeze(x)", "expand_dims": "jnp.expand_dims(x, d)", "broadcast_to": "jnp.broadcast_to(x, (2, *x.shape))",
    "broadcast.in": "lax.broadcast_in_dim(x, x.shape + (3,), tuple(range(x.ndim)))", "repeat": "jnp.repeat(x, 2, axis=d)",
    "repeat.counts": "jnp.repeat(x, seg, axis=d, total_repeat_length=n)", "tile": "jnp.tile(x, 2)", "tile.first": "jnp.tile(x, (2,) + (1,) * (x.ndim - 1))",
    "flip": "jnp.flip(x, d)", "flip.all": "jnp.flip(x)", "roll": "jnp.roll(x, k, d)", "roll.flat": "jnp.roll(x, k)", "roll.two": "jnp.roll(x, (k, 1), (d, -1))",
    "roll.dynamic": "jnp.roll(x, spot, d)", "rot90": "jnp.rot90(x)", "slice.start": "lax.slice_in_dim(x, min(max(k, 0), n - 1), n, axis=d)",
    "slice.end": "lax.slice_in_dim(x, 0, max(1, n - 1), axis=d)", "slice.one": "lax.index_in_dim(x, k % n, axis=d, keepdims=keep)",
    "slice.stride": "lax.slice_in_dim(x, 0, n, 2, axis=d)", "slice.stride.odd": "lax.slice_in_dim(x, min(1, n - 1), n, 3, axis=d)", "slice.reverse": "x[::-2]",
    "slice.inner": "x[..., 1:-1]", "dynamic_slice": "lax.dynamic_slice_in_dim(x, spot, max(1, n // 2), axis=d)",
    "dynamic_slice.one": "lax.dynamic_index_in_dim(x, spot, axis=d, keepdims=keep)",
    "dynamic_slice.past": "lax.dynamic_slice_in_dim(x, spot + k, max(1, n - 1), axis=d)",
    "dynamic_update":
        "lax.dynamic_update_slice_in_dim(x, y * jnp.ones_like(x)[tuple(slice(0, max(1, n // 2)) if a == d else slice(None) for a in range(x.ndim))] if y.ndim "
        "== 0 else lax.slice_in_dim(z, 0, max(1, n // 2), axis=d), spot, axis=d)",
    "dynamic_update.one": "lax.dynamic_update_index_in_dim(x, lax.index_in_dim(z, 0, axis=d, keepdims=False), spot, axis=d)",
    "split": "jnp.split(x, [1, max(1, n - 1)], axis=d)[::-1]", "split.even": "jnp.split(x, 2, axis=d)", "split.array": "jnp.array_split(x, 3, axis=d)",
    "unstack": "jnp.unstack(x, axis=d)", "concatenate": "jnp.concatenate([x, z], axis=d)", "concatenate.self": "jnp.concatenate([x, x], axis=d)",
    "concatenate.three": "jnp.concatenate([x, z, x], axis=d)", "concatenate.part": "jnp.concatenate([lax.slice_in_dim(z, 0, 1, axis=d), x], axis=d)",
    "concatenate.shift": "jnp.concatenate([lax.slice_in_dim(x, 1, n, axis=d), lax.slice_in_dim(x, 0, 1, axis=d)], axis=d)",
    "stack": "jnp.stack([x, z], axis=d)", "append": "jnp.append(x, z)",
    "pad": "lax.pad(x, np.array(0.5, x.dtype), [(1, 2, 0) if a == d else (0, 0, 0) for a in range(x.ndim)])",
    "pad.interior": "lax.pad(x, np.array(0.5, x.dtype), [(0, 1, 1) if a == d else (0, 0, 0) for a in range(x.ndim)])",
    "pad.negative": "lax.pad(x, np.array(0.5, x.dtype), [(-1, k, 0) if a == d else (0, 0, 0) for a in range(x.ndim)])", "pad.all": "jnp.pad(x, 1)",
    "pad.reflect": "jnp.pad(x, [(1, 1) if a == d else (0, 0) for a in range(x.ndim)], mode='reflect')",
    "pad.wrap": "jnp.pad(x, [(2, 1) if a == d else (0, 0) for a in range(x.ndim)], mode='wrap')",
    "pad.edge": "jnp.pad(x, [(2, 1) if a == d else (0, 0) for a in range(x.ndim)], mode='edge')", "tril": "jnp.tril(x, k)", "triu": "jnp.triu(x, k)",
    "diagonal": "jnp.diagonal(x)", "diagonal.k": "jnp.diagonal(x, offset=k)", "diag": "jnp.diag(x, k)", "trace": "jnp.trace(x)",
    "bitcast": "lax.bitcast_convert_type(lax.bitcast_convert_type(x, jnp.uint8), x.dtype)", "bitcast.bits": "lax.bitcast_convert_type(x, jnp.uint8)[..., 0]",
    "iota": "x + lax.broadcasted_iota(x.dtype, x.shape, d)", "iota.flat": "x * jnp.arange(x.size, dtype=x.dtype).reshape(x.shape)",
    "eye": "x + jnp.eye(x.shape[-1], dtype=x.dtype, k=k)", "meshgrid": "jnp.meshgrid(x, v, indexing='ij')[1] + x.ravel()[0]",
    "one_hot": "jax.nn.one_hot(ids, 7, dtype=x.dtype) * x[..., None]", "where": "jnp.where(mask, x, y)", "where.scalar": "jnp.where(mask, x, 0.5)",
    "where.less": "jnp.where(x > y, x, z)", "select": "jnp.select([mask, ids > 3], [x, z], 0.25)", "choose": "lax.select_n(mask, x, z)",
    "clip": "jnp.clip(x, 0.3, 0.6)", "clamp": "lax.clamp(np.array(0.2, x.dtype), x, np.array(0.4, x.dtype))",
    # Gathers and scatters.
    "take": "jnp.take(x, j, axis=d)", "take.flat": "jnp.take(x, j)", "take.clip": "jnp.take(x, j + k, axis=d, mode='clip')",
    "take.fill": "jnp.take(x, j + k, axis=d, mode='fill', fill_value=0.5)", "take.wrap": "jnp.take(x, j + k, axis=d, mode='wrap')",
    "take.two": "x[j % x.shape[0], ..., j2 % x.shape[-1]]", "take.outer": "x[(j % x.shape[0])[:, None], ..., (j2 % x.shape[-1])[None]]",
    "take.along": "jnp.take_along_axis(x, i, axis=d)", "take.along.part": "jnp.take_along_axis(x, lax.slice_in_dim(i, 0, 1, axis=d), axis=d)",
    "take.mask": "jnp.where(mask, jnp.take_along_axis(x, i, axis=d), 0)", "embedding": "table[ids] * x[..., None]",
    "embedding.take": "jnp.take(table, ids, axis=0) + x[..., None]", "at.set": "x.at[j[0] % x.shape[0]].set(z[0])", "at.add": "x.at[j % x.shape[0]].add(0.5)",
    "at.add.rows": "x.at[j % x.shape[0]].add(z[j2 % x.shape[0]])", "at.mul": "x.at[j % x.shape[0]].multiply(1.5)", "at.min": "x.at[j % x.shape[0]].min(0.25)",
    "at.max": "x.at[j % x.shape[0]].max(0.25)", "at.add.dim": "jnp.moveaxis(jnp.moveaxis(x, d, 0).at[j].add(0.25), 0, d)",
    "at.set.slice": "x.at[..., 1:].set(0.5)", "at.add.slice": "x.at[1:].add(z[:-1])", "at.add.stride": "x.at[::2].add(1)",
    "at.add.nonzero": "x.at[jnp.nonzero(mask, size=3, fill_value=0)].add(0.25)", "at.add.drop": "x.at[j + k].add(z[0], mode='drop')",
    "at.add.two": "x.at[j % x.shape[0], ..., j2 % x.shape[-1]].add(0.5)", "at.get": "x.at[j + k].get(mode='fill', fill_value=0)",
    "put_along": "jnp.put_along_axis(x, lax.slice_in_dim(i, 0, 1, axis=d), 0.5, axis=d, inplace=False)",
    "scatter.zeros": "jnp.zeros((5, *x.shape[1:]), x.dtype).at[j[:1]].add(x[:1])",
    "scatter.rows":
        "jnp.zeros((7, x.shape[-1]), x.dtype).at[ids.ravel() % 7 if x.ndim == 1 else ids[..., 0].ravel()].add(x.reshape(-1, x.shape[-1]) if x.ndim > 1 else "
        "x[None])",
    "segment_sum": "jax.ops.segment_sum(jnp.moveaxis(x, d, 0), seg, 4)",
    "segment_sum.sorted": "jax.ops.segment_sum(jnp.moveaxis(x, d, 0), jnp.sort(seg), 4, indices_are_sorted=True)",
    "segment_max": "jnp.maximum(jax.ops.segment_max(jnp.moveaxis(x, d, 0), seg, 4), 0)",
    "segment_prod": "jax.ops.segment_prod(lax.stop_gradient(jnp.moveaxis(x, d, 0)), seg, 4) * x.ravel()[0]",
    # Products.
    "mm": "x @ m", "matmul.left": "m.T @ x.mT", "matmul.batch": "jnp.matmul(x, mm)", "mv": "x @ v", "outer": "jnp.outer(x, v)", "gram": "x @ x.mT",
    "gram.t": "x.mT @ x", "inner": "jnp.inner(x, z)", "dot.batch": "lax.dot_general(x, z, (((x.ndim - 1,), (x.ndim - 1,)), (tuple(range(x.ndim - 1)),) * 2))",
    "dot.first": "lax.dot_general(x, z, (((0,), (0,)), ((), ())))", "dot.all": "lax.dot_general(x, z, ((tuple(range(x.ndim)),) * 2, ((), ())))",
    "dot.d": "lax.dot_general(x, z, (((d,), (d,)), ((), ())))", "einsum.outer": "jnp.einsum('...i,...j->...ij', x, z)",
    "einsum.sum": "jnp.einsum('...i,...i->...', x, z)", "einsum.mm": "jnp.einsum('...i,ij->j...', x, m)",
    "einsum.diagonal": "jnp.einsum('...ii->...i', x[..., :min(x.shape[-2:]), :min(x.shape[-2:])])", "einsum.three": "jnp.einsum('...i,ij,kj->...k', x, m, m)",
    "einsum.transpose": "jnp.einsum('i...,j...->ij...', x, z)", "tensordot": "jnp.tensordot(x, m, 1)", "kron": "jnp.kron(x, m[:2, :2])",
    "vecdot": "jnp.vecdot(x, z, axis=d)", "cross": "jnp.cross(x, z, axis=d)", "convolve": "jnp.convolve(x.ravel(), w.ravel()[:3], mode='same')",
    "attention": "jax.nn.softmax(x @ z.mT, -1) @ z",
    "attention.causal": "jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((x.shape[-2],) * 2, bool)), x @ z.mT, -9), -1) @ z",
    "attention.nn": "jax.nn.dot_product_attention(c4(x), c4(z), c4(x))", "cov": "jnp.cov(x)", "polyval": "jnp.polyval(jnp.array([1.0, 0.5, 2.0], x.dtype), x)",
    "vander": "jnp.vander(x, 3)", "interp": "jnp.interp(x, jnp.linspace(0, 1, x.shape[-1] + 1, dtype=x.dtype), jnp.append(v, 1))",
    # Convolutions.
    "conv": f"lax.conv_general_dilated(c3(x), w, (1,), 'SAME', {_CONV})", "conv.valid": f"lax.conv_general_dilated(c3(x), w, (1,), 'VALID', {_CONV})",
    "conv.stride": f"lax.conv_general_dilated(c3(x), w, (2,), 'SAME', {_CONV})",
    "conv.stride.3": f"lax.conv_general_dilated(c3(x), w, (3,), [(2, 1)], {_CONV})",
    "conv.dilated": f"lax.conv_general_dilated(c3(x), w, (1,), 'SAME', rhs_dilation=(2,), {_CONV})",
    "conv.transposed": f"lax.conv_general_dilated(c3(x), w, (1,), [(1, 2)], lhs_dilation=(2,), {_CONV})",
    "conv.causal": f"lax.conv_general_dilated(c3(x), w, (1,), [(2, 0)], {_CONV})",
    "conv.negative": f"lax.conv_general_dilated(c3(x), w, (1,), [(-1, 2)], {_CONV})",
    "conv.groups": f"lax.conv_general_dilated(c3(x), wg, (1,), 'SAME', feature_group_count=wg.shape[0], {_CONV})",
    "conv.groups.stride": f"lax.conv_general_dilated(c3(x), wg, (2,), 'SAME', feature_group_count=wg.shape[0], {_CONV})",
    "conv.groups.causal": f"lax.conv_general_dilated(c3(x), wg, (1,), [(2, 0)], feature_group_count=wg.shape[0], {_CONV})",
    "conv.batch_groups": f"lax.conv_general_dilated(c3(x), w, (1,), 'SAME', batch_group_count=2, {_CONV})",
    "conv.reversed": f"lax.conv_general_dilated(c3(x), lax.rev(w, (2,)), (1,), 'SAME', {_CONV})",
    "conv.channels_last": "lax.conv_general_dilated(jnp.moveaxis(c3(x), 1, 2), w, (1,), 'SAME', dimension_numbers=('NHC', 'OIH', 'NHC'))",
    "conv.4": f"lax.conv_general_dilated(c4(x), w4, (1, 1), 'SAME', {_CONV4})",
    "conv.4.stride": f"lax.conv_general_dilated(c4(x), w4, (2, 2), 'SAME', {_CONV4})",
    "conv.4.dilated": f"lax.conv_general_dilated(c4(x), w4, (1, 1), 'SAME', rhs_dilation=(1, 2), {_CONV4})",
    "conv.4.groups": f"lax.conv_general_dilated(c4(x), wg4, (1, 1), 'SAME', feature_group_count=wg4.shape[0], {_CONV4})",
    "conv.4.transposed": f"lax.conv_general_dilated(c4(x), w4, (1, 1), [(1, 1), (2, 1)], lhs_dilation=(2, 1), {_CONV4})",
    "conv_transpose": "lax.conv_transpose(jnp.moveaxis(c3(x), 1, 2), jnp.transpose(w, (2, 1, 0)), (2,), 'SAME')",
    "patches": "lax.conv_general_dilated_patches(c3(x), (2,), (1,), 'SAME')",
    "conv.space_as_kernel": f"lax.conv_general_dilated(c3(x), c3(z), (1,), 'VALID', {_CONV})",
    "avg_pool": "lax.reduce_window(c4(x), np.zeros((), x.dtype), lax.add, (1, 1, 2, 2), (1, 1, 2, 2), 'SAME') / 4",
    "~max_pool": "lax.reduce_window(c4(x), np.array(-np.inf, x.dtype), lax.max, (1, 1, 3, 3), (1, 1, 2, 2), 'SAME')",
    "resize": "jax.image.resize(x, tuple(2 * s if a == d else s for a, s in enumerate(x.shape)), 'nearest')",
    "resize.linear": "jax.image.resize(x, tuple(2 * s if a == d else s for a, s in enumerate(x.shape)), 'linear')",
    # Transforms and factorizations.
    "fft": "jnp.abs(jnp.fft.fft(x, axis=d)) ** 2", "fft.real": "jnp.fft.fft(x, axis=d).real", "rfft": "jnp.fft.rfft(x, axis=d).imag",
    "irfft": "jnp.fft.irfft(x + 1j * z, n=2 * n, axis=d)", "fft2": "jnp.fft.fft2(x).real",
    "ifft": "jnp.fft.ifft(jnp.fft.fft(x, axis=d) * jnp.fft.fft(z, axis=d), axis=d).real", "fftshift": "jnp.fft.fftshift(x, axes=d)",
    "complex": "jnp.stack([lax.complex(x, z).real, jnp.conj(lax.complex(x, z)).imag], axis=d)", "complex.mul": "(lax.complex(x, z) * lax.complex(z, x)).imag",
    "cholesky": f"jnp.linalg.cholesky({_SPD})", "triangular_solve": f"lax.linalg.triangular_solve(jnp.linalg.cholesky({_SPD}), x, left_side=True, lower=True)",
    "solve": f"jnp.linalg.solve({_SPD}, x)", "inv": f"jnp.linalg.inv({_SPD})", "det": f"jnp.linalg.det(({_SPD}) / g.shape[-1])",
    "slogdet": f"jnp.linalg.slogdet({_SPD})[1]", "qr": f"jnp.abs(jnp.linalg.qr({_SPD}).R)", "svdvals": f"jnp.linalg.svd({_SPD}, compute_uv=False)[..., 0]",
    "eigvalsh": f"jnp.linalg.eigvalsh({_SPD})[..., -1]", "matrix_power": "jnp.linalg.matrix_power(x @ x.mT, 2)", "lu": f"jax.scipy.linalg.lu({_SPD})[2]",
    "tridiagonal_solve": "lax.linalg.tridiagonal_solve(x, x + 3, z, jnp.expand_dims(x, -1))[..., 0]",
    # Whole numbers and truth values.
    "int.cumsum": "jnp.cumsum((x * 64).astype(jnp.int32), axis=d)", "int.sum": "jnp.sum((x * 64).astype(jnp.int32), axis=d)",
    "int.small": "jnp.sum((x * 64).astype(jnp.int8), axis=d, dtype=jnp.int32)",
    "int.mm": "ids @ (m * 8).astype(ids.dtype) + (x[..., :1] * 4).astype(ids.dtype)", "int.divide": "(x * 64).astype(jnp.int32) // (ids.astype(jnp.int32) + 1)",
    "int.shift": "((x * 64).astype(jnp.uint32) << 2) ^ ids.astype(jnp.uint32)", "int.and": "jnp.flip(ids, d) & ids | (x * 8).astype(ids.dtype)",
    "int.max": "jnp.max((x * 64).astype(jnp.int32), axis=d, keepdims=keep)", "int.roll": "jnp.roll(ids, k, d) * x",
    "int.flip": "jnp.flip((x * 64).astype(jnp.int16), d)",
    "int.argmax": "jnp.argmax(ids * x.shape[d] + lax.broadcasted_iota(ids.dtype, x.shape, d), axis=d) + 0 * x.ravel()[0]",
    "bool.any": "jnp.any(mask & (x > 0.1), axis=d)", "bool.cumsum": "jnp.cumsum(mask, axis=d) * x", "bool.xor": "jnp.flip(mask, d) ^ mask ^ (x > 0.3)",
    "bool.reduce": "lax.reduce_xor(mask, axes=(d,)) + 0 * jnp.sum(x)", "packbits": "jnp.packbits(mask, axis=d) + 0 * x.ravel()[0]",
    "to.other": "x.astype(jnp.float32 if x.dtype == jnp.float64 else jnp.float64)", "to.half": "x.astype(jnp.float16)",
    # Loops.
    "scan.sum": "lax.scan(lambda c, a: (c * 0.5 + a, c + a), jnp.zeros_like(x[0]), x)[1]",
    "scan.reverse": "lax.scan(lambda c, a: (c * 0.5 + a, c + a), jnp.zeros_like(x[0]), x, reverse=True)[1]",
    "scan.mm": "lax.scan(lambda c, a: (jnp.tanh(c @ (m @ m.T)) + a, c), jnp.zeros_like(x[0]), x)",
    "scan.unroll": "lax.scan(lambda c, a: (c + a, c * a), jnp.zeros_like(x[0]), x, unroll=2)[1]",
    "scan.two": "lax.scan(lambda c, a: (c * a[1] + a[0], c), jnp.ones_like(x[0]), (x, z))",
    "scan.slice": "lax.fori_loop(0, 3, lambda t, c: c * 0.5 + lax.dynamic_slice_in_dim(x, t % n, 1, axis=d), lax.slice_in_dim(x, 0, 1, axis=d))",
    "scan.update":
        "lax.fori_loop(0, n, lambda t, c: lax.dynamic_update_slice_in_dim(c, lax.dynamic_slice_in_dim(x, n - 1 - t, 1, axis=d), t, axis=d), jnp.zeros_like(x))",
    "scan.roll": "lax.fori_loop(0, 3, lambda t, c: jnp.roll(c, 1, d) + x, x)",
    "while": "lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.roll(c[1], 1, d) + lax.stop_gradient(z)), (0, lax.stop_gradient(x)))[1] * x",
    "map": "lax.map(lambda a: jnp.flip(a) * 2, x)", "map.batch": "lax.map(lambda a: jnp.cumsum(a), x, batch_size=2)",
    "vmap.roll": "jax.vmap(lambda a, s: jnp.roll(a, s))(x, (jnp.arange(x.shape[0]) + k) % 3)",
    "vmap.slice": "jax.vmap(lambda a, s: lax.dynamic_slice_in_dim(a, s % n, 2))(x.reshape(x.shape[0], -1), jnp.arange(x.shape[0]))",
    "vmap.take": "jax.vmap(lambda a, s: a[s])(x, (i if x.ndim == 1 else i[:, 0].reshape(x.shape[0], -1)[:, 0]) % x.shape[-1])",
    "switch": "lax.switch(j[0] % 3, [lambda a: a * 2, lambda a: jnp.flip(a, d), lambda a: jnp.roll(a, 1, d)], x)",
    "cond": "lax.cond(spot > 0, lambda a: jnp.cumsum(a, d), lambda a: jnp.flip(a, d), x)", "stop_gradient": "lax.stop_gradient(x) * x",
    "barrier": "lax.optimization_barrier(x) * 2", "checkpoint": "jax.checkpoint(lambda a: jnp.sin(jnp.cumsum(a, d)))(x)",
}

# The same value made by hand, on the devices of the mesh's first axis: (what it must be, where the result lies, what each device makes of its part of x along
# d). ax is the axis, s its size, r the device's place in it. "=": the result lies as x does; "*": it is the same on all devices; "+": it is cut along its first
# dimension.
MANUAL = {
    "by_hand.sum": ("jnp.sum(x, axis=d)", "*", "lax.psum(jnp.sum(x, axis=d), ax)"),
    "by_hand.mean": ("jnp.mean(x, axis=d)", "*", "lax.pmean(jnp.mean(x, axis=d), ax)"),
    "by_hand.max": ("lax.stop_gradient(jnp.max(x, axis=d))", "*", "lax.pmax(lax.stop_gradient(jnp.max(x, axis=d)), ax)"),
    "by_hand.softmax": ("jax.nn.softmax(x, axis=d)", "=", "(e := jnp.exp(x)) / lax.psum(jnp.sum(e, axis=d, keepdims=True), ax)"),
    "by_hand.gather": ("jnp.flip(x, d)", "=",
                       "lax.dynamic_slice_in_dim(jnp.flip(lax.all_gather(x, ax, axis=d, tiled=True), d), r * x.shape[d], x.shape[d], axis=d)"),
    "by_hand.scatter": ("jnp.cumsum(x, d)", "=",
                        "jnp.cumsum(x, d) + lax.dynamic_index_in_dim(jnp.cumsum(g := lax.all_gather(jnp.sum(x, d, keepdims=True), ax, axis=d, tiled=True), "
                        "d) - g, r, axis=d)"),
    "by_hand.roll": ("jnp.roll(x, 1, d)", "=",
                     "jnp.concatenate([lax.ppermute(lax.slice_in_dim(x, x.shape[d] - 1, x.shape[d], axis=d), ax, [(a, (a + 1) % s) for a in range(s)]), "
                     "lax.slice_in_dim(x, 0, x.shape[d] - 1, axis=d)], axis=d)"),
    "by_hand.shift": ("jnp.pad(x, [(1, 0) if a == d else (0, 0) for a in range(x.ndim)])[tuple(slice(0, n) if a == d else slice(None) for a in "
                      "range(x.ndim))]", "=",
                      "jnp.concatenate([lax.ppermute(lax.slice_in_dim(x, x.shape[d] - 1, x.shape[d], axis=d), ax, [(a, a + 1) for a in range(s - 1)]), "
                      "lax.slice_in_dim(x, 0, x.shape[d] - 1, axis=d)], axis=d)"),
    "by_hand.norm": ("x / jnp.sqrt(jnp.sum(x * x))", "=", "x / jnp.sqrt(lax.psum(jnp.sum(x * x), ax))"),
    "by_hand.iota": ("x * (1 + lax.broadcasted_iota(x.dtype, x.shape, d))", "=", "x * (1 + r * x.shape[d] + lax.broadcasted_iota(x.dtype, x.shape, d))"),
    "by_hand.all_to_all": ("x + jnp.sum(x, axis=d, keepdims=True)", "=",
                           "lax.all_to_all(lax.all_to_all(x, ax, 1 - d, d, tiled=True) + jnp.sum(lax.all_to_all(x, ax, 1 - d, d, tiled=True), axis=d, "
                           "keepdims=True), ax, d, 1 - d, tiled=True)"),
    "by_hand.reduce_scatter": ("jnp.sum(x, axis=d)", "+", "lax.psum_scatter(jnp.sum(x, axis=d), ax, scatter_dimension=0, tiled=True)"),
    "by_hand.ring": ("x + jnp.sum(x, axis=d, keepdims=True)", "=",
                     "x + lax.scan(lambda c, _: (lax.ppermute(c, ax, [(a, (a + 1) % s) for a in range(s)]) + jnp.sum(x, d, keepdims=True), None), 0 * "
                     "jnp.sum(x, d, keepdims=True), length=s)[0]"),
}
OPERATIONS.update({name: plain for name, (plain, _, _) in MANUAL.items()})

# Operations whose results jump when an argument changes by a rounding.
STEPS = frozenset("""ceil floor rint trunc sign signbit fmod remainder equal not_equal less greater floor_divide heaviside isfinite is_finite any.dim
any.all all.dim all.all count_nonzero.dim count_nonzero.all population_count clz nextafter where.less digitize histogram reduce_precision bitcast
bitcast.bits int.cumsum int.sum int.small int.mm int.divide int.shift int.and int.max int.roll int.flip int.argmax bool.any bool.cumsum bool.xor
bool.reduce packbits median.dim median.all quantile to.half""".split())


def picks(name: str) -> bool:
    """Whether the operation picks elements."""
    return name.startswith("~")


NAMES = list(OPERATIONS)
