/* Problems: see problem.h. A code that an engine's verb can answer has its row here, and in the table of
 * openapi.yaml; a test compares the two. */
#include "front/native/problem.h"

#include <stdio.h>
#include <string.h>

static const struct problem rows[] = {
    {"bad_request", 400, "The request is not as the API says",
     "Correct what `detail` names; /v1/openapi.yaml lists every field.", 0},
    {"needs_tls", 400, "This is to be had over TLS only", "Begin the URL with https.", 0},
    {"bad_key", 401, "No valid key",
     "Send a key as \"Authorization: Bearer KEY\" or \"X-API-Key: KEY\".", 0},
    {"forbidden", 403, "This caller may not do that", "Use a key that has the scope.", 0},
    {"forbidden_host", 403, "This host has no such name",
     "Use a loopback address, or name the host in `hosts` of cove.conf.", 0},
    {"forbidden_origin", 403, "Pages of other origins may not use this API",
     "Call the API from a program, not from a page in a browser.", 0},
    {"file_forbidden", 403, "The user may not do that with this file",
     "Send \"user\" to be another, such as \"root\"; what is mounted read-only stays so.", 0},
    {"private_network", 403, "The operator opens no such private network to sandboxes",
     "Leave the rule away, or ask the operator to name the network in `private` below [network] of cove.conf.",
     0},
    {"quota", 403, "The tenant's quota is used up",
     "End what is not needed, or ask the operator for more.", 0},
    {"route_not_found", 404, "There is no such path", "/v1/openapi.yaml lists every path.", 0},
    {"sandbox_not_found", 404, "There is no such sandbox", NULL, 0},
    {"process_not_found", 404, "There is no such process", NULL, 0},
    {"file_not_found", 404, "There is no such file or directory", NULL, 0},
    {"kernel_not_found", 404, "There is no such kernel",
     "Kernels end with the engine: make another, or restore one from a snapshot.", 0},
    {"key_not_found", 404, "There is no such key", NULL, 0},
    {"port_not_found", 404, "That port of the sandbox is not open",
     "GET /v1/sandboxes/{id}/ports lists what there is.", 0},
    {"mount_not_found", 404, "Nothing is mounted there", "GET /v1/sandboxes/{id} shows its mounts.",
     0},
    {"mount_busy", 409, "Something in the sandbox uses what is mounted there",
     "End the commands that use it, or stop the sandbox.", 0},
    {"mount_conflict", 409, "Something else is mounted there, or below it",
     "Unmount that first, or take another target.", 0},
    {"mount_refused", 409, "That cannot be mounted, or unmounted, in this sandbox now", NULL, 0},
    {"browser_refused", 403, "Pages of a sandbox are not shown here",
     "POST /v1/sandboxes/{id}/ports opens the port at an address of its own.", 0},
    {"too_many_ports", 409, "The sandbox has too many open ports", "Close some.", 0},
    {"port_closed", 502, "Nothing listens on that port in the sandbox",
     "Start the server there, and let it listen on 127.0.0.1 or 0.0.0.0.", 0},
    {"port_failed", 502, "The port in the sandbox cannot be reached", NULL, 0},
    {"bad_gateway", 502, "The server in the sandbox does not speak HTTP/1.1",
     "`cove port` carries any protocol.", 0},
    {"method_not_allowed", 405, "This resource has no such method",
     "/v1/openapi.yaml lists the methods of every path.", 0},
    {"request_timeout", 408, "The request did not come in time", "Send it again.", 0},
    {"name_conflict", 409, "The name belongs to another kind of sandbox",
     "Take another name, or the same root, privileges and disk kind.", 0},
    {"revision_conflict", 409, "The sandbox has changed since",
     "Read it again and repeat the change with its revision.", 0},
    {"sandbox_stopped", 409, "The sandbox is stopped",
     "Start it, or send \"start\": true with the command.", 0},
    {"not_a_directory", 409, "A part of the path is no directory", NULL, 0},
    {"is_a_directory", 409, "It is a directory",
     "List it, fetch it as a tar, or send \"recursive\": true.", 0},
    {"not_regular", 409, "It is no regular file",
     "FIFOs, sockets and devices are used by commands in the sandbox.", 0},
    {"file_exists", 409, "There is something of that name",
     "Take another name, or send \"replace\": true.", 0},
    {"directory_not_empty", 409, "The directory is not empty", "Send \"recursive\": true.", 0},
    {"file_busy", 409, "The file is in use", "End what uses it.", 0},
    {"sandbox_outdated", 409, "The sandbox was started by an older version",
     "Stop it, and start it again: until then it can only be looked at, stopped and deleted.", 0},
    {"process_ended", 409, "The process has ended", NULL, 0},
    {"process_running", 409, "The process has not ended", "Kill it first.", 0},
    {"stdin_closed", 409, "The process takes no input",
     "Start it with \"open_stdin\": true; what was closed stays closed.", 0},
    {"no_terminal", 422, "There is no terminal",
     "Start a process (POST .../processes) with \"terminal\": {\"rows\": 24, \"columns\": 80}.", 0},
    {"upgrade_required", 426, "This is no plain request", "Connect as `detail` says.", 0},
    {"idempotency_conflict", 409, "The Idempotency-Key was used for another request",
     "Take a new key for each new request.", 0},
    {"kernel_busy", 409, "The kernel is busy", "Wait for its run, or fork it before.", 0},
    {"kernel_gone", 410, "The kernel is gone, or its worker",
     "Make another, or restore it from a snapshot; a run can be sent again.", 0},
    {"sandbox_gone", 410, "The sandbox was deleted", "Create another one.", 0},
    {"body_too_large", 413, "The body is too large",
     "Write large data to the process's stdin, which is streamed.", 0},
    {"bad_range", 416, "The file has no bytes in that range", NULL, 0},
    {"expectation_failed", 417, "The request expects what this server does not do",
     "Send it without `Expect`, or with 100-continue.", 0},
    {"bad_cwd", 422, "The working directory cannot be used",
     "Make the directory first, or leave `cwd` out.", 0},
    {"user_not_found", 422, "The sandbox has no such user",
     "Use a name of its /etc/passwd, or numbers.", 0},
    {"command_not_found", 422, "The program was not found",
     "Name a program that is there, or use \"command\" for a line of the shell.", 0},
    {"name_too_long", 422, "The path is too long", "A name has at most 255 bytes, a path 4,095.",
     0},
    {"bad_archive", 422, "The archive cannot be unpacked",
     "Entries are below the directory, no devices, and no links that lead out.", 0},
    {"bad_pattern", 422, "The pattern cannot be used",
     "It is a regular expression as Perl has them; \"fixed\": true looks for plain text.", 0},
    {"too_many_files", 422, "That is too much for one call", "Ask for less at a time.", 0},
    {"file_failed", 422, "That could not be done with the file", NULL, 0},
    {"not_executable", 422, "The program may not be executed",
     "Make it executable (chmod +x), or run it by its interpreter.", 0},
    {"start_failed", 422, "The program could not be started", NULL, 0},
    {"unknown_root", 422, "No root of this name is registered",
     "GET /v1/roots lists what there is; the operator adds one by `cove root add`.", 0},
    {"unknown_mount", 422, "No mount of this name is registered",
     "GET /v1/roots lists what there is; the operator adds one by `cove mount add`.", 0},
    {"bad_policy", 422, "The network policy cannot be used",
     "Correct what `detail` names; a rule is NAME, *.NAME, ADDRESS or CIDR, with :PORT where it matters.",
     0},
    {"bad_manifest", 422, "The manifest cannot be used", "Correct what `detail` names.", 0},
    {"bad_snapshot", 422, "The snapshot cannot be restored",
     "Send the bytes that a snapshot of this tenant was answered with, as they were.", 0},
    {"snapshot_too_large", 422, "The kernel's state is too large for a snapshot", NULL, 0},
    {"not_yet", 422, "This version does not have that yet", "Leave the field out.", 0},
    {"too_many_requests", 429, "The tenant sends too many requests",
     "Wait as Retry-After says, or end streams and waits.", 1},
    {"too_many_kernels", 429, "The tenant has too many kernels", "Delete some.", 5},
    {"too_many_runs", 429, "The tenant has too many runs under way", "Wait for some to end.", 1},
    {"too_many_processes", 429, "The sandbox has too many processes",
     "End some, or forget ended ones by DELETE.", 5},
    {"header_too_large", 431, "The header is too large", NULL, 0},
    {"sandbox_failed", 500, "The sandbox could not be made or did not stay up",
     "`cove doctor` says what this host lacks.", 0},
    {"kernel_failed", 500, "The tenant's worker could not be started",
     "`cove doctor` says what this host lacks.", 0},
    {"output_unreadable", 500, "What the process printed cannot be read",
     "See to the disk of the data directory.", 0},
    {"internal", 500, "The engine failed", "Its log says more; please report it.", 0},
    {"unsupported_coding", 501, "The body has an unknown coding",
     "Send it with Content-Length, or chunked and nothing else.", 0},
    {"timeout", 504, "It took too long", "Ask for less, or see what holds the sandbox up.", 0},
    {"disk_full", 507, "The sandbox's disk is full",
     "Remove what is not needed there, or make sandboxes with a larger disk.", 0},
    {"http_version", 505, "The request is of another version of HTTP", "Speak HTTP/1.1.", 0},
    {"capacity", 503, "The host is full", "Wait as Retry-After says, or end sandboxes.", 2},
    {"no_memory", 503, "The engine has no memory for this now", "Wait as Retry-After says.", 2},
    {"keeper_lost", 503, "The engine lost its keeper", "Start `cove serve` again.", 5},
    {"journal_failed", 503, "What happens to processes could not be written down",
     "See to the disk of the data directory.", 5},
    {"store_failed", 503, "What has to be recorded could not be written",
     "See to the disk of the data directory.", 5},
    {"too_many_connections", 503, "Too many connections are open", "Close some; try again.", 1},
    {"draining", 503, "The engine is about to restart", "Try again as Retry-After says.", 1},
    {"still_running", 503, "The engine is about to restart; the command runs on",
     "Wait for the process that `detail` names; do not send the command again.", 0},
    {"not_ready", 503, "The engine is starting", "Try again as Retry-After says.", 1},
};

static const struct problem unknown = {"internal", 500, "The engine failed",
                                       "Its log says more; please report it.", 0};

const struct problem *problem_of(const char *code)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strcmp(rows[i].code, code) == 0)
            return &rows[i];
    return &unknown;
}

const struct problem *problem_row(size_t index)
{
    return index < sizeof(rows) / sizeof(rows[0]) ? &rows[index] : NULL;
}

void problem_print(struct out *out, const char *code, unsigned status, const char *detail)
{
    const struct problem *problem = problem_of(code);
    char type[64];

    (void)snprintf(type, sizeof(type), "urn:cove:error:%s", code);
    out_object(out, NULL);
    out_text(out, "type", type);
    out_text(out, "title", problem->title);
    out_number(out, "status", status);
    out_text_or_none(out, "detail", detail != NULL && *detail != '\0' ? detail : NULL);
    out_text(out, "code", code);
    out_text_or_none(out, "remedy", problem->remedy);
    out_object_end(out);
}
