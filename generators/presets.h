/* Models that people train, as sets of fixed fields. A preset fixes model and precision (hlat-7b its layout too); whatever it
 * does not name is drawn. NAME-tiny has the same structure at a size that fuzzes fast. */
#ifndef SF_GENERATORS_PRESETS_H
#define SF_GENERATORS_PRESETS_H

enum { SF_PRESET_ASSIGNMENTS_MAX = 40 };

struct sf_preset {
  const char *name;
  const char *summary;                                /* one line for `list presets` */
  const char *assignments[SF_PRESET_ASSIGNMENTS_MAX]; /* "model.layers=12", NULL-terminated */
};

extern const struct sf_preset sf_presets[];
extern const int sf_preset_count;
const struct sf_preset *sf_preset_find(const char *name); /* NULL when there is none */

#endif
