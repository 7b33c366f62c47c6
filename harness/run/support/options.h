/* Command lines: each command gives a const table of its options and a struct that they are stored into; parsing, checking and the help
 * text come from the table.
 *
 *   --name VALUE   --name=VALUE   -n VALUE   --flag   --      ("--" ends the options; "-" alone is an argument)
 *
 * Of an option given twice the last counts, so that scripts can put defaults in front; repeatable ones collect. */
#ifndef SF_RUN_OPTIONS_H
#define SF_RUN_OPTIONS_H

#include "harness/base/bytes.h"
#include "harness/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Repeated texts, in the order given. The texts belong to the command line's argv. */
struct sf_texts {
  const char **items;
  int32_t count;
};

/* What an option stores, at its offset in the target struct. The caller puts the defaults there before parsing. */
enum sf_option_type {
  SF_OPTION_FLAG,      /* bool: set to true */
  SF_OPTION_INT,       /* int64_t: decimal, min..max */
  SF_OPTION_DURATION,  /* int64_t milliseconds: 500ms, 90s, 10m, 1h30m, a number alone is seconds; min..max in milliseconds */
  SF_OPTION_TEXT,      /* const char *: not empty; borrowed from argv */
  SF_OPTION_TEXTS,     /* struct sf_texts: may be repeated */
  SF_OPTION_KEY_VALUE, /* struct sf_texts: KEY=VALUE with a key that is not empty; may be repeated */
  SF_OPTION_CHOICE,    /* int32_t: number of the text in `choices` */
  SF_OPTION_CALL,      /* `call` stores it */
};

struct sf_option {
  const char *name; /* without dashes */
  enum sf_option_type type;
  size_t offset;                                                                  /* offsetof the member in the target */
  const char *value;                                                              /* what the help calls the value: "N"; NULL = by type */
  const char *help;                                                               /* one sentence */
  char letter;                                                                    /* "-o" for 'o'; 0 = none */
  int64_t min, max;                                                               /* INT, DURATION; both 0 = 0..INT64_MAX */
  const char *const *choices;                                                     /* CHOICE: ends with NULL */
  enum sf_status (*call)(void *target, const char *text, struct sf_error *error); /* CALL */
};

struct sf_command {
  const char *name;      /* "fuzz" */
  const char *summary;   /* for the list of commands */
  const char *arguments; /* what the help calls them: "CASE.json"; NULL = none */
  const char *help;      /* what the command does; may be several lines */
  const struct sf_option *options;
  int32_t option_count;
  int32_t argument_min, argument_max; /* how many arguments that are no options */
  size_t argument_offset;             /* struct sf_texts; looked at when argument_max > 0 */
  size_t flags_bytes;                 /* of the target struct, which is zeroed */
  void (*set_defaults)(void *flags);  /* NULL: zeros are right */
  int (*run)(void *flags);            /* returns the exit code */
};

/* Parses argv[0..argc), which begins after the command's name, into target. "--help" anywhere before "--" stores true in *wants_help, and
 * nothing else is checked. SF_EUSAGE with one line that names the option; SF_ENOMEM. Release target's lists with sf_command_clear, also
 * after a failure. */
enum sf_status sf_command_parse(const struct sf_command *command, void *target, bool *wants_help, int argc, char *const *argv,
                                struct sf_error *error) SF_MUST_USE;
/* Frees the lists of texts in target. */
void sf_command_clear(const struct sf_command *command, void *target);
/* Appends an option as the help shows it: "--backend sim|mpi", "-o, --out FILE". */
void sf_option_usage(struct sf_text *out, const struct sf_option *option);
/* Appends the help text: usage line, description, options in the table's order. */
void sf_command_help(struct sf_text *out, const struct sf_command *command);

/* Splits a checked "KEY=VALUE": copies the key, which must fit, and points at the value. SF_EUSAGE without a key or when it does not fit.
 */
enum sf_status sf_key_value_split(char *key, size_t key_size, const char **value, const char *text, struct sf_error *error) SF_MUST_USE;
/* A whole decimal number, nothing around it; a minus sign is allowed when min < 0. SF_EUSAGE when it is not one or out of range; the line
 * names `what`. */
enum sf_status sf_int_from_text(int64_t *out, const char *text, int64_t min, int64_t max, const char *what,
                                struct sf_error *error) SF_MUST_USE;
/* A duration as described above, in milliseconds. */
enum sf_status sf_duration_from_text(int64_t *out_ms, const char *text, int64_t min_ms, int64_t max_ms, const char *what,
                                     struct sf_error *error) SF_MUST_USE;

#endif
