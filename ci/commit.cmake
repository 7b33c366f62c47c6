# cmake -DIN=FILE -DOUT=FILE -DSOURCE=DIR -DVERSION=X -P commit.cmake: writes IN with @VERSION@ and @COMMIT@ filled in, and leaves OUT alone
# while it is the same.
execute_process(COMMAND git rev-parse --short=12 HEAD WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE COMMIT ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
configure_file(${IN} ${OUT} @ONLY)
