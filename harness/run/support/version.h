/* Which shardfuzz this is. */
#ifndef SF_RUN_VERSION_H
#define SF_RUN_VERSION_H

const char *sf_version(void); /* "0.1.0" */
/* The commit that was built, 12 digits; "" where the sources lie in no git repository. */
const char *sf_version_commit(void);

#endif
