#include "harness/run/campaign/known.h"

#include "harness/base/alloc.h"
#include "harness/base/bytes.h"
#include "harness/base/json.h"
#include "harness/base/nearest.h"
#include "harness/run/process/subject.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { KNOWN_FILE_BYTES_MAX = 16 << 20 };

static enum sf_status read_case(struct sf_known_entry *entry, json_t *value, const char *path, struct sf_error *error) {
  char *text = sf_json_dump(value, JSON_COMPACT | JSON_ENCODE_ANY);
  if (!text) return sf_error_set(error, SF_ENOMEM, "%s: out of memory", path);
  const enum sf_status status = sf_case_from_json(&entry->c, text, strlen(text), path, error);
  sf_free(text);
  entry->has_case = status == SF_OK;
  return status;
}

static enum sf_status refuse_key(const char *path, size_t index, const char *key, struct sf_error *error) {
  struct sf_nearest nearest = sf_nearest_to(key);
  sf_nearest_offer(&nearest, "signature");
  sf_nearest_offer(&nearest, "note");
  sf_nearest_offer(&nearest, "case");
  return sf_error_set(error, SF_EINPUT, "%s: [%zu].%.40s: no such field%s", path, index, key, sf_nearest_text(&nearest));
}

static enum sf_status read_entry(struct sf_known_entry *entry, json_t *value, const char *path, size_t index, struct sf_error *error) {
  const char *signature = json_string_value(json_object_get(value, "signature"));
  const char *key;
  json_t *item;
  if (!json_is_object(value) || !signature || !*signature || strlen(signature) >= sizeof entry->signature) {
    return sf_error_set(error, SF_EINPUT, "%s: [%zu].signature: a text of 1 to %d bytes is needed", path, index, SF_SIGNATURE_TEXT - 1);
  }
  if (json_object_get(value, "note") && !json_is_string(json_object_get(value, "note"))) {
    return sf_error_set(error, SF_EINPUT, "%s: [%zu].note: a text is needed", path, index);
  }
  json_object_foreach(value, key, item) {
    if (strcmp(key, "signature") != 0 && strcmp(key, "note") != 0 && strcmp(key, "case") != 0) return refuse_key(path, index, key, error);
  }
  snprintf(entry->signature, sizeof entry->signature, "%s", signature);
  json_t *known_case = json_object_get(value, "case");
  return known_case ? read_case(entry, known_case, path, error) : SF_OK;
}

static enum sf_status read_array(struct sf_known *out, json_t *root, const char *path, struct sf_error *error) {
  if (!json_is_array(root)) return sf_error_set(error, SF_EINPUT, "%s: an array of known findings is needed", path);
  struct sf_known known = {0, sf_alloc((json_array_size(root) + 1) * sizeof *known.entries)};
  if (!known.entries) return sf_error_set(error, SF_ENOMEM, "%s: out of memory", path);
  for (size_t i = 0; i < json_array_size(root); i++) {
    const enum sf_status status = read_entry(&known.entries[i], json_array_get(root, i), path, i, error);
    if (status != SF_OK) {
      sf_known_destroy(&known);
      return status;
    }
    known.count++;
  }
  *out = known;
  return SF_OK;
}

enum sf_status sf_known_read(struct sf_known *out, const char *path, struct sf_error *error) {
  struct sf_bytes bytes;
  json_error_t where;
  enum sf_status status = sf_bytes_read_file(&bytes, path, KNOWN_FILE_BYTES_MAX, error);
  if (status != SF_OK) return status == SF_EIO ? SF_EINPUT : status;
  json_t *root = NULL;
  status = sf_json_read(&root, (const char *)bytes.data, bytes.size_bytes, JSON_REJECT_DUPLICATES, &where);
  if (status == SF_OK)
    status = read_array(out, root, path, error);
  else if (status == SF_ENOMEM)
    status = sf_error_set(error, status, "%s: out of memory", path);
  else
    status = sf_error_set(error, status, "%s: line %d: %s", path, where.line, where.text);
  json_decref(root);
  sf_bytes_destroy(&bytes);
  return status;
}

void sf_known_destroy(struct sf_known *known) {
  sf_free(known->entries);
  memset(known, 0, sizeof *known);
}

bool sf_known_has(const struct sf_known *known, const char *signature) {
  for (int32_t i = 0; i < known->count; i++) {
    if (sf_signature_covers(known->entries[i].signature, signature)) return true;
  }
  return false;
}

bool sf_known_may_cover(const struct sf_known *known, const char *shrink_key, const struct sf_case *c) {
  const size_t length = strlen(shrink_key);
  for (int32_t i = 0; i < known->count; i++) {
    const char *signature = known->entries[i].signature;
    if (strncmp(signature, shrink_key, length) == 0 && signature[length] == '@' && sf_signature_within(signature, c)) return true;
  }
  return false;
}

bool sf_known_triggered(const struct sf_known *known, const struct sf_case *c) {
  const struct sf_subject *subject = sf_subject_of(c);
  for (int32_t i = 0; i < known->count; i++) {
    const struct sf_known_entry *entry = &known->entries[i];
    if (entry->has_case && subject->contains && sf_subject_of(&entry->c) == subject && subject->contains(c, &entry->c)) return true;
  }
  return false;
}
