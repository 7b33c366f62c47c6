/* A kind of case as a table: its fields, and rules between them. A case is a row of whole numbers, one for each field. Drawing, covering
 * and shrinking work on tables alone, whether the case is one of the built-in layers (codec.h), of a framework
 * (harness/run/framework/framework_table.h) or, for shrinking alone, of an operation (harness/run/opfuzz/op_table.h). */
#ifndef SF_GENERATORS_TABLE_H
#define SF_GENERATORS_TABLE_H

#include "generators/draw.h"
#include "harness/base/bytes.h"
#include "harness/space/solver.h"
#include "harness/spec/case.h"

/* Traits of a field. */
enum {
  SF_TRAIT_LAYOUT = 1,     /* it says who computes, and not what */
  SF_TRAIT_NUMBER = 2,     /* any number of its range, which no rule names */
  SF_TRAIT_OFTEN_ZERO = 4, /* such a number that is 0 in one case of five */
  SF_TRAIT_STAYS = 8,      /* it does not follow other fields when a case is edited */
  SF_TRAIT_TURN = 16       /* the layouts of a function begin with these fields in turn: each is above 0 in some of them */
};

/* The values of a field that are feasible, simplest first, with the weights of random draws. */
enum { SF_DOMAIN_MAX = 448, SF_SWARMS = 3 };
struct sf_domain {
  int32_t count;
  int64_t values[SF_DOMAIN_MAX];
  uint32_t weights[SF_DOMAIN_MAX];
};

struct sf_table;
struct sf_edit;

/* What each field may still become: decided fields are single values. Plain data: copy by assignment. */
struct sf_bounds {
  const struct sf_table *table; /* borrowed */
  struct sf_range at[SF_SPACE_FIELDS_MAX];
  struct sf_solver solver; /* of what stands above, once solved */
};

/* Passes of the shrinker, from big steps to small ones. Common ones reset fields all at once; reset all of them, each half, each quarter,
 * .. each single one; lower them one by one, to the simplest value, half way to it, one less, and choices to the second simplest (often
 * "on", where the simplest is "off"); take every combination of smaller values, if there are few, those with the smallest sum first. */
enum sf_pass_kind {
  SF_PASS_END,
  SF_PASS_OWN,
  SF_PASS_RESET,
  SF_PASS_GROUPS,
  SF_PASS_LOWER_SIZES,
  SF_PASS_LOWER_CHOICES,
  SF_PASS_COMBINATIONS
};
struct sf_shrink_pass {
  enum sf_pass_kind kind;
  int32_t fields; /* of a common pass: for pass_fields */
  bool reseeds;   /* each step is tried with the table's other seeds too */
  /* Fills *edit, which keeps all fields. *usable: false when this step does nothing. Returns false when there is no such step. */
  bool (*own)(struct sf_edit *edit, bool *usable, const int64_t *row, int64_t step);
};

enum { SF_BINS_MAX = 16 };
/* What is the same for all tables of a kind. */
struct sf_table_kind {
  /* Fills `out` for a field that is no number. row: what was decided before, else plain values; swarm: how features are tilted (0 to
   * SF_SWARMS - 1). Empty when nothing is feasible. */
  void (*domain)(struct sf_domain *out, int32_t field, const int64_t *row, int64_t swarm, struct sf_bounds *bounds);
  /* NULL: fields are drawn one by one, in their order. Else most of a case is plain: one group of fields in so many has wishes, that is
   * fields that are not plain, and others are not plain only where these need it. */
  uint32_t (*wish_one_in)(const struct sf_table *table, int32_t field, int64_t swarm);
  /* The classes of a field's values for covering, within its range: ascending, disjoint. Returns how many; none for a field whose values
   * have no classes. */
  int32_t (*bins)(struct sf_range out[SF_BINS_MAX], const struct sf_table *table, int32_t field);
  int32_t bins_least;       /* a field with fewer bins leaves nothing to choose */
  const int32_t *row_sizes; /* NULL, or how many bins the rows of a covering table choose, in turn, 0 after the last */
  /* Appends a setting as --set takes it: "layout.tp=2..8". */
  void (*append)(struct sf_text *out, const struct sf_table *table, int32_t field, struct sf_range range);
  /* NULL: there are none. Whether a value of the field is a number that has an order, and which one people read. */
  bool (*number)(int64_t *out, const struct sf_table *table, int32_t field, int64_t value);
  /* A row as a case, and back. SF_EINPUT; false where the case has no row. */
  enum sf_status (*to_case)(struct sf_case *out, const struct sf_table *table, const int64_t *row, struct sf_error *error);
  bool (*of_case)(int64_t *row, const struct sf_table *table, const struct sf_case *c);
  /* Why no row lies in the table. Returns SF_EINPUT or SF_ENOMEM. */
  enum sf_status (*explain)(const struct sf_table *table, struct sf_error *error);
  /* NULL, or widens the ranges of limits so that this row, from a file, lies in them. */
  void (*widen)(struct sf_range *ranges, const struct sf_table *table, const int64_t *row);
  /* NULL, or lets fields follow an edit for other reasons than rules. */
  void (*follow)(struct sf_edit *edit, const int64_t *row);
  /* NULL, or the field that says of the row's other layout what this one says of its own; the field itself where there is no other. */
  int32_t (*twin)(const int64_t *row, int32_t field);
  /* Whether row a is simpler than b: an order in which nothing goes down for ever. */
  bool (*is_simpler)(const struct sf_table *table, const int64_t *a, const int64_t *b);
  const struct sf_shrink_pass *passes; /* up to SF_PASS_END */
  /* Which fields a common pass is about: writes them, returns how many. */
  int32_t (*pass_fields)(int32_t *out, const struct sf_table *table, const int64_t *row, int32_t which);
};

/* Plain data: copy by assignment. */
struct sf_table {
  const struct sf_table_kind *kind;
  const void *of;                     /* what the kind makes the table from; borrowed */
  const struct sf_rules *rules;       /* borrowed; their first fields are drawn, the others are limits */
  int32_t field_count;                /* that are drawn */
  int16_t order[SF_SPACE_FIELDS_MAX]; /* in which they are drawn: what is computed comes before who computes it */
  int16_t group[SF_SPACE_FIELDS_MAX]; /* with wishes: the first field of a field's group */
  uint8_t traits[SF_SPACE_FIELDS_MAX];
  uint8_t one_in[SF_SPACE_FIELDS_MAX]; /* with wishes: the field itself is wished for in one case of so many; 0: as its group is */
  int32_t seed, tries; /* where passes reseed: the field of the seed, and how many seeds a step is tried with, the row's own first */
  struct sf_range range[SF_SPACE_FIELDS_MAX]; /* what each field may be */
  int64_t reach;                              /* contrast.h tries numbers up to this, and up to a multiple of the case's own */
  bool cost_unknown; /* no model says how long a case takes: when contrast.h changes many numbers at once, it moves each by one step */
};

/* Whether the field has one of these traits. */
static inline bool sf_table_has(const struct sf_table *table, int32_t field, int trait) { return (table->traits[field] & trait) != 0; }

/* For is_simpler: no field is above what it was. Numbers count only where all else is as it was. */
bool sf_table_goes_down(const struct sf_table *table, const int64_t *a, const int64_t *b);

/* As wide as the table. */
void sf_bounds_init(struct sf_bounds *bounds, const struct sf_table *table);
/* Whether a row lies within the bounds. Prepares them for the questions below. */
bool sf_bounds_solve(struct sf_bounds *bounds);
/* Whether one of them has the field within this range. The second also narrows the bounds to it, whatever it answers. */
bool sf_bounds_allow(struct sf_bounds *bounds, int32_t field, struct sf_range range);
bool sf_bounds_narrow(struct sf_bounds *bounds, int32_t field, struct sf_range range);
/* Adds a value to an ascending domain without weights, unless it is there. */
void sf_domain_insert(struct sf_domain *domain, int64_t value);
/* Leaves of a field's values those that are feasible. */
void sf_domain_keep_feasible(struct sf_domain *domain, int32_t field, struct sf_bounds *bounds);

/* Draws a row. Whatever the draws are, it keeps the rules and lies in the table, and in the limits (one for each drawn field; NULL: none).
 * turn: which of the fields that take turns is above 0, if one can be; they are counted over and over. SF_EINPUT when no row does, and
 * why. */
enum sf_status sf_table_draw(int64_t *row, struct sf_draw *draw, const struct sf_table *table, const struct sf_range *limits, int64_t turn,
                             struct sf_error *error) SF_MUST_USE;

enum { SF_CHOICE_BYTES_MAX = 1 + 8 * SF_SPACE_FIELDS_MAX };
/* The choices from which sf_table_draw makes this row: the bytes of sf_draw_from_bytes. Returns how many there are; 0 where the row has a
 * value that is not drawn. Of tables without wishes and turns. */
size_t sf_table_choices(unsigned char bytes[SF_CHOICE_BYTES_MAX], const int64_t *row, const struct sf_table *table);

/* How an edit treats a field: keep its value; keep it if the other edits allow, else take the next smaller value that they allow,
 * so that a feature stays on if it can; take the simplest; or take `value`. */
enum sf_edit_kind { SF_EDIT_KEEP, SF_EDIT_PREFER, SF_EDIT_RESET, SF_EDIT_ASSIGN };
struct sf_edit {
  uint8_t kind[SF_SPACE_FIELDS_MAX]; /* enum sf_edit_kind */
  int64_t value[SF_SPACE_FIELDS_MAX];
};
/* Has the edit take this value. */
static inline void sf_edit_assign(struct sf_edit *edit, int32_t field, int64_t value) {
  edit->kind[field] = SF_EDIT_ASSIGN;
  edit->value[field] = value;
}
/* Lets fields of the row follow an edited field if a rule ties them to it. */
void sf_edit_follow(struct sf_edit *edit, const int64_t *row, const struct sf_table *table);
/* The row that an edit makes of `from`, in the table; false when there is none. */
bool sf_table_edit(int64_t *row, const int64_t *from, const struct sf_table *table, const struct sf_edit *edit);
/* The values of a field of the row if only the fields that follow it may change, simplest first. */
void sf_table_values(struct sf_domain *out, const int64_t *row, const struct sf_table *table, int32_t field);
/* The row as a case with the target, the plant and the expectation of `like`; false when there is none. */
bool sf_table_case(struct sf_case *out, const struct sf_table *table, const int64_t *row, const struct sf_case *like);

#endif
