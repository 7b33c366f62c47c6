/* shardfuzz plugins, ABI version 1: a shared library hands its kernels to `shardfuzz fuzz --target plugin:./libkernels.so`.
 *
 * The library exports one function, shardfuzz_plugin_get(), which returns a declaration: a table of operations by the names of the reference
 * (`shardfuzz list operations` prints them with their operands, in order, dimensions and attributes), the formats each takes, and the functions
 * that compute it. C and C++; no dependency.
 *
 * Rules for an operation's functions: inputs are only read; of an output every element is written, and nothing beside it; nothing is kept of a
 * pointer once the call has returned; the same call gives the same bits. No exception may leave. Calls come from one thread. */
#ifndef SHARDFUZZ_PLUGIN_H
#define SHARDFUZZ_PLUGIN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHARDFUZZ_PLUGIN_ABI 1u

/* Formats. Of fp8 E4M3 is the kind without infinity. */
enum shardfuzz_dtype {
  SHARDFUZZ_F32 = 0,
  SHARDFUZZ_BF16 = 1,
  SHARDFUZZ_F16 = 2,
  SHARDFUZZ_F64 = 3,
  SHARDFUZZ_F8E4M3 = 4,
  SHARDFUZZ_F8E5M2 = 5,
  SHARDFUZZ_I32 = 6,
  SHARDFUZZ_U16 = 7
};
#define SHARDFUZZ_BIT(dtype) (1u << (dtype))

/* What DLPack calls DLDataTypeCode, as far as it is used here. */
enum shardfuzz_type_code {
  SHARDFUZZ_CODE_INT = 0,
  SHARDFUZZ_CODE_UINT = 1,
  SHARDFUZZ_CODE_FLOAT = 2,
  SHARDFUZZ_CODE_BFLOAT = 4,
  SHARDFUZZ_CODE_F8E4M3FN = 10,
  SHARDFUZZ_CODE_F8E5M2 = 12
};

struct shardfuzz_device {
  int32_t type; /* 1: CPU */
  int32_t id;
};
struct shardfuzz_type {
  uint8_t code, bits;
  uint16_t lanes; /* 1 */
};

/* Laid out like DLPack's DLTensor. Element (i, j) is at (char *)data + byte_offset + (i * strides[0] + j * strides[1]) * bits / 8. data is NULL
 * where an operand is left out. */
struct shardfuzz_tensor {
  void *data;
  struct shardfuzz_device device;
  int32_t ndim; /* 2 */
  struct shardfuzz_type dtype;
  int64_t *shape;
  int64_t *strides; /* in elements; never NULL */
  uint64_t byte_offset;
};

/* An attribute as a number that a case file has (`integer`) and as what it stands for (`real`). */
struct shardfuzz_attribute {
  const char *name;
  int64_t integer;
  double real;
};

struct shardfuzz_call {
  uint32_t size_bytes; /* of this struct; grows with later versions */
  uint32_t dtype;      /* enum shardfuzz_dtype of the case */
  int32_t tensor_count, attribute_count;
  const struct shardfuzz_tensor *tensors; /* in the reference's order; an output that shares an input's memory has the same data */
  const struct shardfuzz_attribute *attributes;
};

enum shardfuzz_result {
  SHARDFUZZ_OK = 0,
  SHARDFUZZ_UNSUPPORTED = 1 /* this case is not for the kernel: it is counted as skipped */
};
typedef int shardfuzz_function(const struct shardfuzz_call *call); /* any other number than the two: a finding */

/* A dimension's largest size, and what it must be a multiple of; 0: no limit. */
struct shardfuzz_limit {
  const char *dimension;
  int64_t max, multiple;
};

/* What the functions take beyond dense rows on memory aligned to 64 bytes. */
enum shardfuzz_takes {
  SHARDFUZZ_TAKES_STRIDED = 1,   /* rows further apart than they are long */
  SHARDFUZZ_TAKES_UNALIGNED = 2, /* data aligned to one element */
  SHARDFUZZ_TAKES_IN_PLACE = 4   /* an output in the memory of an input, where the reference allows it */
};

struct shardfuzz_operation {
  const char *name;           /* "gelu": forward is gelu_fwd, backward gelu_bwd; or one operation of the reference: "gemm" */
  uint32_t dtypes;            /* SHARDFUZZ_BIT of each */
  uint32_t takes;             /* of enum shardfuzz_takes */
  shardfuzz_function *forward;
  shardfuzz_function *backward; /* NULL: none */
  const struct shardfuzz_attribute *fixed; /* attributes with one value: {"norm", 0, 0}; only `integer` counts */
  const struct shardfuzz_limit *limits;
  int32_t fixed_count, limit_count;
};

/* What a plugin is; layers and models have numbers in a later version. */
enum shardfuzz_kind { SHARDFUZZ_KIND_OPERATIONS = 1 };

struct shardfuzz_plugin {
  uint32_t abi;        /* SHARDFUZZ_PLUGIN_ABI */
  uint32_t size_bytes; /* of this struct */
  uint32_t kind;       /* enum shardfuzz_kind: says what `entries` are */
  int32_t entry_count;
  const char *name;
  const void *entries; /* struct shardfuzz_operation[entry_count] */
  uint32_t entry_bytes; /* sizeof(struct shardfuzz_operation) */
  uint32_t reserved;    /* 0 */
};

#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const struct shardfuzz_plugin *shardfuzz_plugin_get(void);

#ifdef __cplusplus
}
#endif
#endif
