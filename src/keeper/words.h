/* The options of `cove serve`, once: the keeper reads them (options.c), the command line explains them
 * (cmd/serve.c). W(name, enumerator, argument, what holds without it, what it does); NULL: none. */
#pragma once

#define OPTIONS_LISTEN_DEFAULT "127.0.0.1:7070"

#define KEEPER_WORDS(W)                                                                           \
    W("listen", LISTEN, "HOST:PORT", OPTIONS_LISTEN_DEFAULT,                                      \
      "address of the API, or none; port 0: any that is free")                                    \
    W("socket", SOCKET, "PATH",                                                                   \
      "/run/cove/cove.sock; cove/cove.sock in XDG_RUNTIME_DIR for who is not root",               \
      "unix socket of the API")                                                                   \
    W("data", DATA, "DIR", "/var/lib/cove; cove in XDG_DATA_HOME", "where sandboxes are kept")    \
    W("config", CONFIG, "FILE", "/etc/cove/cove.conf; cove/cove.conf in XDG_CONFIG_HOME",         \
      "configuration")                                                                            \
    W("log-format", LOG_FORMAT, "FORMAT", "text", "of the log: text, or json, an object a line")  \
    W("insecure-http", INSECURE, NULL, NULL,                                                      \
      "allow an address that other machines reach, without TLS")                                  \
    W("allow-level", LEVEL, "full|no-fresh-proc", "full",                                         \
      "what to settle for where this host forbids a /proc of a box's own")                        \
    W("private", PRIVATE, NULL, NULL, "this user's own engine, which ends when nobody needs it")  \
    W("delegated", DELEGATED, NULL, NULL,                                                         \
      "the cgroup this runs in is its own (Delegate=yes in a systemd unit)")                      \
    W("check", CHECK, NULL, NULL, "say whether all could start so, and start nothing")            \
    W("pid", PID, NULL, NULL,                                                                     \
      "print the process id of the server at that socket, for signals, and start nothing")        \
    W("reload", RELOAD, NULL, NULL,                                                               \
      "have that server read cove.conf again, wait for it, and say what came of it")              \
    W("stop", STOP, NULL, NULL, "end that server and its sandboxes, and wait until it has ended") \
    W("help", HELP, NULL, NULL, "print this")
