/* Operations as a fuzzer sees them: what they are called, what they read and write, which shapes and formats they take, and a plain
 * reference in fp64 that says what each output is and how far a sound computation in fp32 may be from it.
 *
 * The table describes the operations of the device (harness/device/device.h has the formulas) and those that only plugins offer. It shares
 * no code with what is tested. A matrix is rows x cols, row-major; a vector is one row. */
#ifndef SF_ORACLES_OPS_OP_H
#define SF_ORACLES_OPS_OP_H

#include "harness/base/bytes.h"
#include "harness/spec/dtype.h"
#include "oracles/ops/num.h"

enum { SF_OP_OPERANDS_MAX = 10, SF_OP_DIMS_MAX = 4, SF_OP_ATTRS_MAX = 6 };

/* Enums and their texts for people: X(constant, text). */
#define SF_OP_CONSTANT(constant, text) constant,

#define SF_OP_ROLE_MAP(X) X(SF_OP_IN, "in") X(SF_OP_OUT, "out") X(SF_OP_INOUT, "inout")
enum sf_op_role { SF_OP_ROLE_MAP(SF_OP_CONSTANT) };
/* INPUT and STORED: numbers of the case's formats. */
#define SF_OP_ELEMENT_MAP(X)                                                                          \
  X(SF_OP_INPUT, "case") X(SF_OP_STORED, "case") X(SF_OP_FLOAT, "fp32") X(SF_OP_DOUBLE, "fp64")       \
  X(SF_OP_INT32, "int32") X(SF_OP_UINT16, "uint16")
enum sf_op_element { SF_OP_ELEMENT_MAP(SF_OP_CONSTANT) };
/* What an input may hold. ANY: all distributions and special values (a case's field says which). UNIT: within [-1, 1]. POSITIVE: finite,
 * above zero. SCORE: ANY, with very negative and masked ones among them. MASK: 0 or 1. ID: an index, some of them outside of 0..attribute
 * `vocab` - 1. BITS: any 16 bits. */
#define SF_OP_FILL_MAP(X)                                                                             \
  X(SF_OP_ANY, "any") X(SF_OP_UNIT, "within -1 and 1") X(SF_OP_POSITIVE, "above 0") X(SF_OP_SCORE, "any, masked too") \
  X(SF_OP_MASK, "0 or 1") X(SF_OP_ID, "indices") X(SF_OP_BITS, "random bits")
enum sf_op_fill { SF_OP_FILL_MAP(SF_OP_CONSTANT) };

struct sf_op_operand {
  const char *name;
  enum sf_op_role role;
  enum sf_op_element element;
  enum sf_op_fill fill;
  bool strided;    /* rows may be apart */
  int8_t in_place; /* an output: 1 + the input that may share its memory; 0: none */
  bool bits;       /* an output: zeros keep their sign */
};

/* A whole number 0..max, 0 the simplest. reals: what it stands for, or NULL when it stands for itself. size: drawn like a size. */
struct sf_op_attr {
  const char *name;
  int64_t max;
  const float *reals;
  bool size;
};

struct sf_op_shape {
  int64_t rows, cols;
};

/* A length of an operand: dims[0 .. 3], from SF_OP_TWICE on twice these, 1, 2, or the rows of a table of positions: with attributes
 * `repeat` and `first`, first + ceil(dims[0] / (repeat + 1)). */
enum { SF_OP_TWICE = SF_OP_DIMS_MAX, SF_OP_ONE = 2 * SF_OP_DIMS_MAX, SF_OP_TWO, SF_OP_POSITIONS };
/* The size of an operand. Bits 1 << attribute: it is left out, 0 x 0, unless all of only_with are set, and transposed if turned_with is. */
struct sf_op_size {
  int8_t rows, cols;
  uint8_t only_with, turned_with;
};

/* One operand of a case: its elements, dense, on the grid of its format. want: of outputs; written by the reference. */
struct sf_op_array {
  int64_t rows, cols;
  float *x;       /* INPUT, STORED, FLOAT; an INOUT's values before the call */
  int32_t *ints;  /* INT32, UINT16 */
  struct sf_num *want;
};

struct sf_op;
struct sf_op_view {
  const struct sf_op *op;
  const int64_t *dims, *attrs;
  enum sf_dtype store;
  bool plain_tails; /* plugins: Phi by 1 + erf(x / sqrt 2) and the logistic function by 1 / (1 + exp(-x)) are sound, though their errors in
                       the left tail are absolute; the device promises relative ones */
  struct sf_op_array at[SF_OP_OPERANDS_MAX];
};

struct sf_op {
  const char *name;   /* "norm_fwd" */
  const char *family; /* "norm": what a plugin with forward and backward declares */
  bool backward;
  bool casts;        /* inputs are fp32 whatever is stored */
  uint32_t stores;   /* formats of STORED, bits 1 << enum sf_dtype */
  int32_t operand_count, dim_count, attr_count;
  struct sf_op_operand operands[SF_OP_OPERANDS_MAX];
  const char *dims[SF_OP_DIMS_MAX];
  int64_t dim_min[SF_OP_DIMS_MAX]; /* 0 or more */
  struct sf_op_attr attrs[SF_OP_ATTRS_MAX];
  struct sf_op_size sizes[SF_OP_OPERANDS_MAX];
  uint8_t wide_with; /* with these attributes, as bits, a case whose dims[0] is above dims[1] has no meaning */
  /* What `reference` computes and what must be known to compute the same: lines of ASCII. */
  const char *formula;
  /* Makes inputs fit each other, after they were filled; NULL: they need not. */
  void (*prepare)(struct sf_op_view *view);
  /* Fills `want` of each output. */
  void (*reference)(struct sf_op_view *view);
  bool product; /* its work is the product of all dims, not the number of elements */
};

#define SF_OP_STORES_ALL (1u << SF_F32 | 1u << SF_BF16 | 1u << SF_F16)
#define SF_OP_STORES_F32 (1u << SF_F32)
#define SF_OP_STORES_F8 (1u << SF_F8E4M3 | 1u << SF_F8E5M2)

/* What the case's value of attribute `attr` stands for; the attribute must have reals. */
static inline double sf_op_real(const struct sf_op_view *view, int attr) { return (double)view->op->attrs[attr].reals[view->attrs[attr]]; }

/* All operations, in the order of the device's table; those of plugins after them. */
int32_t sf_op_count(void);
const struct sf_op *sf_op_at(int32_t index);      /* asserts that there is one */
const struct sf_op *sf_op_find(const char *name); /* NULL: there is none */

/* Shapes of all operands. False: the case has no meaning. */
bool sf_op_shapes(struct sf_op_shape *out, const struct sf_op *op, const int64_t *dims, const int64_t *attrs);
/* Appends the operand's size for people: "rows x cols", or "cols" of a vector; "cols if norm bias"; "k x m if trans_a, else m x k". */
void sf_op_size_append(struct sf_text *out, const struct sf_op *op, int32_t operand);

struct sf_op_adam {
  float lr;
  double beta1, beta2;
  float epsilon, weight_decay, bias1, bias2, grad_scale;
};
/* What the attributes of `adam` stand for; the first moment's beta is 0.9, and bias1 and bias2 are 1 - beta^step. */
struct sf_op_adam sf_op_adam_of(const int64_t *attrs);

/* The groups that the table is made of, each ended by an entry without a name. */
extern const struct sf_op sf_ops_elementwise[], sf_ops_sums[], sf_ops_norm[], sf_ops_softmax[], sf_ops_block_softmax[], sf_ops_activation[],
    sf_ops_rows[], sf_ops_cross_entropy[], sf_ops_update[];

#endif
