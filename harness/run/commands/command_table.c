/* The commands and exit codes that help, man pages and completions show. */
#include "harness/run/commands/commands.h"

const struct sf_command *const sf_commands[] = {
    &sf_command_fuzz,    &sf_command_replay,   &sf_command_shrink, &sf_command_gate,   &sf_command_check,  &sf_command_noise,
    &sf_command_anchors, &sf_command_power,    &sf_command_space,  &sf_command_merge,  &sf_command_status, &sf_command_init,
    &sf_command_list,    &sf_command_describe, &sf_command_report, &sf_command_worker, &sf_command_doctor,
};
const int32_t sf_command_count = sizeof sf_commands / sizeof sf_commands[0];

const struct sf_exit_code sf_exit_codes[] = {
    {"0", "nothing found, or known findings only"},
    {"1", "findings"},
    {"2", "bad usage or input"},
    {"3", "shardfuzz itself failed, or nothing could be judged"},
    {"130, 143", "interrupted (SIGINT, SIGTERM) before anything new was found"},
};
const int32_t sf_exit_code_count = sizeof sf_exit_codes / sizeof sf_exit_codes[0];
