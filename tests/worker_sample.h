/* For tests of a worker's description: one that is right, and JSON that is easy to write in C. */
#ifndef SF_TESTS_WORKER_SAMPLE_H
#define SF_TESTS_WORKER_SAMPLE_H

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char worker_sample[] =
    "{'name': 'm', 'draws': 3, 'fields': {'ranks': {'choices': [1, 2], 'layout': true}, 'model.hidden': {'min': 8, 'max': 32, 'step': 8},"
    "'model.kind': {'choices': ['gpt', [1, 2], null], 'needs': {'model.hidden': [16, 24, 9]}}, 'layout.sp': {'choices': [false, true], "
    "'layout': true}},"
    "'refuses': [{'when': {'layout.sp': [true], 'ranks': [1]}, 'reason': 'sp needs ranks'}, {'when': {'model.hidden': [32]}, 'reason': "
    "'wide'}]}";

/* Single quotes stand for double ones. NULL: the text is not JSON. */
static inline json_t *worker_json(const char *text) {
  char *copy = strdup(text);
  for (char *at = copy; *at; at++) *at = *at == '\'' ? '"' : *at;
  json_t *value = json_loads(copy, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
  free(copy);
  return value;
}

#endif
