# cmake -DOUT=FILE -DSOURCE=DIR -P commit.cmake: writes the commit that is built into a header, and leaves the file alone while it is the same.
execute_process(COMMAND git rev-parse --short=12 HEAD WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define SF_COMMIT \"${commit}\"\n")
