/* Unix stream sockets by path, which processes of this machine meet at. */
#ifndef SF_BASE_LOCAL_SOCKET_H
#define SF_BASE_LOCAL_SOCKET_H

/* A socket that listens at a path where nothing is, or -1 (errno). It does not outlive an exec. */
int sf_socket_listen(const char *path, int backlog);
/* A connection to who listens at `path`, or -1 (errno). It does not outlive an exec. */
int sf_socket_connect(const char *path);

#endif
