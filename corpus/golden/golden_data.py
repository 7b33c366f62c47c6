"""What golden runs are fed with: consistent tensors, and tokens, labels, masks, documents and memory of a microbatch
(harness/docs/model.md), drawn in integers.

T = seq * microbatch_size tokens, in row order position * microbatch_size + sequence. A microbatch is named by its step and its number.
"""
import numpy as np
import torch

from golden_hashes import (MASK, SALT_DOCUMENTS, SALT_FEW, SALT_LABELS, SALT_MASK, SALT_MEMORY, SALT_TOKENS, below, element_bits, fill_key,
                           hash_u64, mix64)

EXTRA = 0xD1B54A32D192ED03


# --- consistent tensors -----------------------------------------------------------------------------------------------

def draw(dist, bits):
    """One float32 of a distribution. Integer times unit is exact in float32."""
    normal = sum(bits >> shift & 0xFFFF for shift in (0, 16, 32, 48)) - 131070
    extra = mix64(bits ^ EXTRA)
    if dist == "uniform":
        return np.float32(((bits >> 47) * 2 - 131071) * 111 * 2.0**-23)
    if dist == "heavy":
        stop = extra | 64
        return np.float32(normal * (stop & -stop) * 91 * 2.0**-25)
    if dist == "outliers":
        return np.float32(normal * (32 if extra & 255 == 0 else 1) * 111 * 2.0**-22)
    if dist == "sparse":
        return np.float32(normal * (1 if extra & 0xFFFF < 6554 else 0) * 83 * 2.0**-20)
    return np.float32(normal * 111 * 2.0**-22) + np.float32(8 if dist == "offset" else 0)


def fill(key, dist, shape, scale=1.0, offset=0.0):
    """offset + scale * draw, [rows, columns] in float32."""
    values = [np.float32(offset) + np.float32(scale) * draw(dist, element_bits(key, i)) for i in range(shape[0] * shape[1])]
    return torch.from_numpy(np.array(values, np.float32).reshape(shape))


def memory(case, place):
    """What cross-attention reads: [memory_seq * microbatch_size, hidden] in float64; place = hash_u64(step, number)."""
    shape = (case["model"]["memory_seq"] * case["train"]["microbatch_size"], case["model"]["hidden"])
    return fill(fill_key(case["seed"], place, SALT_MEMORY), "normal", shape).double()


# --- tokens -----------------------------------------------------------------------------------------------------------

def draw_token(case, bits):
    model, dist = case["model"], case["data"]["tokens"]
    if dist == "uniform":
        return below(bits, model["vocab"])
    if dist == "few":
        return below(element_bits(fill_key(case["seed"], 0, SALT_FEW), bits % 3), model["vocab"])
    parts = 2 << (bits & 0xFFFF) % 3
    part, length = (bits >> 16 & 7) % parts, model["vocab_padded"] // parts
    token = (part + 1) * length - 1 if bits >> 20 & 1 else part * length
    return min(token, model["vocab"] - 1)


def documents(case, step, microbatch):
    """Number of each token's document and its place in it, [sequence, position] both; tokens before each sequence's padding, a list."""
    seq, key = case["model"]["seq"], fill_key(case["seed"], hash_u64(step, microbatch), SALT_DOCUMENTS)
    numbers, places, lengths = [], [], []
    for sequence in range(case["train"]["microbatch_size"]):
        cuts = {below(element_bits(key, sequence * 64 + k), seq) for k in range(1, case["data"].get("documents", 1))}
        length = max(1, seq - below(element_bits(key, sequence * 64), case["data"].get("padding", 0) + 1))
        begins = sorted({0} | cuts | set(range(length, seq)))
        number = [sum(begin <= i for begin in begins) for i in range(seq)]
        numbers.append(number)
        places.append([i - begins[number[i] - 1] for i in range(seq)])
        lengths.append(length)
    return torch.tensor(numbers), torch.tensor(places), lengths


def data_microbatch(case, step, microbatch):
    """Tokens, labels and mask (1: the token's loss counts), [T] each."""
    tokens = case["model"]["seq"] * case["train"]["microbatch_size"]
    place = hash_u64(step, microbatch)
    streams = [[draw_token(case, element_bits(fill_key(case["seed"], place, salt), i)) for i in range(tokens)]
               for salt in (SALT_TOKENS, SALT_LABELS)]
    key, kind = fill_key(case["seed"], place, SALT_MASK), case["data"]["mask"]
    batch, lengths = case["train"]["microbatch_size"], documents(case, step, microbatch)[2]
    always = [below(element_bits(key ^ MASK, i), tokens) for i in range(3)]
    always = [i if i // batch < lengths[i % batch] else (lengths[i % batch] - 1) * batch + i % batch for i in always]
    share, kept = 65536, 1
    if kind == "sparse":
        share, kept = 0, 1 + below(element_bits(key ^ MASK, 3), 3)
    if kind == "uneven":
        share = (8192, 65536, 16384, 49152, 32768)[(fill_key(case["seed"], step, SALT_MASK) % 5 + microbatch) % 5]
    mask = [float(i // batch < lengths[i % batch] and (i in always[:kept] or element_bits(key, i) >> 48 < share)) for i in range(tokens)]
    return torch.tensor(streams[0]), torch.tensor(streams[1]), torch.tensor(mask, dtype=torch.float64)


def data_ahead(case, step, microbatch, depth):
    """Tokens, labels and mask of the token depth + 1 further on, [T] each; 0 where the document has none."""
    seq, batch, ahead = case["model"]["seq"], case["train"]["microbatch_size"], depth + 1
    data = [x.view(seq, batch) for x in data_microbatch(case, step, microbatch)]
    numbers, _, lengths = documents(case, step, microbatch)
    for x in data:
        whole = x.clone()
        for i in range(seq):
            for j in range(batch):
                within = i + ahead < lengths[j] and numbers[j][i] == numbers[j][i + ahead]
                x[i, j] = whole[i + ahead, j] if within else 0
    return [x.flatten() for x in data]
