/* Which program this is. */
#ifndef SF_RUN_VERSION_H
#define SF_RUN_VERSION_H

extern const char sf_version[];        /* "0.1.0" */
extern const char sf_version_commit[]; /* of the sources it was built from, a "+" behind it if they were changed; "" outside of git */

#endif
