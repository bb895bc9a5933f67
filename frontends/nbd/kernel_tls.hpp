// Sealing by the kernel: sendmsg() seals what it is given, where the kernel has TLS (its module tls) and the session's
// cipher. So replies leave as gathered sends that point into frames, within TLS as without. What comes is opened by
// GnuTLS all the same.
#pragma once

#include <gnutls/gnutls.h>

namespace tarn::nbd {

// From here on what is sent over the socket is sealed with the keys that the session has now; nothing of it may be on
// its way within GnuTLS. False: the kernel cannot, and nothing has changed.
bool let_kernel_seal(int socket, gnutls_session_t session);
// Over such a socket: nothing more comes from us. Not sent where the socket is full.
void say_end_by_kernel(int socket);

}  // namespace tarn::nbd
