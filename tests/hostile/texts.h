/* Texts of others that no report may show as they are, and what every line for people must keep to. */
#ifndef TESTS_HOSTILE_TEXTS_H
#define TESTS_HOSTILE_TEXTS_H

#include "harness/base/utf8.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const char *const hostile_texts[] = {
    "plain.name/of-a_module@tp+dp",
    "",
    " ",
    "-x",
    "two  words",
    "tab\there",
    "a\nb",
    "\n",
    "\n\n",
    "end\n",
    "\r",
    "\r\n::error::forged",
    "\x1b[2J\x1b[31mred",
    "\x1b]0;title\x07",
    "\x7f",
    "\x01\x02\x03\x04\x05\x06\x08\x0b\x0c\x0e\x1f",
    "::error file=a,line=1::forged",
    "  ::warning::forged",
    "\n::set-output name=x::y",
    ":",
    "::",
    "\xc2\xa0::error::forged",
    "\xe3\x80\x80::error::forged",
    "##[error]forged",
    "x ##[group]forged",
    "##vso[task.setvariable variable=a]b",
    "##",
    "[error]",
    "##teamcity[x]",
    "<img src=x onerror=alert(1)>",
    "<script>",
    "</pre></details>",
    "`code`",
    "```",
    "|",
    "a | b | c",
    "**bold**",
    "_it_",
    "[link](http://x)",
    "![i](http://x)",
    "http://x.y www.x.y",
    "@someone #1",
    "&amp; &#96;",
    "$(touch forged)",
    "`touch forged`",
    "';touch forged;'",
    "it's",
    "\"",
    "\\",
    "\\\\n",
    "\\'",
    "%s%n%d",
    "%",
    "$HOME",
    "!x",
    "*",
    "~",
    "\xc3\xa9",
    "\xf0\x9f\x94\xa5",
    "\xc2\x9b"
    "31m",
    "\xc2\x85",
    "\xe2\x80\xae"
    "desrever",
    "\xe2\x80\xa8::error::forged",
    "\xef\xbb\xbf",
    "\xff",
    "\xc3",
    "\xe2\x82",
    "\xed\xa0\x80",
    "\xf4\x90\x80\x80",
    "a\xc0\x80"
    "b",
    "]]>",
    "<![CDATA[",
    "<!--",
    "\xef\xbf\xbe",
    "a long text that is repeated \xe2\x82\xac \xe2\x82\xac \xe2\x82\xac \xe2\x82\xac \xe2\x82\xac \xe2\x82\xac \xe2\x82\xac \xe2\x82\xac "
    "\xe2\x82\xac \xe2\x82\xac \xe2\x82\xac \xe2\x82\xac \xe2\x82\xac "
    "\xe2\x82\xac \xe2\x82\xac \xe2\x82\xac \xe2\x82\xac \xe2\x82\xac \xe2\x82\xac \xe2\x82\xac \xe2\x82\xac \xe2\x82\xac \xe2\x82\xac "
    "\xe2\x82\xac \xe2\x82\xac \xe2\x82\xac \xe2\x82\xac \xe2\x82\xac until it fits in no field",
};
enum { HOSTILE_COUNT = sizeof hostile_texts / sizeof hostile_texts[0] };

/* What people read: UTF-8, no control characters but newlines, no line that a CI system takes for a command. */
static inline void assert_lines(const char *text) {
  bool at_begin = true;
  for (const char *at = text; *at;) {
    const int length = sf_utf8_length(at);
    const unsigned char first = (unsigned char)*at;
    if (length == 0) fail_msg("no UTF-8 at '%.40s'", at);
    if ((first < 0x20 && first != '\n') || first == 0x7f || (first == 0xc2 && (unsigned char)at[1] < 0xa0))
      fail_msg("a control character at '%.40s'", at);
    if (at_begin && strncmp(at, "::", 2) == 0) fail_msg("a command at '%.40s'", at);
    at_begin = first == '\n' || (at_begin && (first == ' ' || first >= 0x80));
    at += length;
  }
  for (const char *at = text; (at = strstr(at, "##")) != NULL; at++) {
    const char *end = at + 2;
    while (isalpha((unsigned char)*end)) end++;
    if (*end == '[') fail_msg("a command at '%.40s'", at);
  }
}

static inline int32_t line_count(const char *text) {
  int32_t count = 0;
  for (; *text; text++) count += *text == '\n';
  return count;
}

#endif
