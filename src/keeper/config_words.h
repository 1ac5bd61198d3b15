/* The names of cove.conf, once, for people: `cove config` shows them, and the sample file and the manual page are made
 * of them. The two programs that read the file have tables of their own (keeper/config.c, front/settings.c); a test holds
 * them against this one. C(section, name, default, what it does); NULL: there is no default, or the text says
 * it. N(section, what it does): a section whose names are the operator's own. */
#pragma once

#define CONFIG_WORDS(C, N)                                                                         \
    C("serve", "listen", "127.0.0.1:7070",                                                         \
      "address of the API, or none; holds from the next start on")                                 \
    C("serve", "socket", NULL,                                                                     \
      "unix socket of the API: /run/cove/cove.sock, or cove/cove.sock in XDG_RUNTIME_DIR; holds "  \
      "from the next start on")                                                                    \
    C("serve", "socket_group", NULL,                                                               \
      "group of that socket, whose members may connect, with a key; holds from the next start on") \
    C("serve", "socket_mode", "0660",                                                              \
      "mode of that socket: 0660, 0600 or 0666; holds from the next start on")                     \
    C("serve", "data", NULL,                                                                       \
      "where sandboxes are kept: /var/lib/cove, or cove in XDG_DATA_HOME; holds from the next "    \
      "start on")                                                                                  \
    C("serve", "hosts", NULL, "names by which clients may call this host, between commas")         \
    C("serve", "tls_certificate", NULL, "PEM file of the certificate; without it no TLS")          \
    C("serve", "tls_key", NULL, "PEM file of its key, mode 0600")                                  \
    C("serve", "insecure_http", "no",                                                              \
      "allow an address that other machines reach, without TLS; holds from the next start on")     \
    C("serve", "log_format", "text", "of the log: text, or json, an object a line")                \
    C("serve", "allow_level", "full",                                                              \
      "what to settle for where this host forbids a /proc of a box's own: full, no-fresh-proc")    \
    C("serve", "engine_memory", NULL,                                                              \
      "memory from which on the engine begins nothing new: a quarter of the host's, 256M to 4G")   \
    C("boxes", "pool", "4", "boxes that stand ready, for each kind that was asked for once")       \
    C("boxes", "cpus", "0", "processors of a sandbox that names no number; 0: all")                \
    C("boxes", "memory", "1G", "memory of a sandbox that names no size")                           \
    C("boxes", "disk", "2G", "disk of a sandbox that names no size")                               \
    C("boxes", "pids", "1024", "processes and threads of a sandbox that names no number")          \
    C("boxes", "most_cpus", "0", "the most that a sandbox may ask for; 0: no bound")               \
    C("boxes", "most_memory", "0", "the most that a sandbox may ask for; 0: no bound")             \
    C("boxes", "most_disk", "0", "the most that a sandbox may ask for; 0: no bound")               \
    C("boxes", "most_pids", "0",                                                                   \
      "the most that a sandbox may ask for; 0: 8192, or pids if that is more")                     \
    C("boxes", "sandboxes", "5000", "sandboxes of all tenants together")                           \
    C("boxes", "ports", "1024",                                                                    \
      "ports of this host for a tenant whose quota names no number; 0: any number")                \
    C("boxes", "headroom_memory", "256M", "memory of the host that is to stay free")               \
    C("boxes", "headroom_disk", "512M", "space that is to stay free where sandboxes are kept")     \
    C("boxes", "disk_overcommit", "20",                                                            \
      "how many times that space, without headroom_disk, may be promised to disks")                \
    C("boxes", "output_keep", "24h",                                                               \
      "time for which the output of a command that has ended is kept")                             \
    C("boxes", "default_network", "public",                                                        \
      "policy of a sandbox that chooses no other: none, public, or allow=RULE,...")                \
    C("kernels", "contexts", "1000", "kernels that keep their state, of each tenant")              \
    C("kernels", "memory", "1G", "memory of the kernels of each tenant")                           \
    C("kernels", "idle", "24h", "time after which a kernel that nobody uses ends")                 \
    C("network", "port_domain", NULL,                                                              \
      "domain below which each port of a sandbox has a name; without it they have none")           \
    C("network", "resolvers", NULL,                                                                \
      "addresses of name servers, between commas; without it those of /etc/resolv.conf")           \
    C("network", "nat64", NULL, "NAT64 prefixes of this site's own; 64:ff9b::/96 is known")        \
    C("network", "private", "any",                                                                 \
      "private networks that sandboxes and kernels may open: any, none, or CIDRs between commas")  \
    C("network", "proxy", NULL,                                                                    \
      "http://HOST:PORT through which sandboxes dial; without it directly")                        \
    C("network", "proxy_names", "no",                                                              \
      "tell the proxy names in place of addresses; it must refuse private ones itself")            \
    C("audit", "log", "yes", "write the audit log")                                                \
    C("audit", "size", "64M", "size at which the next file of it is begun")                        \
    C("audit", "age", "0", "age at which the next file is begun, such as 7d; 0: any")              \
    C("audit", "keep", "10", "files of it that are kept")                                          \
    C("telemetry", "otlp_endpoint", NULL,                                                          \
      "where traces go, such as http://127.0.0.1:4318; without it nowhere")                        \
    C("telemetry", "otlp_headers_file", NULL,                                                      \
      "file with lines of NAME: VALUE for that, mode 0600")                                        \
    C("telemetry", "service_name", "cove", "name of this server in traces")                        \
    N("roots", "NAME = PATH of a directory or an erofs image, for cove create --root NAME")        \
    N("root_tenants", "NAME = tenants that may use that root, between commas, or *; else default") \
    N("mounts", "NAME = PATH of a directory, for cove create --mount NAME:/TARGET; PATH:ro: "      \
                "read-only for all")                                                               \
    N("mount_tenants", "NAME = tenants that may use that mount, between commas, or *; else default")
