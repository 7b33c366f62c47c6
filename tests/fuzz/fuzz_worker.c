/* Bytes as what a worker says. What begins with { is a description, and behind its line a case for it on each line; anything else is what a
 * rank answers to a request. What is refused gives one line; a case that is taken has a row that gives the same case again. */
#include "harness/worker/description.h"
#include "tests/hostile/one_rank.h"

#include <string.h>

enum { ANSWER_BYTES_MAX = 32 << 10, CASES_MAX = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_error(enum sf_status status, const struct sf_error *error) {
  SF_ASSERT_EQ(status, SF_EINPUT);
  SF_ASSERT(*error->text != '\0' && strchr(error->text, '\n') == NULL);
}

static void check_case(const struct sf_description *description, const char *text, size_t length) {
  struct sf_error error = {SF_OK, ""};
  json_t *given = json_loadb(text, length, JSON_REJECT_DUPLICATES, NULL), *complete = NULL, *again = NULL;
  if (!given) return;
  const enum sf_status status = sf_description_complete(&complete, description, given, &error);
  if (status == SF_OK) {
    const char *reason = sf_description_refusal(description, complete);
    SF_ASSERT(reason == NULL || *reason != '\0');
    SF_ASSERT_EQ(sf_description_complete(&again, description, complete, &error), SF_OK);
    SF_ASSERT(json_equal(complete, again));
    SF_ASSERT_LE(1, sf_description_ranks(description, complete));
    free(sf_description_function_text(description, complete));
  } else {
    check_error(status, &error);
  }
  json_decref(again);
  json_decref(complete);
  json_decref(given);
}

static void check_description(const char *text, size_t size) {
  const char *end = memchr(text, '\n', size);
  size_t length = end ? (size_t)(end - text) : size;
  struct sf_description *description = NULL;
  struct sf_error error = {SF_OK, ""};
  json_t *value = json_loadb(text, length, JSON_REJECT_DUPLICATES, NULL);
  const enum sf_status status = value ? sf_description_create(&description, value, &error) : SF_OK;
  if (status != SF_OK) check_error(status, &error);
  for (int i = 0; description && i < CASES_MAX && length < size; i++) {
    text += length + 1, size -= length + 1;
    end = memchr(text, '\n', size);
    length = end ? (size_t)(end - text) : size;
    check_case(description, text, length);
  }
  if (description) check_case(description, "{}", 2);
  sf_description_destroy(description);
  json_decref(value);
}

static void check_answer(const char *bytes, size_t size) {
  struct one_rank rank;
  struct sf_worker_report report;
  one_rank_open(&rank);
  one_rank_ask(&rank, &report, bytes, size < ANSWER_BYTES_MAX ? size : ANSWER_BYTES_MAX, true);
  SF_ASSERT_EQ(rank.set.over, !sf_worker_goes_on(report.end));
  SF_ASSERT_EQ(*report.text == '\0', report.end == SF_WORKER_ANSWERED);
  SF_ASSERT(strchr(report.text, '\n') == NULL);
  sf_worker_report_clear(&report);
  one_rank_close(&rank);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size > 0 && *data == '{')
    check_description((const char *)data, size);
  else
    check_answer((const char *)data, size);
  return 0;
}
