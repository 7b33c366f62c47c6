#include "harness/worker/conditions.h"

#include "harness/base/alloc.h"

#include <string.h>

/* A row is one allocation: its conditions, then their choices. */
struct row {
  int32_t count;
  struct sf_condition *items;
};

struct sf_condition_table {
  int32_t count, capacity;
  struct row *rows;
};

enum sf_status sf_condition_table_create(struct sf_condition_table **out) {
  *out = sf_alloc(sizeof **out);
  return *out ? SF_OK : SF_ENOMEM;
}

void sf_condition_table_destroy(struct sf_condition_table *table) {
  if (!table) return;
  for (int32_t i = 0; i < table->count; i++) sf_free(table->rows[i].items);
  sf_free(table->rows);
  sf_free(table);
}

static bool grow(struct sf_condition_table *table) {
  if (table->count < table->capacity) return true;
  const int32_t capacity = 2 * table->capacity + 64;
  struct row *rows = sf_alloc((size_t)capacity * sizeof *rows);
  if (!rows) return false;
  if (table->count) memcpy(rows, table->rows, (size_t)table->count * sizeof *rows);
  sf_free(table->rows);
  table->rows = rows;
  table->capacity = capacity;
  return true;
}

enum sf_status sf_condition_table_add(struct sf_condition_table *table, const struct sf_description *description,
                                      const json_t *conditions) {
  json_t *object = (json_t *)(uintptr_t)conditions, *values;
  const char *path;
  size_t choices = 0;
  json_object_foreach(object, path, values) choices += json_array_size(values);
  struct row row = {0, sf_alloc((json_object_size(object) + 1) * sizeof *row.items + choices * sizeof(int32_t))};
  if (!row.items || !grow(table)) {
    sf_free(row.items);
    return SF_ENOMEM;
  }
  int32_t *next = (int32_t *)(row.items + json_object_size(object) + 1);
  json_object_foreach(object, path, values) {
    struct sf_condition *condition = &row.items[row.count++];
    *condition = (struct sf_condition){sf_description_find_field(description, path), 0, next};
    for (size_t i = 0; i < json_array_size(values); i++) {
      const int64_t choice = sf_description_find_choice(description, condition->field, json_array_get(values, i));
      if (choice >= 0) *next++ = (int32_t)choice, condition->count++;
    }
  }
  table->rows[table->count++] = row;
  return SF_OK;
}

struct sf_conditions sf_condition_table_row(const struct sf_condition_table *table, int32_t row) {
  return (struct sf_conditions){table->rows[row].count, table->rows[row].items};
}

bool sf_condition_holds(const struct sf_condition *condition, const int32_t *at) {
  for (int32_t i = 0; i < condition->count; i++)
    if (condition->choices[i] == at[condition->field]) return true;
  return false;
}
