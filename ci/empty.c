/* Keeps a room's library buildable on its own. */
extern int sf_empty;
int sf_empty;
