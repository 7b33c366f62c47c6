#include "harness/run/trial/table.h"
#include "harness/base/sinks.h"

#include <inttypes.h>

void sf_table_print(FILE *to, const struct sf_catalog *catalog, const struct sf_judgement *judgement) {
  sf_print(to, "%-72s %14s %11s %11s %10s %10s  %s\n", "tensor", "shape", "norm", "noise", "err/noise", "worst row", "state");
  for (int32_t i = 0; i < judgement->result_count; i++) {
    const struct sf_tensor_result *r = &judgement->results[i];
    char id[160], shape[48];
    sf_trace_id_text(id, sizeof id, catalog, r->id);
    if (!r->expected) {
      sf_print(to, "%-72s the reference has no such tensor\n", id);
      continue;
    }
    snprintf(shape, sizeof shape, "%" PRId64 "x%" PRId64, r->expected->spec.shape.rows, r->expected->spec.shape.cols);
    sf_print(to, "%-72s %14s %11.3g %11.3g %10.3g %10.3g  %s\n", id, shape, r->norm, r->noise, r->fro_ratio, r->row_ratio,
             r->flagged   ? "FLAGGED"
             : r->judged  ? "ok"
             : r->why_not ? r->why_not
                          : "not judged");
  }
}
