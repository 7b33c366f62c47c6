/* What the ledger says of where the campaign stands: parts of it that the store keeps from one run to the next. */
#ifndef SF_RUN_LEDGER_STANDING_H
#define SF_RUN_LEDGER_STANDING_H

#include "harness/run/campaign/ledger.h"

/* Fills the news with what earlier runs of the store left. */
enum sf_status sf_ledger_recall(struct sf_ledger *ledger) SF_MUST_USE;
/* Notes in the store how the run ended. */
void sf_ledger_stand_at_end(struct sf_ledger *ledger);

#endif
